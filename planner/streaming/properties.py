"""What is derived of each node of a plan; the optimised plan in EXPLAIN shows it.

A changelog edge is described by the kinds it carries, by whether an update comes with its old row (−U), and by
whether a delete carries the full row. Kinds are signs: +I and +U add a row, −U and −D remove one. An *upsert key* is a
set of columns under which all changes of one logical row arrive in order; the empty set says that there is one row.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.operators import ChangelogMode, Emission


class Deletes(StrEnum):
    """What a delete carries."""

    NONE = "none"
    BY_KEY = "by-key"
    FULL = "full"


class StateBound(StrEnum):
    """What keeps a node's state from growing for ever."""

    NONE = "none"
    BY_WATERMARK = "bounded by watermark"
    BY_TIMER = "bounded by processing time"
    BY_TTL = "bounded by TTL"
    BY_KEYS = "bounded by keys"
    """One row, or accumulators of constant size, per key."""
    BY_INPUT = "bounded by the input's size"
    BY_CONSTANT = "constant"
    UNBOUNDED = "unbounded"


class Changelog(msgspec.Struct, frozen=True):
    """`has_updates`: +U may occur; `has_update_before`: with its −U. Inserts may always occur."""

    has_updates: bool = False
    has_update_before: bool = False
    deletes: Deletes = Deletes.NONE

    @property
    def is_insert_only(self) -> bool:
        return not self.has_updates and self.deletes is Deletes.NONE

    @property
    def mode(self) -> ChangelogMode:
        """RETRACT also for inserts and full deletes without updates: such a stream lacks nothing."""
        if self.is_insert_only:
            return ChangelogMode.INSERT_ONLY
        lacks_rows = (self.has_updates and not self.has_update_before) or self.deletes is Deletes.BY_KEY
        return ChangelogMode.UPSERT if lacks_rows else ChangelogMode.RETRACT

    @property
    def changes(self) -> str:
        """What it carries besides inserts, in words: `update`, `delete`, `update and delete`."""
        parts = ["update"] if self.has_updates else []
        return " and ".join([*parts, *([] if self.deletes is Deletes.NONE else ["delete"])])


UpsertKey = frozenset[int]


class Properties(msgspec.Struct, frozen=True):
    """Derived for one node's output. `emission` is None for nodes that do not make updates themselves; `constants` are
    columns of one value; `has_watermark` is whether event time goes on to the consumer."""

    changelog: Changelog
    upsert_keys: frozenset[UpsertKey]
    constants: frozenset[int]
    emission: Emission | None
    has_watermark: bool
    is_bounded: bool
    state: StateBound
