"""Durations and memory sizes in the spelling of Flink's options."""

from __future__ import annotations

import re

_DURATION_UNITS_MS = {
    "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "secs": 1_000, "second": 1_000, "seconds": 1_000, "": 1,
    "min": 60_000, "m": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_SIZE_UNITS = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mebibytes": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gibibytes": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tebibytes": 1 << 40,
}  # fmt: skip
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")


def duration_ms(text: str) -> int:
    """`5 min`, `10s`, `200 ms`; a bare number is milliseconds. Raises ValueError."""
    return _scaled(text, _DURATION_UNITS_MS, "duration such as '5 min' or '200 ms'")


def memory_bytes(text: str) -> int:
    """`64 mb`, `1g`; a bare number is bytes. Raises ValueError."""
    return _scaled(text, _SIZE_UNITS, "memory size such as '64 mb'")


def _scaled(text: str, units: dict[str, int], expected: str) -> int:
    found = _NUMBER_AND_UNIT.fullmatch(text)
    unit = units.get(found.group(2).lower()) if found else None
    if found is None or unit is None:
        raise ValueError(f"'{text}' is not a {expected}")
    return int(found.group(1)) * unit
