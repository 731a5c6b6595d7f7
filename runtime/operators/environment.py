"""What an operator may ask of its task beyond its own context."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from runtime.protocol.descriptors import TaskDescriptor
from runtime.protocol.messages import FromSlot


class TaskEnvironment(msgspec.Struct, frozen=True):
    """`wait_until` blocks the task's thread until the condition holds (asked again after each `notify`); the time
    counts as backpressure, and cancellation raises. `notify` may be called from any thread. `send` reports to the
    JobManager. `backpressured_ms` is how long the task has waited for credit since its start."""

    descriptor: TaskDescriptor
    monotonic_ms: Callable[[], float]
    wait_until: Callable[[Callable[[], bool]], None]
    notify: Callable[[], None]
    send: Callable[[FromSlot], None]
    backpressured_ms: Callable[[], float]
    check: Callable[[], None] = lambda: None
    """Raises when the task is to end: for what waits for the outside world."""
