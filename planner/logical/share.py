"""Equal parts of the trees of one job become one object, which the physical plan builds once.

What stands under several consumers may be computed once only if it gives the same to each: a sub-plan with UUID() in it
is built anew for every use. A source is one reader whatever its computed columns are.
"""

from __future__ import annotations

import copy

from planner.logical.canonical import canonical_node, execution_options
from planner.logical.expressions import is_deterministic
from planner.logical.nodes import (
    Calc,
    Expand,
    Plan,
    ResultSink,
    Scan,
    TableSink,
    Values,
    inputs_of,
    with_inputs,
)


def share_subplans(sinks: tuple[Plan, ...], reuses_sources: bool, reuses_subplans: bool) -> tuple[Plan, ...]:
    """The trees with equal sub-trees shared as the settings say; all else is an object of its own."""
    return tuple(_Sharing(reuses_sources, reuses_subplans).plan(sinks))


class _Sharing:
    def __init__(self, reuses_sources: bool, reuses_subplans: bool) -> None:
        self._reuses_sources = reuses_sources
        self._reuses_subplans = reuses_subplans
        self._known: dict[tuple[str, tuple[int, ...]], Plan] = {}
        self._is_stable: dict[int, bool] = {}

    def plan(self, sinks: tuple[Plan, ...]) -> list[Plan]:
        return [self._shared(sink) for sink in sinks]

    def _shared(self, plan: Plan) -> Plan:
        inputs = tuple(self._shared(i) for i in inputs_of(plan))
        own = with_inputs(plan, inputs) if inputs else copy.copy(plan)
        if isinstance(own, TableSink | ResultSink):
            return own
        is_stable = _gives_the_same(own) and all(self._is_stable[id(i)] for i in inputs)
        reuses = self._reuses_sources if isinstance(own, Scan) else self._reuses_subplans
        if reuses and is_stable:
            text = canonical_node(own) + execution_options(own)
            own = self._known.setdefault((text, tuple(id(i) for i in inputs)), own)
        else:
            # Kept, so that no later node gets its id.
            self._known[(f"own {id(own)}", ())] = own
        self._is_stable[id(own)] = is_stable
        return own


def _gives_the_same(plan: Plan) -> bool:
    match plan:
        case Calc():
            read = [*plan.projections, *([plan.condition] if plan.condition is not None else [])]
            return all(is_deterministic(e) for e in read)
        case Expand():
            return all(is_deterministic(e) for p in plan.projections for e in p)
        case Values():
            return all(is_deterministic(e) for row in plan.rows for e in row)
        case _:
            condition = getattr(plan, "condition", None)
            return condition is None or is_deterministic(condition)
