"""Random queries, each as Flink SQL and as what the oracle is asked."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgspec

from tests.equivalence.tables import Column, Table

Check = Callable[[Any, Sequence[Any]], bool]
"""Whether our value is right, given the oracle's values of the aggregate's ingredients."""


class Aggregate(msgspec.Struct, frozen=True):
    """`ingredients`: expressions the oracle computes per group. `type`: the sink column's type."""

    sql: str
    type: str
    ingredients: tuple[str, ...]
    check: Check


def equal(ours: Any, theirs: Any) -> bool:
    """The same value; floats to a relative 1e-9."""
    if ours is None or theirs is None:
        return ours is None and theirs is None
    if isinstance(ours, dt.datetime):
        return bool(ours.replace(tzinfo=None) == theirs)
    if isinstance(ours, float) and isinstance(theirs, int | float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    return bool(ours == theirs)


def _same(ours: Any, theirs: Sequence[Any]) -> bool:
    return equal(ours, theirs[0])


def _wrapped(bits: int) -> Check:
    """Integer sums wrap in their own type."""

    def check(ours: Any, theirs: Sequence[Any]) -> bool:
        total = theirs[0]
        if total is None:
            return ours is None
        half = 1 << (bits - 1)
        return bool(ours == (int(total) + half) % (2 * half) - half)

    return check


def _integer_average(bits: int) -> Check:
    """The sum wraps in 64 bits; the quotient is cut toward zero and then narrowed."""

    def check(ours: Any, theirs: Sequence[Any]) -> bool:
        total, count = theirs
        if not count:
            return ours is None
        total = (int(total) + 2**63) % 2**64 - 2**63
        quotient = abs(total) // count * (1 if total >= 0 else -1)
        half = 1 << (bits - 1)
        return bool(ours == (quotient + half) % (2 * half) - half)

    return check


def _decimal_average(ours: Any, theirs: Sequence[Any]) -> bool:
    total, count = theirs
    if not count:
        return ours is None
    exact = (Decimal(total) / count).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return bool(ours == exact)


def _member(ours: Any, theirs: Sequence[Any]) -> bool:
    """FIRST_VALUE and LAST_VALUE: in any order of arrival one of the values."""
    values = theirs[0] or []
    return ours is None if not values else any(equal(ours, value) for value in values)


def _permutation(ours: Any, theirs: Sequence[Any]) -> bool:
    values = theirs[0] or []
    if not values:
        return ours is None
    return ours is not None and sorted(ours.split(";")) == sorted(values)


def _nearly(ours: Any, theirs: Sequence[Any]) -> bool:
    """FLOAT: to the digits it has."""
    if ours is None or theirs[0] is None:
        return ours is None and theirs[0] is None
    return math.isclose(ours, theirs[0], rel_tol=1e-6, abs_tol=1e-6)


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def aggregates_of(column: Column, where: str) -> list[Aggregate]:
    """Every aggregate that takes the column. `where` is a FILTER clause, the same in both dialects, or empty."""
    name, kind = f"`{column.name}`", column.type.kind
    x = column.name
    found = [
        Aggregate(f"COUNT({name}){where}", "BIGINT", (f"count({x}){where}",), _same),
        Aggregate(f"COUNT(DISTINCT {name}){where}", "BIGINT", (f"count(DISTINCT {x}){where}",), _same),
        Aggregate(f"MIN({name}){where}", column.type.sql, (f"min({x}){where}",), _same),
        Aggregate(f"MAX({name}){where}", column.type.sql, (f"max({x}){where}",), _same),
        Aggregate(f"FIRST_VALUE({name}){where}", column.type.sql, (f"list({x}){_valid(x, where)}",), _member),
        Aggregate(f"LAST_VALUE({name}){where}", column.type.sql, (f"list({x}){_valid(x, where)}",), _member),
    ]
    found = [a for a in found if _is_taken(a.sql, kind)]
    if kind == "float":
        found += [
            Aggregate(f"SUM({name}){where}", "FLOAT", (f"sum({x}::DOUBLE){where}",), _nearly),
            Aggregate(f"AVG({name}){where}", "FLOAT", (f"avg({x}::DOUBLE){where}",), _nearly),
        ]
    if kind == "integer":
        bits = _BITS[column.type.sql]
        total = f"sum({x}::HUGEINT)"
        found += [
            Aggregate(f"SUM({name}){where}", column.type.sql, (f"{total}{where}",), _wrapped(bits)),
            Aggregate(
                f"SUM(DISTINCT {name}){where}",
                column.type.sql,
                (f"sum(DISTINCT {x}::HUGEINT){where}",),
                _wrapped(bits),
            ),
            Aggregate(
                f"AVG({name}){where}",
                column.type.sql,
                (f"{total}{where}", f"count({x}){where}"),
                _integer_average(bits),
            ),
        ]
    if kind == "decimal":
        found += [
            Aggregate(f"SUM({name}){where}", "DECIMAL(38, 2)", (f"sum({x}){where}",), _same),
            Aggregate(f"SUM(DISTINCT {name}){where}", "DECIMAL(38, 2)", (f"sum(DISTINCT {x}){where}",), _same),
            Aggregate(
                f"AVG({name}){where}",
                "DECIMAL(38, 6)",
                (f"sum({x}){where}", f"count({x}){where}"),
                _decimal_average,
            ),
        ]
    if kind in ("double", "wild"):
        found += [
            Aggregate(f"SUM({name}){where}", "DOUBLE", (f"sum({x}){where}",), _same),
            Aggregate(f"AVG({name}){where}", "DOUBLE", (f"avg({x}){where}",), _same),
        ]
    if kind == "double":
        found += [
            Aggregate(f"{function}({name}){where}", "DOUBLE", (f"{function.lower()}({x}){where}",), _same)
            for function in ("STDDEV_POP", "STDDEV_SAMP", "VAR_POP", "VAR_SAMP")
        ]
    if kind == "string":
        found += [
            Aggregate(f"LISTAGG({name}, ';'){where}", "STRING", (f"list({x}){_valid(x, where)}",), _permutation),
            Aggregate(
                f"LISTAGG(DISTINCT {name}, ';'){where}",
                "STRING",
                (f"list(DISTINCT {x}){_valid(x, where)}",),
                _permutation,
            ),
        ]
    return found


def _is_taken(call: str, kind: str) -> bool:
    """DuckDB has them all; Flink's MIN and MAX take no BOOLEAN and nothing unordered, DISTINCT no BYTES and no ROW."""
    if kind in ("boolean", "bytes", "row", "array") and call.startswith(("MIN", "MAX")):
        return False
    return "DISTINCT" not in call or kind not in ("bytes", "row")


def _valid(x: str, where: str) -> str:
    """A FILTER clause that also leaves out NULLs."""
    inner = where.removeprefix(" FILTER (WHERE ").removesuffix(")") if where else "TRUE"
    return f" FILTER (WHERE {x} IS NOT NULL AND ({inner}))"


class Query(msgspec.Struct, frozen=True):
    """`flink`: the SELECT over table t. `oracle`: a SELECT that gives the keys, then every aggregate's ingredients.
    `types`: the sink's columns, keys first. `windows`: the window function's name and its sizes in ms, if any."""

    flink: str
    oracle: str
    key_count: int
    types: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    windows: tuple[str, int, int] | None = None
    has_rows: bool = False
    """Rows of the input by `id` go through, so that a row of it must not stand there twice."""


COUNT_ALL = Aggregate("COUNT(*)", "BIGINT", ("count(*)",), _same)
_FILTERS = (" FILTER (WHERE id % 2 = 0)", " FILTER (WHERE id > 5 OR id % 3 = 1)")
_CONDITION = "id % 3 <> 1"


def random_query(choose: random.Random, table: Table) -> Query:
    """A query of a shape that the table's changelog allows."""
    shapes = [_grouped, _grouped, _grouped, _global, _distinct, _grouping_sets, _two_levels, _three_levels, _rows]
    if table.changelog == "insert-only" or table.is_timely:
        shapes += [_windowed, _windowed, _windowed, _windowed_sets, _cascaded, _window_rows, _larger]
    return choose.choice(shapes)(choose, table)


def _aggregates(choose: random.Random, table: Table) -> tuple[Aggregate, ...]:
    filters = choose.choice((("",), ("", " FILTER (WHERE id % 2 = 0)"), ("", *_FILTERS)))
    candidates = [COUNT_ALL]
    for column in (*table.values, table.keys[0]):
        candidates += aggregates_of(column, choose.choice(filters))
    return tuple(choose.sample(candidates, min(len(candidates), choose.randint(1, 4))))


def _clause(choose: random.Random) -> str:
    return choose.choice(("", "", f" WHERE {_CONDITION}"))


def _select(keys: Sequence[str], aggregates: Sequence[Aggregate]) -> tuple[str, str]:
    ours = [*keys, *(f"{a.sql} AS a{i}" for i, a in enumerate(aggregates))]
    theirs = [*(k.replace("`", "") for k in keys), *(i for a in aggregates for i in a.ingredients)]
    return ", ".join(ours), ", ".join(theirs)


def _key_names(table: Table) -> list[str]:
    return [f"`{c.name}`" for c in table.keys]


def _grouped(choose: random.Random, table: Table) -> Query:
    keys, aggregates, where = _key_names(table), _aggregates(choose, table), _clause(choose)
    having = choose.choice(("", "", " HAVING COUNT(*) > 2"))
    ours, theirs = _select(keys, aggregates)
    by = ", ".join(keys)
    return Query(
        f"SELECT {ours} FROM t{where} GROUP BY {by}{having}",
        f"SELECT {theirs} FROM t{where} GROUP BY {by.replace('`', '')}{having}",
        len(keys),
        (*(c.type.sql for c in table.keys), *(a.type for a in aggregates)),
        aggregates,
    )


def _global(choose: random.Random, table: Table) -> Query:
    aggregates, where = _aggregates(choose, table), _clause(choose)
    ours, theirs = _select((), aggregates)
    return Query(
        f"SELECT {ours} FROM t{where}",
        f"SELECT {theirs} FROM t{where}",
        0,
        tuple(a.type for a in aggregates),
        aggregates,
    )


def _passed(choose: random.Random, table: Table) -> tuple[tuple[Aggregate, ...], str]:
    """Columns that go through, and a filter."""
    columns = choose.sample((*table.keys, *table.values), choose.randint(1, len(table.keys) + len(table.values)))
    passed = tuple(Aggregate(f"`{c.name}`", c.type.sql, (c.name,), _same) for c in columns)
    any_column = choose.choice((*table.keys, *table.values)).name
    filters = ("", f" WHERE {_CONDITION}", f" WHERE `{any_column}` IS NOT NULL", f" WHERE `{any_column}` IS NULL")
    return passed, choose.choice(filters)


def _rows(choose: random.Random, table: Table) -> Query:
    """Projection and filter."""
    passed, where = _passed(choose, table)
    ours, theirs = _select(["id"], passed)
    types = ("INT", *(a.type for a in passed))
    return Query(
        f"SELECT {ours} FROM t{where}",
        f"SELECT {theirs} FROM t{where}".replace("`", ""),
        1,
        types,
        passed,
        has_rows=True,
    )


def _window_rows(choose: random.Random, table: Table) -> Query:
    """A window function without aggregation."""
    passed, where = _passed(choose, table)
    source, windows = _window(choose)
    ours, theirs = _select(["id", "window_start", "window_end"], passed)
    return Query(
        f"SELECT {ours} FROM {source}{where}",
        f"SELECT {theirs} FROM windowed{where}".replace("`", ""),
        3,
        ("INT", "TIMESTAMP(3)", "TIMESTAMP(3)", *(a.type for a in passed)),
        passed,
        windows,
        has_rows=True,
    )


def _distinct(choose: random.Random, table: Table) -> Query:
    keys, where = ", ".join(_key_names(table)), _clause(choose)
    types = tuple(c.type.sql for c in table.keys)
    sql = f"SELECT DISTINCT {keys} FROM t{where}"
    return Query(sql, sql.replace("`", ""), len(table.keys), types, ())


def _grouping_sets(choose: random.Random, table: Table) -> Query:
    keys, aggregates = _key_names(table), _aggregates(choose, table)
    sets = choose.choice(
        (f"ROLLUP ({', '.join(keys)})", f"CUBE ({', '.join(keys)})", f"GROUPING SETS (({keys[0]}), ())")
    )
    used = keys if not sets.startswith("GROUPING") else keys[:1]
    ours, theirs = _select([*used, f"GROUPING_ID({', '.join(used)})"], aggregates)
    theirs = theirs.replace("GROUPING_ID(", "GROUPING(")
    types = (*(c.type.sql for c in table.keys[: len(used)]), "BIGINT", *(a.type for a in aggregates))
    return Query(
        f"SELECT {ours} FROM t GROUP BY {sets}",
        f"SELECT {theirs} FROM t GROUP BY {sets.replace('`', '')}",
        len(used) + 1,
        types,
        aggregates,
    )


def _two_levels(choose: random.Random, table: Table) -> Query:
    """An aggregate over an aggregate: its input takes rows back whatever the table does."""
    key = table.keys[0]
    outer = (
        COUNT_ALL,
        Aggregate("SUM(c)", "BIGINT", ("sum(c)",), _same),
        Aggregate("MAX(m)", "INT", ("max(m)",), _same),
        Aggregate("MIN(m)", "INT", ("min(m)",), _same),
        Aggregate("COUNT(DISTINCT m)", "BIGINT", ("count(DISTINCT m)",), _same),
    )
    chosen = tuple(choose.sample(outer, choose.randint(1, len(outer))))
    inner = f"SELECT `{key.name}`, COUNT(*) AS c, MAX(id) AS m FROM t GROUP BY `{key.name}`"
    where = choose.choice(("", " WHERE c < 5"))
    ours, theirs = _select(["c % 3 AS g"], chosen)
    text = f"FROM ({inner}) AS i{where} GROUP BY c % 3"
    return Query(
        f"SELECT {ours} {text}",
        f"SELECT {theirs} {text}".replace("`", ""),
        1,
        ("BIGINT", *(a.type for a in chosen)),
        chosen,
    )


def _three_levels(choose: random.Random, table: Table) -> Query:
    """How many groups have how many rows, and how many such numbers there are; filters between the levels."""
    key = table.keys[0].name
    limit = choose.choice(("", " HAVING COUNT(*) < 9", " HAVING MAX(id) % 3 <> 0"))
    inner = f"SELECT `{key}`, COUNT(*) AS c, SUM(id) AS s FROM t GROUP BY `{key}`{limit}"
    middle = f"SELECT c, COUNT(*) AS n, COUNT(DISTINCT s) AS d FROM ({inner}) AS i GROUP BY c"
    where = choose.choice(("", " WHERE c > 1", " WHERE n < 4"))
    outer = (
        COUNT_ALL,
        Aggregate("SUM(n)", "BIGINT", ("sum(n)",), _same),
        Aggregate("MAX(c)", "BIGINT", ("max(c)",), _same),
        Aggregate("MIN(d)", "BIGINT", ("min(d)",), _same),
        Aggregate("SUM(DISTINCT n)", "BIGINT", ("sum(DISTINCT n)",), _same),
    )
    chosen = tuple(choose.sample(outer, choose.randint(1, len(outer))))
    ours, theirs = _select(["c % 2 AS g"], chosen)
    text = f"FROM ({middle}) AS m{where} GROUP BY c % 2"
    return Query(
        f"SELECT {ours} {text}",
        f"SELECT {theirs} {text}".replace("`", ""),
        1,
        ("BIGINT", *(a.type for a in chosen)),
        chosen,
    )


class Input(msgspec.Struct, frozen=True):
    """What a query reads instead of the table: `view` over it, if any."""

    view: str = ""

    @property
    def ddl(self) -> str:
        return f"CREATE VIEW w AS {self.view};\n" if self.view else ""

    def read_by(self, query: Query) -> Query:
        if not self.view or (query.has_rows and "UNION" in self.view):
            return query
        flink = re.sub(r"\bFROM t\b", "FROM w", query.flink).replace("(TABLE t,", "(TABLE w,")
        oracle = query.oracle
        for name in ("t", "windowed"):
            inner = re.sub(r"\bFROM t\b", f"FROM {name}", self.view)
            oracle = re.sub(rf"\bFROM {name}\b", f"FROM ({inner}) AS {name}", oracle)
        return msgspec.structs.replace(query, flink=flink, oracle=oracle)


def random_input(choose: random.Random) -> Input:
    """The table itself, a part of it, or parts of it side by side (a row may be in both)."""
    views = (
        "SELECT * FROM t WHERE id % 2 = 0 UNION ALL SELECT * FROM t WHERE id % 5 <> 0",
        "SELECT * FROM t UNION ALL SELECT * FROM t",
        "SELECT * FROM t WHERE id % 4 <> 2",
    )
    return Input(choose.choice(views) if choose.random() < 0.3 else "")


_WINDOWS = (("TUMBLE", 10_000, 0), ("TUMBLE", 1_500, 0), ("HOP", 12_000, 3_000), ("HOP", 5_000, 5_000),
            ("CUMULATE", 20_000, 4_000), ("CUMULATE", 6_000, 6_000))  # fmt: skip


def _interval(ms: int) -> str:
    return f"INTERVAL '{ms / 1000:.3f}' SECOND(10, 3)" if ms % 1000 else f"INTERVAL '{ms // 1000}' SECOND"


def _window(choose: random.Random) -> tuple[str, tuple[str, int, int]]:
    name, size_ms, step_ms = choose.choice(_WINDOWS)
    sizes = [step_ms, size_ms] if step_ms else [size_ms]
    intervals = ", ".join(_interval(ms) for ms in sizes)
    return f"TABLE({name}(TABLE t, DESCRIPTOR(ts), {intervals}))", (name, size_ms, step_ms)


def _windowed(choose: random.Random, table: Table) -> Query:
    keys = ["window_start", "window_end", *choose.choice((_key_names(table), _key_names(table), []))]
    aggregates, where = _aggregates(choose, table), _clause(choose)
    having = choose.choice(("", "", " HAVING COUNT(*) > 1"))
    source, windows = _window(choose)
    stored = "windowed"
    if choose.random() < 0.3:
        # Who reads the window between function and aggregate keeps it attached to each row.
        inner = "(SELECT *, EXTRACT(SECOND FROM window_end) AS e FROM {}) AS s"
        source, stored = inner.format(source), inner.format(stored)
        where = f"{where} AND e <> 12" if where else " WHERE e <> 12"
    ours, theirs = _select(keys, aggregates)
    by = ", ".join(keys)
    key_types = [c.type.sql for c in table.keys] if len(keys) > 2 else []
    return Query(
        f"SELECT {ours} FROM {source}{where} GROUP BY {by}{having}",
        f"SELECT {theirs} FROM {stored}{where} GROUP BY {by.replace('`', '')}{having}",
        len(keys),
        ("TIMESTAMP(3)", "TIMESTAMP(3)", *key_types, *(a.type for a in aggregates)),
        aggregates,
        windows,
    )


def _windowed_sets(choose: random.Random, table: Table) -> Query:
    aggregates = _aggregates(choose, table)
    key = f"`{table.keys[0].name}`"
    source, windows = _window(choose)
    keys = ["window_start", "window_end", key, f"GROUPING({key})"]
    ours, theirs = _select(keys, aggregates)
    by = f"window_start, window_end, GROUPING SETS (({key}), ())"
    return Query(
        f"SELECT {ours} FROM {source} GROUP BY {by}",
        f"SELECT {theirs} FROM windowed GROUP BY {by.replace('`', '')}",
        4,
        ("TIMESTAMP(3)", "TIMESTAMP(3)", table.keys[0].type.sql, "BIGINT", *(a.type for a in aggregates)),
        aggregates,
        windows,
    )


def _cascaded(choose: random.Random, table: Table) -> Query:
    """Windows of a key, then the same windows over all keys."""
    source, windows = _window(choose)
    key = f"`{table.keys[0].name}`"
    outer = (
        COUNT_ALL,
        Aggregate("SUM(c)", "BIGINT", ("sum(c)",), _same),
        Aggregate("MAX(m)", "INT", ("max(m)",), _same),
        Aggregate("COUNT(DISTINCT c)", "BIGINT", ("count(DISTINCT c)",), _same),
    )
    chosen = tuple(choose.sample(outer, choose.randint(1, len(outer))))
    ours, theirs = _select(["window_start", "window_end"], chosen)
    by = f"window_start, window_end, {key}"
    inner = f"SELECT {by}, COUNT(*) AS c, MAX(id) AS m FROM {{}} GROUP BY {by}"
    return Query(
        f"SELECT {ours} FROM ({inner.format(source)}) AS i GROUP BY window_start, window_end",
        f"SELECT {theirs} FROM ({inner.format('windowed')}) AS i GROUP BY window_start, window_end".replace("`", ""),
        2,
        ("TIMESTAMP(3)", "TIMESTAMP(3)", *(a.type for a in chosen)),
        chosen,
        windows,
    )


def _larger(choose: random.Random, table: Table) -> Query:
    """Windows of a key, then larger windows over their results."""
    key = f"`{table.keys[0].name}`"
    size_s = choose.choice((1, 10, 12))
    source = f"TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{size_s}' SECOND))"
    chosen = (
        COUNT_ALL,
        Aggregate("SUM(c)", "BIGINT", ("sum(c)",), _same),
        Aggregate("MAX(m)", "INT", ("max(m)",), _same),
    )
    ours, theirs = _select(["window_start"], chosen)
    by = f"window_start, window_end, {key}"
    inner = f"SELECT window_time, {key}, COUNT(*) AS c, MAX(id) AS m FROM {source} GROUP BY {by}, window_time"
    outer = f"TABLE(TUMBLE(({inner}), DESCRIPTOR(window_time), INTERVAL '1' MINUTE))"
    bucket = "time_bucket(INTERVAL 60 SECOND, window_start, TIMESTAMP '1970-01-01')"
    stored = f"SELECT {bucket} AS larger, COUNT(*) AS c, MAX(id) AS m FROM windowed GROUP BY {by}"
    return Query(
        f"SELECT {ours} FROM {outer} GROUP BY window_start, window_end",
        f"SELECT {theirs.replace('window_start', 'larger')} FROM ({stored}) AS i GROUP BY larger".replace("`", ""),
        1,
        ("TIMESTAMP(3)", *(a.type for a in chosen)),
        chosen,
        ("TUMBLE", size_s * 1000, 0),
    )
