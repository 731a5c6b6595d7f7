"""A join with a table as of processing time asks the table outside for each row."""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.logical.nodes import AsOfJoin, Plan
from planner.logical.versioned_tables import table_name


def lookup_join(join: AsOfJoin) -> Plan:
    """The lookup join that `join`, whose time is a processing time, is. Raises SqlError: no connector answers look-ups
    by key."""
    raise SqlError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{table_name(join.right)} cannot be joined as of processing time: its connector answers no look-ups by key",
        span=join.place.span if join.place is not None else None,
        hint="Join as of a column with a WATERMARK to get the version valid at that time, or write a regular join (no "
        "FOR SYSTEM_TIME AS OF) to follow all changes of the table.",
    )
