"""The consumer's side of channels and the one place where a task's thread waits.

A task waits for exactly one thing: its `Inbox`. Elements of its input channels, messages from the JobManager, credit
for its outputs, cancellation and the failure of a connection all wake it there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from runtime.elements import Barrier, Batch, Control, Element, EndOfInput


class TaskCancelled(Exception):
    """Raised in the task's thread at the next yield point or wait after its cancellation."""


class OutputChannel(Protocol):
    """The producer's side of one channel, used by the producer's task thread."""

    @property
    def is_open(self) -> bool:
        """The consumer is there and has announced its credit."""

    def admits(self, byte_size: int) -> bool:
        """Whether a batch of this size may be sent now. Called with the producer's inbox locked."""

    def send_batch(self, batch: Batch, byte_size: int) -> None:
        """Only after `admits` said yes."""

    def send_control(self, element: Control) -> None:
        """Needs no credit; keeps its place behind the batches sent before."""


class InputChannel:
    """Queue of one input channel. `give_back` returns credit to the producer; called outside the inbox's lock. While a
    checkpoint is being recorded, what joins the queue before its barrier is noted as in flight."""

    def __init__(self, inbox: Inbox, index: int, capacity_bytes: int) -> None:
        self.inbox = inbox
        self.index = index
        self.capacity_bytes = capacity_bytes
        self.elements: deque[tuple[Element, int]] = deque()
        self.blocked = False
        self.listed = False
        self.give_back: Callable[[int], None] | None = None
        self.bytes_received = 0
        self.recorded: list[Element] = []
        self._recording: int | None = None

    def put(self, element: Element, byte_size: int = 0) -> None:
        """From any thread. `byte_size` 0 for control elements."""
        with self.inbox.condition:
            self.bytes_received += byte_size
            if not byte_size:
                self.inbox.announce(self, element)
            if self._recording is not None and self._note(element):
                return
            self.elements.append((element, byte_size))
            self.inbox.list_channel(self)

    def _note(self, element: Element) -> bool:
        """Called with the lock held, while recording. True: it is the barrier that was missing, and goes no further."""
        if isinstance(element, Barrier):
            if element.checkpoint_id != self._recording:
                return False
            self._recording = None
            return True
        # The end is not in flight: a producer that has ended says so again after a restore.
        if not isinstance(element, EndOfInput):
            self.recorded.append(element)
        return False

    def overtake(self, checkpoint_id: int) -> None:
        """Called with the lock held. The barrier leaves the queue and what was before it is recorded; if it is not
        there, everything is, and what follows until it comes."""
        self._recording, queued = checkpoint_id, self.elements
        self.elements = deque()
        while queued:
            element, byte_size = queued.popleft()
            if self._note(element):
                self.elements += queued
                return
            self.elements.append((element, byte_size))

    def end_recording(self) -> list[Element]:
        """Called with the lock held: what was recorded."""
        recorded, self.recorded, self._recording = self.recorded, [], None
        return recorded


class Inbox:
    """Mail and input channels of one task. One thread takes, any thread puts."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.channels: list[InputChannel] = []
        self._mail: deque[object] = deque()
        self._ready: deque[InputChannel] = deque()
        self._announced: deque[tuple[int, Barrier | EndOfInput]] = deque()
        self._interrupt: Exception | None = None

    def add_channel(self, capacity_bytes: int) -> InputChannel:
        """Before the task runs; channels are numbered in the order of their making."""
        channel = InputChannel(self, len(self.channels), capacity_bytes)
        self.channels.append(channel)
        return channel

    # ------------------------------------------------------------------------------------ from other threads

    def post(self, message: object) -> None:
        """A message for the task; taken before any element."""
        with self.condition:
            self._mail.append(message)
            self.condition.notify()

    def notify(self) -> None:
        """Something a `wait_until` may wait for has changed."""
        with self.condition:
            self.condition.notify()

    def interrupt(self, reason: Exception) -> None:
        """End the task: `reason` is raised in its thread. The first reason stays."""
        with self.condition:
            if self._interrupt is None:
                self._interrupt = reason
            self.condition.notify()

    def list_channel(self, channel: InputChannel) -> None:
        """Called with the lock held: the channel has an element to take, unless it is blocked."""
        if not channel.listed and not channel.blocked:
            channel.listed = True
            self._ready.append(channel)
            self.condition.notify()

    def announce(self, channel: InputChannel, element: Element) -> None:
        """Called with the lock held: what the task is to hear of before its turn, if it is that."""
        is_urgent = isinstance(element, Barrier) and element.aligned_timeout_ms is not None
        if is_urgent or isinstance(element, EndOfInput):
            self._announced.append((channel.index, element))  # type: ignore[arg-type]
            self.condition.notify()

    # ------------------------------------------------------------------------------------- by the task's thread

    @property
    def interrupted(self) -> bool:
        return self._interrupt is not None

    def check(self) -> None:
        """Yield point: raises when the task was cancelled or must fail."""
        if self._interrupt is not None:
            raise self._interrupt

    @property
    def has_mail(self) -> bool:
        return bool(self._mail)

    def take_mail(self) -> object | None:
        """The oldest message, or None."""
        if not self._mail:
            return None
        return self._mail.popleft()

    @property
    def has_announced(self) -> bool:
        return bool(self._announced)

    def take_announced(self) -> tuple[int, Barrier | EndOfInput] | None:
        """The oldest control element that has joined a queue and is to be known at once, with its channel. It stays
        in its place."""
        if not self._announced:
            return None
        return self._announced.popleft()

    def take(self) -> tuple[int, Element] | None:
        """The next element in turn of a channel that is not blocked, or None. Credit goes back at once."""
        with self.condition:
            channel = self._next_channel()
            if channel is None:
                return None
            element, byte_size = channel.elements.popleft()
            if channel.elements:
                self._ready.append(channel)
            else:
                channel.listed = False
        if byte_size and channel.give_back is not None:
            channel.give_back(byte_size)
        return channel.index, element

    def _next_channel(self) -> InputChannel | None:
        while self._ready:
            channel = self._ready.popleft()
            if channel.elements and not channel.blocked:
                return channel
            channel.listed = False
        return None

    def block(self, index: int) -> None:
        """Leave the channel's elements queued until `unblock` (barrier alignment)."""
        with self.condition:
            self.channels[index].blocked = True

    def unblock(self, index: int) -> None:
        with self.condition:
            channel = self.channels[index]
            channel.blocked = False
            if channel.elements:
                self.list_channel(channel)

    def overtake(self, index: int, checkpoint_id: int) -> None:
        """See OvertakeChannel."""
        with self.condition:
            self.channels[index].overtake(checkpoint_id)

    def end_recording(self) -> list[list[Element]]:
        """What was recorded, by channel; nothing more is."""
        with self.condition:
            return [channel.end_recording() for channel in self.channels]

    def wait(self, timeout_s: float | None, also: Callable[[], bool] = lambda: False) -> None:
        """Until there is mail, an announcement or an element to take, or `also()`, or the time is over. Raises the
        interrupt."""
        with self.condition:
            self.condition.wait_for(lambda: bool(self._ready) or self._urgent() or also(), timeout_s)
        self.check()

    def wait_for_room(self, ready: Callable[[], bool], timeout_s: float | None) -> None:
        """Until `ready()`, mail, an announcement, or the time is over: elements stay where they are. Raises the
        interrupt."""
        with self.condition:
            self.condition.wait_for(lambda: self._urgent() or ready(), timeout_s)
        self.check()

    def _urgent(self) -> bool:
        return bool(self._mail) or bool(self._announced) or self._interrupt is not None

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Until `ready()`, which is asked with the lock held and again after each `notify`. Raises the interrupt."""
        with self.condition:
            self.condition.wait_for(lambda: self._interrupt is not None or ready())
        self.check()
