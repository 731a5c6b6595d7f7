"""What is derived of each node of a plan, bottom up; the optimised plan in EXPLAIN shows it.

A changelog edge is described by the kinds it carries, by whether an update comes with its old row (−U), and by
whether a delete carries the full row. An *upsert key* is a set of columns under which all changes of one logical
row arrive in order.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.operators import ChangelogMode


class Deletes(StrEnum):
    """What a delete carries."""

    NONE = "none"
    BY_KEY = "by-key"
    FULL = "full"


class Emission(StrEnum):
    """How an updating operator answers to a batch: one step per input row, or one net change per key."""

    EVERY = "every"
    NET = "net"


class StateBound(StrEnum):
    """What keeps a node's state from growing for ever."""

    NONE = "none"
    BY_WATERMARK = "bounded by watermark"
    BY_CONSTANT = "constant"


class Changelog(msgspec.Struct, frozen=True):
    mode: ChangelogMode = ChangelogMode.INSERT_ONLY
    has_update_before: bool = False
    deletes: Deletes = Deletes.NONE


UpsertKey = frozenset[int]


class Properties(msgspec.Struct, frozen=True):
    """Derived for one node. `emission` is None for nodes that never update; `has_watermark` is for its output."""

    changelog: Changelog
    upsert_keys: frozenset[UpsertKey]
    emission: Emission | None
    has_watermark: bool
    state: StateBound
