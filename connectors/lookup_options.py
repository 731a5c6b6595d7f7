"""The options `lookup.*` of tables that can be looked up; names and defaults are Flink's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from connectors.api import CacheKind, LookupOptions, PeriodicReload, TimedReload
from connectors.durations import duration_ms
from connectors.errors import OptionError

CACHE = "lookup.cache"
_ROWS_MAX = "lookup.partial-cache.max-rows"
_AFTER_WRITE = "lookup.partial-cache.expire-after-write"
_AFTER_ACCESS = "lookup.partial-cache.expire-after-access"
_MISSING_KEY = "lookup.partial-cache.cache-missing-key"
_STRATEGY = "lookup.full-cache.reload-strategy"
_INTERVAL = "lookup.full-cache.periodic-reload.interval"
_SCHEDULE_MODE = "lookup.full-cache.periodic-reload.schedule-mode"
_ISO_TIME = "lookup.full-cache.timed-reload.iso-time"
_INTERVAL_DAYS = "lookup.full-cache.timed-reload.interval-in-days"
_RETRIES = "lookup.max-retries"
_OF_PARTIAL = (_ROWS_MAX, _AFTER_WRITE, _AFTER_ACCESS, _MISSING_KEY)
_OF_PERIODIC = (_INTERVAL, _SCHEDULE_MODE)
_OF_TIMED = (_ISO_TIME, _INTERVAL_DAYS)
_OF_FULL = (_STRATEGY, *_OF_PERIODIC, *_OF_TIMED)
LOOKUP_OPTIONS = frozenset({CACHE, _RETRIES, *_OF_PARTIAL, *_OF_FULL})


def lookup_options(options: Mapping[str, str], kinds: tuple[CacheKind, ...]) -> LookupOptions:
    """Of a connector that can do with the caches `kinds`, the first by default. Raises OptionError."""
    cache = kinds[0]
    if CACHE in options:
        wanted = options[CACHE].strip().upper()
        if wanted not in kinds:
            choices = ", ".join(kinds)
            raise OptionError(f"'{CACHE}' must be one of {choices}, not '{options[CACHE]}'", option=CACHE)
        cache = CacheKind(wanted)
    for kind, names in ((CacheKind.PARTIAL, _OF_PARTIAL), (CacheKind.FULL, _OF_FULL)):
        given = next((name for name in names if name in options), None)
        if given is not None and cache is not kind:
            hint = f"Say '{CACHE}' = '{kind}'." if kind in kinds else f"This connector caches {' or '.join(kinds)}."
            raise OptionError(f"'{given}' does nothing with '{CACHE}' = '{cache}'", option=given, hint=hint)
    return LookupOptions(
        cache=cache,
        rows_max=_number(options, _ROWS_MAX, 0, 1),
        expire_after_write_ms=_duration(options, _AFTER_WRITE),
        expire_after_access_ms=_duration(options, _AFTER_ACCESS),
        keeps_missing_keys=_boolean(options, _MISSING_KEY),
        reload=_reload(options),
        retries_max=_number(options, _RETRIES, 3, 0),
    )


def _reload(options: Mapping[str, str]) -> PeriodicReload | TimedReload | None:
    """When a table that is cached whole is loaded anew; never, if no option says so."""
    strategy = _choice(options, _STRATEGY, "PERIODIC", "TIMED")
    needed, others = (_INTERVAL, _OF_TIMED) if strategy == "PERIODIC" else (_ISO_TIME, _OF_PERIODIC)
    other = next((name for name in others if name in options), None)
    if other is not None:
        raise OptionError(f"'{other}' does nothing with '{_STRATEGY}' = '{strategy}'", option=other)
    if needed not in options:
        given = next((name for name in _OF_FULL if name in options), None)
        if given is None:
            return None
        raise OptionError(f"'{_STRATEGY}' = '{strategy}' needs '{needed}'", option=given)
    if strategy == "PERIODIC":
        mode = _choice(options, _SCHEDULE_MODE, "FIXED_DELAY", "FIXED_RATE")
        return PeriodicReload(_duration(options, _INTERVAL), mode == "FIXED_RATE")
    try:
        time = dt.time.fromisoformat(options[_ISO_TIME].strip())
    except ValueError as problem:
        raise OptionError(
            f"'{_ISO_TIME}' must be a time of day in ISO-8601, such as '03:30' or '03:30:00+02:00', "
            f"not '{options[_ISO_TIME]}'",
            option=_ISO_TIME,
        ) from problem
    time_ms = ((time.hour * 60 + time.minute) * 60 + time.second) * 1000 + time.microsecond // 1000
    zone = "" if time.tzinfo is None else time.strftime("%z")
    return TimedReload(time_ms, zone, _number(options, _INTERVAL_DAYS, 1, 1))


def _choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    """The first is the default."""
    value = options.get(name, choices[0]).strip().upper()
    if value not in choices:
        raise OptionError(f"'{name}' must be one of {', '.join(choices)}, not '{options[name]}'", option=name)
    return value


def _number(options: Mapping[str, str], name: str, default: int, smallest: int) -> int:
    text = options.get(name, str(default)).strip()
    if not text.isdigit() or (name in options and int(text) < smallest):
        raise OptionError(f"'{name}' must be a number from {smallest}, not '{text}'", option=name)
    return int(text)


def _duration(options: Mapping[str, str], name: str) -> int:
    if name not in options:
        return 0
    try:
        found = duration_ms(options[name])
    except ValueError as problem:
        raise OptionError(f"'{name}': {problem}", option=name) from problem
    if found < 1:
        raise OptionError(f"'{name}' must be longer than 0", option=name)
    return found


def _boolean(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "true").strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"'{name}' must be true or false, not '{options[name]}'", option=name)
    return text == "true"
