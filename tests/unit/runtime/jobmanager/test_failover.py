"""Restart delays, and when a job gives up."""

from __future__ import annotations

import pytest

from runtime.job_settings import RestartSettings, RestartStrategy
from runtime.jobmanager.failover import Failover
from runtime.protocol.messages import Failure

LOST = Failure("slot lost", "internal", True)
WRONG = Failure("malformed record", "user", False)


def delays(settings: RestartSettings, pauses_ms: list[int]) -> list[int | None]:
    """Of failures that come so long after the restart before (the first: at that time)."""
    failover = Failover(settings, seed=1)
    found: list[int | None] = []
    now_ms = 0
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        restart_at_ms = failover.restart_at_ms(LOST, now_ms)
        found.append(None if restart_at_ms is None else restart_at_ms - now_ms)
        now_ms = now_ms if restart_at_ms is None else restart_at_ms
    return found


def test_none_never_restarts() -> None:
    assert delays(RestartSettings(RestartStrategy.NONE), [0]) == [None]


def test_fixed_delay_counts_attempts() -> None:
    settings = RestartSettings(RestartStrategy.FIXED_DELAY, attempts=2, delay_ms=100)
    assert delays(settings, [0, 1, 10**9]) == [100, 100, None]


def test_exponential_delay_grows_to_its_maximum() -> None:
    settings = RestartSettings(delay_ms=1000, backoff_ms_max=4000, backoff_multiplier=2.0, jitter_factor=0.0)
    assert delays(settings, [0, 1, 2, 3]) == [1000, 2000, 4000, 4000]


def test_exponential_delay_starts_again_after_a_quiet_time() -> None:
    settings = RestartSettings(delay_ms=1000, reset_after_ms=60_000, jitter_factor=0.0, attempts=2)
    assert delays(settings, [0, 59_999, 60_000, 1, 1]) == [1000, 1500, 1000, 1500, None]


def test_failure_rate_allows_so_many_within_any_interval() -> None:
    settings = RestartSettings(
        RestartStrategy.FAILURE_RATE, delay_ms=0, failures_per_interval=2, failure_interval_ms=100
    )
    assert delays(settings, [0, 50, 50]) == [0, 0, None]
    assert delays(settings, [0, 50, 51, 49]) == [0, 0, 0, None]
    assert delays(settings, [0, 50, 51, 50]) == [0, 0, 0, 0]


@pytest.mark.parametrize("strategy", [s for s in RestartStrategy if s is not RestartStrategy.NONE])
def test_what_fails_before_the_restart_has_the_same_cause(strategy: RestartStrategy) -> None:
    failover = Failover(RestartSettings(strategy, attempts=1, delay_ms=1000, jitter_factor=0.0), seed=1)
    assert [failover.restart_at_ms(LOST, now_ms) for now_ms in (5, 6, 1004)] == [1005, 1005, 1005]
    assert failover.restarts == 1
    assert failover.restart_at_ms(LOST, 1005) is None
    assert failover.restarts == 1


def test_jitter_stays_within_its_factor_and_differs_between_jobs() -> None:
    settings = RestartSettings(delay_ms=1000, jitter_factor=0.1)
    first = {Failover(settings, seed).restart_at_ms(LOST, 0) for seed in range(50)}
    assert len(first) > 10
    assert all(delay is not None and 900 <= delay <= 1100 for delay in first)


def test_an_error_of_the_user_ends_the_job_under_any_strategy() -> None:
    for strategy in RestartStrategy:
        failover = Failover(RestartSettings(strategy, attempts=10), seed=1)
        assert failover.restart_at_ms(WRONG, 0) is None
