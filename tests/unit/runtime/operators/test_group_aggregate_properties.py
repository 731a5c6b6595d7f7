"""Unbounded aggregates against a row-wise reference: random valid changelogs, random cuts, both emissions, one and two
phases, snapshots in the middle and other parallelisms."""

from __future__ import annotations

import math
import random
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.ir import types as t
from planner.ir.operators import (
    AggregateCall,
    AggregateFunction,
    Column,
    Emission,
    GroupAggregate,
    LocalGroupAggregate,
    MiniBatch,
    Schema,
    accumulator_types,
    is_mergeable,
)
from planner.ir.types import ChangelogMode, DataType
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import Batch
from runtime.key_groups import hash_columns, key_group, subtask_of
from runtime.operators.group_aggregate import GroupAggregateOperator
from runtime.operators.group_aggregate_local import LocalGroupAggregateOperator
from runtime.operators.protocol import OUTPUT_ROWS_MAX
from tests.support.aggregates import Folded, Reference, Row, operator_context, plain, rows_of

F = AggregateFunction
COUNT_TYPE = t.BIGINT.with_nullable(False)
INPUT: tuple[DataType, ...] = (
    t.INT,
    t.STRING,
    t.INT,
    t.DOUBLE,
    t.decimal(10, 2),
    t.STRING,
    t.BOOLEAN,
    t.decimal(38, 4),
    t.DATE,
    t.BIGINT.with_nullable(False),
)
DECIMAL_AVERAGE = t.decimal(38, 6)


def call(
    function: AggregateFunction, argument: int | None = None, kind: DataType | None = None, **options: Any
) -> AggregateCall:
    argument_type = None if argument is None else INPUT[argument]
    if kind is None:
        kind = argument_type if argument_type is not None and function not in (F.COUNT, F.COUNT_STAR) else COUNT_TYPE
    return AggregateCall(function, argument, argument_type, kind, **options)


EXACT = (
    call(F.COUNT_STAR),
    call(F.COUNT, 2),
    call(F.COUNT, 2, filter=6),
    call(F.SUM, 2),
    call(F.SUM, 2, filter=6),
    call(F.SUM0, 9),
    call(F.AVG, 2),
    call(F.SUM, 4, t.decimal(38, 2)),
    call(F.AVG, 4, DECIMAL_AVERAGE),
    call(F.SUM, 7, t.decimal(38, 4)),
    call(F.AVG, 7, DECIMAL_AVERAGE),
    call(F.MIN, 2),
    call(F.MAX, 2),
    call(F.MAX, 2, filter=6),
    call(F.MIN, 3),
    call(F.MAX, 3),
    call(F.MAX, 5),
    call(F.MIN, 4),
    call(F.MIN, 6),
    call(F.MAX, 8),
    call(F.MAX, 9),
    call(F.COUNT, 2, distinct=True),
    call(F.COUNT, 2, distinct=True, filter=6),
    call(F.SUM, 2, distinct=True),
    call(F.AVG, 4, DECIMAL_AVERAGE, distinct=True),
    call(F.COUNT, 3, distinct=True),
    call(F.FIRST_VALUE, 5),
    call(F.LAST_VALUE, 5),
    call(F.LAST_VALUE, 2, filter=6),
    call(F.FIRST_VALUE, 3),
    call(F.LISTAGG, 5),
    call(F.LISTAGG, 5, separator=""),
    call(F.LISTAGG, 5, distinct=True, separator="|"),
)
APPROXIMATE = (
    call(F.SUM, 3),
    call(F.AVG, 3),
    call(F.SUM, 3, filter=6),
    call(F.STDDEV_POP, 3),
    call(F.STDDEV_SAMP, 3),
    call(F.VAR_POP, 3),
    call(F.VAR_SAMP, 3),
    call(F.SUM, 3, distinct=True),
)


def random_row(rng: random.Random, key_count: int) -> Row:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    number = maybe(rng.choice((math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 1.25, -3.5, 1e6)))
    if rng.random() < 0.7 and number is not None and not math.isfinite(number):
        number = 2.5
    return (
        maybe(rng.randrange(key_count)),
        rng.choice(("x", "y")),
        maybe(rng.choice((1, 2, 3, -7, 2**31 - 1, -(2**31)))),
        number,
        maybe(Decimal(rng.randrange(-500, 500)).scaleb(-2)),
        maybe(rng.choice(("", "a", "b", "ab", "ä"))),
        maybe(rng.random() < 0.5),
        maybe(Decimal(rng.choice((10**37, -(10**37), 12345))).scaleb(-4)),
        maybe(rng.randrange(20)),
        rng.choice((1, -5, 2**63 - 1, -(2**63))),
    )


def random_changes(rng: random.Random, count: int, *, retracting: bool) -> list[tuple[int, Row]]:
    """A valid stream of (kind, row): what is removed is there."""
    key_count = rng.choice((1, 3, 40))
    changes: list[tuple[int, Row]] = []
    there: list[Row] = []
    while len(changes) < count:
        if retracting and there and rng.random() < 0.45:
            row = there.pop(rng.randrange(len(there)))
            if rng.random() < 0.5:
                changes.append((3, row))
                continue
            changes.append((1, row))
            new = random_row(rng, key_count)
            if rng.random() < 0.5:
                new = (row[0], row[1], *new[2:])
            changes.append((2, new))
            there.append(new)
        else:
            row = random_row(rng, key_count)
            changes.append((rng.choice((0, 2)) if retracting else 0, row))
            there.append(row)
    return changes


def batch_of_changes(changes: list[tuple[int, Row]], *, kinds: bool) -> Batch:
    columns = [
        pa.array([row[i] for _, row in changes], t.to_arrow(kind))
        if kind != t.DATE
        else pa.array([row[i] for _, row in changes], pa.int32()).cast(pa.date32())
        for i, kind in enumerate(INPUT)
    ]
    rows = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])
    return Batch(rows, pa.array([kind for kind, _ in changes], pa.int8()) if kinds else None)


def cut(rng: random.Random, changes: list[tuple[int, Row]], *, kinds: bool) -> list[Batch]:
    batches = []
    largest = rng.choice((1, 4, 30, 300))
    while changes:
        size = rng.randint(1, largest)
        batches.append(batch_of_changes(changes[:size], kinds=kinds))
        changes = changes[size:]
    return batches


def node_of(
    keys: tuple[int, ...], calls: tuple[AggregateCall, ...], mode: ChangelogMode, **options: Any
) -> GroupAggregate:
    key_types = tuple(INPUT[i] for i in keys)
    columns = [Column(f"c{i}", kind) for i, kind in enumerate((*key_types, *(c.type for c in calls)))]
    if options.get("from_partials"):
        keys = tuple(range(len(keys)))
    return GroupAggregate("agg", "agg", keys, key_types, calls, mode, Schema(tuple(columns)), **options)


class Subtasks:
    """The operator at some parallelism: rows are spread by key, changed parallelism goes through a snapshot."""

    def __init__(self, node: GroupAggregate, folder: Path, parallelism: int) -> None:
        self._node, self._folder = node, folder
        self._snapshots = 0
        self._start(parallelism, None)

    def _start(self, parallelism: int, restore: OperatorRestore | None) -> None:
        self.operators = []
        for index in range(parallelism):
            context = operator_context(
                str(self._folder),
                subtask_index=index,
                parallelism=parallelism,
                restore=restore,
            )
            operator = GroupAggregateOperator(self._node, context)
            operator.open()
            self.operators.append(operator)

    def rescale(self, parallelism: int) -> list[Batch]:
        self._snapshots += 1
        output = [piece for operator in self.operators for piece in operator.flush()]
        taken = [operator.snapshot(self._snapshots)() for operator in self.operators]
        segments = tuple(segment for snapshot in taken for segment in snapshot.segments)
        for operator in self.operators:
            operator.close()
        self._start(parallelism, OperatorRestore("agg", segments=segments))
        return output

    def process(self, batch: Batch) -> list[Batch]:
        if not self._node.keys:
            return list(self.operators[0].process(batch))
        groups = key_group(hash_columns([batch.data.column(i) for i in self._node.keys]), 128)
        owners = subtask_of(groups, len(self.operators), 128)
        output = []
        for index, operator in enumerate(self.operators):
            mask = pa.array(owners == index)
            kinds: Any = None if batch.row_kinds is None else batch.row_kinds.filter(mask)
            output += list(operator.process(Batch(batch.data.filter(mask), kinds)))
        return output


def comparable(row: Row, exact_count: int) -> Row:
    """Doubles of approximate functions rounded, dates as days."""
    shown = []
    for index, value in enumerate(row):
        value = (value - date(1970, 1, 1)).days if isinstance(value, date) else value
        if index >= exact_count and isinstance(value, float) and math.isfinite(value):
            value = float(f"{value:.7g}") if abs(value) > 1e-6 else 0.0
        shown.append(plain(value))
    return tuple(shown)


def run_one(seed: int, folder: Path, *, retracting: bool, emission: Emission) -> None:
    rng = random.Random(seed)
    keys = rng.choice(((0,), (0, 1), (), (5,), (3,)))
    calls = tuple(rng.sample(EXACT, rng.randint(0, 5))) + tuple(rng.sample(APPROXIMATE, rng.randint(0, 2)))
    exact_count = len(keys) + sum(1 for c in calls if c in EXACT)
    if not calls and not keys:
        return
    mode = ChangelogMode.RETRACT if retracting else ChangelogMode.INSERT_ONLY
    options: dict[str, Any] = {"emission": emission}
    if emission is Emission.NET and rng.random() < 0.3:
        options["mini_batch"] = MiniBatch(rng.choice((3, 50)), 1000)
    changes = random_changes(rng, rng.choice((20, 60, 200)), retracting=retracting)
    reference = Reference(keys, calls)
    subtasks = Subtasks(node_of(keys, calls, mode, **options), folder, rng.choice((1, 2)))
    folded = Folded()
    expected: list[tuple[str, Row]] = []
    got: list[tuple[str, Row]] = []
    inserts_only = not calls and not retracting
    for batch in cut(rng, changes, kinds=retracting):
        got += rows_of(subtasks.process(batch))
        if rng.random() < 0.1:
            got += rows_of(subtasks.rescale(rng.choice((1, 2, 3))))
    got += rows_of([piece for operator in subtasks.operators for piece in operator.flush()])
    for kind, row in changes:
        expected += reference.apply(-1 if kind in (1, 3) else 1, row)
    assert all(operator.counters()["numCountsClamped"] == 0 for operator in subtasks.operators)
    folded.apply(got)
    final = {comparable(row, exact_count) for row in folded.rows}
    assert final == {comparable(row, exact_count) for row in reference.rows()}
    if emission is Emission.EVERY:
        for key in {row[: len(keys)] for _, row in expected} if keys else {()}:
            name = tuple(plain(v) for v in key)

            def of_key(rows: list[tuple[str, Row]], name: Row = name) -> list[tuple[str, Row]]:
                own = [(kind, comparable(row, exact_count)) for kind, row in rows]
                return [(kind, row) for kind, row in own if row[: len(name)] == name]

            wanted, seen = of_key(expected), of_key(got)
            if exact_count == len(keys) + len(calls):
                assert seen == wanted
    elif not inserts_only:
        Folded(len(keys)).apply(got)


@pytest.mark.parametrize("emission", list(Emission))
@pytest.mark.parametrize("retracting", [False, True])
def test_equals_the_reference(tmp_path: Path, emission: Emission, retracting: bool) -> None:
    for seed in range(8):
        run_one(seed, tmp_path / str(seed), retracting=retracting, emission=emission)


@pytest.mark.fuzz
@pytest.mark.parametrize("emission", list(Emission))
@pytest.mark.parametrize("retracting", [False, True])
def test_equals_the_reference_long(tmp_path: Path, emission: Emission, retracting: bool) -> None:
    for seed in range(1_000, 4_000):
        run_one(seed, tmp_path / str(seed), retracting=retracting, emission=emission)


@pytest.mark.parametrize("retracting", [False, True])
def test_two_phases_equal_one(tmp_path: Path, retracting: bool) -> None:
    mode = ChangelogMode.RETRACT if retracting else ChangelogMode.INSERT_ONLY
    for seed in range(6):
        rng = random.Random(seed)
        usable = [c for c in (*EXACT, *APPROXIMATE) if is_mergeable(c, retracting=retracting)]
        calls = tuple(sorted(rng.sample(usable, rng.randint(1, 6)), key=lambda c: c in APPROXIMATE))
        keys = rng.choice(((0,), (0, 1), ()))
        exact_count = len(keys) + sum(1 for c in calls if c in EXACT)
        kinds = (*(INPUT[i] for i in keys), COUNT_TYPE)
        kinds += tuple(kind for c in calls for kind in accumulator_types(c, retracting=retracting))
        partials = Schema(tuple(Column(f"c{i}", kind) for i, kind in enumerate(kinds)))
        local = LocalGroupAggregateOperator(LocalGroupAggregate("local", "local", keys, calls, mode, partials))
        options: dict[str, Any] = {"from_partials": True, "emission": Emission.NET}
        subtasks = Subtasks(node_of(keys, calls, mode, **options), tmp_path / str(seed), 2)
        reference = Reference(keys, calls)
        folded = Folded(len(keys))
        changes = random_changes(rng, 200, retracting=retracting)
        for batch in cut(rng, changes, kinds=retracting):
            for partial in local.process(batch):
                assert partial.row_kinds is None
                folded.apply(rows_of(subtasks.process(partial)))
            if rng.random() < 0.1:
                subtasks.rescale(rng.choice((1, 3)))
        for kind, row in changes:
            reference.apply(-1 if kind in (1, 3) else 1, row)
        final = {comparable(row, exact_count) for row in folded.rows}
        assert final == {comparable(row, exact_count) for row in reference.rows()}


def test_pieces_are_bounded_and_keep_pairs_together(tmp_path: Path) -> None:
    node = node_of((0,), (call(F.COUNT_STAR),), ChangelogMode.INSERT_ONLY)
    operator = GroupAggregateOperator(node, operator_context(str(tmp_path)))
    operator.open()
    rows = [(0, (i % 7, "x", 1, None, None, None, None, None, None, 1)) for i in range(20_001)]
    output = list(operator.process(batch_of_changes(rows, kinds=False)))
    assert all(0 < piece.row_count <= OUTPUT_ROWS_MAX for piece in output)
    assert len(output) == 2
    for piece in output:
        assert piece.row_kinds is not None
        assert piece.row_kinds.to_pylist()[-1] != 1
    Folded(1).apply(rows_of(output))
