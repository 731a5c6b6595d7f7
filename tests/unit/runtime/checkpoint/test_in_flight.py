"""Elements in flight: their files, and which new subtask gets them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from planner.ir.job_graph import Edge, EdgeKind, Fingerprint, JobGraph
from runtime.checkpoint.files import open_files
from runtime.checkpoint.in_flight import ChannelRef, DamagedFileError, InFlight, layout, read, write
from runtime.checkpoint.in_flight_plan import plan_in_flight
from runtime.checkpoint.manifest import CheckpointManifest, VertexRecord
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.snapshot import InFlightHandle, InFlightRestore, OperatorSnapshot, SubtaskSnapshot
from runtime.elements import Batch, Element, Watermark, WatermarkStatus
from runtime.exchange.frames import channel_schema
from runtime.ids import JobId
from tests.support import graphs

JOB = JobId("0" * 32)
SCHEMA = pa.schema([("c0", pa.int64()), ("row_kinds", pa.int8())])


def changes(*numbers: int) -> Batch:
    kinds = pa.array([0] * len(numbers), pa.int8())
    return Batch(pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], ["other"]), kinds)


def test_elements_come_back_in_order(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    elements: list[Element] = [changes(1, 2), Watermark(-5), changes(3), WatermarkStatus(True)]
    handle = write(files, "a", InFlight(ChannelRef(3, 1, 2, "agg", "sink", SCHEMA), elements))
    assert (handle.edge_id, handle.producer_index, handle.consumer_index) == (3, 1, 2)
    assert (handle.source_uid, handle.target_uid, handle.row_count) == ("agg", "sink", 3)
    assert handle.layout == layout(SCHEMA)
    schema, found = read(files, handle)
    assert schema == SCHEMA
    shown = [e.data.column(0).to_pylist() if isinstance(e, Batch) else e for e in found]
    assert shown == [[1, 2], Watermark(-5), [3], WatermarkStatus(True)]
    assert isinstance(found[0], Batch)
    assert found[0].row_kinds is not None
    assert found[0].data.schema.names == ["c0"]


@pytest.mark.parametrize("damage", ["cut", "bit", "gone"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    files = open_files(str(tmp_path))
    handle = write(files, "a", InFlight(ChannelRef(0, 0, 0, "a", "b", SCHEMA), [changes(*range(100))]))
    path = tmp_path / handle.path
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "bit":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=handle.path):
        read(files, handle)


FINGERPRINTS = tuple(Fingerprint(uid, "state", "input", "") for uid in ("source", "calc", "sink"))


def job(kind: EdgeKind, producers: int, consumers: int) -> JobGraph:
    """source → calc -kind→ sink; chained when there is one of each."""
    if producers == consumers == 1 and kind is EdgeKind.HASH:
        operators = (graphs.generator(), graphs.calc(), graphs.sink())
        return graphs.graph(graphs.vertex(0, *operators), fingerprints=FINGERPRINTS)
    return graphs.graph(
        graphs.vertex(0, graphs.generator(), graphs.calc(), parallelism=producers),
        graphs.vertex(1, graphs.sink(), parallelism=consumers),
        edges=(graphs.edge(0, 1, kind),),
        fingerprints=FINGERPRINTS,
    )


def handle(producer: int, consumer: int, where: str, target: str = "sink", source: str = "calc") -> InFlightHandle:
    schema = channel_schema(graphs.NUMBERS, graphs.edge(0, 1).changelog)
    return InFlightHandle(0, producer, consumer, where, 1, 1, "", source, target, layout(schema))


def checkpoint(
    graph: JobGraph, received: dict[int, list[InFlightHandle]], unsent: dict[int, list[InFlightHandle]]
) -> CheckpointManifest:
    """Of a job as above: what sink and source subtasks have in their snapshots."""
    by_vertex = {graph.vertices[0].id: unsent, graph.vertices[-1].id: received}
    snapshots = [
        SubtaskSnapshot(
            vertex.id,
            vertex.uid,
            index,
            vertex.parallelism,
            tuple(OperatorSnapshot(operator.uid) for operator in vertex.operators),
            in_flight=tuple(by_vertex.get(vertex.id, {}).get(index, ())),
        )
        for vertex in graph.vertices
        for index in range(vertex.parallelism)
    ]
    records = tuple(
        VertexRecord(v.id, v.uid, v.parallelism, v.max_parallelism, tuple(o.uid for o in v.operators))
        for v in graph.vertices
    )
    return CheckpointManifest(JOB, 1, 7, "inc", 6, 0, "", 0, records, tuple(snapshots), fingerprints=graph.fingerprints)


def planned(graph: JobGraph, manifest: CheckpointManifest) -> dict[tuple[int, int], list[str]]:
    """Where each subtask's elements come from."""
    return {key: [r.handle.path for r in found] for key, found in plan_in_flight(graph, manifest).items()}


def restores(graph: JobGraph, manifest: CheckpointManifest) -> list[InFlightRestore]:
    return [restore for found in plan_in_flight(graph, manifest).values() for restore in found]


@pytest.mark.parametrize("kind", [EdgeKind.HASH, EdgeKind.REBALANCE, EdgeKind.BROADCAST])
def test_at_the_same_parallelism_every_element_goes_where_it_was_going(kind: EdgeKind) -> None:
    graph = job(kind, 2, 3)
    manifest = checkpoint(graph, {2: [handle(0, 2, "queued")]}, {0: [handle(0, 2, "unsent"), handle(0, 1, "other")]})
    assert planned(graph, manifest) == {(1, 2): ["queued", "unsent"], (1, 1): ["other"]}
    assert all(restore.with_times and restore.keys is None for restore in restores(graph, manifest))


def test_a_hash_edge_is_dealt_out_by_key_group() -> None:
    manifest = checkpoint(job(EdgeKind.HASH, 2, 4), {1: [handle(0, 1, "a")], 3: [handle(1, 3, "b")]}, {})
    graph = job(EdgeKind.HASH, 2, 3)
    assert planned(graph, manifest) == {(1, 0): ["a"], (1, 1): ["a"], (1, 2): ["b"]}
    assert all(restore.keys == (0,) and not restore.with_times for restore in restores(graph, manifest))


def test_other_producers_alone_change_nothing_but_the_channels() -> None:
    manifest = checkpoint(job(EdgeKind.HASH, 2, 4), {}, {1: [handle(1, 3, "a")]})
    graph = job(EdgeKind.HASH, 3, 4)
    assert planned(graph, manifest) == {(1, 3): ["a"]}
    assert [(r.keys, r.with_times) for r in restores(graph, manifest)] == [(None, False)]


def test_a_rebalanced_edge_is_spread() -> None:
    found = {index: [handle(0, index, str(index))] for index in range(4)}
    manifest = checkpoint(job(EdgeKind.REBALANCE, 2, 4), found, {})
    assert planned(job(EdgeKind.REBALANCE, 2, 3), manifest) == {(1, 0): ["0", "3"], (1, 1): ["1"], (1, 2): ["2"]}


def test_what_was_an_edge_may_be_inside_a_chain() -> None:
    manifest = checkpoint(job(EdgeKind.HASH, 2, 2), {1: [handle(0, 1, "a")]}, {0: [handle(0, 0, "b")]})
    graph = job(EdgeKind.HASH, 1, 1)
    assert planned(graph, manifest) == {(0, 0): ["a", "b"]}
    assert [restore.edge_id for restore in restores(graph, manifest)] == [-1, -1]


def test_further_down_a_chain_comes_first() -> None:
    """source | calc | sink become one task: what the sink was to get is older than what the calc was."""
    edges = (graphs.edge(0, 1, EdgeKind.HASH), graphs.edge(1, 2, EdgeKind.HASH))
    vertices = (
        graphs.vertex(0, graphs.generator(), parallelism=2),
        graphs.vertex(1, graphs.calc(), parallelism=2),
        graphs.vertex(2, graphs.sink(), parallelism=2),
    )
    graph = graphs.graph(*vertices, edges=edges, fingerprints=FINGERPRINTS)
    older, newer = handle(0, 1, "to sink"), handle(0, 1, "to calc", "calc", "source")
    manifest = checkpoint(graph, {1: [older]}, {1: [newer]})
    assert planned(job(EdgeKind.HASH, 1, 1), manifest) == {(0, 0): ["to sink", "to calc"]}


@pytest.mark.parametrize("kind", [EdgeKind.FORWARD, EdgeKind.RESCALE, EdgeKind.BROADCAST])
def test_an_edge_without_a_place_for_them_is_refused_with_a_remedy(kind: EdgeKind) -> None:
    manifest = checkpoint(job(kind, 2, 2), {1: [handle(0, 1, "a")]}, {})
    with pytest.raises(RestoreRefusedError, match=f"checkpoint 7 .*'sink' on a {kind.value} edge.* 2 to 3") as refusal:
        plan_in_flight(job(kind, 3, 3), manifest)
    assert "savepoint" in refusal.value.hint
    assert plan_in_flight(job(kind, 3, 3), checkpoint(job(kind, 2, 2), {}, {})) == {}


def test_a_changed_query_is_refused_by_name() -> None:
    graph = job(EdgeKind.HASH, 2, 2)
    manifest = checkpoint(graph, {1: [handle(0, 1, "a")]}, {})
    other_input = msgspec.structs.replace(FINGERPRINTS[2], input="other")
    changed = [
        (msgspec.structs.replace(graph, fingerprints=(*FINGERPRINTS[:2], other_input)), "'sink' is new or has another"),
        (msgspec.structs.replace(graph, fingerprints=FINGERPRINTS[:2]), "'sink' is gone"),
        (msgspec.structs.replace(graph, edges=()), "no longer go from 'calc' to 'sink'"),
        (msgspec.structs.replace(graph, edges=(_with_changes(graph.edges[0]),)), "to 'sink' have other columns"),
    ]
    for new, message in changed:
        with pytest.raises(RestoreRefusedError, match=f"the query has changed: .*{message}"):
            plan_in_flight(new, manifest)


def _with_changes(edge: Edge) -> Edge:
    return msgspec.structs.replace(edge, changelog=type(edge.changelog).RETRACT)


def test_a_table_joined_with_itself_has_two_edges_between_the_same_operators() -> None:
    left, right = graphs.edge(0, 1, EdgeKind.HASH), msgspec.structs.replace(graphs.edge(0, 1), input_index=1)
    graph = graphs.graph(
        graphs.vertex(0, graphs.generator(), graphs.calc(), parallelism=2),
        graphs.vertex(1, graphs.sink(), parallelism=2),
        edges=(left, msgspec.structs.replace(right, kind=EdgeKind.HASH)),
        fingerprints=FINGERPRINTS,
    )
    of_right = msgspec.structs.replace(handle(0, 1, "right"), edge_id=1, input_index=1)
    manifest = checkpoint(graph, {1: [handle(0, 1, "left"), of_right]}, {})
    assert [(r.handle.path, r.edge_id) for r in restores(graph, manifest)] == [("left", 0), ("right", 1)]
