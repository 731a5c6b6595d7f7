"""Candidates for the word at the cursor: keywords, tables and views, columns, functions.

Not a parser: the words before the cursor decide what may come, so that an unfinished statement completes too.
Tables are given by their full path, as Flink's gateway does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from planner.catalog import Catalog, CatalogEntry, ObjectPath
from server.lazy_planner import planner_api

_START = (
    "ALTER JOB",
    "BEGIN STATEMENT SET",
    "CREATE",
    "DESCRIBE",
    "DROP",
    "EXECUTE STATEMENT SET BEGIN",
    "EXPLAIN",
    "INSERT INTO",
    "RESET",
    "SELECT",
    "SET",
    "SHOW",
    "STOP JOB",
    "USE",
    "WITH",
)
_AFTER = {
    "SHOW": (
        "CATALOGS",
        "COLUMNS",
        "CREATE",
        "CURRENT",
        "DATABASES",
        "FUNCTIONS",
        "JOBS",
        "SAVEPOINTS FOR JOB",
        "TABLES",
        "USER",
        "VIEWS",
    ),
    "CREATE": ("TABLE", "TEMPORARY", "VIEW"),
    "TEMPORARY": ("TABLE", "VIEW"),
    "ALTER": ("JOB",),
    "DROP": ("SAVEPOINT", "TABLE", "TEMPORARY", "VIEW"),
    "CURRENT": ("CATALOG", "DATABASE"),
    "STOP": ("JOB",),
    "EXECUTE": ("STATEMENT SET BEGIN",),
    "INSERT": ("INTO",),
}
_TABLE_POSITIONS = frozenset({"FROM", "JOIN", "INTO", "DESCRIBE", "DESC", "TABLE", "VIEW", "COLUMNS"})
_CLAUSES = ("AND", "AS", "FROM", "GROUP BY", "HAVING", "LIMIT", "NOT", "NULL", "OR", "UNION ALL", "WHERE")

_WORD_AT_END = re.compile(r"[\w.$`]*\Z")
_WORD = re.compile(r"[\w$]+|'(?:[^']|'')*'?|`[^`]*`?|[^\s\w]")
_TABLES = re.compile(r"\b(?:FROM|JOIN|INTO)\s+(?:TABLE\s*\(\s*)?([\w.$`]+)", re.IGNORECASE)


def candidates(statement: str, position: int, catalog: Catalog) -> list[str]:
    """What the word that ends at `position` may become, sorted; empty inside a string."""
    before = statement[: max(0, position)]
    if before.count("'") % 2:
        return []
    word = _first(_WORD_AT_END.search(before))
    previous = [w.upper() for w in _WORD.findall(before[: len(before) - len(word)])]
    last = previous[-1] if previous else ""
    if last in ("", ";"):
        return _starting(word, _START)
    if last == "USE":
        return _starting(word, ("CATALOG", *catalog.databases(catalog.current_catalog)))
    if last == "CATALOG":
        return _starting(word, catalog.catalogs())
    if last in _AFTER and not (last == "CREATE" and "SHOW" not in previous and len(previous) > 1):
        return _starting(word, _AFTER[last])
    if last in _TABLE_POSITIONS:
        return _tables(word, catalog)
    if "SELECT" in previous or "WHERE" in previous:
        columns = _columns(statement, catalog)
        found = _starting(word, columns)
        if word:
            found += _starting(word, [f.upper() for f in planner_api.function_names()]) + _starting(word, _CLAUSES)
        return list(dict.fromkeys(found))
    return []


def _first(match: re.Match[str] | None) -> str:
    return match.group() if match is not None else ""


def _starting(word: str, names: Iterable[str]) -> list[str]:
    wanted = word.strip("`").lower()
    return sorted({name for name in names if name.lower().startswith(wanted) and name.lower() != wanted})


def _tables(word: str, catalog: Catalog) -> list[str]:
    """Full paths of tables whose path, or path below the current catalog and database, starts with the word."""
    wanted = word.replace("`", "").lower()
    paths = [
        ObjectPath(c, database, name)
        for c in catalog.catalogs()
        for database in catalog.databases(c)
        for name in catalog.names(c, database)
    ]
    in_current = (catalog.current_catalog, catalog.current_database)
    found = []
    for path in paths:
        forms = [str(path)]
        if path.catalog == in_current[0]:
            forms.append(f"{path.database}.{path.name}")
        if (path.catalog, path.database) == in_current:
            forms.append(path.name)
        if any(form.lower().startswith(wanted) for form in forms):
            found.append(str(path))
    if wanted and not found:
        found = _starting(
            wanted, [*catalog.catalogs(), *(f"{c}.{d}" for c in catalog.catalogs() for d in catalog.databases(c))]
        )
    return sorted(found)


def _columns(statement: str, catalog: Catalog) -> list[str]:
    """Column names of every table the statement names."""
    names: set[str] = set()
    for written in _TABLES.findall(statement):
        parts = written.replace("`", "").split(".")
        defaults = [catalog.current_catalog, catalog.current_database]
        if len(parts) > 3:
            continue
        full = [*defaults[: 3 - len(parts)], *parts]
        entry: CatalogEntry | None = catalog.lookup(ObjectPath(full[0], full[1], full[2]))
        if entry is not None:
            names.update(column.name for column in entry.columns)
    return sorted(names)
