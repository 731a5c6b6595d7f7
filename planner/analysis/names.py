"""From written names to full paths and definitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from planner.catalog import Catalog, CatalogEntry, ObjectPath
from planner.errors import Span, SqlError, SqlState, did_you_mean


def full_path(parts: tuple[str, ...], catalog: Catalog) -> ObjectPath:
    """`name`, `database.name` or `catalog.database.name`, completed by the session's current ones."""
    match parts:
        case (name,):
            return ObjectPath(catalog.current_catalog, catalog.current_database, name)
        case (database, name):
            return ObjectPath(catalog.current_catalog, database, name)
        case (catalog_name, database, name):
            return ObjectPath(catalog_name, database, name)
        case _:
            raise AssertionError(f"a name of {len(parts)} parts")


def lookup(parts: tuple[str, ...], span: Span, catalog: Catalog) -> tuple[ObjectPath, CatalogEntry]:
    """The definition a name stands for; an error with the nearest name if there is none."""
    path = full_path(parts, catalog)
    entry = catalog.lookup(path)
    if entry is not None:
        return path, entry
    if path.catalog not in catalog.catalogs():
        raise SqlError(
            SqlState.UNDEFINED_DATABASE,
            f"no catalog `{path.catalog}`",
            span=span,
            hint=did_you_mean(path.catalog, catalog.catalogs()),
        )
    databases = catalog.databases(path.catalog)
    if path.database not in databases:
        raise SqlError(
            SqlState.UNDEFINED_DATABASE,
            f"no database `{path.database}` in catalog `{path.catalog}`",
            span=span,
            hint=did_you_mean(path.database, databases),
        )
    raise SqlError(
        SqlState.UNDEFINED_TABLE,
        f"no table or view `{'.'.join(parts)}`",
        span=span,
        hint=did_you_mean(path.name, catalog.names(path.catalog, path.database)),
    )


def unlike(name: str, taken: set[str]) -> str:
    """The name; if it is taken, with the first number that makes it another: `k` twice is `k` and `k0`, as in Flink."""
    if name not in taken:
        return name
    return next(numbered for i in itertools.count() if (numbered := f"{name}{i}") not in taken)


@contextmanager
def without_aliases(clause: str, aliases: frozenset[str], script: str) -> Iterator[None]:
    """An unknown column in it that is one of SELECT's `aliases` gets a hint: the clause is computed before SELECT."""
    try:
        yield
    except SqlError as error:
        name = script[error.span.start : error.span.end].strip("`") if error.span is not None else ""
        if error.sqlstate == SqlState.UNDEFINED_COLUMN and name in aliases:
            error.hint = f"{clause} does not see the aliases of SELECT: repeat the expression."
        raise
