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
        if isinstance(self.inner, TwoInputOperator):
            pieces = self.inner.process_input(input_index, batch)
        else:
            assert input_index == 0, f"{self.uid} has one input"
            pieces = self.inner.process(batch)
        for piece in pieces:
            self._check(piece)
            yield piece

    @property
    def watermark_delay_ms(self) -> int:
        return self.inner.watermark_delay_ms if isinstance(self.inner, DelayingOperator) else 0

    @property
    def keeps_unsent(self) -> bool:
        return isinstance(self.inner, FiringOperator) and self.inner.keeps_unsent

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
        return self.inner.timer_ms() if isinstance(self.inner, TimedOperator) else None

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        assert not self._ended, f"{self.uid}: a timer after the end of input"
        if isinstance(self.inner, TimedOperator):
            yield from self._fired(self.inner.on_timer(now_ms))
            due = self.inner.timer_ms()
            assert due is None or due > now_ms, f"{self.uid}: the timer {due} has not fired at {now_ms}"

    def flush(self) -> Iterator[Batch]:
        if isinstance(self.inner, HoldingOperator):
            for piece in self.inner.flush():
                assert not self._ended, f"{self.uid}: rows after the end of input"
                self._check(piece)
                yield piece
            assert next(self.inner.flush(), None) is None, f"{self.uid}: it still holds rows after a flush"

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
