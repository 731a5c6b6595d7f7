"""Who leads among several JobManagers. Pure: events and a monotonic time in, commands out.

The lease is one record in a store that all of them share: a token that only grows, a count of renewals, and who holds
it. The holder renews it at a third of its duration. Nobody compares the clocks of two machines: a standby takes the
lease when it has *watched* the same token and count for the whole duration by its own clock, and the holder counts the
same duration from before it sent its last renewal, so it stops first. Taking raises the token, conditional on the
record still being the one that was watched; from then on every write under an older token is refused by the store
itself. So clocks that run wrong, or a process that is paused at the worst moment, cost time, never data.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec

RENEWALS_PER_LEASE = 3
LOOKS_PER_LEASE = 6
RETRIES_PER_LEASE = 10


class Contact(msgspec.Struct, frozen=True):
    """A JobManager. `name` is one machine and port: two processes cannot have the same at once. `rest_url` is where
    the others send requests when it leads."""

    name: str
    rest_url: str


class LeaseRecord(msgspec.Struct, frozen=True):
    """The lease as it is in the store. `holder` None: it was given back. `duration_ms` is the holder's."""

    token: int
    renewals: int
    duration_ms: int
    holder: Contact | None


class Role(StrEnum):
    STANDBY = "standby"
    LEADER = "leader"
    ENDED = "ended"


# ---------------------------------------------------------------------------------------------------------- events


class Ticked(msgspec.Struct, frozen=True):
    """`deadline_ms` has been reached. Also the first event."""


class LeaseSeen(msgspec.Struct, frozen=True):
    """Answer to LookAtLease; also to TakeLease when somebody else was faster."""

    record: LeaseRecord


class LeaseTaken(msgspec.Struct, frozen=True):
    """Answer to TakeLease. `sent_at_ms`: our clock before it was asked for."""

    token: int
    sent_at_ms: int


class LeaseRenewed(msgspec.Struct, frozen=True):
    """Answer to RenewLease. `sent_at_ms`: our clock before it was sent."""

    sent_at_ms: int


class LeaseGone(msgspec.Struct, frozen=True):
    """A renewal or a write was refused: another JobManager has raised the token. Or nothing can be written any more."""

    reason: str = "another JobManager has taken over"


class StoreFailed(msgspec.Struct, frozen=True):
    """The store did not answer; what was asked may have happened."""

    reason: str


class Resigned(msgspec.Struct, frozen=True):
    """This JobManager ends in order and has stopped everything."""


ElectionEvent = Ticked | LeaseSeen | LeaseTaken | LeaseRenewed | LeaseGone | StoreFailed | Resigned

# -------------------------------------------------------------------------------------------------------- commands


class LookAtLease(msgspec.Struct, frozen=True):
    """Answer LeaseSeen or StoreFailed."""


class TakeLease(msgspec.Struct, frozen=True):
    """Raise the token if the record is still `watched`; answer LeaseTaken, LeaseSeen or StoreFailed."""

    watched: LeaseRecord


class RenewLease(msgspec.Struct, frozen=True):
    """Answer LeaseRenewed, LeaseGone or StoreFailed."""

    token: int


class ReleaseLease(msgspec.Struct, frozen=True):
    """Give it back, so that a standby need not wait. No answer."""

    token: int


class Lead(msgspec.Struct, frozen=True):
    """Start the JobManager under this token."""

    token: int


class HoldUntil(msgspec.Struct, frozen=True):
    """The lease is ours until then by our own clock. After that nothing may be changed any more."""

    deadline_ms: int


class StepDown(msgspec.Struct, frozen=True):
    """Stop leading at once."""

    reason: str


class ShowLeader(msgspec.Struct, frozen=True):
    """Who leads now (None: nobody that is known)."""

    leader: Contact | None


ElectionCommand = LookAtLease | TakeLease | RenewLease | ReleaseLease | Lead | HoldUntil | StepDown | ShowLeader


class LeaderElection:
    """See the module. At most one question to the store is under way; its answer is the event that the command names.
    A leader that has stepped down is over: who wants to stand again starts a new election."""

    def __init__(self, contact: Contact, duration_ms: int) -> None:
        self.role = Role.STANDBY
        self._contact = contact
        self._duration_ms = duration_ms
        self._waiting = False
        self._next_ms: int | None = None
        self._watched: LeaseRecord | None = None
        self._watched_since_ms = 0
        self._shown: Contact | None = None
        self._token = 0
        self._held_until_ms = 0

    @property
    def deadline_ms(self) -> int | None:
        """When `Ticked` is due; None = only an answer can change anything."""
        if self.role is Role.ENDED:
            return None
        own = self._held_until_ms if self.role is Role.LEADER else None
        if self._waiting or self._next_ms is None:
            return own
        return self._next_ms if own is None else min(self._next_ms, own)

    def handle(self, event: ElectionEvent, now_ms: int) -> list[ElectionCommand]:
        if self.role is Role.ENDED:
            return []
        match event:
            case Ticked():
                return self._on_ticked(now_ms)
            case LeaseSeen(record=record):
                self._waiting = False
                return self._on_seen(record, now_ms)
            case LeaseTaken():
                self._waiting = False
                return self._on_taken(event, now_ms)
            case LeaseRenewed(sent_at_ms=sent_at_ms):
                self._waiting = False
                return self._on_renewed(sent_at_ms, now_ms)
            case LeaseGone(reason=reason):
                return self._step_down(reason) if self.role is Role.LEADER else []
            case StoreFailed(reason=reason):
                self._waiting = False
                return self._on_store_failed(reason, now_ms)
            case Resigned():
                release = self.role is Role.LEADER and now_ms < self._held_until_ms
                self.role = Role.ENDED
                return [ReleaseLease(self._token)] if release else []
            case _ as unknown:
                assert_never(unknown)

    # ------------------------------------------------------------------------------------------------------ standby

    def _on_seen(self, record: LeaseRecord, now_ms: int) -> list[ElectionCommand]:
        if self.role is Role.LEADER:
            return []
        if self._watched is None or (record.token, record.renewals) != (self._watched.token, self._watched.renewals):
            self._watched_since_ms = now_ms
        self._watched = record
        # Our own name: an earlier process of ours held it. Its port is ours now, so it is gone.
        is_free = record.holder is None or record.holder.name == self._contact.name
        free_at_ms = self._watched_since_ms + max(self._duration_ms, record.duration_ms)
        if is_free or now_ms >= free_at_ms:
            return [*self._show(None), self._ask(TakeLease(record))]
        self._next_ms = min(now_ms + self._duration_ms // LOOKS_PER_LEASE, free_at_ms)
        return self._show(record.holder)

    def _on_taken(self, event: LeaseTaken, now_ms: int) -> list[ElectionCommand]:
        held_until_ms = event.sent_at_ms + self._duration_ms
        if now_ms >= held_until_ms:
            # We were away while it was granted. A successor is waiting for the same time to pass.
            self._watched = None
            return [self._ask(LookAtLease())]
        self.role = Role.LEADER
        self._token = event.token
        return [*self._hold(held_until_ms, event.sent_at_ms), Lead(event.token), *self._show(self._contact)]

    # ------------------------------------------------------------------------------------------------------- leader

    def _on_renewed(self, sent_at_ms: int, now_ms: int) -> list[ElectionCommand]:
        if self.role is not Role.LEADER:
            return []
        if now_ms >= self._held_until_ms:
            # Too late, although it was granted: what looked at the clock in between has given up already.
            return self._step_down("the lease was over before its renewal was answered")
        return self._hold(sent_at_ms + self._duration_ms, sent_at_ms)

    def _hold(self, held_until_ms: int, sent_at_ms: int) -> list[ElectionCommand]:
        self._held_until_ms = held_until_ms
        self._next_ms = sent_at_ms + self._duration_ms // RENEWALS_PER_LEASE
        return [HoldUntil(held_until_ms)]

    def _step_down(self, reason: str) -> list[ElectionCommand]:
        self.role = Role.ENDED
        return [StepDown(reason), *self._show(None)]

    # --------------------------------------------------------------------------------------------------------- both

    def _on_ticked(self, now_ms: int) -> list[ElectionCommand]:
        if self.role is Role.LEADER and now_ms >= self._held_until_ms:
            return self._step_down("the lease could not be renewed in time")
        if self._waiting or (self._next_ms is not None and now_ms < self._next_ms):
            return []
        return [self._ask(RenewLease(self._token) if self.role is Role.LEADER else LookAtLease())]

    def _on_store_failed(self, reason: str, now_ms: int) -> list[ElectionCommand]:
        self._next_ms = now_ms + self._duration_ms // RETRIES_PER_LEASE
        if self.role is Role.LEADER and now_ms >= self._held_until_ms:
            return self._step_down(reason)
        # What a standby watched still counts: a renewal that it did not see has changed the record.
        return []

    def _ask(self, command: LookAtLease | TakeLease | RenewLease) -> ElectionCommand:
        self._waiting = True
        return command

    def _show(self, leader: Contact | None) -> list[ElectionCommand]:
        if leader == self._shown:
            return []
        self._shown = leader
        return [ShowLeader(leader)]
