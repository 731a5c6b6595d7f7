"""A join within equal windows of both sides becomes a window join."""

from __future__ import annotations

from planner.logical.nodes import Join, Plan


def window_join(join: Join) -> Plan | None:
    """The window join that a settled join is, or None."""
    return None
