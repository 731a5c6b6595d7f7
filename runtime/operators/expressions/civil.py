"""The proleptic Gregorian calendar on numpy integers: days since the epoch ↔ year, month, day."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

MS_PER_DAY = 86_400_000
UNITS_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


class CivilDate(NamedTuple):
    year: Int64s
    month: Int64s
    day: Int64s


def from_days(days: Int64s) -> CivilDate:
    """Year, month and day of days since 1970-01-01 (eras of 400 years that begin in March)."""
    shifted = np.asarray(days, np.int64) + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    day_of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = np.where(shifted_month < 10, shifted_month + 3, shifted_month - 9)
    return CivilDate(year_of_era + era * 400 + (month <= 2), month, day)


def to_days(year: Int64s, month: Int64s | int, day: Int64s | int) -> Int64s:
    """Days since 1970-01-01; month is 1..12, day may lie outside its month."""
    month = np.asarray(month, np.int64)
    year = np.asarray(year, np.int64) - (month <= 2)
    era = year // 400
    of_era = year - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return np.asarray(era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + day_of_year - 719_468, np.int64)


def month_length(year: Int64s, month: Int64s) -> Int64s:
    """Days of the month."""
    next_year, next_month = year + month // 12, month % 12 + 1
    return to_days(next_year, next_month, 1) - to_days(year, month, 1)


def add_months(days: Int64s, months: Int64s) -> Int64s:
    """Move by months; a day the month does not have becomes its last."""
    date = from_days(days)
    total = date.year * 12 + date.month - 1 + months
    year, month = total // 12, total % 12 + 1
    return to_days(year, month, np.minimum(date.day, month_length(year, month)))


def iso_week(days: Int64s) -> tuple[Int64s, Int64s]:
    """ISO week-based year and week: the year of the week's Thursday."""
    thursday = days - iso_weekday(days) + 4
    year = from_days(thursday).year
    return year, (thursday - to_days(year, 1, 1)) // 7 + 1


def iso_weekday(days: Int64s) -> Int64s:
    """1 = Monday … 7 = Sunday."""
    return (days + 3) % 7 + 1
