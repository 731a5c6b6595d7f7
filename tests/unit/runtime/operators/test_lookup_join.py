"""Lookup join: one request per batch, caches by the injected clock, repeats, time-outs, and the end of the task."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import wait
from types import FrameType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from connectors import registry
from connectors.api import CacheKind, Found, LookupContext, LookupOptions, PeriodicReload, TableDefinition
from connectors.errors import ConnectorError, ErrorDomain
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.operators import ChangelogMode, JoinKind
from runtime.elements import Batch
from runtime.operators import lookup_requests
from runtime.operators.lookup_join import LookupJoinOperator
from runtime.operators.lookup_reloads import RETRY_MS
from runtime.operators.protocol import OUTPUT_ROWS_MAX
from tests.support.operators import Surroundings, batch_of, ints

LEFT = ir.Schema((ir.Column("n", t.INT), ir.Column("k", t.INT)))
TABLE = ir.Schema((ir.Column("id", t.INT), ir.Column("name", t.STRING), ir.Column("lang", t.STRING)))
Row = tuple[Any, ...]


class Store:
    """Answers for the connector: `rows` by (id, lang); `asked` are the keys of each request."""

    def __init__(self, options: LookupOptions) -> None:
        self.options = options
        self.rows: list[Row] = []
        self.asked: list[list[Row]] = []
        self.failures: list[ConnectorError] = []
        self.hold: threading.Event | None = None
        self.loads = 0
        self.context: LookupContext
        self.is_closed = threading.Event()

    def lookup(self, asked: Any) -> Any:
        if isinstance(asked, TableDefinition):
            return self
        keys: list[Row] = [tuple(row.values()) for row in asked.to_pylist()]
        self.asked.append(keys)
        if self.failures:
            raise self.failures.pop()
        if self.hold is not None:
            self.hold.wait(10)
        by_key = defaultdict[Row, list[Row]](list)
        for row in self.rows:
            by_key[tuple(row[i] for i in self.context.keys)].append(row)
        pairs = [(i, row) for i, key in enumerate(keys) for row in by_key[key]]
        # In another order than asked for.
        pairs.reverse()
        return Found(np.array([i for i, _ in pairs], np.int64), self._batch(self.context.columns, pairs))

    def _batch(self, columns: tuple[int, ...], pairs: list[tuple[int, Row]]) -> pa.RecordBatch:
        kinds = [t.to_arrow(TABLE.types[i]) for i in columns]
        arrays: list[Any] = [
            pa.array([row[i] for _, row in pairs], kind) for i, kind in zip(columns, kinds, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))])

    def reader(self, context: LookupContext) -> Store:
        self.context = context
        return self

    def load(self) -> pa.RecordBatch:
        self.loads += 1
        if self.hold is not None:
            self.hold.wait(10)
        if self.failures:
            raise self.failures.pop()
        return self._batch((*self.context.columns, *self.context.keys), [(0, row) for row in self.rows])

    def close(self) -> None:
        self.is_closed.set()
        if self.hold is not None:
            self.hold.set()


class Join:
    """The operator over (n, k) with rows (id, name, lang) of a store, by id, and lang = 'en' if `by_language`."""

    def __init__(
        self,
        options: LookupOptions | None = None,
        kind: JoinKind = JoinKind.LEFT,
        condition: Expression | None = None,
        by_language: bool = False,
        hint: ir.LookupHint | None = None,
    ) -> None:
        self.store = Store(options or LookupOptions())
        self.store.rows = [(1, "one", "en"), (2, "two", "en"), (1, "eins", "de"), (None, "none", "en")]
        self.now_ms = 1_000_000
        surroundings = Surroundings()
        self.checks = 0
        self.is_over = False
        self.node = ir.LookupJoin(
            uid="lookup",
            name="LookupJoin",
            kind=kind,
            table=ir.TableRef("items", "store", {"connector": "store"}, TABLE),
            lookup_columns=("id", "lang") if by_language else ("id",),
            left_keys=(1, None) if by_language else (1,),
            constants=(None, Literal("en", t.STRING)) if by_language else (None,),
            table_columns=ir.Schema(TABLE.columns[1:2]),
            condition=condition,
            left=LEFT,
            left_changelog=ChangelogMode.INSERT_ONLY,
            output=ir.Schema((*LEFT.columns, TABLE.columns[1])),
            hint=hint or ir.LookupHint(),
        )
        self.operator = LookupJoinOperator(
            self.node,
            msgspec.structs.replace(surroundings.context, wall_clock_ms=lambda: self.now_ms),
            msgspec.structs.replace(surroundings.environment, check=self._check),
        )

    def _check(self) -> None:
        self.checks += 1
        if self.is_over:
            raise InterruptedError

    def fire(self) -> None:
        """As the task does when the clock has reached the timer."""
        due_ms = self.operator.timer_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            assert list(self.operator.on_timer(self.now_ms)) == []

    def await_load(self) -> None:
        """Until what is being loaded is whole, or has failed."""
        assert self.operator.full is not None
        assert self.operator.full.loading is not None
        wait([self.operator.full.loading], 10)

    def rows(self, *keys: int | None, kinds: list[int] | None = None) -> list[Row]:
        """What comes out for rows (0, key), (1, key), …"""
        output = list(self.operator.process(batch_of(ints(*range(len(keys))), ints(*keys), kinds=kinds)))
        return [row for batch in output for row in shown(batch)]


def shown(batch: Batch) -> list[Row]:
    rows: list[Row] = [tuple(row.values()) for row in batch.data.to_pylist()]
    if batch.row_kinds is None:
        return rows
    return [(*row, kind) for row, kind in zip(rows, batch.row_kinds.to_pylist(), strict=True)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Join] = []

    def open_(*arguments: Any, **named: Any) -> Join:
        join = Join(*arguments, **named)
        monkeypatch.setattr(registry, "connector", lambda name: join.store)
        join.operator.open()
        made.append(join)
        return join

    monkeypatch.setattr(lookup_requests, "BACKOFF_S", 0.001)
    yield open_
    for join in made:
        join.operator.close()


def test_each_key_is_asked_once_and_null_never(opened: Any) -> None:
    join = opened()
    assert join.rows(2, None, 1, 9, 2) == [
        (0, 2, "two"),
        (1, None, None),
        (2, 1, "eins"),
        (2, 1, "one"),
        (3, 9, None),
        (4, 2, "two"),
    ]
    assert join.store.asked == [[(2,), (1,), (9,)]]
    assert join.rows(None) == [(0, None, None)]
    assert len(join.store.asked) == 1
    inner = opened(kind=JoinKind.INNER)
    assert inner.rows(9, None, 2) == [(2, 2, "two")]
    assert inner.rows(9) == []


def test_constants_are_keys_and_kinds_pass(opened: Any) -> None:
    join = opened(by_language=True)
    assert join.rows(1, 2, 1, kinds=[1, 0, 3]) == [(0, 1, "one", 1), (1, 2, "two", 0), (2, 1, "one", 3)]
    assert join.store.asked == [[(1, "en"), (2, "en")]]


def test_what_the_condition_turns_away_is_padded_in_its_place(opened: Any) -> None:
    condition = Call("GT", (InputRef(2, t.STRING), Literal("f", t.STRING)), t.BOOLEAN)
    assert opened(condition=condition).rows(1, 3, 1, 2) == [
        (0, 1, "one"), (1, 3, None), (2, 1, "one"), (3, 2, "two"),
    ]  # fmt: skip
    nothing = Call("GT", (InputRef(2, t.STRING), Literal("z", t.STRING)), t.BOOLEAN)
    assert opened(condition=nothing).rows(1, 2) == [(0, 1, None), (1, 2, None)]
    assert opened(condition=nothing, kind=JoinKind.INNER).rows(1, 2) == []


def test_large_answers_come_in_pieces(opened: Any) -> None:
    join = opened()
    join.store.rows = [(1, str(i), "en") for i in range(OUTPUT_ROWS_MAX)]
    pieces = list(join.operator.process(batch_of(ints(0, 1), ints(1, 1))))
    assert [piece.row_count for piece in pieces] == [OUTPUT_ROWS_MAX, OUTPUT_ROWS_MAX]


def test_known_keys_are_answered_until_they_expire(opened: Any) -> None:
    join = opened(LookupOptions(CacheKind.PARTIAL, expire_after_write_ms=5_000))
    assert join.rows(1, 9) == [(0, 1, "eins"), (0, 1, "one"), (1, 9, None)]
    join.store.rows = [(1, "uno", "en"), (9, "nove", "en")]
    assert sorted(join.rows(1, 2, 9), key=repr) == [(0, 1, "eins"), (0, 1, "one"), (1, 2, None), (2, 9, None)]
    assert join.store.asked == [[(1,), (9,)], [(2,)]]
    join.now_ms += 5_000
    assert join.rows(1, 9) == [(0, 1, "uno"), (1, 9, "nove")]
    assert join.operator.counters() == {
        "loadCount": 3, "numLoadFailures": 0, "hitCount": 2, "missCount": 5, "numCachedRecords": 2,
        "latestLoadTime": pytest.approx(0, abs=10_000),
    }  # fmt: skip


def test_keys_expire_after_their_last_use(opened: Any) -> None:
    join = opened(LookupOptions(CacheKind.PARTIAL, expire_after_access_ms=5_000))
    join.rows(1, 2)
    join.now_ms += 4_000
    join.rows(1)
    join.now_ms += 4_000
    join.rows(1, 2)
    assert join.store.asked == [[(1,), (2,)], [(2,)]]


def test_the_keys_used_last_are_kept(opened: Any) -> None:
    join = opened(LookupOptions(CacheKind.PARTIAL, rows_max=2, keeps_missing_keys=False))
    join.store.rows = [(i, str(i), "en") for i in range(5)]
    join.rows(1, 2)
    join.rows(1)
    join.rows(3)
    join.rows(1, 3)
    join.rows(2)
    join.rows(7)
    join.rows(7)
    assert join.store.asked == [[(1,), (2,)], [(3,)], [(2,)], [(7,)], [(7,)]]
    assert join.rows(0, 1, 2, 3, 4, 0) == [(i, i % 5, str(i % 5)) for i in range(6)]
    assert join.operator.counters()["numCachedRecords"] == 2


def failure(*, retry: bool) -> ConnectorError:
    return ConnectorError("gone", domain=ErrorDomain.EXTERNAL, retry=retry)


def test_a_whole_table_is_loaded_by_the_interval(opened: Any) -> None:
    join = opened(LookupOptions(CacheKind.FULL, reload=PeriodicReload(60_000)), by_language=True)
    assert join.store.loads == 1
    join.store.rows = [(2, "dos", "en")]
    join.now_ms += 59_999
    join.fire()
    assert join.rows(1, 2, None, 8) == [(0, 1, "one"), (1, 2, "two"), (2, None, None), (3, 8, None)]
    join.now_ms += 1
    join.fire()
    join.await_load()
    assert join.rows(1, 2) == [(0, 1, None), (1, 2, "dos")]
    assert (join.store.loads, join.store.asked) == (2, [])
    join.store.rows = []
    join.now_ms += 60_000
    join.fire()
    join.await_load()
    assert join.rows(1, 2) == [(0, 1, None), (1, 2, None)]
    assert join.operator.counters() == {
        "loadCount": 3, "numLoadFailures": 0, "hitCount": 7, "numCachedRecords": 0,
        "latestLoadTime": pytest.approx(0, abs=10_000),
    }  # fmt: skip


def test_rows_and_snapshots_go_on_while_a_table_is_loaded(opened: Any) -> None:
    join = opened(LookupOptions(CacheKind.FULL, reload=PeriodicReload(60_000)), by_language=True)
    join.store.rows, join.store.hold = [(2, "dos", "en")], threading.Event()
    join.now_ms += 60_000
    join.fire()
    for _ in range(3):
        join.now_ms += 60_000
        join.fire()
        assert join.rows(1, 2) == [(0, 1, "one"), (1, 2, "two")]
        assert join.operator.snapshot(1)().uid == "lookup"
        assert join.operator.timer_ms() > join.now_ms
    join.store.hold.set()
    join.await_load()
    assert join.store.loads == 2, "one at a time"
    assert join.operator.timer_ms() == join.now_ms + 60_000, "the contents are there without a row"
    assert join.rows(1, 2) == [(0, 1, None), (1, 2, "dos")]


def test_a_table_that_cannot_be_loaded_anew_stays_as_it_was(opened: Any) -> None:
    options = LookupOptions(CacheKind.FULL, reload=PeriodicReload(3_600_000), retries_max=1)
    join = opened(options, by_language=True)
    join.store.rows, join.store.failures = [(2, "dos", "en")], [failure(retry=False), failure(retry=True)]
    join.now_ms += 3_600_000
    join.fire()
    join.await_load()
    assert join.rows(1, 2) == [(0, 1, "one"), (1, 2, "two")]
    assert join.operator.counters()["numLoadFailures"] == 1
    assert join.operator.timer_ms() == join.now_ms + RETRY_MS
    join.now_ms += RETRY_MS
    join.fire()
    join.await_load()
    assert join.rows(1, 2) == [(0, 1, None), (1, 2, "dos")]
    assert join.operator.counters()["loadCount"] == 2


def test_a_table_that_cannot_be_loaded_at_first_fails_the_task(opened: Any) -> None:
    join = opened(LookupOptions(CacheKind.FULL, retries_max=0))
    assert join.operator.timer_ms() is None
    join.operator.close()
    join.store.failures = [failure(retry=True)]
    with pytest.raises(ConnectorError, match="gone"):
        join.operator.open()


def test_the_end_of_the_task_is_heard_while_the_first_load_runs(opened: Any) -> None:
    join = opened(LookupOptions(CacheKind.FULL))
    join.operator.close()
    join.store.hold, join.is_over = threading.Event(), True
    with pytest.raises(InterruptedError):
        join.operator.open()


def test_a_failed_request_is_repeated_and_then_fails_the_task(opened: Any) -> None:
    join = opened(LookupOptions(retries_max=2))
    join.store.failures = [failure(retry=True)] * 2
    assert join.rows(2) == [(0, 2, "two")]
    assert join.operator.counters()["numLoadFailures"] == 2
    join.store.failures = [failure(retry=True)] * 3
    with pytest.raises(ConnectorError, match="gone") as caught:
        join.rows(2)
    assert caught.value.retry
    join.store.failures, join.store.asked = [failure(retry=False)], []
    with pytest.raises(ConnectorError):
        join.rows(2)
    assert len(join.store.asked) == 1


def test_keys_without_rows_are_asked_for_again(opened: Any) -> None:
    join = opened(hint=ir.LookupHint(repeats=2, delay_ms=1))
    assert join.rows(1, 5) == [(0, 1, "eins"), (0, 1, "one"), (1, 5, None)]
    assert join.store.asked == [[(1,), (5,)], [(5,)], [(5,)]]
    join.store.asked.clear()
    join.rows(1)
    assert len(join.store.asked) == 1


def test_asynchronous_requests_run_at_once_and_rows_stay_in_order(opened: Any) -> None:
    join = opened(hint=ir.LookupHint(is_async=True, capacity=3, timeout_ms=10_000))
    barrier = threading.Barrier(3)
    ask = join.store.lookup
    join.store.lookup = lambda keys: (barrier.wait(5), ask(keys))[1]
    join.store.rows = [(i, str(i), "en") for i in range(6)]
    assert join.rows(5, 4, 3, 2, 1, 0) == [(i, 5 - i, str(5 - i)) for i in range(6)]
    assert sorted(map(len, join.store.asked)) == [2, 2, 2]


def test_a_store_that_does_not_answer_in_time_is_an_external_failure(opened: Any) -> None:
    join = opened(hint=ir.LookupHint(is_async=True, timeout_ms=20))
    join.store.hold = threading.Event()
    with pytest.raises(ConnectorError, match="within 20 ms") as caught:
        join.rows(1)
    assert caught.value.retry
    assert caught.value.domain is ErrorDomain.EXTERNAL


def test_the_end_of_the_task_is_heard_while_a_request_runs(opened: Any) -> None:
    join = opened()
    join.store.hold = threading.Event()
    threading.Timer(0.1, lambda: setattr(join, "is_over", True)).start()
    with pytest.raises(InterruptedError):
        join.rows(1)
    join.operator.close()
    assert join.store.is_closed.is_set()


@pytest.mark.parametrize("kind", CacheKind)
def test_no_python_per_row(opened: Any, kind: CacheKind) -> None:
    join = opened(LookupOptions(kind, rows_max=500 if kind is CacheKind.PARTIAL else 0), by_language=True)
    join.store.rows = [(i, str(i), "en") for i in range(1_000)]
    if kind is CacheKind.FULL:
        join.operator.close()
        join.operator.open()
    count, calls = 32_768, 0
    batch = batch_of(ints(*range(count)), ints(*(i % 2_000 for i in range(count))), kinds=[0] * count)
    assert sum(piece.row_count for piece in join.operator.process(batch)) == count

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counted)  # Of this thread: the store answers in another one.
    try:
        pieces = list(join.operator.process(batch))
    finally:
        sys.setprofile(None)
    assert sum(piece.row_count for piece in pieces) == count
    assert calls < 0.05 * count, calls
