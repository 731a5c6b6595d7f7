"""The outgoing edges of one task, as one: rows and control elements go to all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.checkpoint.in_flight import ChannelRef, InFlight
from runtime.elements import Barrier, Batch, Control, Element
from runtime.exchange.frames import channel_schema
from runtime.exchange.writer import RecordWriter
from runtime.protocol.descriptors import TaskDescriptor

Room = Callable[[], bool]


class TaskOutputs:
    """`writers`: one per outgoing edge, in the descriptor's order. `others_have_room`: what else the task's rows go
    into (the buffer of a query's result)."""

    def __init__(
        self,
        descriptor: TaskDescriptor,
        writers: Sequence[RecordWriter],
        now_ms: Callable[[], float],
        others_have_room: Room | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._writers = tuple(writers)
        self._now_ms = now_ms
        self._others_have_room = others_have_room

    @property
    def are_open(self) -> bool:
        """Every consumer has announced its credit."""
        return all(writer.is_open for writer in self._writers)

    @property
    def records_out(self) -> int:
        return sum(writer.records_out for writer in self._writers)

    @property
    def bytes_out(self) -> int:
        return sum(writer.bytes_out for writer in self._writers)

    def emit(self, batch: Batch) -> None:
        for writer in self._writers:
            writer.write(batch)

    def broadcast(self, element: Control) -> None:
        for writer in self._writers:
            writer.broadcast(element)

    def time_to_flush_ms(self) -> float | None:
        """Until collected rows must go; None when there are none."""
        due = [d for writer in self._writers if (d := writer.flush_due_ms) is not None]
        return max(0.0, min(due) - self._now_ms()) if due else None

    def flush_due(self) -> None:
        now_ms = self._now_ms()
        for writer in self._writers:
            writer.flush_if_due(now_ms)

    # ---------------------------------------------------------------------------------------------------------- room

    def has_room(self) -> bool:
        """Nothing that was put out waits any more, after what there is credit for is sent."""
        all_sent = True
        for writer in self._writers:
            if not writer.has_room:
                writer.drain()
                all_sent = all_sent and writer.has_room
        return all_sent and (self._others_have_room is None or self._others_have_room())

    def all_sent(self) -> bool:
        """Nothing waits for credit."""
        return all(writer.has_room for writer in self._writers)

    def can_send(self) -> bool:
        """Whether something that waits could be sent. Called with the task's inbox locked."""
        return any(not writer.has_room and writer.can_drain() for writer in self._writers)

    def can_go_on(self) -> bool:
        """Whether to ask `has_room` again. Called with the task's inbox locked."""
        waiting = [writer for writer in self._writers if not writer.has_room]
        if waiting:
            return any(writer.can_drain() for writer in waiting)
        return self._others_have_room is None or self._others_have_room()

    # -------------------------------------------------------------------------------------------- unaligned barriers

    def overtake(self, barrier: Barrier) -> list[InFlight]:
        """The barrier goes before everything that waits."""
        return self._in_flight([writer.overtake(barrier) for writer in self._writers])

    def holds_barrier(self, checkpoint_id: int) -> bool:
        """Whether an aligned barrier of this checkpoint waits behind rows."""
        return any(not writer.has_room and writer.holds_barrier(checkpoint_id) for writer in self._writers)

    def release(self, barrier: Barrier) -> list[InFlight]:
        """An aligned barrier that still waits somewhere overtakes what is before it."""
        return self._in_flight([writer.release(barrier) for writer in self._writers])

    def withdraw(self, checkpoint_id: int) -> None:
        """The checkpoint is given up: its barrier leaves the queues."""
        for writer in self._writers:
            writer.withdraw(checkpoint_id)

    def _in_flight(self, overtaken: list[list[list[Element]]]) -> list[InFlight]:
        found: list[InFlight] = []
        descriptor = self._descriptor
        for edge, by_channel in zip(descriptor.outputs, overtaken, strict=True):
            for consumer, elements in zip(edge.consumers, by_channel, strict=True):
                if any(isinstance(element, Batch) for element in elements):
                    channel = ChannelRef(
                        edge.edge_id,
                        descriptor.subtask_index,
                        consumer.attempt.subtask_index,
                        descriptor.vertex.operators[-1].uid,
                        edge.target_uid,
                        channel_schema(edge.schema, edge.changelog),
                        edge.input_index,
                    )
                    found.append(InFlight(channel, elements))
        return found
