"""Failures of expressions: what was evaluated, on which value, in which row."""

from __future__ import annotations

from typing import Any


class EvaluationFailure(ValueError):
    """A strict kernel meets a value it must refuse (a malformed number, a zero divisor). Raised by kernels."""


class ExpressionError(Exception):
    """An expression failed on one row.

    `expression` is its SQL text, `values` its arguments in that row, `row_index` the row within the batch given to
    the calc; the caller that knows adds the split and the offset. It is the user's data that is at fault; trying
    again does not help.
    """

    domain = "user"
    retry = False

    def __init__(self, expression: str, values: tuple[Any, ...], row_index: int, reason: str) -> None:
        shown = ", ".join(_shorten(value) for value in values)
        super().__init__(f"{expression} failed on ({shown}) in row {row_index} of its batch: {reason}")
        self.expression = expression
        self.values = values
        self.row_index = row_index
        self.reason = reason


class RaisedInCall(Exception):
    """Internal: a kernel raised; names the call and its argument vectors until the row is found."""

    def __init__(self, expression: str, arguments: tuple[Any, ...], cause: Exception) -> None:
        super().__init__(expression)
        self.expression = expression
        self.arguments = arguments
        self.cause = cause


def _shorten(value: Any, limit: int = 200) -> str:
    text = "NULL" if value is None else repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
