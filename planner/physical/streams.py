"""What stands between two operators while a plan is translated, and the exchanges between them."""

from __future__ import annotations

import msgspec

from planner.ir import operators as ir
from planner.ir.job_graph import EdgeKind
from planner.logical.nodes import Plan
from planner.physical.operator_graph import Link, OperatorGraph
from planner.streaming.properties import Properties


class Stream(msgspec.Struct, frozen=True):
    """Rows leaving one or several operators (several only for UNION ALL).

    `selection[i]` is the operators' output column that is column i of the stream; None: all, in order.
    `parallelism` is what an operator that needs no exchange would run at.
    `order[j]`: output columns of operator j that must stay together when its rows are spread anew, so that changes of
    one row stay in order; empty for appended rows, which may go anywhere.
    """

    producers: tuple[int, ...]
    parallelism: int
    selection: tuple[int, ...] | None = None
    order: tuple[tuple[int, ...], ...] = ()

    def column(self, index: int) -> int:
        """The operators' output column that is column `index` of the stream."""
        return index if self.selection is None else self.selection[index]

    def columns(self, indexes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.column(i) for i in indexes)

    def mapping(self, width: int) -> dict[int, int]:
        """From the stream's `width` columns to its operators' output columns."""
        return {i: self.column(i) for i in range(width)}


def ordered(stream: Stream, plan: Plan, properties: Properties) -> Stream:
    """The stream of `plan` with what keeps its changes in order: an upsert key, or else the whole row."""
    if len(stream.order) == len(stream.producers) > 1:
        return stream  # Branches of UNION ALL know their own.
    columns: tuple[int, ...] = ()
    if not properties.changelog.is_insert_only:
        keys = [key for key in properties.upsert_keys if key]
        smallest = min(keys, key=lambda key: (len(key), sorted(key)), default=range(len(plan.columns)))
        columns = stream.columns(tuple(sorted(smallest)))
    return msgspec.structs.replace(stream, order=tuple(columns for _ in stream.producers))


def links_from(
    stream: Stream, graph: OperatorGraph, parallelism: int, hash_keys: tuple[int, ...] = (), input_index: int = 0
) -> tuple[Link, ...]:
    """How an operator of `parallelism` reads the stream: by hash if keys are given; else forward where parallelism is
    equal; else as the order of changes allows, evenly if nothing is changed."""
    links: list[Link] = []
    for i, producer in enumerate(stream.producers):
        order = stream.order[i] if stream.order else ()
        if hash_keys:
            links.append(Link(producer, EdgeKind.HASH, hash_keys, input_index))
        elif graph[producer].parallelism == parallelism:
            links.append(Link(producer, EdgeKind.FORWARD, (), input_index))
        elif parallelism == 1:
            links.append(Link(producer, EdgeKind.SINGLE, (), input_index))
        elif order:
            links.append(Link(producer, EdgeKind.HASH, order, input_index))
        else:
            links.append(Link(producer, EdgeKind.REBALANCE, (), input_index))
    return tuple(links)


def schema_of(plan: Plan) -> ir.Schema:
    return ir.Schema(tuple(ir.Column(c.name, c.type) for c in plan.columns))
