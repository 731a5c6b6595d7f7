"""What a task does with the elements it takes: rows pass the chain at once, event time step by step.

A step ends where every operator's state holds exactly what has not been put out. Behind each the task may be held up:
for room, for its mail, for a barrier. What is left goes on at its next free turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.elements import (
    MIN_WATERMARK_MS,
    Barrier,
    Batch,
    Control,
    Element,
    EndOfInput,
    Watermark,
    WatermarkStatus,
)
from runtime.exchange.channel import Inbox
from runtime.operators.chain import OperatorChain
from runtime.taskmanager.recovered_input import RecoveredInput
from runtime.taskmanager.task_barriers import TaskBarriers
from runtime.taskmanager.task_outputs import TaskOutputs
from runtime.taskmanager.watermark_valve import WatermarkValve

Steps = Iterator[None]


class TaskWork:
    """Used by the task's thread; nothing new is taken while `is_unfinished`. `input_indexes`: per channel, the input of
    the first operator that its rows are for."""

    def __init__(
        self,
        chain: OperatorChain,
        inbox: Inbox,
        recovered: RecoveredInput,
        outputs: TaskOutputs,
        barriers: TaskBarriers,
        input_indexes: Sequence[int],
    ) -> None:
        self._chain = chain
        self._inbox = inbox
        self._recovered = recovered
        self._outputs = outputs
        self._barriers = barriers
        self._valve = WatermarkValve(len(inbox.channels))
        self._input_indexes = input_indexes
        self._steps: Steps | None = None
        self.drains = True
        """No input has ended in a way that lets nothing fire."""
        self.records_in = 0
        self.watermark_ms = MIN_WATERMARK_MS

    @property
    def is_unfinished(self) -> bool:
        """Something was begun and waits for room, or for its turn."""
        return self._steps is not None

    def go_on(self) -> None:
        """What was begun, as far as there is room; barriers and mail come between two steps."""
        if self._steps is not None:
            self._begin(self._steps)

    def finish(self) -> None:
        """What was begun, to its end."""
        for _ in self._steps or ():
            pass
        self._steps = None

    def fire(self, timers: Steps | None) -> None:
        """Timers that are due."""
        if timers is not None and self._steps is None:
            self._begin(timers)

    def _begin(self, steps: Steps) -> None:
        self._steps = steps
        for _ in steps:
            if self._inbox.has_mail or self._barriers.is_due or not self._outputs.has_room():
                return
        self._steps = None

    def take_input(self) -> bool:
        """One element of the input channels; False: there is none."""
        taken = self._inbox.take()
        if taken is None:
            return False
        channel, element = taken
        if isinstance(element, Batch):
            self._take_rows(element, self._input_indexes[channel])
        else:
            self._take_control(channel, element)
        return True

    def take_recovered(self) -> None:
        """One element that was in flight at the restore."""
        taken = self._recovered.take()
        assert taken is not None
        restore, element = taken
        if isinstance(element, Watermark | WatermarkStatus):
            self._take_control(self._recovered.position(restore, element), element)
            return
        assert isinstance(element, Batch)
        if restore.edge_id >= 0:
            self._take_rows(element, restore.handle.input_index)
        else:
            self.records_in += element.row_count
            self._chain.process_at(restore.handle.target_uid, element)

    def take_in(self, element: Element) -> None:
        """What the chain is to see of its source: rows, or the task's own event time."""
        if isinstance(element, Batch):
            self._take_rows(element, 0)
        else:
            assert isinstance(element, Watermark | WatermarkStatus)
            self._begin(self._advance([element]))

    def _take_rows(self, batch: Batch, input_index: int) -> None:
        self.records_in += batch.row_count
        self._chain.process(batch, input_index)

    def _take_control(self, channel: int, element: Control) -> None:
        match element:
            case Barrier():
                self._barriers.on_barrier(channel, element)
            case Watermark(timestamp_ms=timestamp_ms):
                self._begin(self._advance(self._valve.on_watermark(channel, timestamp_ms)))
            case WatermarkStatus(idle=idle):
                self._begin(self._advance(self._valve.on_status(channel, idle)))
            case EndOfInput(drain=drain):
                self.drains = self.drains and drain
                self._begin(self._end_channel(channel, drain))

    def _end_channel(self, channel: int, drain: bool) -> Steps:
        if drain:
            yield from self._advance(self._valve.on_ended(channel))
        self._barriers.on_ended(channel)

    def _advance(self, elements: Sequence[Watermark | WatermarkStatus]) -> Steps:
        for element in elements:
            if isinstance(element, Watermark):
                self.watermark_ms = element.timestamp_ms
                yield from self._chain.advance(element.timestamp_ms)
                self._outputs.broadcast(Watermark(self._chain.watermark_behind(element.timestamp_ms)))
            else:
                self._outputs.broadcast(element)
