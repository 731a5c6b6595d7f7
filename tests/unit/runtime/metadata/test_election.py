"""Leader election: scripted traces of the core, and random worlds with pauses, lost answers and clocks of their own."""

from __future__ import annotations

import random

import msgspec
import pytest

from runtime.metadata.election import (
    Contact,
    ElectionCommand,
    ElectionEvent,
    HoldUntil,
    Lead,
    LeaderElection,
    LeaseGone,
    LeaseRecord,
    LeaseRenewed,
    LeaseSeen,
    LeaseTaken,
    LookAtLease,
    ReleaseLease,
    RenewLease,
    Resigned,
    Role,
    ShowLeader,
    StepDown,
    StoreFailed,
    TakeLease,
    Ticked,
)

ME = Contact("me", "http://me")
OTHER = Contact("other", "http://other")
LEASE_MS = 3_000
FREE = LeaseRecord(0, 0, 0, None)


def held(renewals: int, token: int = 4, duration_ms: int = LEASE_MS) -> LeaseRecord:
    return LeaseRecord(token, renewals, duration_ms, OTHER)


def standby(*seen: tuple[LeaseRecord, int]) -> LeaderElection:
    """Has looked at the lease at these times."""
    election = LeaderElection(ME, LEASE_MS)
    for record, now_ms in seen:
        assert election.handle(Ticked(), now_ms) == [LookAtLease()]
        election.handle(LeaseSeen(record), now_ms)
    return election


def leader(sent_at_ms: int = 1_000) -> LeaderElection:
    election = LeaderElection(ME, LEASE_MS)
    election.handle(Ticked(), sent_at_ms)
    assert election.handle(LeaseSeen(FREE), sent_at_ms) == [TakeLease(FREE)]
    assert election.handle(LeaseTaken(5, sent_at_ms), sent_at_ms + 10) == [
        HoldUntil(sent_at_ms + LEASE_MS),
        Lead(5),
        ShowLeader(ME),
    ]
    return election


def test_a_free_lease_is_taken_at_once() -> None:
    election = leader()
    assert election.role is Role.LEADER
    assert election.deadline_ms == 1_000 + LEASE_MS // 3


def test_what_a_process_of_the_same_name_held_is_taken_at_once() -> None:
    election = standby()
    election.handle(Ticked(), 0)
    mine = LeaseRecord(7, 3, LEASE_MS, ME)
    assert election.handle(LeaseSeen(mine), 0) == [TakeLease(mine)]


def test_a_standby_watches_for_the_whole_lease_by_its_own_clock() -> None:
    election = standby((held(1), 100), (held(1), 600), (held(1), 1_100))
    assert election.deadline_ms == 1_600
    for now_ms in (1_600, 2_100, 2_600):
        election.handle(Ticked(), now_ms)
        assert election.handle(LeaseSeen(held(1)), now_ms) == []
    assert election.deadline_ms == 3_100
    assert election.handle(Ticked(), 3_099) == []
    assert election.handle(Ticked(), 3_100) == [LookAtLease()]
    assert election.handle(LeaseSeen(held(1)), 3_100) == [ShowLeader(None), TakeLease(held(1))]


@pytest.mark.parametrize("changed", [held(2), held(0, token=5)])
def test_every_renewal_and_every_new_leader_starts_the_wait_anew(changed: LeaseRecord) -> None:
    election = standby((held(1), 0), (changed, 2_999))
    election.handle(Ticked(), 5_000)
    assert TakeLease(changed) not in election.handle(LeaseSeen(changed), 5_000)
    election.handle(Ticked(), 5_999)
    assert TakeLease(changed) in election.handle(LeaseSeen(changed), 5_999)


def test_the_longer_of_two_leases_is_waited_for() -> None:
    slow = held(1, duration_ms=10_000)
    election = standby((slow, 0), (slow, 9_999))
    election.handle(Ticked(), 10_500)
    assert TakeLease(slow) in election.handle(LeaseSeen(slow), 10_500)


def test_a_standby_shows_who_leads() -> None:
    election = LeaderElection(ME, LEASE_MS)
    election.handle(Ticked(), 0)
    assert election.handle(LeaseSeen(held(1)), 0) == [ShowLeader(OTHER)]
    election.handle(Ticked(), 500)
    assert election.handle(LeaseSeen(held(2)), 500) == []


def test_who_was_slower_goes_on_as_standby() -> None:
    election = standby((FREE, 0))
    assert election.handle(LeaseSeen(held(0)), 20) == [ShowLeader(OTHER)]
    assert election.role is Role.STANDBY
    assert election.deadline_ms == 520


def test_a_lease_that_was_granted_too_long_ago_is_not_used() -> None:
    election = standby((FREE, 0))
    assert election.handle(LeaseTaken(5, 0), LEASE_MS) == [LookAtLease()]
    assert election.role is Role.STANDBY


def test_a_leader_renews_at_a_third_and_holds_from_when_it_asked() -> None:
    election = leader(1_000)
    assert election.handle(Ticked(), 1_999) == []
    assert election.handle(Ticked(), 2_000) == [RenewLease(5)]
    assert election.deadline_ms == 4_000, "no second question before the answer, but an end without one"
    assert election.handle(LeaseRenewed(2_000), 2_700) == [HoldUntil(5_000)]
    assert election.deadline_ms == 3_000


def test_a_leader_without_answer_steps_down_in_time() -> None:
    election = leader(1_000)
    election.handle(Ticked(), 2_000)
    assert election.handle(Ticked(), 3_999) == []
    assert election.handle(Ticked(), 4_000) == [StepDown("the lease could not be renewed in time"), ShowLeader(None)]
    assert election.handle(LeaseRenewed(2_000), 4_001) == []
    assert election.deadline_ms is None


def test_a_leader_asks_again_while_the_store_is_away() -> None:
    election = leader(1_000)
    election.handle(Ticked(), 2_000)
    assert election.handle(StoreFailed("away"), 2_100) == []
    assert election.deadline_ms == 2_400
    assert election.handle(Ticked(), 2_400) == [RenewLease(5)]
    assert election.handle(LeaseRenewed(2_400), 2_500) == [HoldUntil(5_400)]


def test_a_leader_that_was_paused_steps_down_whatever_it_hears_first() -> None:
    for event in (Ticked(), LeaseRenewed(1_500), StoreFailed("away"), LeaseGone()):
        election = leader(1_000)
        commands = election.handle(event, 60_000)
        assert isinstance(commands[0], StepDown), event


def test_a_refused_write_ends_it() -> None:
    assert leader().handle(LeaseGone(), 1_500) == [StepDown("another JobManager has taken over"), ShowLeader(None)]
    assert leader().handle(LeaseGone("no disk"), 1_500) == [StepDown("no disk"), ShowLeader(None)]
    assert standby((held(1), 0)).handle(LeaseGone(), 10) == []


def test_a_leader_that_resigns_gives_the_lease_back() -> None:
    assert leader(1_000).handle(Resigned(), 2_000) == [ReleaseLease(5)]
    assert leader(1_000).handle(Resigned(), 1_000 + LEASE_MS) == [], "it may be another's by now"
    election = standby((held(1), 0))
    assert election.handle(Resigned(), 10) == []
    assert election.role is Role.ENDED


def test_a_standby_counts_over_failures_of_the_store() -> None:
    """A renewal that it did not see has changed the record."""
    election = standby((held(1), 0))
    election.handle(Ticked(), 500)
    assert election.handle(StoreFailed("away"), 600) == []
    assert election.deadline_ms == 900
    election.handle(Ticked(), 3_100)
    assert TakeLease(held(1)) in election.handle(LeaseSeen(held(1)), 3_100)


# ------------------------------------------------------------------------------------------------------ random worlds


class _Process:
    """One JobManager: its clock has an offset of its own; while it is paused its events wait."""

    def __init__(self, name: str, pick: random.Random) -> None:
        self.pick = pick
        self.contact = Contact(name, f"http://{name}")
        self.offset_ms = pick.randrange(10**6)
        self.paused_until_ms = 0
        self.starts = 0
        self.begin(0)

    def begin(self, now_ms: int) -> None:
        self.starts += 1
        # A name is one process's at a time: here every start has its own, so that nothing depends on it.
        contact = msgspec.structs.replace(self.contact, name=f"{self.contact.name}-{self.starts}")
        self.me = contact
        self.core = LeaderElection(contact, LEASE_MS)
        self.inbox: list[tuple[int, ElectionEvent]] = [(now_ms, Ticked())]
        self.held_until_ms = 0
        self.token = 0

    def clock(self, now_ms: int) -> int:
        return now_ms + self.offset_ms

    def holds(self, now_ms: int) -> bool:
        return self.clock(now_ms) < self.held_until_ms


class _World:
    """The store is linearizable; questions and answers take time and may be lost, which the asker notices late."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.now_ms = 0
        self.record = FREE
        self.processes = [_Process(name, self.pick) for name in "abc"]
        self.leaders: list[int] = []
        self.arriving: list[tuple[int, _Process, LeaderElection, ElectionCommand, int]] = []
        self.trace: list[str] = []

    def run(self, duration_ms: int) -> None:
        while self.now_ms < duration_ms:
            self.now_ms += 10
            for process in self.processes:
                self._disturb(process)
            for item in [item for item in self.arriving if item[0] <= self.now_ms]:
                self.arriving.remove(item)
                self._at_store(*item[1:])
            for process in self.processes:
                if process.paused_until_ms <= self.now_ms:
                    self._let_run(process)
            holders = [p for p in self.processes if p.holds(self.now_ms)]
            assert len(holders) <= 1, ([p.me.name for p in holders], self.trace[-30:])

    def _disturb(self, process: _Process) -> None:
        chance = self.pick.random()
        if chance < 0.0005:
            process.paused_until_ms = self.now_ms + self.pick.randrange(4 * LEASE_MS)
        elif chance < 0.0007:
            self.trace.append(f"{self.now_ms} {process.me.name} killed")
            process.begin(self.now_ms + self.pick.randrange(LEASE_MS))

    def _let_run(self, process: _Process) -> None:
        clock_ms = process.clock(self.now_ms)
        due = [item for item in process.inbox if item[0] <= self.now_ms]
        process.inbox = [item for item in process.inbox if item[0] > self.now_ms]
        events: list[ElectionEvent] = [event for _, event in due]
        if process.core.deadline_ms is not None and clock_ms >= process.core.deadline_ms:
            events.insert(self.pick.randrange(len(events) + 1), Ticked())
        for event in events:
            for command in process.core.handle(event, clock_ms):
                self._perform(process, command, clock_ms)

    def _perform(self, process: _Process, command: ElectionCommand, clock_ms: int) -> None:
        match command:
            case HoldUntil(deadline_ms=deadline_ms):
                process.held_until_ms = deadline_ms
            case Lead(token=token):
                self.trace.append(f"{self.now_ms} {process.me.name} leads {token}")
                assert not self.leaders or token > self.leaders[-1]
                self.leaders.append(token)
                process.token = token
            case StepDown():
                process.begin(self.now_ms + 100)
            case LookAtLease() | TakeLease() | RenewLease():
                lost = self.pick.random() < 0.03
                at_ms = self.now_ms + self.pick.choice((1, 5, 20, 400))
                if lost:
                    process.inbox.append((self.now_ms + 700, StoreFailed("lost")))
                if not lost or self.pick.random() < 0.5:  # The question may have arrived all the same.
                    answered = None if lost else process.core
                    self.arriving.append((at_ms, process, answered or LeaderElection(ME, 1), command, clock_ms))

    def _at_store(self, process: _Process, asker: LeaderElection, command: ElectionCommand, sent_at_ms: int) -> None:
        answer: ElectionEvent
        record = self.record
        match command:
            case TakeLease(watched=watched):
                if (watched.token, watched.renewals) == (record.token, record.renewals):
                    self.record = LeaseRecord(record.token + 1, 0, LEASE_MS, process.me)
                    answer = LeaseTaken(record.token + 1, sent_at_ms)
                else:
                    answer = LeaseSeen(record)
            case RenewLease(token=token):
                if token == record.token:
                    self.record = msgspec.structs.replace(record, renewals=record.renewals + 1)
                    answer = LeaseRenewed(sent_at_ms)
                else:
                    answer = LeaseGone()
            case _:
                answer = LeaseSeen(record)
        if asker is process.core:  # Else its process has died, or the answer is lost.
            process.inbox.append((self.now_ms + self.pick.choice((1, 5, 400)), answer))


@pytest.mark.parametrize("seed", range(30))
def test_never_two_hold_the_lease_and_somebody_always_will(seed: int) -> None:
    world = _World(seed)
    world.run(200_000)
    assert len(world.leaders) > 1, world.trace
    for process in world.processes:
        process.paused_until_ms = 0
    world._disturb = lambda process: None  # type: ignore[method-assign]
    world.run(world.now_ms + 10 * LEASE_MS)
    assert sum(process.holds(world.now_ms) for process in world.processes) == 1, world.trace
