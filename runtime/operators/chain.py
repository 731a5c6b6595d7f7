"""A chain of operators: consecutive links call each other; what leaves the last one goes to the record writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, substitute
from runtime.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Batch
from runtime.operators.expressions.compiler import is_deterministic
from runtime.operators.protocol import (
    DelayingOperator,
    FinishSnapshot,
    FiringOperator,
    HoldingOperator,
    Operator,
    TimedOperator,
    TwoInputOperator,
)


class OperatorChain:
    """Drives operators in order. `emit` takes what the last one gives; `yield_point` is called between pieces and
    raises when the task was cancelled.

    `advance` and `on_timers` are done step by step: between two steps every operator's state holds exactly what has not
    been put out, so the task may take a snapshot there, or leave the rest for later. `ended`: uids of operators whose
    end was part of the checkpoint that they are restored from; they do not end again."""

    def __init__(
        self,
        operators: Sequence[Operator],
        emit: Callable[[Batch], None],
        yield_point: Callable[[], None],
        ended: frozenset[str] = frozenset(),
    ) -> None:
        self.operators = tuple(operators)
        self._emit = emit
        self._yield_point = yield_point
        self._ended = ended
        self._timed = [(i, o) for i, o in enumerate(self.operators) if isinstance(o, TimedOperator)]
        self._holding = {i: o for i, o in enumerate(self.operators) if isinstance(o, HoldingOperator)}
        self._firing = {i for i, o in enumerate(self.operators) if isinstance(o, FiringOperator) and o.keeps_unsent}
        self._delaying = {i: o for i, o in enumerate(self.operators) if isinstance(o, DelayingOperator)}
        self._positions = {operator.uid: i for i, operator in enumerate(self.operators)}
        self._two_inputs = next((o for o in self.operators[:1] if isinstance(o, TwoInputOperator)), None)

    def open(self) -> None:
        # From the end: consumers are ready before their producers.
        for operator in reversed(self.operators):
            operator.open()

    def process(self, batch: Batch, input_index: int = 0) -> None:
        """Rows for the first operator, on one of its inputs."""
        if self._two_inputs is None:
            self._pass_on(0, batch)
        else:
            self._pass_all(1, self._two_inputs.process_input(input_index, batch))

    def process_at(self, uid: str, batch: Batch) -> None:
        """Rows for the operator `uid`."""
        self._pass_on(self._positions[uid], batch)

    def advance(self, watermark_ms: int) -> Iterator[None]:
        """Event time for each operator in turn: what one fires reaches the next before its own time moves."""
        for index, operator in enumerate(self.operators):
            self._flush(index)
            yield from self._steps(index, operator.advance(watermark_ms))
            watermark_ms = self._delayed(index, watermark_ms)

    def watermark_behind(self, watermark_ms: int) -> int:
        """The event time of what leaves the chain when the first operator's is `watermark_ms`."""
        for index in self._delaying:
            watermark_ms = self._delayed(index, watermark_ms)
        return watermark_ms

    def end(self, drain: bool) -> None:
        """No input will follow."""
        for index, operator in enumerate(self.operators):
            self._flush(index)
            if operator.uid not in self._ended:
                self._pass_all(index + 1, operator.end(drain))

    def flush(self) -> None:
        """Nothing is held back any more; before a snapshot."""
        for index in self._holding:
            self._flush(index)

    def timer_ms(self) -> int | None:
        """Wall-clock ms of the earliest processing-time timer."""
        if not self._timed:
            return None
        timers = [timer for _, operator in self._timed if (timer := operator.timer_ms()) is not None]
        return min(timers, default=None)

    def on_timers(self, now_ms: int) -> Iterator[None]:
        """Timers up to `now_ms` fire, operator by operator."""
        for index, operator in self._timed:
            timer = operator.timer_ms()
            if timer is not None and timer <= now_ms:
                yield from self._steps(index, operator.on_timer(now_ms))

    def snapshot(self, checkpoint_id: int) -> list[FinishSnapshot]:
        return [operator.snapshot(checkpoint_id) for operator in self.operators]

    def counters(self) -> dict[str, dict[str, float]]:
        return {operator.uid: operator.counters() for operator in self.operators}

    def close(self) -> None:
        """Closes every operator, then raises the first error."""
        errors: list[Exception] = []
        for operator in self.operators:
            try:
                operator.close()
            except Exception as error:  # Closing the others comes first.
                errors.append(error)
        if errors:
            raise errors[0]

    def _delayed(self, index: int, watermark_ms: int) -> int:
        """Event time behind operator `index`."""
        operator = self._delaying.get(index)
        if operator is None or watermark_ms == MAX_WATERMARK_MS:
            return watermark_ms
        return max(MIN_WATERMARK_MS, watermark_ms - operator.watermark_delay_ms)

    def _flush(self, index: int) -> None:
        operator = self._holding.get(index)
        if operator is not None:
            self._pass_all(index + 1, operator.flush())

    def _steps(self, index: int, pieces: Iterator[Batch]) -> Iterator[None]:
        """The pieces of operator `index`, with a step behind each where the operator may be left there."""
        may_stop = index in self._firing
        for piece in pieces:
            self._pass_on(index + 1, piece)
            self._yield_point()
            if may_stop:
                yield

    def _pass_all(self, index: int, pieces: Iterator[Batch]) -> None:
        for piece in pieces:
            self._pass_on(index, piece)
            self._yield_point()

    def _pass_on(self, index: int, batch: Batch) -> None:
        if index == len(self.operators):
            self._emit(batch)
            return
        self._pass_all(index + 1, self.operators[index].process(batch))


def merge_calcs(operators: Sequence[ir.Operator], apart: frozenset[str] = frozenset()) -> tuple[ir.Operator, ...]:
    """Consecutive calcs as one, so that a batch crosses them in one compiled function. Calcs with an expression that
    is not deterministic stay apart: merged, it could be evaluated twice or for other rows. So do those named in
    `apart`: they are to take rows themselves."""
    merged: list[ir.Operator] = []
    for operator in operators:
        previous = merged[-1] if merged else None
        if isinstance(operator, ir.Calc) and isinstance(previous, ir.Calc) and _mergeable(previous, operator, apart):
            merged[-1] = _merge(previous, operator)
        else:
            merged.append(operator)
    return tuple(merged)


def _mergeable(first: ir.Calc, second: ir.Calc, apart: frozenset[str]) -> bool:
    if first.uid in apart or second.uid in apart:
        return False
    return all(is_deterministic(e) for calc in (first, second) for e in (*calc.projections, *_condition(calc)))


def _condition(calc: ir.Calc) -> tuple[Expression, ...]:
    return () if calc.condition is None else (calc.condition,)


def _merge(first: ir.Calc, second: ir.Calc) -> ir.Calc:
    conditions = (*_condition(first), *(substitute(c, first.projections) for c in _condition(second)))
    match conditions:
        case ():
            condition = None
        case (only,):
            condition = only
        case _:
            condition = Call("AND", conditions, t.BOOLEAN)
    projections = tuple(substitute(p, first.projections) for p in second.projections)
    return msgspec.structs.replace(second, condition=condition, projections=projections)
