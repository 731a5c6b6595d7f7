"""Which tasks restart together, and which sources nobody needs."""

from __future__ import annotations

import pytest

from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.jobmanager.regions import regions_of, sources_done
from tests.support import graphs


def pipeline(kind: EdgeKind, parallelism: int = 3, first: int = 0) -> JobGraph:
    return graphs.graph(
        graphs.vertex(first, graphs.generator(f"source-{first}"), parallelism=parallelism),
        graphs.vertex(first + 1, graphs.sink(f"sink-{first}"), parallelism=parallelism),
        edges=(graphs.edge(first, first + 1, kind),),
    )


def regions(graph: JobGraph) -> list[list[tuple[int, int]]]:
    return sorted(sorted(region) for region in set(regions_of(graph).values()))


def test_forward_edges_only_make_a_region_of_every_subtask() -> None:
    assert regions(pipeline(EdgeKind.FORWARD)) == [[(0, i), (1, i)] for i in range(3)]


@pytest.mark.parametrize("kind", [EdgeKind.HASH, EdgeKind.REBALANCE, EdgeKind.BROADCAST, EdgeKind.SINGLE])
def test_an_exchange_joins_all_subtasks(kind: EdgeKind) -> None:
    parts = pipeline(kind, parallelism=1 if kind is EdgeKind.SINGLE else 3)
    assert len(regions(parts)) == 1


def test_rescale_joins_what_has_a_channel() -> None:
    graph = graphs.graph(
        graphs.vertex(0, graphs.generator(), parallelism=4),
        graphs.vertex(1, graphs.sink(), parallelism=2),
        edges=(graphs.edge(0, 1, EdgeKind.RESCALE),),
    )
    assert regions(graph) == [[(0, 0), (0, 1), (1, 0)], [(0, 2), (0, 3), (1, 1)]]


def test_statements_that_share_nothing_are_apart_and_a_shared_source_joins() -> None:
    first, second = pipeline(EdgeKind.HASH), pipeline(EdgeKind.HASH, first=2)
    both = graphs.graph(*first.vertices, *second.vertices, edges=(*first.edges, *second.edges))
    assert [len(region) for region in regions(both)] == [6, 6]
    shared = graphs.graph(*both.vertices, edges=(*both.edges, graphs.edge(0, 3, EdgeKind.HASH)))
    assert [len(region) for region in regions(shared)] == [12]


def test_no_edge_crosses_regions_and_every_task_has_one() -> None:
    graph = graphs.graph(
        *(graphs.vertex(i, graphs.calc(f"calc-{i}"), parallelism=4) for i in range(5)),
        edges=(
            graphs.edge(0, 1, EdgeKind.FORWARD),
            graphs.edge(1, 2, EdgeKind.RESCALE),
            graphs.edge(3, 4, EdgeKind.FORWARD),
        ),
    )
    found = regions_of(graph)
    assert set(found) == {(v.id, i) for v in graph.vertices for i in range(4)}
    assert all(key in region and found[other] == region for key, region in found.items() for other in region)


def test_a_source_is_done_when_only_satisfied_limits_read_it() -> None:
    graph = graphs.graph(
        graphs.vertex(0, graphs.generator("a")),
        graphs.vertex(1, graphs.limit(5, "limit-1"), graphs.sink("one")),
        graphs.vertex(2, graphs.limit(9, "limit-2"), graphs.sink("two")),
        edges=(graphs.edge(0, 1, EdgeKind.SINGLE), graphs.edge(0, 2, EdgeKind.SINGLE)),
    )
    assert sources_done(graph, ()) == frozenset()
    assert sources_done(graph, {1}) == frozenset()
    assert sources_done(graph, {1, 2}) == {0}
