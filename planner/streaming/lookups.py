"""What a stream is behind a lookup join.

What an outside table answers is another thing each time it is asked: the change that takes a row back may meet other
rows of the table than the row did, or none.
"""

from __future__ import annotations

import msgspec

from planner.logical.nodes import LookupJoin
from planner.streaming.properties import Changelog, Deletes, UpsertKey


def lookup_changelog(plan: LookupJoin, below: Changelog) -> Changelog:
    """The kinds of the input pass through. An update may find fewer rows, whose −U no +U follows."""
    if not below.has_updates or gives_one_row(plan):
        return below
    return msgspec.structs.replace(below, deletes=Deletes.FULL)


def lookup_keys(plan: LookupJoin, keys: frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """A key of the input stays one if a row finds at most one row of the table."""
    return keys if plan.finds_one_row else frozenset()


def gives_one_row(plan: LookupJoin) -> bool:
    """Whether each row of the input is put out exactly once, whatever the table holds."""
    return plan.kind.is_left_outer and plan.finds_one_row


def is_repeatable(plan: LookupJoin, is_update_before_needed: bool) -> bool:
    """Whether consumers of a changing input's rows find each row again: by its key, where that is all they need."""
    return gives_one_row(plan) and not is_update_before_needed
