"""Invariants of operators, checked around each of them in tests (and with a slot's `--check-operators`)."""

from __future__ import annotations

from collections.abc import Iterator

from planner.ir import operators as ir
from planner.ir.types import arrow_schema
from runtime.elements import MIN_WATERMARK_MS, Batch
from runtime.operators.protocol import (
    OUTPUT_ROWS_MAX,
    DelayingOperator,
    FinishSnapshot,
    FiringOperator,
    HoldingOperator,
    Operator,
    TimedOperator,
    TwoInputOperator,
)


class CheckedOperator:
    """Passes everything to `inner`. Asserts: batches have the declared schema; row kinds match rows; pieces made by
    firing are bounded; event time never falls; nothing comes after the end."""

    def __init__(self, inner: Operator, node: ir.Operator) -> None:
        self.inner = inner
        # What it is, asked once: a protocol's isinstance() takes longer than a small batch.
        self._two_inputs = inner if isinstance(inner, TwoInputOperator) else None
        self._timed = inner if isinstance(inner, TimedOperator) else None
        self._holding = inner if isinstance(inner, HoldingOperator) else None
        self._delaying = inner if isinstance(inner, DelayingOperator) else None
        self._firing = inner if isinstance(inner, FiringOperator) else None
        self._schema = arrow_schema(ir.output_schema(node).types)
        self._watermark_ms = MIN_WATERMARK_MS
        self._ended = False

    @property
    def uid(self) -> str:
        return self.inner.uid

    def open(self) -> None:
        self.inner.open()

    def process(self, batch: Batch) -> Iterator[Batch]:
        yield from self.process_input(0, batch)

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        assert not self._ended, f"{self.uid}: rows after the end of input"
        assert batch.row_kinds is None or len(batch.row_kinds) == batch.row_count
        if self._two_inputs is not None:
            pieces = self._two_inputs.process_input(input_index, batch)
        else:
            assert input_index == 0, f"{self.uid} has one input"
            pieces = self.inner.process(batch)
        for piece in pieces:
            self._check(piece)
            yield piece

    @property
    def watermark_delay_ms(self) -> int:
        return 0 if self._delaying is None else self._delaying.watermark_delay_ms

    @property
    def keeps_unsent(self) -> bool:
        return self._firing is not None and self._firing.keeps_unsent

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        assert not self._ended, f"{self.uid}: a watermark after the end of input"
        assert watermark_ms >= self._watermark_ms, f"{self.uid}: {watermark_ms} < {self._watermark_ms}"
        self._watermark_ms = watermark_ms
        yield from self._fired(self.inner.advance(watermark_ms))

    def end(self, drain: bool) -> Iterator[Batch]:
        assert not self._ended, f"{self.uid}: ended twice"
        yield from self._fired(self.inner.end(drain))
        self._ended = True

    def timer_ms(self) -> int | None:
        return None if self._timed is None else self._timed.timer_ms()

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        assert not self._ended, f"{self.uid}: a timer after the end of input"
        if self._timed is not None:
            yield from self._fired(self._timed.on_timer(now_ms))
            due = self._timed.timer_ms()
            assert due is None or due > now_ms, f"{self.uid}: the timer {due} has not fired at {now_ms}"

    def flush(self) -> Iterator[Batch]:
        if self._holding is not None:
            for piece in self._holding.flush():
                assert not self._ended, f"{self.uid}: rows after the end of input"
                self._check(piece)
                yield piece
            assert next(self._holding.flush(), None) is None, f"{self.uid}: it still holds rows after a flush"

    def _fired(self, pieces: Iterator[Batch]) -> Iterator[Batch]:
        for piece in pieces:
            assert piece.row_count <= OUTPUT_ROWS_MAX, f"{self.uid}: a piece of {piece.row_count} rows"
            self._check(piece)
            yield piece

    def _check(self, piece: Batch) -> None:
        assert piece.data.schema.equals(self._schema), (
            f"{self.uid}: its batch is {piece.data.schema}, declared is {self._schema}"
        )
        assert piece.row_kinds is None or len(piece.row_kinds) == piece.row_count

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        return self.inner.snapshot(checkpoint_id)

    def counters(self) -> dict[str, float]:
        return self.inner.counters()

    def close(self) -> None:
        self.inner.close()
