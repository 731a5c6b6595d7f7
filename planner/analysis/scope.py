"""What names mean at one place of a query: the columns in reach, under which qualifiers."""

from __future__ import annotations

from collections.abc import Iterable

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


class Relation(msgspec.Struct, frozen=True):
    """One item of FROM: its alias (or table path) and columns; `first_index` is its first column's index."""

    qualifier: tuple[str, ...]
    columns: tuple[ScopeColumn, ...]
    first_index: int = 0


class Scope(msgspec.Struct, frozen=True):
    """All relations of a FROM clause; empty for a query without one."""

    relations: tuple[Relation, ...]

    @property
    def columns(self) -> tuple[ScopeColumn, ...]:
        return tuple(c for r in self.relations for c in r.columns)

    def star(self, prefix: list[exp.Identifier]) -> Iterable[tuple[int, ScopeColumn]]:
        """Index and column of everything `*` or `prefix.*` stands for."""
        names = tuple(i.this for i in prefix)
        if not names:
            return list(enumerate(self.columns))
        for relation in self.relations:
            if _matches(relation.qualifier, names):
                return [(relation.first_index + i, c) for i, c in enumerate(relation.columns)]
        qualifiers = [r.qualifier[-1] for r in self.relations if r.qualifier]
        raise SqlError(
            SqlState.UNDEFINED_TABLE,
            f"no table or alias `{'.'.join(names)}` in FROM",
            span=span_of(prefix[0]),
            hint=did_you_mean(names[-1], qualifiers),
        )

    def resolve(self, parts: list[exp.Identifier]) -> Expression:
        """`column`, `alias.column`, `catalog.database.table.column`, each followed by fields of a ROW."""
        names = tuple(i.this for i in parts)
        for relation in self.relations:
            for length in range(min(len(names) - 1, 3), 0, -1):
                if _matches(relation.qualifier, names[:length]):
                    found = self._find(relation, names[length], parts[length])
                    if found is not None:
                        return access_fields(found, parts[length + 1 :])
        matches = [found for relation in self.relations if (found := self._find(relation, names[0], parts[0]))]
        if len(matches) > 1:
            raise SqlError(SqlState.AMBIGUOUS_COLUMN, f"column `{names[0]}` is ambiguous", span=span_of(parts[0]))
        if matches:
            return access_fields(matches[0], parts[1:])
        raise self._unknown(parts, names)

    def _find(self, relation: Relation, name: str, part: exp.Identifier) -> InputRef | None:
        indexes = [i for i, column in enumerate(relation.columns) if column.name == name]
        if len(indexes) > 1:
            raise SqlError(SqlState.AMBIGUOUS_COLUMN, f"column `{name}` is ambiguous", span=span_of(part))
        if not indexes:
            return None
        column = relation.columns[indexes[0]]
        return InputRef(relation.first_index + indexes[0], column.type)

    def _unknown(self, parts: list[exp.Identifier], names: tuple[str, ...]) -> SqlError:
        for relation in self.relations:
            for length in range(min(len(names) - 1, 3), 0, -1):
                if _matches(relation.qualifier, names[:length]):
                    candidates = [c.name for c in relation.columns]
                    return SqlError(
                        SqlState.UNDEFINED_COLUMN,
                        f"no column `{names[length]}` in `{'.'.join(names[:length])}`",
                        span=span_of(parts[length]),
                        hint=did_you_mean(names[length], candidates),
                    )
        candidates = [c.name for c in self.columns]
        if len(names) > 1:
            candidates += [r.qualifier[-1] for r in self.relations if r.qualifier]
        hint = did_you_mean(names[0], candidates)
        if not self.relations:
            hint = "The query has no FROM clause. Strings are written in 'single quotes'."
        message = f"no column `{names[0]}` here"
        return SqlError(SqlState.UNDEFINED_COLUMN, message, span=span_of(parts[0]), hint=hint)


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
