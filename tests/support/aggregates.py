"""Row-wise references for unbounded aggregates, and a reader that checks changelogs by sign."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

import msgspec

from planner.ir.operators import AggregateCall, AggregateFunction
from planner.ir.types import INTEGER_BITS, TypeRoot
from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import Batch
from runtime.key_groups import key_group_range
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from tests.support.operators import ATTEMPT

Row = tuple[Any, ...]


class WallClock:
    """Milliseconds, moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


def operator_context(
    folder: str,
    *,
    subtask_index: int = 0,
    parallelism: int = 1,
    restore: OperatorRestore | None = None,
    wall_clock_ms: Callable[[], int] | None = None,
) -> OperatorContext:
    """What a keyed operator is told of its surroundings."""
    return OperatorContext(
        attempt=msgspec.structs.replace(ATTEMPT, subtask_index=subtask_index),
        parallelism=parallelism,
        max_parallelism=128,
        key_groups=KeyGroupRange(*key_group_range(subtask_index, parallelism, 128)),
        settings={},
        files=LocalFiles(folder),
        restore=restore,
        managed_bytes=0,
        wall_clock_ms=wall_clock_ms or WallClock(),
    )


KINDS = ("+I", "-U", "+U", "-D")
F = AggregateFunction


def rows_of(batches: Sequence[Batch]) -> list[tuple[str, Row]]:
    """Every row with its kind, in order."""
    rows: list[tuple[str, Row]] = []
    for batch in batches:
        columns = [column.to_pylist() for column in batch.data.columns]
        kinds: list[Any] = [0] * batch.row_count if batch.row_kinds is None else batch.row_kinds.to_pylist()
        rows += [(KINDS[kind], tuple(c[i] for c in columns)) for i, kind in enumerate(kinds)]
    return rows


def plain(value: Any) -> Any:
    """A value that can be compared and hashed: one NaN, no -0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


class Folded:
    """A table made of a changelog. Raises AssertionError for a removal of a row that is not there, and, by key, for a
    second row under one key."""

    def __init__(self, key_width: int | None = None) -> None:
        self.rows: Counter[Row] = Counter()
        self.by_key: dict[Row, Row] = {}
        self._key_width = key_width

    def apply(self, changes: Sequence[tuple[str, Row]]) -> None:
        for kind, raw in changes:
            row = tuple(plain(v) for v in raw)
            if kind in ("-U", "-D"):
                assert self.rows[row] > 0, f"{kind} of {row}, which is not there; there are {self.rows}"
                self.rows[row] -= 1
                if not self.rows[row]:
                    del self.rows[row]
                if self._key_width is not None:
                    del self.by_key[row[: self._key_width]]
            else:
                self.rows[row] += 1
                if self._key_width is not None:
                    key = row[: self._key_width]
                    assert key not in self.by_key, f"{kind} {row} while {self.by_key[key]} is shown"
                    self.by_key[key] = row


class ReferenceGroup:
    """The rows of a group, in order of arrival, and what the calls make of them."""

    def __init__(self, calls: Sequence[AggregateCall]) -> None:
        self.calls = calls
        self.count = 0
        self.values: list[list[Any]] = [[] for _ in calls]
        """Per call the values taken in, in order; for DISTINCT in order of first appearance."""
        self._seen: list[Counter[Any]] = [Counter() for _ in calls]

    def change(self, row: Row, sign: int) -> None:
        self.count += sign
        for call, values, seen in zip(self.calls, self.values, self._seen, strict=True):
            if call.filter is not None and row[call.filter] is not True:
                continue
            value = True if call.argument is None else row[call.argument]
            if value is None:
                continue
            if call.distinct:
                seen[plain(value)] += sign
                if seen[plain(value)] != (1 if sign > 0 else 0):
                    continue
            if sign > 0:
                values.append(value)
            else:
                del values[[plain(v) for v in values].index(plain(value))]

    def result(self) -> Row:
        with localcontext(Context(prec=80)):
            return tuple(_result(call, values) for call, values in zip(self.calls, self.values, strict=True))


class Reference:
    """GROUP BY one row at a time, every change. `changes` are (sign, row)."""

    def __init__(self, keys: Sequence[int], calls: Sequence[AggregateCall]) -> None:
        self._keys = tuple(keys)
        self._calls = calls
        self.groups: dict[Row, ReferenceGroup] = {}

    def apply(self, sign: int, row: Row) -> list[tuple[str, Row]]:
        """What the change puts out."""
        key = tuple(row[i] for i in self._keys)
        name = tuple(plain(v) for v in key)
        group = self.groups.get(name)
        if group is None:
            if sign < 0:
                return []
            group = self.groups[name] = ReferenceGroup(self._calls)
        before = group.result() if group.count else None
        group.change(row, sign)
        if not group.count:
            del self.groups[name]
            assert before is not None
            return [("-D", key + before)]
        after = group.result()
        if before is None:
            return [("+I", key + after)]
        if [plain(v) for v in before] == [plain(v) for v in after]:
            return []
        return [("-U", key + before), ("+U", key + after)]

    def rows(self) -> Counter[Row]:
        return Counter((*name, *(plain(v) for v in group.result())) for name, group in self.groups.items())


def _wrapped(value: int, root: TypeRoot) -> int:
    bits = INTEGER_BITS[root]
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _result(call: AggregateCall, values: list[Any]) -> Any:
    function = call.function
    if function in (F.COUNT, F.COUNT_STAR):
        return len(values)
    if not values:
        return 0 if function is F.SUM0 else None
    match function:
        case F.MIN | F.MAX:
            ordered = sorted(values, key=lambda v: (isinstance(v, float) and math.isnan(v), v))
            return ordered[-1 if function is F.MAX else 0]
        case F.FIRST_VALUE:
            return values[0]
        case F.LAST_VALUE:
            return values[-1]
        case F.LISTAGG:
            return call.separator.join(values)
        case F.SUM | F.SUM0:
            return _sum(call, values)
        case F.AVG:
            return _average(call, values)
        case _:
            return _variance(call, values)


def _sum(call: AggregateCall, values: list[Any]) -> Any:
    if call.type.is_integer:
        return _wrapped(sum(values), call.type.root)
    if call.type.root is TypeRoot.DECIMAL:
        total = sum(values)
        return total if abs(total.scaleb(call.type.scale or 0)) < 10**38 else None
    return _float_sum(values)


def _float_sum(values: list[float]) -> float:
    if any(not math.isfinite(v) for v in values):
        return sum(v for v in values if not math.isfinite(v))
    return math.fsum(values)


def _average(call: AggregateCall, values: list[Any]) -> Any:
    if call.type.is_integer:
        total = _wrapped(sum(values), TypeRoot.BIGINT)
        quotient = abs(total) // len(values)
        return _wrapped(quotient if total >= 0 else -quotient, call.type.root)
    if call.type.root is TypeRoot.DECIMAL:
        quantum = Decimal(1).scaleb(-(call.type.scale or 0))
        assert call.argument_type is not None
        if abs(sum(values).scaleb(call.argument_type.scale or 0)) >= 10**38:
            return None
        # To 38 digits first, then to the scale, as Flink divides.
        exact = Context(prec=38, rounding=ROUND_HALF_UP).divide(sum(values), Decimal(len(values)))
        average = exact.quantize(quantum, ROUND_HALF_UP)
        return average if abs(average.scaleb(call.type.scale or 0)) < 10**38 else None
    return _float_sum(values) / len(values)


def _variance(call: AggregateCall, values: list[Any]) -> Any:
    count = len(values) - 1 if call.function in (F.STDDEV_SAMP, F.VAR_SAMP) else len(values)
    if count == 0:
        return None
    if any(not math.isfinite(v) for v in values):
        return math.nan
    mean = math.fsum(values) / len(values)
    spread = math.fsum((v - mean) ** 2 for v in values) / count
    return math.sqrt(spread) if call.function in (F.STDDEV_POP, F.STDDEV_SAMP) else spread
