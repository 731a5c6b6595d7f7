"""A channel between two tasks of the same slot process: passes references, accounts bytes as a remote one does."""

from __future__ import annotations

from runtime.elements import Batch, Control
from runtime.exchange.channel import Inbox, InputChannel
from runtime.exchange.credits import CreditWindow


class LocalChannel:
    """See `OutputChannel`. `producer` is the inbox in which the producer's thread waits for credit."""

    def __init__(self, target: InputChannel, producer: Inbox) -> None:
        self._target = target
        self._producer = producer
        self._window = CreditWindow(target.capacity_bytes)
        target.give_back = self._give_back

    @property
    def is_open(self) -> bool:
        return True

    def admits(self, byte_size: int) -> bool:
        return self._window.admits(byte_size)

    def send_batch(self, batch: Batch, byte_size: int) -> None:
        with self._producer.condition:
            self._window.take(byte_size)
        self._target.put(batch, byte_size)

    def send_control(self, element: Control) -> None:
        self._target.put(element)

    def _give_back(self, byte_size: int) -> None:
        with self._producer.condition:
            self._window.give_back(byte_size)
            self._producer.condition.notify()
