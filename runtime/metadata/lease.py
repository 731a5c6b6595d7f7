"""The lease as everything below a leader sees it: how long it is still ours, and what keeps it in a store."""

from __future__ import annotations

from typing import Protocol

from runtime.api import MetadataStore, StaleLeaderError
from runtime.clock import monotonic_ms
from runtime.metadata.election import Contact, LeaseRecord


class StoreUnavailableError(Exception):
    """The store does not answer. What was asked of it may or may not have happened."""


class Lease:
    """Until when we lead, by our own clock. Written by the election, read by every thread that changes something."""

    def __init__(self) -> None:
        self._held_until_ms = 0

    def hold_until(self, deadline_ms: int) -> None:
        self._held_until_ms = deadline_ms

    def give_up(self) -> None:
        self._held_until_ms = 0

    @property
    def is_held(self) -> bool:
        return monotonic_ms() < self._held_until_ms

    def check(self) -> None:
        """Raises StaleLeaderError once the lease is over: another JobManager may lead by now."""
        if not self.is_held:
            raise StaleLeaderError("this JobManager's lease is over")


class LeaseStore(Protocol):
    """Keeps the lease. Every call may block and may raise StoreUnavailableError."""

    def look(self) -> LeaseRecord: ...

    def take(self, watched: LeaseRecord, contact: Contact, duration_ms: int) -> int | None:
        """The new token, higher than every one before; None: the record is not `watched` any more."""

    def renew(self, token: int) -> bool:
        """False: the token is not the newest any more."""

    def release(self, token: int) -> None:
        """Nobody holds it any more; nothing happens when the token is not the newest."""

    def close(self) -> None: ...


class LeaderStore(MetadataStore, Protocol):
    """A metadata store opened for writing by a leader."""

    @property
    def leader_token(self) -> int:
        """Ours; higher than that of every earlier leader."""

    def close(self) -> None: ...
