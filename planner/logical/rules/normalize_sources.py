"""A source whose changes are incomplete or repeated gets a normalisation by its primary key right above it.

    Scan(upsert-kafka)   →   ChangelogNormalize(key) over Scan

So do changelog sources with a primary key under `table.exec.source.cdc-events-duplicate`. Filters stand above: below,
they would hide the row that ends another one. Computed columns that give another value each time, such as UUID(), move
above as well: else the same row twice would look like an update.
"""

from __future__ import annotations

import msgspec

from planner.catalog import ComputedColumn
from planner.ir.expressions import Expression, InputRef, shift_inputs
from planner.ir.operators import ChangelogMode
from planner.logical.expressions import is_deterministic
from planner.logical.nodes import Calc, ChangelogNormalize, Plan, Scan
from planner.logical.rewrite import bottom_up
from planner.logical.rules.prune_columns import watermark_columns
from planner.streaming.derive import primary_key_positions


def normalize_sources(plan: Plan, has_duplicate_events: bool) -> Plan:
    """Sources without a primary key are left as they are; the check of changelogs refuses what cannot work so."""

    def normalize(node: Plan) -> Plan:
        if not isinstance(node, Scan) or primary_key_positions(node) is None:
            return node
        mode = node.capabilities.source_changelog
        is_wanted = mode is ChangelogMode.UPSERT or (mode is ChangelogMode.RETRACT and has_duplicate_events)
        return _normalized(node) if is_wanted else node

    return bottom_up(plan, normalize)


def _normalized(scan: Scan) -> Plan:
    entry = scan.entry
    stays = watermark_columns(entry)
    moved = {
        i
        for i in scan.kept
        if i not in stays
        and isinstance(column := entry.columns[i], ComputedColumn)
        and not is_deterministic(column.expression)
    }
    if not moved:
        return _over(scan)
    stored = [i for i in scan.kept if i not in moved]
    by_index = dict(zip(scan.kept, scan.columns, strict=True))
    below = _over(msgspec.structs.replace(scan, kept=tuple(stored), columns=tuple(by_index[i] for i in stored)))
    source_row = [c.name for c in entry.physical] + [c.name for c in entry.metadata]
    names = [entry.columns[i].name for i in stored]
    positions = {i: names.index(name) for i, name in enumerate(source_row)}
    projections: list[Expression] = []
    for index in scan.kept:
        column = entry.columns[index]
        if index in moved:
            assert isinstance(column, ComputedColumn)
            projections.append(shift_inputs(column.expression, positions))
        else:
            projections.append(InputRef(stored.index(index), column.type))
    return Calc(below, None, tuple(projections), scan.columns)


def _over(scan: Scan) -> ChangelogNormalize:
    keys = primary_key_positions(scan)
    assert keys is not None
    return ChangelogNormalize(scan, keys, scan.columns)
