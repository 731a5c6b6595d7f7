"""Java's date patterns: letters and quotes, split once, then written or read one value at a time.

Two dialects: `java.time.format.DateTimeFormatter` (DATE_FORMAT, TO_TIMESTAMP) and the older
`java.text.SimpleDateFormat` (FROM_UNIXTIME, UNIX_TIMESTAMP), which names some letters differently and reads leniently.
Names of months and days are English.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.time_text import NANOSECONDS_PER_DAY, days_of, length_of_month

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

TIME_LETTERS = "GuyDMLQqYwEecaFhHkKmsSAnN"
TEXT_LETTERS = "GyYMLwWDdFEuaHkKhmsSZX"


class BadPattern(EvaluationFailure):
    """The pattern has a letter or form that Java refuses, or one that is not supported here."""


class Item(NamedTuple):
    """A run of one letter, or (letter "") literal text."""

    letter: str
    width: int
    text: str = ""


@lru_cache(maxsize=512)
def parse_pattern(pattern: str, *, legacy: bool) -> tuple[Item, ...]:
    """Raises BadPattern."""
    allowed = TEXT_LETTERS if legacy else TIME_LETTERS + "d"
    items: list[Item] = []
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", pattern, re.DOTALL):
        quoted, letter, other = match.groups()
        if quoted is not None:
            items.append(Item("", 0, quoted.replace("''", "'") or "'"))
        elif letter:
            if letter not in allowed:
                raise BadPattern(f"unknown or unsupported letter {letter!r} in the date pattern {pattern!r}")
            items.append(Item(letter, len(match.group(0))))
        elif other == "'" or (not legacy and other in "{}#[]"):
            raise BadPattern(f"unterminated or reserved {other!r} in the date pattern {pattern!r}")
        else:
            items.append(Item("", 0, other))
    return tuple(items)


class Moment(NamedTuple):
    """A local date-time in parts; `nano` is of the day, `offset_seconds` its distance from UTC."""

    days: int
    year: int
    month: int
    day: int
    nano: int
    offset_seconds: int = 0


def moment_of(nanoseconds: int, offset_seconds: int = 0) -> Moment:
    """From local nanoseconds since the epoch."""
    days, nano = divmod(nanoseconds, NANOSECONDS_PER_DAY)
    shifted = days + 719_468
    era, of_era = divmod(shifted, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    day_of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return Moment(days, year + era * 400 + (month <= 2), month, day, nano, offset_seconds)


def _weekday(moment: Moment) -> int:
    """0 = Monday."""
    return (moment.days + 3) % 7


def _week_of_us_year(moment: Moment) -> tuple[int, int]:
    """(week-based year, week): weeks begin on Sunday, week 1 holds January 1."""
    saturday = moment.days + 6 - (_weekday(moment) + 1) % 7
    year = moment_of(saturday * NANOSECONDS_PER_DAY).year
    first = days_of(year, 1, 1)
    sunday = first - (((first + 3) % 7) + 1) % 7
    return year, (moment.days - sunday) // 7 + 1


def _year(value: int, count: int) -> str:
    if count == 2:
        return f"{value % 100:02d}"
    text = f"{abs(value):0{count}d}"
    if value < 0:
        return "-" + text
    return "+" + text if count >= 4 and len(text) > count else text


def _named(value: int, count: int, names: tuple[str, ...]) -> str:
    name = names[value]
    return name if count == 4 else name[:1] if count == 5 else name[:3]


_NUMBERS: dict[str, Callable[[Moment], int]] = {
    "D": lambda m: m.days - days_of(m.year, 1, 1) + 1,
    "d": lambda m: m.day,
    "F": lambda m: (m.day - 1) // 7 + 1,
    "H": lambda m: m.nano // 3_600_000_000_000,
    "k": lambda m: m.nano // 3_600_000_000_000 or 24,
    "K": lambda m: m.nano // 3_600_000_000_000 % 12,
    "h": lambda m: m.nano // 3_600_000_000_000 % 12 or 12,
    "m": lambda m: m.nano // 60_000_000_000 % 60,
    "s": lambda m: m.nano // 1_000_000_000 % 60,
    "A": lambda m: m.nano // 1_000_000,
    "n": lambda m: m.nano % 1_000_000_000,
    "N": lambda m: m.nano,
    "w": lambda m: _week_of_us_year(m)[1],
    "W": lambda m: (m.day + 6 - (_weekday(m) + 1) % 7 - 1) // 7 + 1,
    "Q": lambda m: (m.month + 2) // 3,
    "q": lambda m: (m.month + 2) // 3,
    "e": lambda m: (_weekday(m) + 1) % 7 + 1,
    "c": lambda m: (_weekday(m) + 1) % 7 + 1,
}


def write(items: tuple[Item, ...], moment: Moment, *, legacy: bool) -> str:
    """The moment in the pattern's form."""
    return "".join(item.text if not item.letter else _written(item, moment, legacy) for item in items)


def _written(item: Item, moment: Moment, legacy: bool) -> str:
    letter, count = item.letter, item.width
    match letter:
        case "G":
            return "AD" if moment.year > 0 else "BC"
        case "y" | "Y":
            year = moment.year if letter == "y" else _week_of_us_year(moment)[0]
            year = year if year > 0 else 1 - year
            return (f"{year % 100:02d}" if count == 2 else f"{year:0{count}d}") if legacy else _year(year, count)
        case "u":
            return f"{_weekday(moment) + 1:0{count}d}" if legacy else _year(moment.year, count)
        case "M" | "L":
            return f"{moment.month:0{count}d}" if count < 3 else _named(moment.month - 1, count, MONTHS)
        case "E":
            return _named(_weekday(moment), 4 if count > 4 and legacy else max(count, 3), DAYS)
        case "e" | "c" if count >= 3:
            return _named(_weekday(moment), count, DAYS)
        case "Q" | "q" if count >= 3:
            return f"Q{(moment.month + 2) // 3}"
        case "a":
            return "AM" if moment.nano < NANOSECONDS_PER_DAY // 2 else "PM"
        case "S":
            if legacy:
                return f"{moment.nano // 1_000_000 % 1000:0{count}d}"
            return f"{moment.nano % 1_000_000_000:09d}"[:count].ljust(count, "0")
        case "Z" | "X":
            return _offset(letter, count, moment.offset_seconds)
        case _:
            return f"{_NUMBERS[letter](moment):0{count}d}"


def _offset(letter: str, count: int, seconds: int) -> str:
    if letter == "X" and seconds == 0:
        return "Z"
    sign, minutes = "-" if seconds < 0 else "+", abs(seconds) // 60
    hours, minutes = divmod(minutes, 60)
    if letter == "X" and count == 1:
        return f"{sign}{hours:02d}"
    return f"{sign}{hours:02d}{':' if letter == 'X' and count == 3 else ''}{minutes:02d}"


_KEYS = {"y": "year", "u": "year", "Y": "year", "M": "month", "L": "month", "d": "day", "D": "day_of_year", "H": "hour",
         "k": "hour_24", "h": "hour_12", "K": "hour_11", "m": "minute", "s": "second", "S": "fraction", "a": "half",
         "n": "nano"}  # fmt: skip


@lru_cache(maxsize=512)
def reader(pattern: str, *, legacy: bool) -> re.Pattern[str]:
    """The pattern as a regular expression with a group per field. Raises BadPattern."""
    items = parse_pattern(pattern, legacy=legacy)
    parts: list[str] = []
    for position, item in enumerate(items):
        adjacent = position + 1 < len(items) and items[position + 1].letter in tuple("yuYMLdDHkhKmsS")
        if item.letter in "ML" and item.width >= 3 and item.letter:
            adjacent = False
        parts.append(re.escape(item.text) if not item.letter else _read(item, position, adjacent, legacy))
    return re.compile("".join(parts), re.ASCII | (re.IGNORECASE if legacy else 0))


def _read(item: Item, position: int, adjacent: bool, legacy: bool) -> str:
    letter, count = item.letter, item.width
    if letter == "E":
        names = [*DAYS, *(day[:3] for day in DAYS)] if legacy else [d if count == 4 else d[:3] for d in DAYS]
        return f"(?:{'|'.join(names)})"
    if letter == "G":
        return "(?:AD)"
    if letter not in _KEYS or (letter in "uY" and legacy):
        raise BadPattern(f"the date pattern letter {letter!r} cannot be read")
    group = f"?P<{_KEYS[letter]}_{position}>"
    if letter in "ML" and count >= 3:
        names = [*MONTHS, *(m[:3] for m in MONTHS)] if legacy else [m if count == 4 else m[:3] for m in MONTHS]
        return f"({group}{'|'.join(names)})"
    if letter == "a":
        return f"({group}AM|PM)"
    if adjacent:
        return f"({group}\\d{{{count}}})"
    if legacy:
        return rf"\s*({group}-?\d+)"
    if letter == "S":
        return f"({group}\\d{{{count}}})"
    if letter in "yuY":
        if count == 2:
            return f"({group}\\d{{2}})"
        return f"({group}\\d{{4}}|\\+\\d{{5,9}})" if count == 4 else f"({group}\\d{{{count},9}})"
    return f"({group}\\d{{{count}}})" if count == 2 else f"({group}\\d{{{count},9}})"


def _fields(match: re.Match[str], items: tuple[Item, ...]) -> dict[str, int]:
    """Values by field; the last of several wins."""
    fields: dict[str, int] = {}
    for name, text in match.groupdict().items():
        key, _, position = name.rpartition("_")
        item = items[int(position)]
        if key == "half":
            fields[key] = text.upper() == "PM"
        elif key == "fraction":
            fields[key] = int(text.ljust(9, "0")[:9]) if item.width != 0 else 0
        elif text[:1].isalpha():
            fields[key] = [month[:3] for month in MONTHS].index(text[:3].capitalize()) + 1
        else:
            value = int(text)
            fields[key] = 2000 + value if key == "year" and item.width == 2 and len(text) == 2 else value
    return fields


def _hour(fields: dict[str, int]) -> int:
    half = 12 * fields.get("half", 0)
    if "hour" in fields:
        return fields["hour"]
    if "hour_24" in fields:
        return fields["hour_24"] % 24
    if "hour_12" in fields:
        return fields["hour_12"] % 12 + half
    return fields.get("hour_11", 0) + half


def read_time(text: str, pattern: str) -> int | None:
    """`DateTimeFormatter`: the whole text, each field in its range; local nanoseconds since the epoch, None if it does
    not parse. Missing parts are those of 1970-01-01 00:00. Raises BadPattern."""
    match = reader(pattern, legacy=False).fullmatch(text)
    if match is None:
        return None
    fields = _fields(match, parse_pattern(pattern, legacy=False))
    year, month, day = fields.get("year", 1970), fields.get("month", 1), fields.get("day", 1)
    hour, minute, second = _hour(fields), fields.get("minute", 0), fields.get("second", 0)
    nano = fields.get("fraction", fields.get("nano", 0))
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= 31 or minute > 59 or second > 59:
        return None
    if hour > 24 or (hour == 24 and (minute or second or nano)):
        return None
    if "day_of_year" in fields:
        days = days_of(year, 1, 1) + fields["day_of_year"] - 1
    else:
        days = days_of(year, month, min(day, length_of_month(year, month)))
    return days * NANOSECONDS_PER_DAY + (hour * 3600 + minute * 60 + second) * 1_000_000_000 + nano


def read_text(text: str, pattern: str) -> int | None:
    """`SimpleDateFormat`, lenient: a prefix of the text, fields may overflow into the next; local milliseconds since
    the epoch. Raises BadPattern."""
    match = reader(pattern, legacy=True).match(text)
    if match is None:
        return None
    items = parse_pattern(pattern, legacy=True)
    fields = _fields(match, items)
    for name, value in match.groupdict().items():
        if name.startswith("fraction"):
            fields["fraction"] = int(value)
    months = fields.get("year", 1970) * 12 + fields.get("month", 1) - 1
    days = days_of(months // 12, months % 12 + 1, 1) + fields.get("day", 1) - 1
    if "day_of_year" in fields:
        days = days_of(fields.get("year", 1970), 1, 1) + fields["day_of_year"] - 1
    seconds = (_hour(fields) * 60 + fields.get("minute", 0)) * 60 + fields.get("second", 0)
    return days * 86_400_000 + seconds * 1000 + fields.get("fraction", 0)
