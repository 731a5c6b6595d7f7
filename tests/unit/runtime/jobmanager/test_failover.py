"""Restart delays, and when a job gives up."""

from __future__ import annotations

from runtime.job_settings import RestartSettings, RestartStrategy
from runtime.jobmanager.failover import Failover
from runtime.protocol.messages import Failure

LOST = Failure("slot lost", "internal", True)
WRONG = Failure("malformed record", "user", False)


def delays(settings: RestartSettings, times_ms: list[int]) -> list[int | None]:
    failover = Failover(settings, seed=1)
    return [failover.restart_delay_ms(LOST, now_ms) for now_ms in times_ms]


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
    assert delays(settings, [0, 1, 60_001, 60_002, 60_003]) == [1000, 1500, 1000, 1500, None]


def test_jitter_stays_within_its_factor_and_differs_between_jobs() -> None:
    settings = RestartSettings(delay_ms=1000, jitter_factor=0.1)
    first = {Failover(settings, seed).restart_delay_ms(LOST, 0) for seed in range(50)}
    assert len(first) > 10
    assert all(delay is not None and 900 <= delay <= 1100 for delay in first)


def test_an_error_of_the_user_ends_the_job_under_any_strategy() -> None:
    for strategy in RestartStrategy:
        failover = Failover(RestartSettings(strategy, attempts=10), seed=1)
        assert failover.restart_delay_ms(WRONG, 0) is None
