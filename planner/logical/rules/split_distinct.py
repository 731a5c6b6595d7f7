"""A distinct aggregate in two levels, so that one hot group is counted by many subtasks.

    GroupAggregate(k; COUNT(DISTINCT x), SUM(v))
      →  GroupAggregate(k; $SUM0(c), SUM(s))
           over GroupAggregate(k, bucket; COUNT(DISTINCT x) AS c, SUM(v) AS s)      bucket = DISTINCT_BUCKET(x, 1024)

Equal values share a bucket, so each is counted in one place. Used with `table.optimizer.distinct-agg.split.enabled`
where changes may be folded: otherwise a reader would see each level's steps. Left alone: aggregates over several
distinct arguments, and with functions that do not add up from parts.
"""

from __future__ import annotations

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.operators import AggregateCall, AggregateFunction
from planner.logical.expressions import identity
from planner.logical.nodes import Calc, Column, GroupAggregate, Plan
from planner.logical.rewrite import bottom_up

_MERGED_BY = {
    AggregateFunction.COUNT_STAR: AggregateFunction.SUM0,
    AggregateFunction.COUNT: AggregateFunction.SUM0,
    AggregateFunction.SUM: AggregateFunction.SUM,
    AggregateFunction.SUM0: AggregateFunction.SUM0,
    AggregateFunction.MIN: AggregateFunction.MIN,
    AggregateFunction.MAX: AggregateFunction.MAX,
}


def split_distinct(plan: Plan, bucket_count: int) -> Plan:
    return bottom_up(plan, lambda node: _split(node, bucket_count) if isinstance(node, GroupAggregate) else node)


def _split(node: GroupAggregate, bucket_count: int) -> Plan:
    arguments = {call.argument for call in node.aggregates if call.distinct}
    if len(arguments) != 1 or any(call.function not in _MERGED_BY for call in node.aggregates):
        return node
    argument = arguments.pop()
    assert argument is not None
    below = node.input
    count = Literal(bucket_count, t.INT.with_nullable(False))
    value = InputRef(argument, below.columns[argument].type)
    bucket = Call("DISTINCT_BUCKET", (value, count), t.INT.with_nullable(False))
    projections: tuple[Expression, ...] = (*identity(below.columns), bucket)
    bucketed = Calc(below, None, projections, (*below.columns, Column("$bucket", bucket.type)))
    key_count = len(node.keys)
    keys = (*node.keys, len(below.columns))
    partial_columns = (*node.columns[:key_count], Column("$bucket", bucket.type), *node.columns[key_count:])
    partial = GroupAggregate(bucketed, keys, node.aggregates, partial_columns, node.state_ttl_ms)
    calls = tuple(_merging(call, key_count + 1 + i) for i, call in enumerate(node.aggregates))
    return GroupAggregate(partial, tuple(range(key_count)), calls, node.columns, node.state_ttl_ms)


def _merging(call: AggregateCall, index: int) -> AggregateCall:
    """The upper level's call over the lower one's column."""
    return AggregateCall(_MERGED_BY[call.function], index, call.type, call.type)
