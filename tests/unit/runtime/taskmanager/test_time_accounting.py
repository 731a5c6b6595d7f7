"""Shares of a task's time."""

from __future__ import annotations

from runtime.taskmanager.time_accounting import TimeAccount, Waiting


class ManualClock:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def test_shares_sum_to_a_second() -> None:
    clock = ManualClock()
    account = TimeAccount(clock)
    clock.ms += 100
    with account.waiting(Waiting.IDLE):
        clock.ms += 300
    with account.waiting(Waiting.BACKPRESSURED):
        clock.ms += 600
    clock.ms += 1000
    shares = account.shares()
    assert (shares.busy, shares.backpressured, shares.idle) == (550.0, 300.0, 150.0)


def test_a_wait_that_goes_on_counts_up_to_now() -> None:
    clock = ManualClock()
    account = TimeAccount(clock)
    with account.waiting(Waiting.BACKPRESSURED):
        clock.ms += 500
        assert account.shares().backpressured == 1000.0
        clock.ms += 500
    clock.ms += 500
    shares = account.shares()
    assert (shares.busy, shares.backpressured) == (500.0, 500.0)


def test_waits_found_afterwards_count_as_idle() -> None:
    clock = ManualClock()
    account = TimeAccount(clock)
    clock.ms += 1000
    account.add_idle(250)
    account.add_idle(-5)
    assert account.shares().idle == 250.0
