"""A join with a table as of event time becomes a temporal join over the table's versions.

    AsOfJoin(o.ts, o.cur = r.cur AND r.rate > 1)   →   TemporalJoin(cur = cur, o.ts, r.valid_from, rate > 1)

The versions are told apart by the table's key alone: what else the condition says, other equalities included, is asked
of the version that was valid (see `planner.logical.versioned_tables`). As of processing time it is a lookup join.
"""

from __future__ import annotations

import msgspec

from planner.errors import Span, SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, input_indexes, shift_inputs, substitute
from planner.logical.expressions import conjunction
from planner.logical.join_conditions import EquiKeys, conjuncts, equi_keys
from planner.logical.nodes import AsOfJoin, Calc, Column, Plan, Scan, TemporalJoin
from planner.logical.rules.lookup_join import lookup_join
from planner.logical.time_attributes import demoted, spread_ms
from planner.logical.versioned_tables import VersionedTable, lost_time, table_name, versioned_table
from planner.streaming.kept_columns import kept_column

_FEATURE = "FOR SYSTEM_TIME AS OF"
_VIEW_HINT = (
    "or a view that keeps the last row per key: SELECT … FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY key ORDER BY "
    "time DESC) AS rn FROM t) WHERE rn = 1"
)
_VERSIONS_LOSE = "a temporal join put the version beside a later row"


def as_of_join(join: AsOfJoin) -> Plan:
    """The join by the versions of a table, with the columns of `join`. Raises SqlError for one that cannot be."""
    time = join.left.columns[join.as_of]
    if time.type.time_attribute is None:
        hint = f"It was one until {time.lost}." if time.lost else ""
        message = f"{_FEATURE} needs a time attribute of the left side, and `{time.name}` is none any more"
        raise SqlError(SqlState.WINDOWING_ERROR, message, span=_span(join), hint=hint)
    if time.type.is_proctime:
        return lookup_join(join)
    versions = versioned_table(join.right)
    if versions is None:
        hint = "Compute such columns above the join."
        raise not_supported(f"{_FEATURE} a view with columns of another value each time", _span(join), hint)
    return _Planning(join, versions, _time(join, versions)).planned()


def _span(join: AsOfJoin) -> Span | None:
    return join.place.span if join.place is not None else None


def _time(join: AsOfJoin, versions: VersionedTable) -> int:
    """The versions' time attribute, which must be counted as the left side's is."""
    name = table_name(join.right)
    if not any(versions.keys):
        raise SqlError(
            SqlState.INVALID_DEFINITION,
            f"{_FEATURE} needs a versioned table, and {name} has no primary key",
            span=_span(join),
            hint=_lookup_hint(join) or f"Take a table with PRIMARY KEY (…) NOT ENFORCED and a WATERMARK, {_VIEW_HINT}.",
        )
    if versions.time is None:
        lost = lost_time(join.right)
        raise SqlError(
            SqlState.WINDOWING_ERROR,
            f"{_FEATURE} needs a versioned table, and {name} has no time attribute",
            span=_span(join),
            hint=_lookup_hint(join)
            or (f"It had one until {lost}." if lost else "Declare WATERMARK FOR … in the table's definition."),
        )
    left, right = join.left.columns[join.as_of].type, versions.rows.columns[versions.time].type
    if left.root is not right.root:
        raise SqlError(
            SqlState.DATATYPE_MISMATCH,
            f"{_FEATURE} compares a {left.sql()} with the {right.sql()} of {name}'s versions",
            span=_span(join),
            hint="Declare both time attributes as TIMESTAMP(3), or both as TIMESTAMP_LTZ(3).",
        )
    return versions.time


def _lookup_hint(join: AsOfJoin) -> str:
    """For a table outside that can be asked at any moment, but not for what it was at another."""
    below = join.right
    while isinstance(below, Calc):
        below = below.input
    if not isinstance(below, Scan) or not below.capabilities.is_lookup:
        return ""
    return "Join as of a processing time, such as a column AS PROCTIME(), to get the row that is there at that moment."


class _Planning:
    """Plans one join. The right side is the view's columns, then what the join needs of the versions besides."""

    def __init__(self, join: AsOfJoin, versions: VersionedTable, time: int) -> None:
        self._join = join
        self._versions = versions
        self._projections = list(versions.projections)
        self._columns = list(join.right.columns)
        self._time = self._position(time)

    def _position(self, column: int) -> int:
        """Where the right side has a column of the versions."""
        source = self._versions.rows.columns[column]
        reference = InputRef(column, source.type)
        if reference not in self._projections:
            self._projections.append(reference)
            self._columns.append(Column(source.name, source.type))
        return self._projections.index(reference)

    def planned(self) -> Plan:
        join, width = self._join, len(self._join.left.columns)
        filters = [
            shift_inputs(f, {i: width + self._position(i) for i in input_indexes(f)}) for f in self._versions.filters
        ]
        right = Calc(self._versions.rows, None, tuple(self._projections), tuple(self._columns))
        found = equi_keys(join.left, right, [*filters, *conjuncts(join.condition)])
        chosen = self._chosen(found)
        others = [_equality(found, i) for i in range(len(found.left_keys)) if i not in chosen]
        rest = conjunction([*others, *conjuncts(found.rest)])
        wide = len(found.left.columns)
        columns = self._output(found)
        temporal = TemporalJoin(
            left=found.left,
            right=found.right,
            kind=join.kind,
            left_keys=tuple(found.left_keys[i] for i in chosen),
            right_keys=tuple(found.right_keys[i] for i in chosen),
            left_time=join.as_of,
            right_time=self._time,
            condition=rest,
            columns=columns,
            place=join.place,
        )
        kept = [*range(width), *range(wide, wide + len(join.right.columns))]
        shown = tuple(columns[i] for i in kept)
        if len(kept) == len(columns):
            return temporal
        return Calc(temporal, None, tuple(InputRef(i, columns[i].type) for i in kept), shown)

    def _chosen(self, found: EquiKeys) -> list[int]:
        """The equalities that name one key of the versions, each of its columns once."""
        by_column: dict[int, int] = {}
        for i, key in enumerate(found.right_keys):
            column = kept_column(self._version_value(found.right, key))
            if column is not None and _is_plain(found, i):
                by_column.setdefault(column, i)
        for key_columns in self._versions.keys:
            if key_columns and all(c in by_column for c in key_columns):
                return [by_column[c] for c in key_columns]
        raise self._key_missing(by_column)

    def _version_value(self, right: Plan, key: int) -> Expression:
        """A column of the right side as an expression over the versions."""
        if key < len(self._projections):
            return self._projections[key]
        assert isinstance(right, Calc)
        return substitute(right.projections[key], tuple(self._projections))

    def _key_missing(self, by_column: dict[int, int]) -> SqlError:
        key = self._versions.keys[0]
        names = [self._versions.rows.columns[c].name for c in key]
        missing = [n for n, c in zip(names, key, strict=True) if c not in by_column]
        return SqlError(
            SqlState.INVALID_DEFINITION,
            f"{_FEATURE} finds versions by the key ({', '.join(names)}) of {table_name(self._join.right)}, and "
            f"the condition does not say what {' and '.join(f'`{n}`' for n in missing)} equals",
            span=_span(self._join),
            hint=f"Add an equality (=) of `{missing[0]}` with a column of the left side to ON.",
        )

    def _output(self, found: EquiKeys) -> tuple[Column, ...]:
        """The output's columns: rows of the left side leave by the time that was compared, in their order."""
        join = self._join
        width = len(join.left.columns)
        compared = join.left.columns[join.as_of].name
        columns: list[Column] = []
        for i, column in enumerate(found.left.columns):
            shown = join.columns[i] if i < width else column
            spread = spread_ms(join.left, join.as_of, i) if i < width and shown.type.is_rowtime else 0
            if spread is None or spread > 0:
                shown = demoted(shown, f"a temporal join held rows back by `{compared}`, without regard to it")
            columns.append(shown)
        for i, column in enumerate(found.right.columns):
            is_shown = i < len(join.right.columns)
            shown = join.columns[width + i] if is_shown else _nullable(column, join.kind.is_left_outer)
            columns.append(demoted(shown, _VERSIONS_LOSE) if shown.type.is_rowtime else shown)
        return tuple(columns)


def _nullable(column: Column, is_padded: bool) -> Column:
    return msgspec.structs.replace(column, type=column.type.with_nullable(column.type.nullable or is_padded))


def _is_plain(found: EquiKeys, key: int) -> bool:
    """Whether NULL never equals NULL in it."""
    types = found.left.columns[found.left_keys[key]].type, found.right.columns[found.right_keys[key]].type
    return not found.null_safe[key] or not all(type_.nullable for type_ in types)


def _equality(found: EquiKeys, key: int) -> Expression:
    """A key as a condition over both sides' columns."""
    left, right = found.left_keys[key], found.right_keys[key]
    first = InputRef(left, found.left.columns[left].type)
    second = InputRef(len(found.left.columns) + right, found.right.columns[right].type)
    if found.null_safe[key]:
        return Call("IS_NOT_DISTINCT_FROM", (first, second), t.BOOLEAN.with_nullable(False))
    return Call("EQ", (first, second), t.BOOLEAN.with_nullable(first.type.nullable or second.type.nullable))
