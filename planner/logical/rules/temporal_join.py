"""A join with a table as of a time becomes a temporal join or a lookup join."""

from __future__ import annotations

from planner.errors import not_supported
from planner.logical.nodes import AsOfJoin, Plan


def as_of_join(join: AsOfJoin) -> Plan:
    """The join by the versions of a table. Raises SqlError for one that cannot be."""
    raise not_supported("FOR SYSTEM_TIME AS OF", join.place.span if join.place is not None else None)
