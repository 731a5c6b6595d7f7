"""The three lists of SET: settings with effect, Flink's without meaning here, and everything else.

A setting with effect is typed: its value is checked when it is set, and again before a statement runs (properties
that came with a session were not checked: Flink's clients send their whole configuration). A key of Flink's that
means nothing here is accepted with one notice; an unknown key is accepted with a warning and the nearest name.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Callable, Mapping

import msgspec

from planner.errors import SqlError, SqlState, nearest_name
from server.config import ConfigError

Check = Callable[[str], str]
"""Takes the text of a value; returns what was expected if the text is none, else an empty string."""

_DURATION = re.compile(
    r"\s*\d+\s*(|ns|nano|nanos|nanosecond|nanoseconds|µs|micro|micros|microsecond|microseconds"
    r"|ms|milli|millis|millisecond|milliseconds|s|sec|secs|second|seconds|m|min|mins|minute|minutes"
    r"|h|hour|hours|d|day|days)\s*",
    re.IGNORECASE,
)


def duration(value: str) -> str:
    return "" if _DURATION.fullmatch(value) else "a duration such as '500 ms', '10 s', '5 min' or '1 h'"


def boolean(value: str) -> str:
    return "" if value.strip().lower() in ("true", "false") else "true or false"


def text(value: str) -> str:
    return ""


def number(value: str) -> str:
    try:
        float(value)
    except ValueError:
        return "a number"
    return ""


def integer(low: int, high: int = 2_147_483_647) -> Check:
    def check(value: str) -> str:
        expected = f"an integer from {low} to {high}"
        return "" if re.fullmatch(r"\s*-?\d+\s*", value) and low <= int(value) <= high else expected

    return check


def one_of(*names: str) -> Check:
    def check(value: str) -> str:
        return "" if value.strip().upper() in (n.upper() for n in names) else "one of: " + ", ".join(names)

    return check


_ZONE_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?")


def time_zone(value: str) -> str:
    return "" if zone_name(value) else "a time zone such as 'UTC', 'Europe/Berlin' or 'GMT+08:00'"


def zone_name(value: str) -> str:
    """A time zone as Arrow knows it: a region or `+hh:mm`; `default` is UTC, and empty is returned for none."""
    value = value.strip()
    if value == "default":
        return "UTC"
    offset = _ZONE_OFFSET.fullmatch(value)
    if offset is not None and int(offset[2]) <= 18:
        return f"{offset[1]}{int(offset[2]):02d}:{offset[3] or '00'}"
    return value if value in zoneinfo.available_timezones() else ""


class Setting(msgspec.Struct, frozen=True):
    """One setting with effect. `default` is what holds when nobody sets it, as text; None: nothing."""

    key: str
    check: Check
    default: str | None = None
    reaches_job: bool = True
    """Part of a job's own settings; else only the gateway looks at it."""


_SETTINGS = (
    Setting("pipeline.name", text),
    Setting("parallelism.default", integer(1, 32_767), "1"),
    Setting("pipeline.max-parallelism", integer(-1, 32_767)),
    Setting("pipeline.operator-chaining.enabled", boolean),
    Setting("pipeline.auto-watermark-interval", duration),
    Setting("table.local-time-zone", time_zone, "UTC"),
    Setting("table.dml-sync", boolean, "false", reaches_job=False),
    Setting("table.optimizer.agg-phase-strategy", one_of("AUTO", "ONE_PHASE", "TWO_PHASE")),
    Setting("table.optimizer.reuse-source-enabled", boolean),
    Setting("table.optimizer.reuse-sub-plan-enabled", boolean),
    Setting("table.optimizer.distinct-agg.split.enabled", boolean),
    Setting("table.optimizer.distinct-agg.split.bucket-num", integer(1, 65_536)),
    Setting("table.optimizer.non-deterministic-update.strategy", one_of("TRY_RESOLVE", "IGNORE")),
    Setting("table.exec.mini-batch.enabled", boolean),
    Setting("table.exec.mini-batch.allow-latency", duration),
    Setting("table.exec.mini-batch.size", integer(-1)),
    Setting("table.exec.state.ttl", duration),
    Setting("table.exec.source.cdc-events-duplicate", boolean),
    Setting("table.exec.sink.upsert-materialize", one_of("NONE", "AUTO", "FORCE")),
    Setting("table.exec.sink.require-on-conflict", boolean),
    Setting("table.exec.sink.type-length-enforcer", one_of("IGNORE", "TRIM_PAD", "ERROR")),
    Setting("table.exec.batch.max-rows", integer(1, 1_000_000)),
    Setting("table.exec.source.idle-timeout", duration),
    Setting("table.exec.sink.keyed-shuffle", one_of("NONE", "AUTO", "FORCE")),
    Setting("table.exec.sink.not-null-enforcer", one_of("ERROR", "DROP")),
    Setting("execution.runtime-mode", one_of("STREAMING", "BATCH", "AUTOMATIC")),
    Setting("execution.buffer-timeout", duration),
    Setting("execution.checkpointing.interval", duration),
    Setting("execution.checkpointing.timeout", duration),
    Setting("execution.checkpointing.min-pause", duration),
    Setting("execution.checkpointing.tolerable-failed-checkpoints", integer(0)),
    Setting("execution.checkpointing.unaligned.enabled", boolean),
    Setting("execution.checkpointing.aligned-checkpoint-timeout", duration),
    Setting("execution.checkpointing.max-concurrent-checkpoints", integer(1)),
    Setting("execution.checkpointing.num-retained", integer(1)),
    Setting(
        "execution.checkpointing.externalized-checkpoint-retention",
        one_of("NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"),
    ),
    Setting("execution.checkpointing.savepoint-dir", text),
    Setting("execution.state-recovery.path", text),
    Setting("execution.state-recovery.ignore-unclaimed-state", boolean),
    Setting("execution.state-recovery.allow-rewind", boolean),
    Setting("execution.state-recovery.accept-duplicates", boolean),
    Setting("state.backend.type", one_of("hashmap", "rocksdb")),
    Setting("execution.state-recovery.from-local", boolean),
    Setting(
        "restart-strategy.type",
        one_of("none", "off", "disable", "fixed-delay", "exponential-delay", "failure-rate"),
    ),
    Setting("restart-strategy.fixed-delay.attempts", integer(0)),
    Setting("restart-strategy.fixed-delay.delay", duration),
    Setting("restart-strategy.exponential-delay.initial-backoff", duration),
    Setting("restart-strategy.exponential-delay.max-backoff", duration),
    Setting("restart-strategy.exponential-delay.backoff-multiplier", number),
    Setting("restart-strategy.exponential-delay.reset-backoff-threshold", duration),
    Setting("restart-strategy.exponential-delay.jitter-factor", number),
    Setting("restart-strategy.exponential-delay.attempts-before-reset-backoff", integer(0)),
    Setting("restart-strategy.failure-rate.max-failures-per-interval", integer(1)),
    Setting("restart-strategy.failure-rate.failure-rate-interval", duration),
    Setting("restart-strategy.failure-rate.delay", duration),
)
SETTINGS: dict[str, Setting] = {s.key: s for s in _SETTINGS}

OLD_NAMES = {
    "state.backend.local-recovery": "execution.state-recovery.from-local",
    "execution.checkpointing.alignment-timeout": "execution.checkpointing.aligned-checkpoint-timeout",
    "execution.checkpointing.unaligned": "execution.checkpointing.unaligned.enabled",
    "execution.buffer-timeout.interval": "execution.buffer-timeout",
    "execution.savepoint.ignore-unclaimed-state": "execution.state-recovery.ignore-unclaimed-state",
    "execution.savepoint.path": "execution.state-recovery.path",
    "pipeline.operator-chaining": "pipeline.operator-chaining.enabled",
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "restart-strategy": "restart-strategy.type",
    "state.backend": "state.backend.type",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
}
"""Other names Flink has had for a setting; read as the one on the right."""

CLIENT_PREFIXES = ("sql-client.",)
"""Read back by Flink's own clients from the session: kept, never remarked on."""

_WITHOUT_MEANING_PREFIXES = (
    "$internal.",
    "blob.",
    "classloader.",
    "cluster.",
    "env.",
    "execution.checkpointing.",
    "execution.state-recovery.",
    "fs.",
    "heartbeat.",
    "high-availability",
    "io.",
    "job-result-store.",
    "jobmanager.",
    "jobstore.",
    "kubernetes.",
    "metrics.",
    "pekko.",
    "pipeline.",
    "process.",
    "python.",
    "queryable-state.",
    "resourcemanager.",
    "rest.",
    "security.",
    "slot.",
    "slotmanager.",
    "sql-gateway.",
    "state.",
    "table.exec.async-",
    "table.exec.legacy-",
    "table.exec.resource.",
    "table.exec.sort.",
    "table.exec.state.",
    "table.exec.window-agg.",
    "table.optimizer.",
    "table.resources.",
    "task.",
    "taskmanager.",
    "web.",
    "yarn.",
)
_WITHOUT_MEANING = frozenset(
    {
        "execution.attached",
        "execution.job-listeners",
        "execution.shutdown-on-attached-exit",
        "execution.shutdown-on-application-finish",
        "execution.sorted-inputs.enabled",
        "execution.target",
        "table.builtin-catalog-name",
        "table.builtin-database-name",
        "table.column-expansion-strategy",
        "table.display.max-column-width",
        "table.dynamic-table-options.enabled",
        "table.generated-code.max-length",
        "table.plan.compile.catalog-objects",
        "table.plan.force-recompile",
        "table.plan.restore.catalog-objects",
        "table.sql-dialect",
        "table.exec.disabled-operators",
        "table.exec.simplify-operator-name-enabled",
        "table.exec.uid.generation",
        "table.exec.sink.rowtime-inserter",
        "table.exec.deduplicate.insert-update-after-sensitive-enabled",
    }
)

_TYPO_SIMILARITY = 0.9


def canonical(key: str) -> str:
    """The name a setting is kept under."""
    return OLD_NAMES.get(key, key)


def check_value(key: str, value: str) -> None:
    """Raises SqlError when `key` has effect and `value` is not of its type."""
    setting = SETTINGS.get(canonical(key))
    if setting is None:
        return
    expected = setting.check(value)
    if expected:
        raise SqlError(
            SqlState.INVALID_PARAMETER,
            f"could not parse value '{value}' for key '{key}'",
            hint=f"Expected {expected}.",
        )


def remark(key: str) -> str:
    """What the user should know about setting `key`; empty when it simply has effect."""
    key = canonical(key)
    if key in SETTINGS or key.startswith(CLIENT_PREFIXES):
        return ""
    near = nearest_name(key, SETTINGS)
    if near is not None and _similar(key, near):
        return f"'{key}' is not a known setting and has no effect. Did you mean '{near}'?"
    if key in _WITHOUT_MEANING or key.startswith(_WITHOUT_MEANING_PREFIXES):
        return f"'{key}' is a setting of Apache Flink that has no meaning here; it is accepted and ignored."
    suffix = f" Did you mean '{near}'?" if near else ""
    return f"'{key}' is not a known setting and has no effect.{suffix}"


def _similar(key: str, near: str) -> bool:
    return difflib.SequenceMatcher(None, key, near).ratio() >= _TYPO_SIMILARITY


def effective(*layers: Mapping[str, str]) -> dict[str, str]:
    """The settings with effect, later layers over earlier ones over the defaults. Raises SqlError on a bad value."""
    merged = {s.key: s.default for s in _SETTINGS if s.default is not None}
    for layer in layers:
        for key, value in layer.items():
            if canonical(key) in SETTINGS:
                merged[canonical(key)] = value
    for key, value in merged.items():
        check_value(key, value)
    return merged


def for_job(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of the effective settings that a job keeps."""
    return {k: v for k, v in settings.items() if SETTINGS[k].reaches_job}


def check_server_defaults(defaults: Mapping[str, str]) -> None:
    """In the server's own file an unknown setting is an error, not a warning. Raises ConfigError."""
    for key, value in defaults.items():
        if canonical(key) not in SETTINGS:
            near = nearest_name(key, SETTINGS)
            hint = f"Did you mean '{near}'?" if near else ""
            raise ConfigError(f"job settings: '{key}' is not a setting with effect", hint=hint)
        try:
            check_value(key, value)
        except SqlError as error:
            raise ConfigError(f"job settings: {error.message}", hint=error.hint) from error
