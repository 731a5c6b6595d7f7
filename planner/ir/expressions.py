"""Typed expressions: what is left of a SQL expression after binding. Plain frozen data, serialisable.

There are three node kinds. Every operator, cast, conditional and function is a `Call` whose `function` is the id of
a row in `planner.ir.functions`; its argument types and result type are spelt out, so no later stage infers types.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from planner.ir.types import DataType

Scalar = bool | int | float | str | None


class InputRef(msgspec.Struct, frozen=True, tag_field="node", tag="input"):
    """Column `index` of the operator's input row."""

    index: int
    type: DataType


class Literal(msgspec.Struct, frozen=True, tag_field="node", tag="literal"):
    """A constant.

    `value` by type: BOOLEAN bool; integers int; FLOAT/DOUBLE float; DECIMAL its plain decimal text; CHAR/VARCHAR str;
    BINARY/VARBINARY its hex text; DATE days since 1970-01-01; TIME milliseconds of the day; TIMESTAMP and TIMESTAMP_LTZ
    integer in the Arrow unit of the type (ms, us or ns since the epoch; local for TIMESTAMP, instant for LTZ);
    INTERVAL_YEAR_MONTH months; INTERVAL_DAY_TIME milliseconds; None = typed NULL.
    """

    value: Scalar
    type: DataType


class Call(msgspec.Struct, frozen=True, tag_field="node", tag="call"):
    """Function application. `text` is the SQL text it came from (shown when it raises); not part of identity."""

    function: str
    args: tuple[Expression, ...]
    type: DataType
    text: str = ""


Expression = InputRef | Literal | Call


def children(e: Expression) -> tuple[Expression, ...]:
    """Direct sub-expressions."""
    return e.args if isinstance(e, Call) else ()


def walk(e: Expression) -> Iterator[Expression]:
    """The expression and everything below it, parents first."""
    pending = [e]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


def input_indexes(e: Expression) -> frozenset[int]:
    """Indexes of the input columns that `e` reads."""
    return frozenset(n.index for n in walk(e) if isinstance(n, InputRef))


def shift_inputs(e: Expression, mapping: dict[int, int]) -> Expression:
    """`e` with every column index replaced by `mapping[index]`."""
    match e:
        case InputRef(index=index, type=t):
            return InputRef(mapping[index], t)
        case Call(args=args):
            return msgspec.structs.replace(e, args=tuple(shift_inputs(a, mapping) for a in args))
        case _:
            return e


def substitute(e: Expression, inputs: tuple[Expression, ...]) -> Expression:
    """`e` with column i replaced by `inputs[i]` (used to merge projections)."""
    match e:
        case InputRef(index=index):
            return inputs[index]
        case Call(args=args):
            return msgspec.structs.replace(e, args=tuple(substitute(a, inputs) for a in args))
        case _:
            return e


def canonical(e: Expression) -> str:
    """A text equal for equal expressions, whatever SQL text they came from; used for uids and fingerprints."""
    match e:
        case InputRef(index=index):
            return f"${index}"
        case Literal(value=value, type=t):
            return f"{value!r}:{t.sql()}"
        case Call(function=function, args=args, type=t):
            return f"{function}({', '.join(canonical(a) for a in args)}):{t.sql()}"
