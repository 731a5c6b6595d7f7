"""The rewrite rules in the order they run."""

from __future__ import annotations

from collections.abc import Callable

from planner.ir.operators import ChangelogMode
from planner.logical.nodes import Plan, TableSink
from planner.logical.rules.end_versions import end_versions
from planner.logical.rules.expand_window_functions import expand_window_functions
from planner.logical.rules.fold_literals import fold_literals
from planner.logical.rules.merge_calcs import merge_calcs
from planner.logical.rules.name_columns import name_columns
from planner.logical.rules.normalize_sources import normalize_sources
from planner.logical.rules.order_and_limit import order_and_limit
from planner.logical.rules.prune_columns import prune_columns
from planner.logical.rules.rank_filters import rank_filters
from planner.logical.rules.split_distinct import split_distinct
from planner.logical.share import share_subplans
from planner.settings import PlannerSettings, RuntimeMode, UpsertMaterialize
from planner.streaming.upserts import without_needless_normalization

Rule = Callable[[Plan], Plan]

RULES: tuple[Rule, ...] = (expand_window_functions, merge_calcs, fold_literals, merge_calcs)
"""Each takes and gives one tree; a calc may have lost its filter by folding, so calcs merge again after it.
`prune_columns` follows, over all trees of a job, and leaves calcs to merge once more."""


def optimize(sinks: tuple[Plan, ...], settings: PlannerSettings) -> tuple[Plan, ...]:
    """The trees of one job, rewritten; equal parts are one object."""
    splits_distinct = settings.distinct_buckets > 0 and _folds_changes(sinks, settings)
    is_batch = settings.runtime_mode is RuntimeMode.BATCH
    rewritten: list[Plan] = []
    for sink in sinks:
        sink = end_versions(normalize_sources(sink, settings.has_duplicate_events))
        if splits_distinct:
            sink = split_distinct(sink, settings.distinct_buckets)
        sink = order_and_limit(rank_filters(sink, is_batch), is_batch)
        for rule in RULES:
            sink = rule(sink)
        if settings.upsert_materialize is not UpsertMaterialize.FORCE:
            sink = without_needless_normalization(sink)
        rewritten.append(sink)
    pruned = prune_columns(tuple(rewritten), settings.is_source_reuse_enabled)
    named = tuple(name_columns(merge_calcs(s)) for s in pruned)
    return share_subplans(named, settings.is_source_reuse_enabled, settings.is_subplan_reuse_enabled)


def _folds_changes(sinks: tuple[Plan, ...], settings: PlannerSettings) -> bool:
    """Whether no reader of the job sees the single steps of an aggregate."""
    if settings.runtime_mode is RuntimeMode.BATCH or settings.mini_batch is not None:
        return True
    return all(isinstance(s, TableSink) and s.capabilities.sink_changelog is ChangelogMode.UPSERT for s in sinks)
