"""A join with a table as of processing time asks the table outside for each row.

    AsOfJoin(o.p, o.item = i.id AND i.kind = 'book' AND i.price > o.most)
      →   LookupJoin(id = item, kind = 'book', price > most) over o

What a view shows of the table (renames, projections, filters) is taken apart: the keys must be columns of the table,
and all else is asked of the rows that come back. Equalities with columns of the left side or constants are keys; so is
one that widens a whole number of the table, by the narrowed value of the left side.
"""

from __future__ import annotations

import msgspec

from planner.analysis import type_rules
from planner.catalog import ComputedColumn, MetadataColumn, PhysicalColumn
from planner.errors import Span, SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, input_indexes, shift_inputs, substitute, walk
from planner.logical.expressions import can_substitute, conjunction, identity, is_deterministic
from planner.logical.join_conditions import conjuncts, equi_keys, retyped
from planner.logical.nodes import AsOfJoin, Calc, Column, LookupJoin, Plan, Scan
from planner.logical.time_attributes import demoted
from planner.logical.versioned_tables import table_name

_LOOKUP_LOSES = "a lookup join put it beside a row of another time"


def lookup_join(join: AsOfJoin) -> Plan:
    """The lookup join that `join`, whose time is a processing time, is. Raises SqlError for a table that answers no
    look-ups, and for a condition that names no key."""
    return _Planning(join, _seen(join)).planned()


class _Seen(msgspec.Struct, frozen=True):
    """What the right side shows: `projections` of the table's physical columns, of rows that pass `filters`."""

    table: Scan
    projections: tuple[Expression, ...]
    filters: tuple[Expression, ...]


def _span(join: AsOfJoin) -> Span | None:
    return join.place.span if join.place is not None else None


def _no_lookups(join: AsOfJoin, table: Scan) -> SqlError:
    reason = table.capabilities.lookup_refusal or "its connector answers no look-ups by key"
    return SqlError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{table_name(join.right)} cannot be joined as of processing time: {reason}",
        span=_span(join),
        hint="Join as of a column with a WATERMARK to get the version valid at that time, or write a regular join (no "
        "FOR SYSTEM_TIME AS OF) to follow all changes of the table.",
    )


def _unstable(join: AsOfJoin) -> SqlError:
    hint = "Compute such columns above the join."
    return not_supported("looking up a view with columns of another value each time", _span(join), hint)


def _seen(join: AsOfJoin) -> _Seen:
    projections: tuple[Expression, ...] = identity(join.right.columns)
    filters: list[Expression] = []
    below = join.right
    while isinstance(below, Calc):
        if not can_substitute([*projections, *filters], below.projections):
            raise _unstable(join)
        filters = [*conjuncts(below.condition), *(substitute(f, below.projections) for f in filters)]
        projections = tuple(substitute(p, below.projections) for p in projections)
        below = below.input
    if not isinstance(below, Scan):
        raise SqlError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "only a table can be joined as of processing time, or a view that selects columns and rows of one",
            span=_span(join),
            hint="Join the table itself, and aggregate or join above.",
        )
    if not below.capabilities.is_lookup:
        raise _no_lookups(join, below)
    table, sources = _physical(below)
    return _Seen(
        table, tuple(substitute(p, sources) for p in projections), tuple(substitute(f, sources) for f in filters)
    )


def _physical(scan: Scan) -> tuple[Scan, tuple[Expression, ...]]:
    """The scan with its physical columns as ordinary values, and what its columns are of these."""
    kept = [i for i, c in enumerate(scan.entry.columns) if isinstance(c, PhysicalColumn)]
    columns = tuple(_ordinary(Column(c.name, c.type)) for c in scan.entry.physical)
    names = [c.name for c in columns]
    row = identity(columns)
    sources: list[Expression] = []
    for index in scan.kept:
        match scan.entry.columns[index]:
            case PhysicalColumn(name=name):
                sources.append(row[names.index(name)])
            case MetadataColumn(name=name):
                # Refused where it is read.
                sources.append(Call(_METADATA, (), scan.entry.columns[index].type))
            case ComputedColumn(expression=expression):
                of_metadata = any(i >= len(columns) for i in input_indexes(expression))
                sources.append(Call(_METADATA, (), expression.type) if of_metadata else retyped(expression, columns))
    return msgspec.structs.replace(scan, kept=tuple(kept), columns=columns), tuple(sources)


_METADATA = "METADATA_OF_LOOKUP"
"""Stands for a metadata column, until it is known whether one is read."""


def _reads_metadata(expression: Expression) -> bool:
    return any(isinstance(e, Call) and e.function == _METADATA for e in walk(expression))


def _ordinary(column: Column) -> Column:
    return column if column.type.time_attribute is None else demoted(column, _LOOKUP_LOSES)


class _Planning:
    """Plans one join."""

    def __init__(self, join: AsOfJoin, seen: _Seen) -> None:
        self._join = join
        self._table = seen.table
        self._seen = seen
        self._width = len(join.left.columns)
        self._left_keys: dict[str, int | None] = {}
        self._constants: dict[str, Expression | None] = {}

    def planned(self) -> Plan:
        join, width = self._join, self._width
        read = frozenset().union(*(input_indexes(part) for part in conjuncts(join.condition)))
        if any(width + i in read and not is_deterministic(p) for i, p in enumerate(self._seen.projections)):
            # It would be another value in the condition than in the row.
            raise _unstable(join)
        parts = [shift_inputs(f, {i: width + i for i in input_indexes(f)}) for f in self._seen.filters]
        parts += self._over_table(conjuncts(join.condition))
        if any(_reads_metadata(part) for part in parts):
            raise self._metadata_refused()
        found = equi_keys(join.left, self._table, [*parts, *self._narrowed(parts)])
        rest: list[Expression] = []
        for i, key in enumerate(found.right_keys):
            is_plain = not found.null_safe[i] or not (
                found.left.columns[found.left_keys[i]].type.nullable and found.right.columns[key].type.nullable
            )
            is_column = key < len(self._table.columns) and is_plain
            name = self._table.columns[key].name if is_column else ""
            if is_column and name not in self._left_keys:
                self._left_keys[name], self._constants[name] = found.left_keys[i], None
            else:
                rest.append(self._equality(found.left, found.right, found.left_keys[i], key, found.null_safe[i]))
        wide = len(found.left.columns)
        rest += [part for part in conjuncts(found.rest) if not self._take_constant(part, wide)]
        if not self._left_keys:
            raise self._no_key()
        return self._shown(found.left, rest)

    def _over_table(self, parts: list[Expression]) -> list[Expression]:
        """Conditions on the columns that the right side shows, as conditions on the table's."""
        width = self._width
        left = tuple(InputRef(i, c.type) for i, c in enumerate(self._join.left.columns))
        right = tuple(shift_inputs(p, {i: width + i for i in input_indexes(p)}) for p in self._seen.projections)
        return [substitute(part, (*left, *right)) for part in parts]

    def _narrowed(self, parts: list[Expression]) -> list[Expression]:
        """`CAST(item AS BIGINT) = id` as `item = CAST(id AS INT)` besides: a value that does not fit finds a row, or
        none, that the condition itself turns away."""
        found: list[Expression] = []
        for part in parts:
            if not isinstance(part, Call) or part.function != "EQ":
                continue
            for own, other in (part.args, part.args[::-1]):
                match own:
                    case Call(function="CAST", args=(InputRef(index=index, type=narrow),)) if (
                        index >= self._width
                        and narrow.is_integer
                        and own.type.is_integer
                        and input_indexes(other)
                        and max(input_indexes(other)) < self._width
                    ):
                        type_ = narrow.with_nullable(other.type.nullable)
                        key = Call("CAST", (other,), type_)
                        nullable = t.BOOLEAN.with_nullable(narrow.nullable or other.type.nullable)
                        found.append(Call("EQ", (key, InputRef(index, narrow)), nullable))
        return found

    def _take_constant(self, part: Expression, wide: int) -> bool:
        """Notes `column = constant` as a key."""
        if not isinstance(part, Call) or part.function != "EQ":
            return False
        for own, other in (part.args, part.args[::-1]):
            match own, other:
                case InputRef(index=index, type=type_), Literal(value=value) if index >= wide and value is not None:
                    name = self._table.columns[index - wide].name
                    alike = (type_.is_character and other.type.is_character) or type_rules.same_but_nullability(
                        type_, other.type
                    )
                    if alike and name not in self._left_keys:
                        self._left_keys[name], self._constants[name] = None, other
                        return True
                case _:
                    pass
        return False

    def _equality(self, left: Plan, right: Plan, left_key: int, right_key: int, null_safe: bool) -> Expression:
        """An equality that is no key, as a condition over the left side and the table."""
        own: Expression = InputRef(left_key, left.columns[left_key].type)
        other: Expression = InputRef(right_key, right.columns[right_key].type)
        if isinstance(right, Calc):
            other = right.projections[right_key]
        other = shift_inputs(other, {i: len(left.columns) + i for i in input_indexes(other)})
        nullable = not null_safe and (own.type.nullable or other.type.nullable)
        return Call("IS_NOT_DISTINCT_FROM" if null_safe else "EQ", (own, other), t.BOOLEAN.with_nullable(nullable))

    def _shown(self, left: Plan, rest: list[Expression]) -> Plan:
        """The join, and above it the columns that `join` has."""
        join, table, wide = self._join, self._table, len(left.columns)
        is_padded = join.kind.is_left_outer
        of_table = tuple(
            msgspec.structs.replace(c, type=c.type.with_nullable(c.type.nullable or is_padded)) for c in table.columns
        )
        of_left = (*join.columns[: self._width], *left.columns[self._width :])
        node = LookupJoin(
            input=left,
            table=table,
            kind=join.kind,
            left_keys=tuple(self._left_keys.values()),
            constants=tuple(self._constants.values()),
            lookup_columns=tuple(self._left_keys),
            condition=conjunction(rest),
            columns=(*of_left, *of_table),
            hint=join.lookup_hint,
            place=join.place,
        )
        shown: list[Expression] = [InputRef(i, node.columns[i].type) for i in range(self._width)]
        columns = list(join.columns[: self._width])
        key = [c.name for c in table.columns].index(node.lookup_columns[0])
        for i, projection in enumerate(self._seen.projections):
            column = _ordinary(join.columns[self._width + i])
            if _reads_metadata(projection):
                raise self._metadata_refused()
            moved = retyped(shift_inputs(projection, {j: wide + j for j in input_indexes(projection)}), node.columns)
            if is_padded and not isinstance(projection, InputRef):
                # Where nothing was found there is no row to compute it of. A key that was found is not NULL.
                is_found = Call("IS_NOT_NULL", (InputRef(wide + key, of_table[key].type),), t.BOOLEAN)
                type_ = type_rules.plain(moved.type).with_nullable(True)
                moved = Call("CASE", (is_found, moved, Literal(None, type_)), type_)
            shown.append(moved)
            columns.append(msgspec.structs.replace(column, type=moved.type))
        if tuple(shown) == identity(node.columns):
            return node
        return Calc(node, None, tuple(shown), tuple(columns))

    def _metadata_refused(self) -> SqlError:
        name = table_name(self._join.right)
        hint = "Take the columns that the table itself has."
        return not_supported(f"metadata columns of {name}, which is looked up,", _span(self._join), hint)

    def _no_key(self) -> SqlError:
        names = [c.name for c in self._table.columns]
        key = self._table.entry.primary_key
        example = key.columns[0] if key is not None else names[0]
        return SqlError(
            SqlState.INVALID_DEFINITION,
            f"{table_name(self._join.right)} is looked up by key, and the condition does not say what any of its "
            "columns equals",
            span=_span(self._join),
            hint=f"Add an equality (=) of a column such as `{example}` with a column of the left side or a constant to "
            "ON. If it has another type, cast the left side's column to the table's type.",
        )
