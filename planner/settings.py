"""The session settings that the planner reads, typed and checked; Flink's keys and defaults."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from planner.errors import SqlError, SqlState, did_you_mean
from planner.ir.job_graph import DEFAULT_MAX_PARALLELISM
from planner.ir.operators import MiniBatch, NotNullEnforcement, TypeLengthEnforcement

MAX_PARALLELISM_LIMIT = 32_767
_DURATION = re.compile(r"(\d+)\s*([a-zµ]*)", re.IGNORECASE)
_MS_PER_UNIT = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}

EnumT = TypeVar("EnumT", bound=StrEnum)


class KeyedShuffle(StrEnum):
    """`table.exec.sink.keyed-shuffle`: whether rows go to a sink with a primary key by that key's hash."""

    AUTO = "AUTO"
    FORCE = "FORCE"
    NONE = "NONE"


class AggregatePhases(StrEnum):
    """`table.optimizer.agg-phase-strategy`."""

    AUTO = "AUTO"
    TWO_PHASE = "TWO_PHASE"
    ONE_PHASE = "ONE_PHASE"


class UpsertMaterialize(StrEnum):
    """`table.exec.sink.upsert-materialize`: whether a sink whose primary key is not the query's upsert key keeps the
    rows that claim one key."""

    AUTO = "AUTO"
    FORCE = "FORCE"
    NONE = "NONE"


class NonDeterministicUpdate(StrEnum):
    """`table.optimizer.non-deterministic-update.strategy`: whether changes whose rows cannot be found again by their
    values are refused, or only warned of by EXPLAIN."""

    TRY_RESOLVE = "TRY_RESOLVE"
    IGNORE = "IGNORE"


class RuntimeMode(StrEnum):
    STREAMING = "STREAMING"
    BATCH = "BATCH"


class PlannerSettings(msgspec.Struct, frozen=True):
    """What planning depends on besides the statement and the catalog."""

    parallelism: int = 1
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    is_chaining_enabled: bool = True
    job_name: str = ""
    local_time_zone: str = "UTC"
    runtime_mode: RuntimeMode = RuntimeMode.STREAMING
    keyed_shuffle: KeyedShuffle = KeyedShuffle.AUTO
    not_null_enforcement: NotNullEnforcement = NotNullEnforcement.ERROR
    aggregate_phases: AggregatePhases = AggregatePhases.AUTO
    length_enforcement: TypeLengthEnforcement = TypeLengthEnforcement.IGNORE
    upsert_materialize: UpsertMaterialize = UpsertMaterialize.AUTO
    requires_on_conflict: bool = False
    non_deterministic_update: NonDeterministicUpdate = NonDeterministicUpdate.IGNORE
    has_duplicate_events: bool = False
    mini_batch: MiniBatch | None = None
    state_ttl_ms: int = 0
    distinct_buckets: int = 0
    """0: distinct aggregates are not split."""
    is_source_reuse_enabled: bool = True
    is_subplan_reuse_enabled: bool = True
    auto_watermark_interval_ms: int = 200
    source_idle_timeout_ms: int = 0


def read_settings(settings: Mapping[str, str]) -> PlannerSettings:
    """The planner's view of a session's settings. Raises SqlError naming the key of a bad value."""
    parallelism = _integer(settings, "parallelism.default", 1, 1)
    max_parallelism = _integer(settings, "pipeline.max-parallelism", DEFAULT_MAX_PARALLELISM, -1)
    if max_parallelism <= 0:
        max_parallelism = DEFAULT_MAX_PARALLELISM
    if max_parallelism > MAX_PARALLELISM_LIMIT:
        raise _bad("pipeline.max-parallelism", str(max_parallelism), f"at most {MAX_PARALLELISM_LIMIT}")
    if parallelism > max_parallelism:
        raise _bad("parallelism.default", str(parallelism), f"at most pipeline.max-parallelism ({max_parallelism})")
    is_reusing = _boolean(settings, "table.optimizer.reuse-sub-plan-enabled", True)
    return PlannerSettings(
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        is_chaining_enabled=_boolean(settings, "pipeline.operator-chaining.enabled", True),
        job_name=settings.get("pipeline.name", ""),
        local_time_zone=_time_zone(settings),
        runtime_mode=_choice(settings, "execution.runtime-mode", RuntimeMode.STREAMING),
        keyed_shuffle=_choice(settings, "table.exec.sink.keyed-shuffle", KeyedShuffle.AUTO),
        not_null_enforcement=_choice(settings, "table.exec.sink.not-null-enforcer", NotNullEnforcement.ERROR),
        aggregate_phases=_choice(settings, "table.optimizer.agg-phase-strategy", AggregatePhases.AUTO),
        length_enforcement=_choice(settings, "table.exec.sink.type-length-enforcer", TypeLengthEnforcement.IGNORE),
        upsert_materialize=_choice(settings, "table.exec.sink.upsert-materialize", UpsertMaterialize.AUTO),
        requires_on_conflict=_boolean(settings, "table.exec.sink.require-on-conflict", False),
        non_deterministic_update=_choice(
            settings, "table.optimizer.non-deterministic-update.strategy", NonDeterministicUpdate.IGNORE
        ),
        has_duplicate_events=_boolean(settings, "table.exec.source.cdc-events-duplicate", False),
        mini_batch=_mini_batch(settings),
        state_ttl_ms=_duration(settings, "table.exec.state.ttl", 0),
        distinct_buckets=_distinct_buckets(settings),
        is_source_reuse_enabled=is_reusing and _boolean(settings, "table.optimizer.reuse-source-enabled", True),
        is_subplan_reuse_enabled=is_reusing,
        auto_watermark_interval_ms=_duration(settings, "pipeline.auto-watermark-interval", 200),
        source_idle_timeout_ms=_duration(settings, "table.exec.source.idle-timeout", 0),
    )


def _mini_batch(settings: Mapping[str, str]) -> MiniBatch | None:
    """Both bounds must be given where mini-batch is on, as in Flink: neither has a default that works."""
    if not _boolean(settings, "table.exec.mini-batch.enabled", False):
        return None
    latency_key, size_key = "table.exec.mini-batch.allow-latency", "table.exec.mini-batch.size"
    hint = "'table.exec.mini-batch.enabled' = 'true' needs both 'allow-latency' and 'size' above 0."
    latency_ms = _duration(settings, latency_key, 0)
    if latency_ms <= 0:
        raise _bad(latency_key, settings.get(latency_key, "0 ms"), "a duration above 0", hint)
    size = settings.get(size_key, "-1").strip()
    if not size.isdigit() or int(size) < 1:
        raise _bad(size_key, size, "a whole number from 1", hint)
    return MiniBatch(int(size), latency_ms)


def _distinct_buckets(settings: Mapping[str, str]) -> int:
    buckets = _integer(settings, "table.optimizer.distinct-agg.split.bucket-num", 1024, 1)
    return buckets if _boolean(settings, "table.optimizer.distinct-agg.split.enabled", False) else 0


def parse_duration_ms(key: str, text: str) -> int:
    """`200 ms`, `5s`, `1 min`, `2 h`; a bare number is milliseconds."""
    match = _DURATION.fullmatch(text.strip())
    factor = _MS_PER_UNIT.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise _bad(key, text, "a duration such as '5 s' or '200 ms'")
    return int(match[1]) * factor


def parse_positive(key: str, text: str) -> int:
    """A whole number from 1."""
    if not text.strip().isdigit() or int(text) < 1:
        raise _bad(key, text, "a whole number from 1")
    return int(text)


def _bad(key: str, value: str, expected: str, hint: str = "") -> SqlError:
    return SqlError(SqlState.INVALID_PARAMETER, f"'{key}' = '{value}': expected {expected}", hint=hint)


def _integer(settings: Mapping[str, str], key: str, default: int, minimum: int) -> int:
    text = settings.get(key)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = minimum - 1
    if value < minimum:
        raise _bad(key, text, f"a whole number from {minimum}")
    return value


def _boolean(settings: Mapping[str, str], key: str, default: bool) -> bool:
    text = settings.get(key)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise _bad(key, text, "true or false")
    return text.strip().lower() == "true"


def _duration(settings: Mapping[str, str], key: str, default_ms: int) -> int:
    text = settings.get(key)
    return default_ms if text is None else parse_duration_ms(key, text)


def _choice(settings: Mapping[str, str], key: str, default: EnumT) -> EnumT:
    text = settings.get(key)
    if text is None:
        return default
    kind = type(default)
    try:
        return kind(text.strip().upper().replace("-", "_"))
    except ValueError:
        raise _bad(key, text, "one of " + ", ".join(member.value for member in kind)) from None


def _time_zone(settings: Mapping[str, str]) -> str:
    """A region (Europe/Berlin), an offset (GMT+08:00) or `default`, which is UTC."""
    key = "table.local-time-zone"
    text = settings.get(key, "default").strip()
    if text == "default":
        return "UTC"
    offset = re.fullmatch(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?", text)
    if offset is not None and int(offset[2]) <= 18:
        return f"{offset[1]}{int(offset[2]):02d}:{offset[3] or '00'}"
    if text not in zoneinfo.available_timezones():
        hint = did_you_mean(text, zoneinfo.available_timezones())
        raise _bad(key, text, "a time zone such as Europe/Berlin or GMT+08:00", hint)
    return text
