"""Coalescing, cutting and order of a record writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from planner.ir.job_graph import EdgeKind
from runtime.elements import Barrier, Batch, Control, Element, EndOfInput, Watermark
from runtime.exchange.partitioner import partitioner
from runtime.exchange.writer import COALESCE_ROWS, OVERDRAFT_BYTES, RecordWriter, cut_by_bytes


class Recorder:
    """A channel that keeps what is sent; `room` False refuses batches."""

    def __init__(self) -> None:
        self.sent: list[Element] = []
        self.room = True
        self.is_open = True

    def admits(self, byte_size: int) -> bool:
        return self.room

    def send_batch(self, batch: Batch, byte_size: int) -> None:
        assert self.room
        self.sent.append(batch)

    def send_control(self, element: Control) -> None:
        self.sent.append(element)

    def shape(self) -> list[object]:
        return [e.row_count if isinstance(e, Batch) else e for e in self.sent]


class Bench:
    """One writer over recorded channels with a clock set by hand."""

    def __init__(self, consumers: int = 1, kind: EdgeKind = EdgeKind.FORWARD, timeout_ms: int = 100) -> None:
        self.now_ms = 0.0
        self.channels = [Recorder() for _ in range(consumers)]
        self.waits = 0
        self.writer = RecordWriter(
            partitioner(kind, (0,), consumers, 128), self.channels, self.wait, lambda: self.now_ms, timeout_ms
        )

    def wait(self, ready: Callable[[], bool]) -> None:
        assert not ready()
        self.waits += 1
        for channel in self.channels:
            channel.room = True
        assert ready()


def rows(count: int, text: str = "x") -> Batch:
    columns: list[Any] = [pa.array(range(count), pa.int64()), pa.array([text] * count, pa.string())]
    return Batch(pa.RecordBatch.from_arrays(columns, ["c0", "c1"]))


def test_small_batches_wait_for_each_other_or_the_timeout() -> None:
    bench = Bench()
    bench.writer.write(rows(10))
    bench.now_ms = 40
    bench.writer.write(rows(5))
    assert bench.writer.flush_due_ms == 100
    bench.writer.flush_if_due(99)
    assert bench.channels[0].sent == []
    bench.writer.flush_if_due(100)
    assert bench.channels[0].shape() == [15]
    assert bench.writer.flush_due_ms is None


def test_enough_rows_go_at_once() -> None:
    bench = Bench()
    bench.writer.write(rows(10))
    bench.writer.write(rows(COALESCE_ROWS))
    assert bench.channels[0].shape() == [COALESCE_ROWS + 10]


def test_without_a_timeout_nothing_waits() -> None:
    bench = Bench(timeout_ms=0)
    bench.writer.write(rows(1))
    bench.writer.write(rows(0))
    assert bench.channels[0].shape() == [1]


def test_control_goes_behind_the_rows_to_every_consumer() -> None:
    bench = Bench(consumers=2, kind=EdgeKind.HASH)
    bench.writer.write(rows(100))
    bench.writer.broadcast(Watermark(7))
    bench.writer.broadcast(Barrier(1, 1))
    for channel in bench.channels:
        first, *rest = channel.shape()
        assert isinstance(first, int)
        assert rest == [Watermark(7), Barrier(1, 1)]
    assert bench.writer.records_out == 100


def test_what_has_no_credit_is_queued_in_order() -> None:
    bench = Bench()
    channel = bench.channels[0]
    channel.room = False
    bench.writer.write(rows(COALESCE_ROWS))
    bench.writer.broadcast(Watermark(7))
    bench.writer.write(rows(COALESCE_ROWS + 1))
    assert (bench.waits, channel.sent, bench.writer.has_room) == (0, [], False)
    assert not bench.writer.can_drain()
    channel.room = True
    assert bench.writer.can_drain()
    bench.writer.drain()
    assert channel.shape() == [COALESCE_ROWS, Watermark(7), COALESCE_ROWS + 1]
    assert bench.writer.has_room
    assert bench.writer.records_out == 2 * COALESCE_ROWS + 1


def test_beyond_its_overdraft_the_writer_waits() -> None:
    bench = Bench()
    bench.channels[0].room = False
    bench.writer.write(rows(OVERDRAFT_BYTES // 100, "x" * 100))
    assert bench.waits == 1
    assert bench.writer.has_room


def without_credit(kind: EdgeKind = EdgeKind.FORWARD, consumers: int = 1) -> Bench:
    bench = Bench(consumers, kind)
    for channel in bench.channels:
        channel.room = False
    return bench


def test_an_unaligned_barrier_overtakes_queued_and_collected_rows() -> None:
    bench = without_credit()
    bench.writer.write(rows(COALESCE_ROWS))
    bench.writer.broadcast(Watermark(7))
    bench.writer.broadcast(EndOfInput(True))
    bench.writer.write(rows(3))
    barrier = Barrier(1, 1, aligned_timeout_ms=0)
    (overtaken,) = bench.writer.overtake(barrier)
    assert [e.row_count if isinstance(e, Batch) else e for e in overtaken] == [COALESCE_ROWS, Watermark(7), 3]
    assert bench.channels[0].sent == [barrier]
    bench.channels[0].room = True
    bench.writer.drain()
    bench.writer.flush()
    assert bench.channels[0].shape() == [barrier, COALESCE_ROWS, Watermark(7), EndOfInput(True), 3]


def test_an_aligned_barrier_in_the_queue_counts_down_and_may_be_released() -> None:
    bench = without_credit()
    bench.writer.write(rows(COALESCE_ROWS))
    bench.writer.broadcast(Barrier(1, 1, aligned_timeout_ms=100))
    bench.writer.write(rows(COALESCE_ROWS))
    assert bench.writer.holds_barrier(1)
    assert not bench.writer.holds_barrier(2)
    (overtaken,) = bench.writer.release(Barrier(1, 1, aligned_timeout_ms=0))
    assert [e.row_count for e in overtaken if isinstance(e, Batch)] == [COALESCE_ROWS]
    assert bench.channels[0].sent == [Barrier(1, 1, aligned_timeout_ms=0)]
    bench.writer.broadcast(Barrier(2, 1, aligned_timeout_ms=100))
    bench.now_ms, bench.channels[0].room = 30, True
    bench.writer.drain()
    assert bench.channels[0].shape()[1:] == [COALESCE_ROWS, COALESCE_ROWS, Barrier(2, 1, aligned_timeout_ms=70)]


def test_a_barrier_that_is_given_up_leaves_the_queue() -> None:
    bench = without_credit()
    bench.writer.write(rows(COALESCE_ROWS))
    bench.writer.broadcast(Barrier(1, 1, aligned_timeout_ms=100))
    bench.writer.withdraw(1)
    bench.channels[0].room = True
    bench.writer.drain()
    assert bench.channels[0].shape() == [COALESCE_ROWS]


def test_large_batches_are_cut_but_not_rows() -> None:
    even = list(cut_by_bytes(rows(1000, "x" * 1000), 100_000))
    assert all(size <= 100_000 for _, size in even)
    assert sum(piece.row_count for piece, _ in even) == 1000
    texts = pa.array(["a", "b" * 5000, "c", "d", "e"], pa.string())
    uneven = list(cut_by_bytes(Batch(pa.RecordBatch.from_arrays([texts], ["c0"])), 2_000))
    assert [t for piece, _ in uneven for t in piece.data.column(0).to_pylist()] == texts.to_pylist()
    assert all(size <= 2_000 or piece.row_count == 1 for piece, size in uneven)
