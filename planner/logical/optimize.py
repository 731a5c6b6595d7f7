"""The rewrite rules in the order they run."""

from __future__ import annotations

from collections.abc import Callable

from planner.logical.nodes import Plan
from planner.logical.rules.expand_window_functions import expand_window_functions
from planner.logical.rules.fold_literals import fold_literals
from planner.logical.rules.merge_calcs import merge_calcs
from planner.logical.rules.prune_columns import prune_columns

Rule = Callable[[Plan], Plan]

RULES: tuple[Rule, ...] = (expand_window_functions, merge_calcs, fold_literals, merge_calcs)
"""Each takes and gives one tree; a calc may have lost its filter by folding, so calcs merge again after it.
`prune_columns` follows, over all trees of a job, and leaves calcs to merge once more."""


def optimize(sinks: tuple[Plan, ...], is_source_reuse_enabled: bool) -> tuple[Plan, ...]:
    """The trees of one job, rewritten."""
    rewritten: list[Plan] = []
    for sink in sinks:
        for rule in RULES:
            sink = rule(sink)
        rewritten.append(sink)
    return tuple(merge_calcs(s) for s in prune_columns(tuple(rewritten), is_source_reuse_enabled))
