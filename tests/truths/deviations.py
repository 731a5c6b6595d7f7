"""Where our answer differs from Flink's on purpose, and why. Anything else that differs is a failing test.

Three kinds: Flink's answer is an accident (wrong arithmetic, a NullPointerException, text parsed by chance); Flink
fails where we can answer; or the function or literal is not built. A deviation that no longer occurs fails too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.truths.compare import Mismatch, is_error


@dataclass(frozen=True)
class Deviation:
    """Covers mismatches whose SQL matches `sql` (a whole-text regular expression), and whose row satisfies `when`."""

    reason: str
    sql: str
    table: str = ".*"
    when: Callable[[Mismatch], bool] = lambda mismatch: True

    def covers(self, mismatch: Mismatch) -> bool:
        return (
            re.fullmatch(self.sql, mismatch.sql, re.DOTALL) is not None
            and re.fullmatch(self.table, mismatch.table) is not None
            and self.when(mismatch)
        )


def _flink_fails(mismatch: Mismatch) -> bool:
    return is_error(mismatch.flink)


def _fails_with(text: str) -> Callable[[Mismatch], bool]:
    return lambda mismatch: is_error(mismatch.flink) and text in mismatch.flink["error"]


def _early(mismatch: Mismatch) -> bool:
    """A date before 1970 among the inputs, or 1970's first instant, which is still 1969 in America."""
    pattern = r"(0|1[0-8]|19[0-6])\d*-|1970-01-01T00:00:00Z"
    return any(isinstance(value, str) and re.match(pattern, value) for value in mismatch.inputs)


def _has(*values: Any) -> Callable[[Mismatch], bool]:
    return lambda mismatch: any(value in mismatch.inputs for value in values)


def _any(mismatch: Mismatch) -> bool:
    return True


DEVIATIONS = [
    Deviation("not in the list of functions", r"BTRIM\(s\)"),
    Deviation("character set introducers are not supported", r"_UTF16'abc'"),
    # -- Flink fails, we answer -----------------------------------------------------------------------
    Deviation("COALESCE stops at the first value; Flink evaluates all", r"COALESCE\(.*/.*", when=_flink_fails),
    Deviation("AND stops at FALSE; Flink's optimiser turns the operands round", r"NOT p AND .*", when=_flink_fails),
    Deviation("a NullPointerException in Flink", r"(GREATEST|LEAST)\(.*", when=_fails_with("NullPointer")),
    Deviation("NaN and infinities stay what they are", r"ROUND\((d|f).*", when=_fails_with("NumberFormat")),
    Deviation(
        "NaN and infinities have no decimal: NULL", r"(TRY_)?CAST\(v AS DECIMAL.*", when=_fails_with("NumberFormat")
    ),
    Deviation("a bad LIKE pattern leaves NULL alone", r"s LIKE '.*' ESCAPE '.*'", when=_fails_with("Invalid escape")),
    Deviation("a text that is no timestamp is NULL", r"TO_TIMESTAMP_LTZ\(s\)", when=_flink_fails),
    Deviation("filters in JSON paths miss a class in Flink", r"JSON_VALUE\(j, '\$\.c\[\?.*", when=_flink_fails),
    Deviation("a TIME beyond midnight wraps", r"CEIL\(tm TO (MINUTE|HOUR)\)"),
    Deviation("a negative TIME in Flink", r"(TRY_)?CAST\(v AS TIME\)", when=_early),
    # -- before 1970 and far years --------------------------------------------------------------------
    Deviation(
        "Flink cuts toward 1970 where days and seconds before it must be counted down",
        r"(EXTRACT|FLOOR|CEIL|TIMESTAMPDIFF|(TRY_)?CAST|YEAR|HOUR|MINUTE|SECOND).*",
        when=_early,
    ),
    Deviation(
        "Flink's older formatter counts in the Julian calendar before 1582",
        r"FROM_UNIXTIME\(n.*",
        when=_has(-62135596800),
    ),
    Deviation("Flink overflows an INT of milliseconds", r"TIMESTAMPDIFF\(WEEK, .*", when=_any),
    Deviation(
        "TIMESTAMP(9) holds the years 1677 to 2262 here: others are refused by CAST",
        r"CAST\(v AS TIMESTAMP(_LTZ)?\(9\)\)",
        when=lambda m: isinstance(m.ours, Exception),
    ),
    # -- accidents of Flink ---------------------------------------------------------------------------
    Deviation("a DATE has no seconds: 0", r"EXTRACT\((SECOND|MINUTE|MILLISECOND) FROM dt\)"),
    Deviation("a DATE is its own day", r"CEIL\(dt TO DAY\)"),
    Deviation("TIME has no date to round: refused", r"(FLOOR|CEIL)\(tm TO .*"),
    Deviation("Flink reads QUARTER as MONTH and WEEK as HOUR", r"ts \+ INTERVAL '1' (QUARTER|WEEK)"),
    Deviation("unparsed text is NULL, not a date in the year 1705471", r"TO_DATE\(s, 'yyyy-MM-dd'\)"),
    Deviation("Flink parses single letters as decimal zeros", r"TRY_CAST\(v AS DECIMAL.*", r"try_cast from STRING"),
    Deviation("there is no year 0", r"TRY_CAST\(v AS DATE\)", r"try_cast from STRING.*", when=_has("0")),
    Deviation(
        "Flink orders texts by UTF-16 unit or by byte, as they happen to be stored; ours is code point order",
        r".*",
        r"text comparison",
        when=lambda m: m.row is None or "😀" in m.inputs,
    ),
    Deviation("an empty match inside a surrogate pair", r"REGEXP_REPLACE\(s, '(a\*)?', '-'\)", when=_has("é😀x")),
    Deviation("the shortest digits (Java 19 and later print these too)", r"(TRY_)?CAST\(v AS STRING\)", r"from FLOAT"),
    Deviation("Flink first casts the left side of decimal % integer to the integer", r"(d200|y) % .*|MOD\(y, 4\)"),
    Deviation("FLOAT with DOUBLE is DOUBLE; in Flink the first one's type", r"f [-+/=] d"),
    Deviation(
        "FLOAT and DOUBLE compare with DECIMAL by IEEE rules; Flink by Double.compare",
        r"(f|d|d52|d102|d200|d3810) (<|>=) (f|d|d52|d102|d200|d3810)",
    ),
]

TYPES = {
    "IF(a > 1, a, 0)": "IF is nullable whatever its branches are",
    "INTERVAL '1' DAY": "one interval type of seconds: DAY TO SECOND(3)",
    "INTERVAL '3' HOUR": "one interval type of seconds: DAY TO SECOND(3)",
    "INTERVAL '1' MONTH": "one interval type of months: YEAR TO MONTH",
    "PROCTIME()": "NOT NULL is written behind the mark of a time attribute",
}
"""Result types that differ from Flink's, by SQL text."""

ACCEPTED = {
    "NULL": "a NULL without a type takes that of its place",
    "p AND NULL": "a NULL without a type takes that of its place",
    "p OR NULL": "a NULL without a type takes that of its place",
    "IF(a > 0, 'x', NULL)": "a NULL without a type takes that of its place",
    "ts - INTERVAL '100' MINUTE": "interval fields have no maximal number of digits",
    "a = x": "a DATE meets a TIMESTAMP as its midnight",
}
"""What Flink refuses and we accept, by SQL text."""
