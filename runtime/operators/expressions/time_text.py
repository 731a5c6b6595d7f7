"""Texts of dates and times in the forms that Flink's casts read. One text at a time; None = malformed."""

from __future__ import annotations

import re
from datetime import date

_DAYS_BEFORE_EPOCH = date(1970, 1, 1).toordinal()
_TIMESTAMP = re.compile(
    r"(\d{4}|\+\d{5,9})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII
)
_INTEGER = re.compile(r"\d{1,9}", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?", re.ASCII)
NANOSECONDS_PER_DAY = 86_400_000_000_000


def days_of(year: int, month: int, day: int) -> int:
    """Days since the epoch of a valid proleptic Gregorian date, any year; `day` may lie beyond its month."""
    year, month = (year - 1, month + 12) if month <= 2 else (year, month)
    era = year // 400
    of_era = year - era * 400
    day_of_year = (153 * (month - 3) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + day_of_year - 719_468


def length_of_month(year: int, month: int) -> int:
    """Days of a month."""
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return days_of(*following, 1) - days_of(year, month, 1)


def timestamp_of_text(text: str) -> int | None:
    """`yyyy-M-d[ H:m:s[.f…]]` as nanoseconds since the epoch, local. A day up to 31 that the month does not have is its
    last; 24:00:00 is the next midnight; nothing may stand around."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if year == 0 or not 1 <= month <= 12 or not 1 <= day <= 31 or minute > 59 or second > 59:
        return None
    fraction = int((match.group(7) or "").ljust(9, "0"))
    if hour > 24 or (hour == 24 and (minute or second or fraction)):
        return None
    days = days_of(year, month, min(day, length_of_month(year, month)))
    return days * NANOSECONDS_PER_DAY + (hour * 3600 + minute * 60 + second) * 1_000_000_000 + fraction


def date_of_text(text: str) -> date | None:
    """`y[-M[-d]]`, blanks around; what follows a blank is ignored; years 0..9999, and days must exist."""
    trimmed = text.strip()
    parts = trimmed.partition(" ")[0].split("-")
    if len(parts) > 3 or not all(_INTEGER.fullmatch(part) for part in parts):
        return None
    year, month, day = (int(part) for part in [*parts, "1", "1"][:3])
    if not 0 < year <= 9999 or not 1 <= month <= 12 or not 1 <= day <= length_of_month(year, month):
        return None
    return date(year, month, day)


def time_of_text(text: str) -> int | None:
    """`H[:m[:s[.f…]]]`, blanks around, as milliseconds of the day; fractions are cut off (TIME is TIME(0))."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        return None
    return (hour * 3600 + minute * 60 + second) * 1000
