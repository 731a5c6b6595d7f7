"""A job's settings: Flink's notation in, typed values or an error that names the key out."""

from __future__ import annotations

import pytest

from runtime.job_settings import (
    CheckpointSettings,
    JobSettings,
    RestartSettings,
    RestartStrategy,
    SettingError,
    parse_duration_ms,
    parse_job_settings,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10 s", 10_000),
        ("1min", 60_000),
        ("500ms", 500),
        ("20", 20),
        (" 2 Hours ", 7_200_000),
        ("1 d", 86_400_000),
        ("0", 0),
        ("1500 µs", 1.5),
    ],
)
def test_durations(text: str, ms: float) -> None:
    assert parse_duration_ms(text) == pytest.approx(ms)


@pytest.mark.parametrize("text", ["", "s", "-5 s", "1.5 s", "5 weeks", "5 s 3"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)


def test_defaults() -> None:
    assert parse_job_settings({}) == JobSettings(
        CheckpointSettings(interval_ms=10_000, timeout_ms=600_000, min_pause_ms=0, tolerable_failures=0),
        RestartSettings(RestartStrategy.EXPONENTIAL_DELAY, attempts=None, delay_ms=1_000),
    )


def test_checkpoint_settings() -> None:
    settings = {
        "execution.checkpointing.interval": "0",
        "execution.checkpointing.timeout": "1 min",
        "execution.checkpointing.min-pause": "1 µs",
        "execution.checkpointing.tolerable-failed-checkpoints": "3",
        "execution.checkpointing.num-retained": "2",
    }
    # A part of a millisecond is not nothing.
    assert parse_job_settings(settings).checkpoint == CheckpointSettings(0, 60_000, 1, 3, 2)


def test_restart_settings() -> None:
    assert parse_job_settings({"restart-strategy.type": "disable"}).restart.strategy is RestartStrategy.NONE
    fixed = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "7",
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    assert parse_job_settings(fixed).restart == RestartSettings(RestartStrategy.FIXED_DELAY, 7, 100)
    exponential = {
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "2 s",
        "restart-strategy.exponential-delay.max-backoff": "8 s",
        "restart-strategy.exponential-delay.backoff-multiplier": "3",
        "restart-strategy.exponential-delay.reset-backoff-threshold": "1 min",
        "restart-strategy.exponential-delay.jitter-factor": "0",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": "4",
    }
    assert parse_job_settings(exponential).restart == RestartSettings(
        RestartStrategy.EXPONENTIAL_DELAY, 4, 2_000, 8_000, 3.0, 60_000, 0.0
    )


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("execution.checkpointing.interval", "soon", "'soon' is not a duration"),
        ("execution.checkpointing.timeout", "0", "longer than zero"),
        ("execution.checkpointing.num-retained", "0", "at least 1"),
        ("execution.checkpointing.tolerable-failed-checkpoints", "few", "'few' is not a whole number"),
        ("restart-strategy.type", "sometimes", "'sometimes' is not supported"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "0.5", "at least 1"),
        ("restart-strategy.exponential-delay.jitter-factor", "some", "'some' is not a number"),
        ("state.backend.type", "forst", "'forst' is not supported; use hashmap or rocksdb"),
        ("execution.state-recovery.allow-rewind", "maybe", "neither true nor false"),
    ],
)
def test_an_error_names_the_key(key: str, value: str, text: str) -> None:
    with pytest.raises(SettingError, match=text) as caught:
        parse_job_settings({key: value})
    assert caught.value.key == key
    assert str(caught.value).startswith(key + ": ")


def test_barriers_may_overtake_only_when_said_so() -> None:
    """As in Flink: off by default; switched on without a time-out they overtake at once."""
    timeout = {"execution.checkpointing.aligned-checkpoint-timeout": "300 ms"}
    on = {"execution.checkpointing.unaligned.enabled": "true"}
    found = [parse_job_settings(s).checkpoint.aligned_timeout_ms for s in ({}, timeout, on, {**on, **timeout})]
    assert found == [None, None, 0, 300]


def test_accepted_duplicates_include_a_rewind() -> None:
    recovery = parse_job_settings({"execution.state-recovery.accept-duplicates": "true"}).recovery
    assert (recovery.accept_duplicates, recovery.allow_rewind) == (True, True)
    assert not parse_job_settings({}).recovery.accept_duplicates


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("execution.checkpointing.max-concurrent-checkpoints", "0", "must be at least 1, not 0"),
        (
            "execution.checkpointing.externalized-checkpoint-retention",
            "KEEP",
            "'KEEP' is not one of NO_EXTERNALIZED_CHECKPOINTS, DELETE_ON_CANCELLATION, RETAIN_ON_CANCELLATION",
        ),
    ],
)
def test_checkpoint_settings_that_cannot_be_used(key: str, value: str, message: str) -> None:
    with pytest.raises(SettingError, match=f"{key}: {message}"):
        parse_job_settings({key: value})
