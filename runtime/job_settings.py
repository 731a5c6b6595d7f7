"""A job's settings (Flink's keys, as text in the JobGraph) as typed values, with errors that name key and value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

CHECKPOINT_INTERVAL = "execution.checkpointing.interval"
CHECKPOINT_TIMEOUT = "execution.checkpointing.timeout"
CHECKPOINT_MIN_PAUSE = "execution.checkpointing.min-pause"
CHECKPOINT_TOLERABLE_FAILURES = "execution.checkpointing.tolerable-failed-checkpoints"
UNALIGNED_CHECKPOINTS = "execution.checkpointing.unaligned.enabled"
ALIGNED_TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"
CHECKPOINTS_CONCURRENT = "execution.checkpointing.max-concurrent-checkpoints"
CHECKPOINTS_RETAINED = "execution.checkpointing.num-retained"
CHECKPOINT_RETENTION = "execution.checkpointing.externalized-checkpoint-retention"
RESTART_STRATEGY = "restart-strategy.type"
STATE_BACKEND = "state.backend.type"
STATE_BACKENDS = ("hashmap", "rocksdb")
DEFAULT_STATE_BACKEND = "hashmap"
RECOVERY_PATH = "execution.state-recovery.path"
LOCAL_RECOVERY = "execution.state-recovery.from-local"
IGNORE_UNCLAIMED_STATE = "execution.state-recovery.ignore-unclaimed-state"
ALLOW_REWIND = "execution.state-recovery.allow-rewind"
ACCEPT_DUPLICATES = "execution.state-recovery.accept-duplicates"
SAVEPOINT_DIRECTORY = "execution.checkpointing.savepoint-dir"

_FIXED = "restart-strategy.fixed-delay."
_EXPONENTIAL = "restart-strategy.exponential-delay."
_RATE = "restart-strategy.failure-rate."

_UNIT_MS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000.0),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000.0),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1.0),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 0.001),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 0.000001),
}
_DURATION = re.compile(r"(\d+)\s*([a-zµ]*)")

T = TypeVar("T")


class SettingError(ValueError):
    """A setting's value is malformed or not supported. `key` names it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


class RestartStrategy(StrEnum):
    """What happens when a task fails."""

    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    EXPONENTIAL_DELAY = "exponential-delay"
    FAILURE_RATE = "failure-rate"


class RestartSettings(msgspec.Struct, frozen=True):
    """`attempts` is the number of restarts allowed (fixed-delay: in all; exponential-delay: since the last reset,
    None = unlimited); failure-rate allows `failures_per_interval` within any `failure_interval_ms`."""

    strategy: RestartStrategy = RestartStrategy.EXPONENTIAL_DELAY
    attempts: int | None = None
    delay_ms: int = 1_000
    backoff_ms_max: int = 60_000
    backoff_multiplier: float = 1.5
    reset_after_ms: int = 3_600_000
    jitter_factor: float = 0.1
    failures_per_interval: int = 1
    failure_interval_ms: int = 60_000


class CheckpointRetention(StrEnum):
    """What becomes of a job's checkpoints when it ends otherwise than by FINISHED (which always removes them)."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"

    def keeps(self, *, failed: bool) -> bool:
        """Of a job that has failed, or else was cancelled."""
        if self is CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS:
            return False
        return failed or self is CheckpointRetention.RETAIN_ON_CANCELLATION


class CheckpointSettings(msgspec.Struct, frozen=True):
    """`interval_ms` 0 = no periodic checkpoints; `tolerable_failures` are consecutive ones. `aligned_timeout_ms`: how
    long barriers are aligned before they overtake what is in flight (None = for ever, 0 = not at all).
    `concurrent_max`: checkpoints in flight at a time. Checkpoints of a job that has failed are kept unless a user wants
    it otherwise (in Flink the default is to remove them): they hold rows that no sink has committed yet."""

    interval_ms: int = 10_000
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    tolerable_failures: int = 0
    retained_count: int = 1
    aligned_timeout_ms: int | None = None
    concurrent_max: int = 1
    retention: CheckpointRetention = CheckpointRetention.DELETE_ON_CANCELLATION


class RecoverySettings(msgspec.Struct, frozen=True):
    """`path`: the savepoint a new job starts from (empty = none). `from_local`: slots keep copies of what they write
    for checkpoints, and a restart reads those. `accept_duplicates`: where a checkpoint is damaged the job goes back
    behind what its sinks have committed, rather than fail."""

    path: str = ""
    ignore_unclaimed_state: bool = False
    allow_rewind: bool = False
    from_local: bool = False
    accept_duplicates: bool = False


class JobSettings(msgspec.Struct, frozen=True):
    """What the JobManager needs of a job's settings. `savepoint_directory`: where savepoints go if nobody says."""

    checkpoint: CheckpointSettings = CheckpointSettings()
    restart: RestartSettings = RestartSettings()
    recovery: RecoverySettings = RecoverySettings()
    savepoint_directory: str = ""


def parse_duration_ms(text: str) -> float:
    """`10 s`, `1min`, `500ms`, `20` (ms): Flink's notation. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNIT_MS:
        raise ValueError(f"'{text}' is not a duration; write a number and a unit, for example '10 s', '1min', '500ms'")
    return int(match[1]) * _UNIT_MS[match[2]]


def duration_ms(settings: Mapping[str, str], key: str, default_ms: int) -> int:
    """The duration under `key` in whole ms (parts of one count as one). Raises SettingError."""
    duration = _read(settings, key, parse_duration_ms, float(default_ms))
    return max(1, round(duration)) if duration > 0 else 0


def integer(settings: Mapping[str, str], key: str, default: int, minimum: int = 0) -> int:
    """The whole number under `key`. Raises SettingError, also below `minimum`."""
    value = _read(settings, key, _parse_integer, default)
    if value < minimum:
        raise SettingError(key, f"must be at least {minimum}, not {value}")
    return value


def boolean(settings: Mapping[str, str], key: str, default: bool) -> bool:
    """Raises SettingError."""
    return _read(settings, key, _parse_boolean, default)


def parse_job_settings(settings: Mapping[str, str]) -> JobSettings:
    """Raises SettingError for the first value that cannot be used."""
    backend = settings.get(STATE_BACKEND, DEFAULT_STATE_BACKEND).strip().lower()
    if backend not in STATE_BACKENDS:
        raise SettingError(STATE_BACKEND, f"'{backend}' is not supported; use {' or '.join(STATE_BACKENDS)}")
    accept_duplicates = boolean(settings, ACCEPT_DUPLICATES, False)
    recovery = RecoverySettings(
        settings.get(RECOVERY_PATH, "").strip(),
        boolean(settings, IGNORE_UNCLAIMED_STATE, False),
        boolean(settings, ALLOW_REWIND, False) or accept_duplicates,
        boolean(settings, LOCAL_RECOVERY, False),
        accept_duplicates,
    )
    return JobSettings(
        _checkpoint_settings(settings),
        _restart_settings(settings),
        recovery,
        settings.get(SAVEPOINT_DIRECTORY, "").strip(),
    )


def _checkpoint_settings(settings: Mapping[str, str]) -> CheckpointSettings:
    default = CheckpointSettings()
    unaligned = boolean(settings, UNALIGNED_CHECKPOINTS, False)
    timeout_ms = duration_ms(settings, CHECKPOINT_TIMEOUT, default.timeout_ms)
    if timeout_ms == 0:
        raise SettingError(CHECKPOINT_TIMEOUT, "must be longer than zero")
    return CheckpointSettings(
        interval_ms=duration_ms(settings, CHECKPOINT_INTERVAL, default.interval_ms),
        timeout_ms=timeout_ms,
        min_pause_ms=duration_ms(settings, CHECKPOINT_MIN_PAUSE, default.min_pause_ms),
        tolerable_failures=integer(settings, CHECKPOINT_TOLERABLE_FAILURES, default.tolerable_failures),
        retained_count=integer(settings, CHECKPOINTS_RETAINED, default.retained_count, minimum=1),
        aligned_timeout_ms=duration_ms(settings, ALIGNED_TIMEOUT, 0) if unaligned else None,
        concurrent_max=integer(settings, CHECKPOINTS_CONCURRENT, default.concurrent_max, minimum=1),
        retention=_read(settings, CHECKPOINT_RETENTION, _parse_retention, default.retention),
    )


def _restart_settings(settings: Mapping[str, str]) -> RestartSettings:
    default = RestartSettings()
    name = settings.get(RESTART_STRATEGY, default.strategy.value).strip().lower()
    match name:
        case "none" | "off" | "disable":
            return RestartSettings(RestartStrategy.NONE)
        case "fixed-delay" | "fixeddelay":
            return RestartSettings(
                RestartStrategy.FIXED_DELAY,
                attempts=integer(settings, _FIXED + "attempts", 1),
                delay_ms=duration_ms(settings, _FIXED + "delay", default.delay_ms),
            )
        case "exponential-delay" | "exponentialdelay":
            limit = _EXPONENTIAL + "attempts-before-reset-backoff"
            return RestartSettings(
                RestartStrategy.EXPONENTIAL_DELAY,
                attempts=integer(settings, limit, 0) if limit in settings else None,
                delay_ms=duration_ms(settings, _EXPONENTIAL + "initial-backoff", default.delay_ms),
                backoff_ms_max=duration_ms(settings, _EXPONENTIAL + "max-backoff", default.backoff_ms_max),
                backoff_multiplier=_factor(
                    settings, _EXPONENTIAL + "backoff-multiplier", default.backoff_multiplier, minimum=1
                ),
                reset_after_ms=duration_ms(settings, _EXPONENTIAL + "reset-backoff-threshold", default.reset_after_ms),
                jitter_factor=_factor(settings, _EXPONENTIAL + "jitter-factor", default.jitter_factor, minimum=0),
            )
        case "failure-rate" | "failurerate":
            interval_ms = duration_ms(settings, _RATE + "failure-rate-interval", default.failure_interval_ms)
            if interval_ms == 0:
                raise SettingError(_RATE + "failure-rate-interval", "must be longer than zero")
            return RestartSettings(
                RestartStrategy.FAILURE_RATE,
                delay_ms=duration_ms(settings, _RATE + "delay", default.delay_ms),
                failures_per_interval=integer(
                    settings, _RATE + "max-failures-per-interval", default.failures_per_interval, minimum=1
                ),
                failure_interval_ms=interval_ms,
            )
        case _:
            known = "'none', 'fixed-delay', 'exponential-delay', 'failure-rate'"
            raise SettingError(RESTART_STRATEGY, f"'{name}' is not supported; use one of {known}")


def _factor(settings: Mapping[str, str], key: str, default: float, minimum: float) -> float:
    value = _read(settings, key, _parse_number, default)
    if value < minimum:
        raise SettingError(key, f"must be at least {minimum}, not {value}")
    return value


def _read(settings: Mapping[str, str], key: str, parse: Callable[[str], T], default: T) -> T:
    text = settings.get(key)
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError as error:
        raise SettingError(key, str(error)) from None


def _parse_integer(text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None


def _parse_boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError(f"'{text}' is neither true nor false")


def _parse_retention(text: str) -> CheckpointRetention:
    try:
        return CheckpointRetention(text.strip().upper())
    except ValueError:
        raise ValueError(f"'{text}' is not one of {', '.join(CheckpointRetention)}") from None


def _parse_number(text: str) -> float:
    try:
        return float(text.strip())
    except ValueError:
        raise ValueError(f"'{text}' is not a number") from None
