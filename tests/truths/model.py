"""The shape of a question to Flink: a table of inputs and the expressions over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Group:
    """One input table and the expressions evaluated over each of its rows.

    `rows` hold JSON values in the encoding of the recorded files: numbers of 64 bits or less as numbers,
    DOUBLE and FLOAT as text where JSON has no number for them ("NaN"), DECIMAL as text, dates and times in
    ISO form, bytes as hex text, ARRAY as list, ROW as list of its fields, MAP as list of pairs.
    """

    name: str
    columns: dict[str, str]
    rows: list[list[Any]]
    cases: list[str]
    time_zone: str = "UTC"
    type_only: list[str] = field(default_factory=list)
    """Expressions whose value changes from run to run: only the type is recorded."""
    filters: list[str] = field(default_factory=list)
    """WHERE conditions: the recorded answer is the list of row indexes that pass, or the error."""
