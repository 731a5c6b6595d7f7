"""From the operators of a JobGraph to those that run. Total: a test checks it against `planner.ir.operators`."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from planner.ir import operators as ir
from runtime.operators.assign_windows import AssignWindowsOperator
from runtime.operators.calc import CalcOperator
from runtime.operators.chain import merge_calcs
from runtime.operators.changelog_normalize import ChangelogNormalizeOperator
from runtime.operators.checks import CheckedOperator
from runtime.operators.collect import CollectOperator
from runtime.operators.deduplicate import DeduplicateOperator
from runtime.operators.drop_update_before import DropUpdateBeforeOperator
from runtime.operators.environment import TaskEnvironment
from runtime.operators.expand import ExpandOperator
from runtime.operators.group_aggregate import GroupAggregateOperator
from runtime.operators.group_aggregate_local import LocalGroupAggregateOperator
from runtime.operators.interval_join import IntervalJoinOperator
from runtime.operators.join import JoinOperator
from runtime.operators.limit import LimitOperator
from runtime.operators.lookup_join import LookupJoinOperator
from runtime.operators.protocol import Operator, OperatorContext, SourceOperator
from runtime.operators.rank import RankOperator
from runtime.operators.rank_by_arrival import RankByArrivalOperator, is_by_arrival
from runtime.operators.set_operation import SetOperationOperator
from runtime.operators.sink import SinkOperator
from runtime.operators.sink_materializer import SinkMaterializerOperator
from runtime.operators.sort import SortOperator
from runtime.operators.source import SourceOperator as TableSourceOperator
from runtime.operators.temporal_join import TemporalJoinOperator
from runtime.operators.unnest import UnnestOperator
from runtime.operators.values import ValuesOperator
from runtime.operators.window_aggregate_global import GlobalWindowAggregateOperator
from runtime.operators.window_aggregate_local import LocalWindowAggregateOperator
from runtime.operators.window_join import WindowJoinOperator
from runtime.operators.window_rank import WindowRankOperator

Ordering = ir.Rank | ir.Deduplicate | ir.WindowRank | ir.Sort
TwoInputs = ir.Join | ir.IntervalJoin | ir.TemporalJoin | ir.WindowJoin | ir.SetOperation
ContextOf = Callable[[ir.Operator], OperatorContext]


class Operators(msgspec.Struct, frozen=True):
    """The operators of one task. `source` is None in a task with inputs; `links` are all others in order; `sinks`
    and `collect` are found among them, for commits and for reading results."""

    source: SourceOperator | None
    links: tuple[Operator, ...]
    sinks: tuple[SinkOperator, ...]
    collect: CollectOperator | None


def build_operators(
    nodes: tuple[ir.Operator, ...],
    context_of: ContextOf,
    environment: TaskEnvironment,
    *,
    checked: bool = False,
    apart: frozenset[str] = frozenset(),
) -> Operators:
    """Make the operators of a vertex; nothing is opened yet. `checked` wraps each with its invariants; those named in
    `apart` take rows themselves."""
    source: SourceOperator | None = None
    links: list[Operator] = []
    for node in merge_calcs(nodes, apart):
        if isinstance(node, ir.Source | ir.Values):
            assert node is nodes[0], "a source is the first operator of its chain"
            source = build_source(node, context_of(node), environment)
        else:
            links.append(build_operator(node, context_of(node), environment))
    sinks = tuple(link for link in links if isinstance(link, SinkOperator))
    collect = next((link for link in links if isinstance(link, CollectOperator)), None)
    if checked:
        others = [node for node in merge_calcs(nodes, apart) if not isinstance(node, ir.Source | ir.Values)]
        links = [CheckedOperator(link, node) for link, node in zip(links, others, strict=True)]
    return Operators(source, tuple(links), sinks, collect)


def build_source(node: ir.Source | ir.Values, context: OperatorContext, environment: TaskEnvironment) -> SourceOperator:
    match node:
        case ir.Source():
            return TableSourceOperator(node, context, environment)
        case ir.Values():
            return ValuesOperator(node, context)
        case _:
            assert_never(node)


def build_operator(node: ir.Operator, context: OperatorContext, environment: TaskEnvironment) -> Operator:
    match node:
        case ir.Calc():
            return CalcOperator(node, context)
        case ir.AssignWindows():
            return AssignWindowsOperator(node, context)
        case ir.Expand():
            return ExpandOperator(node, context)
        case ir.Unnest():
            return UnnestOperator(node, context)
        case ir.LookupJoin():
            return LookupJoinOperator(node, context, environment)
        case ir.LocalWindowAggregate():
            return LocalWindowAggregateOperator(node)
        case ir.GlobalWindowAggregate():
            return GlobalWindowAggregateOperator(node, context)
        case ir.GroupAggregate():
            return GroupAggregateOperator(node, context)
        case ir.LocalGroupAggregate():
            return LocalGroupAggregateOperator(node)
        case ir.ChangelogNormalize():
            return ChangelogNormalizeOperator(node, context)
        case ir.SinkMaterializer():
            return SinkMaterializerOperator(node, context)
        case ir.DropUpdateBefore():
            return DropUpdateBeforeOperator(node)
        case ir.Join() | ir.IntervalJoin() | ir.TemporalJoin() | ir.WindowJoin() | ir.SetOperation():
            return build_two_inputs(node, context)
        case ir.Rank() | ir.Deduplicate() | ir.WindowRank() | ir.Sort():
            return build_ordering(node, context)
        case ir.Limit():
            return LimitOperator(node, context, environment)
        case ir.Sink():
            return SinkOperator(node, context, environment)
        case ir.Collect():
            return CollectOperator(node, context, environment)
        case ir.Source() | ir.Values():
            raise AssertionError(f"{node.uid}: a source is the first operator of its chain")
        case _:
            assert_never(node)


def build_two_inputs(node: TwoInputs, context: OperatorContext) -> Operator:
    match node:
        case ir.Join():
            return JoinOperator(node, context)
        case ir.SetOperation():
            return SetOperationOperator(node, context)
        case ir.IntervalJoin():
            return IntervalJoinOperator(node, context)
        case ir.TemporalJoin():
            return TemporalJoinOperator(node, context)
        case ir.WindowJoin():
            return WindowJoinOperator(node, context)
        case _:
            assert_never(node)


def build_ordering(node: Ordering, context: OperatorContext) -> Operator:
    match node:
        case ir.Rank() if is_by_arrival(node):
            return RankByArrivalOperator(node, context)
        case ir.Rank():
            return RankOperator(node, context)
        case ir.Deduplicate():
            return DeduplicateOperator(node, context)
        case ir.WindowRank():
            return WindowRankOperator(node, context)
        case ir.Sort():
            return SortOperator(node, context)
        case _:
            assert_never(node)
