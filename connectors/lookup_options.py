"""The options `lookup.*` of tables that can be looked up; names and defaults are Flink's."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.api import CacheKind, LookupOptions
from connectors.durations import duration_ms
from connectors.errors import OptionError

CACHE = "lookup.cache"
_ROWS_MAX = "lookup.partial-cache.max-rows"
_AFTER_WRITE = "lookup.partial-cache.expire-after-write"
_AFTER_ACCESS = "lookup.partial-cache.expire-after-access"
_MISSING_KEY = "lookup.partial-cache.cache-missing-key"
_STRATEGY = "lookup.full-cache.reload-strategy"
_INTERVAL = "lookup.full-cache.periodic-reload.interval"
_RETRIES = "lookup.max-retries"
_OF_PARTIAL = (_ROWS_MAX, _AFTER_WRITE, _AFTER_ACCESS, _MISSING_KEY)
_OF_FULL = (_STRATEGY, _INTERVAL)
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
    if options.get(_STRATEGY, "PERIODIC").strip().upper() != "PERIODIC":
        raise OptionError(
            f"'{_STRATEGY}' = '{options[_STRATEGY]}' is not supported",
            option=_STRATEGY,
            hint=f"Use PERIODIC with '{_INTERVAL}'.",
        )
    if _STRATEGY in options and _INTERVAL not in options:
        raise OptionError(f"'{_STRATEGY}' = 'PERIODIC' needs '{_INTERVAL}'", option=_STRATEGY)
    return LookupOptions(
        cache=cache,
        rows_max=_number(options, _ROWS_MAX, 0, 1),
        expire_after_write_ms=_duration(options, _AFTER_WRITE),
        expire_after_access_ms=_duration(options, _AFTER_ACCESS),
        keeps_missing_keys=_boolean(options, _MISSING_KEY),
        reload_interval_ms=_duration(options, _INTERVAL),
        retries_max=_number(options, _RETRIES, 3, 0),
    )


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
