"""Ranks with a bound become operators that keep them; a rank without one is refused.

    Calc(rn <= 3) over OverRank(ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn)   →   Rank(k, v, 1..3)
    Calc(rn = 1) over OverRank(… ORDER BY ts)                                          →   Deduplicate(k, ts)
    Calc(rn <= 3) over OverRank(… PARTITION BY window_start, window_end …)             →   WindowRank

In batch mode, and within windows, ranks are final when they are put out, and need no bound.
"""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.logical.nodes import OverRank, Plan, inputs_of, with_inputs
from planner.logical.ranks import is_windowed, rank_below, settled_ranks, unbounded


def rank_filters(plan: Plan, is_batch: bool) -> Plan:
    """The tree without OverRank."""
    chain = rank_below(plan)
    if chain is None:
        inputs = tuple(rank_filters(i, is_batch) for i in inputs_of(plan))
        return with_inputs(plan, inputs) if inputs != inputs_of(plan) else plan
    # What a rank becomes depends on what its input gives, so that is settled first; and all filters above it count.
    plan = settled_ranks(chain.over_input(rank_filters(chain.over.input, is_batch)))
    left = rank_below(plan)
    if left is None:
        return plan
    if not is_batch and not is_windowed(left.over):
        raise _unbounded(left.over)
    return unbounded(plan)


def _unbounded(over: OverRank) -> SqlError:
    function = over.function.value
    message = f"{function}() without a constant upper bound: each row could change all ranks after it for ever"
    hint = (
        f"Keep the first ranks only: SELECT … FROM (SELECT *, {function}() OVER (…) AS r FROM …) WHERE r <= 10; or add "
        "window_start and window_end to PARTITION BY; over bounded tables, SET 'execution.runtime-mode' = 'batch'."
    )
    if over.place is None:
        return SqlError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
    place = over.place
    return SqlError(SqlState.FEATURE_NOT_SUPPORTED, message, span=place.span, hint=hint, text=place.script)
