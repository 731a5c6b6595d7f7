"""Helpers on bound expressions that several rules share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from planner.analysis.operators import logical
from planner.ir import functions as registry
from planner.ir.expressions import Call, Expression, InputRef, walk
from planner.logical.nodes import Column


def identity(columns: tuple[Column, ...]) -> tuple[Expression, ...]:
    """Projections that pass every column on."""
    return tuple(InputRef(i, column.type) for i, column in enumerate(columns))


def is_deterministic(expression: Expression) -> bool:
    """Whether evaluating it twice on one row gives the same value."""
    rows = (registry.BY_ID.get(e.function) for e in walk(expression) if isinstance(e, Call))
    return all(row is None or row.deterministic for row in rows)


def can_substitute(upper: Iterable[Expression], lower: tuple[Expression, ...]) -> bool:
    """Whether `upper` may take in the expressions `lower` it reads.

    A non-deterministic one must not be copied: UUID() computed once and used twice is one value.
    """
    uses = Counter(e.index for u in upper for e in walk(u) if isinstance(e, InputRef))
    return all(uses[i] <= 1 or is_deterministic(expression) for i, expression in enumerate(lower))


def conjunction(conditions: Iterable[Expression | None]) -> Expression | None:
    """AND of all that are not None, in order."""
    present = tuple(c for c in conditions if c is not None)
    return logical("AND", present) if present else None
