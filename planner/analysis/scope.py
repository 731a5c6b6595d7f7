"""What names mean at one place of a query: the columns in reach, under which qualifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from sqlglot import exp

from planner.errors import SqlError, SqlState, did_you_mean
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.types import DataType, TypeRoot
from planner.sql.nodes import span_of


class ScopeColumn(msgspec.Struct, frozen=True):
    """A column in reach. `lost` says why it is no time attribute any more, or is empty."""

    name: str
    type: DataType
    lost: str = ""


class TypedColumn(Protocol):
    """A column as any step of a plan has it."""

    @property
    def type(self) -> DataType: ...

    @property
    def lost(self) -> str: ...


class Relation(msgspec.Struct, frozen=True):
    """One item of FROM: its alias (or table path) and columns; `first_index` is its first column's index."""

    qualifier: tuple[str, ...]
    columns: tuple[ScopeColumn, ...]
    first_index: int = 0


class VisibleColumn(msgspec.Struct, frozen=True):
    """What a name without qualifier means: a column of a relation, or one that USING made of two."""

    name: str
    value: Expression
    lost: str = ""


class Scope(msgspec.Struct, frozen=True):
    """All relations of a FROM clause; empty for a query without one.

    `visible`: what `*` stands for, in its order, and where names without qualifier are looked up; None is every column
    of every relation.
    """

    relations: tuple[Relation, ...]
    visible: tuple[VisibleColumn, ...] | None = None

    @property
    def columns(self) -> tuple[ScopeColumn, ...]:
        """The columns that InputRefs count."""
        return tuple(c for r in self.relations for c in r.columns)

    @property
    def visible_columns(self) -> tuple[VisibleColumn, ...]:
        if self.visible is not None:
            return self.visible
        return tuple(v for relation in self.relations for v in _visible(relation))

    def with_columns(self, columns: Sequence[TypedColumn]) -> Scope:
        """The same names over columns that have other types or marks now, as a step above FROM gives them."""
        relations = tuple(
            Relation(
                relation.qualifier,
                tuple(
                    ScopeColumn(c.name, columns[relation.first_index + i].type, columns[relation.first_index + i].lost)
                    for i, c in enumerate(relation.columns)
                ),
                relation.first_index,
            )
            for relation in self.relations
        )
        if self.visible is None:
            return Scope(relations)
        visible: list[VisibleColumn] = []
        for column in self.visible:
            value = retyped(column.value, columns)
            lost = columns[value.index].lost if isinstance(value, InputRef) else column.lost
            visible.append(VisibleColumn(column.name, value, lost))
        return Scope(relations, tuple(visible))

    def star(self, prefix: list[exp.Identifier]) -> tuple[VisibleColumn, ...]:
        """Everything `*` or `prefix.*` stands for."""
        names = tuple(i.this for i in prefix)
        if not names:
            return self.visible_columns
        for relation in self.relations:
            if _matches(relation.qualifier, names):
                return _visible(relation)
        raise SqlError(
            SqlState.UNDEFINED_TABLE,
            f"no table or alias `{'.'.join(names)}` in FROM",
            span=span_of(prefix[0]),
            hint=did_you_mean(names[-1], self.relation_names),
        )

    @property
    def relation_names(self) -> list[str]:
        return [r.qualifier[-1] for r in self.relations if r.qualifier]

    def resolve(self, parts: list[exp.Identifier]) -> Expression:
        """`column`, `alias.column`, `catalog.database.table.column`, each followed by fields of a ROW."""
        names = tuple(i.this for i in parts)
        for length in range(min(len(names) - 1, 3), 0, -1):
            qualified = [r for r in self.relations if _matches(r.qualifier, names[:length])]
            found = [c for r in qualified for c in _visible(r) if c.name == names[length]]
            if found:
                self._refuse_ambiguous(found, parts[length], ".".join(names[:length]))
                return access_fields(found[0].value, parts[length + 1 :])
        matches = [column for column in self.visible_columns if column.name == names[0]]
        if matches:
            self._refuse_ambiguous(matches, parts[0])
            return access_fields(matches[0].value, parts[1:])
        raise self._unknown(parts, names)

    def _refuse_ambiguous(self, matches: list[VisibleColumn], part: exp.Identifier, qualifier: str = "") -> None:
        if len(matches) == 1:
            return
        owners = [
            r.qualifier[-1] for r in self.relations if r.qualifier and any(c.name == part.this for c in r.columns)
        ]
        hint = ""
        if not qualifier and len(set(owners)) > 1:
            hint = f"Write {' or '.join(f'`{owner}`.`{part.this}`' for owner in dict.fromkeys(owners))}."
        raise SqlError(SqlState.AMBIGUOUS_COLUMN, f"column `{part.this}` is ambiguous", span=span_of(part), hint=hint)

    def _unknown(self, parts: list[exp.Identifier], names: tuple[str, ...]) -> SqlError:
        for length in range(min(len(names) - 1, 3), 0, -1):
            qualified = [r for r in self.relations if _matches(r.qualifier, names[:length])]
            if qualified:
                return SqlError(
                    SqlState.UNDEFINED_COLUMN,
                    f"no column `{names[length]}` in `{'.'.join(names[:length])}`",
                    span=span_of(parts[length]),
                    hint=did_you_mean(names[length], [c.name for r in qualified for c in r.columns]),
                )
        candidates = [c.name for c in self.columns]
        if len(names) > 1:
            candidates += self.relation_names
        hint = did_you_mean(names[0], candidates)
        if not self.relations:
            hint = "The query has no FROM clause. Strings are written in 'single quotes'."
        message = f"no column `{names[0]}` here"
        if len(names) > 1 and len(self.relations) > 1:
            message = f"no table, alias or column `{names[0]}` here"
        return SqlError(SqlState.UNDEFINED_COLUMN, message, span=span_of(parts[0]), hint=hint)


def _visible(relation: Relation) -> tuple[VisibleColumn, ...]:
    return tuple(
        VisibleColumn(column.name, InputRef(relation.first_index + i, column.type), column.lost)
        for i, column in enumerate(relation.columns)
    )


def retyped(value: Expression, columns: Sequence[TypedColumn]) -> Expression:
    """The value of a visible column over `columns`."""
    if isinstance(value, InputRef):
        return InputRef(value.index, columns[value.index].type)
    if not isinstance(value, Call):
        return value
    arguments = tuple(retyped(a, columns) for a in value.args)
    # COALESCE and CAST, the only calls of merged columns, are NULL if all arguments are.
    nullable = value.type.nullable or all(a.type.nullable for a in arguments)
    return msgspec.structs.replace(value, args=arguments, type=value.type.with_nullable(nullable))


def _matches(qualifier: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """A qualifier is matched by its last parts: `db.t` names the table `cat.db.t`."""
    return len(names) <= len(qualifier) and qualifier[len(qualifier) - len(names) :] == names


def access_fields(operand: Expression, fields: list[exp.Identifier]) -> Expression:
    """`operand.a.b…`: fields of ROW types; NULL if the row on the way is."""
    for field in fields:
        operand = access_field(operand, field)
    return operand


def access_field(operand: Expression, field: exp.Identifier) -> Expression:
    name: str = field.this
    if operand.type.root is not TypeRoot.ROW:
        raise SqlError(
            SqlState.UNDEFINED_COLUMN,
            f"`{name}` is no field: the value before it is {operand.type.sql()}, not a ROW",
            span=span_of(field),
        )
    for index, candidate in enumerate(operand.type.fields):
        if candidate.name == name:
            nullable = candidate.type.nullable or operand.type.nullable
            position = Literal(index, t.INT.with_nullable(False))
            return Call("FIELD", (operand, position), candidate.type.with_nullable(nullable))
    raise SqlError(
        SqlState.UNDEFINED_COLUMN,
        f"no field `{name}` in {operand.type.with_nullable(True).sql()}",
        span=span_of(field),
        hint=did_you_mean(name, [f.name for f in operand.type.fields]),
    )
