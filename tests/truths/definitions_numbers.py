"""Arithmetic, comparison and numeric functions."""

from __future__ import annotations

from tests.truths.model import Group

_NUMERIC = {
    "ti": "TINYINT",
    "si": "SMALLINT",
    "i": "INT",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "d52": "DECIMAL(5, 2)",
    "d102": "DECIMAL(10, 2)",
    "d200": "DECIMAL(20, 0)",
    "d3810": "DECIMAL(38, 10)",
}
_OPERATORS = ("+", "-", "*", "/", "%")
_COMPARISONS = ("=", "<>", "<", ">=")

_PAIRS = [
    f"{left} {operator} {right}" for operator in _OPERATORS for left in _NUMERIC for right in _NUMERIC
]
_COMPARED = [
    f"{left} {operator} {right}" for operator in _COMPARISONS for left in _NUMERIC for right in _NUMERIC
]

_INTEGERS: list[list[object]] = [
    [1, 1, 1, 1],
    [-7, -7, -7, -7],
    [127, 32767, 2147483647, 9223372036854775807],
    [-128, -32768, -2147483648, -9223372036854775808],
    [0, 0, 0, 0],
    [None, None, None, None],
]

_DOUBLES: list[list[object]] = [
    ["0.0", "0.0"],
    ["-0.0", "-0.0"],
    ["1.5", "1.5"],
    ["-1.5", "-1.5"],
    ["2.5", "2.5"],
    ["0.1", "0.1"],
    ["1.005", "1.005"],
    ["1.0E7", "1.0E7"],
    ["1.0E-5", "1.0E-5"],
    ["123456.789", "123456.789"],
    ["-123456.789", "-123456.789"],
    ["1.0E300", "1.0E30"],
    ["3.0E9", "3.0E9"],
    ["4.9E-324", "1.4E-45"],
    ["1.7976931348623157E308", "3.4028235E38"],
    ["NaN", "NaN"],
    ["Infinity", "Infinity"],
    ["-Infinity", "-Infinity"],
    [None, None],
]

_DECIMALS: list[list[object]] = [
    ["1.00", "1", "0.5000000000"],
    ["12.34", "12345678901234567890", "1.0000000001"],
    ["-12.34", "-3", "-0.0000000001"],
    ["99999999.99", "99999999999999999999", "9999999999999999999999999999.9999999999"],
    ["-99999999.99", "-99999999999999999999", "-9999999999999999999999999999.9999999999"],
    ["0.00", "7", "3.0000000000"],
    ["0.05", "2", "0.3333333333"],
    ["12.35", "6", "2.5000000000"],
    ["-12.35", "-6", "-2.5000000000"],
    [None, None, None],
]

GROUPS = [
    Group(
        name="arithmetic of all numeric pairs",
        columns=_NUMERIC,
        rows=[
            [7, 300, 70000, 5000000000, "2.5", "0.3", "1.25", "12.34", "3", "2.0000000001"],
            [-3, -7, -7, -7, "-1.5", "-7.0", "-2.55", "-7.77", "-7", "-0.3333333333"],
            [100, 30000, 2000000000, 9000000000000000000, "1.0E20", "1.0E300", "999.99", "99999999.99",
             "99999999999999999999", "1234567890123456789012345678.0123456789"],
            [None] * 10,
        ],
        cases=_PAIRS + [f"-{name}" for name in _NUMERIC] + [f"+{name}" for name in _NUMERIC],
    ),
    Group(
        name="comparison of all numeric pairs",
        columns=_NUMERIC,
        rows=[
            [7, 7, 7, 7, "7.0", "7.0", "7.00", "7.00", "7", "7.0000000000"],
            [1, 2, 3, 4, "NaN", "NaN", "1.01", "2.02", "3", "4.4000000000"],
            [0, 0, 0, 0, "-0.0", "-0.0", "0.00", "0.00", "0", "0.0000000001"],
            [None] * 10,
        ],
        cases=_COMPARED,
    ),
    Group(
        name="not null keeps its promise",
        columns={"a": "INT NOT NULL", "b": "INT", "s": "STRING NOT NULL", "x": "DECIMAL(10, 2) NOT NULL"},
        rows=[[1, 2, "x", "1.50"], [5, None, "y", "2.25"]],
        cases=[
            "a + 1", "a + b", "a * 1.5", "a / 2", "a = 1", "a = b", "a IS NULL", "b IS NULL", "CAST(a AS BIGINT)",
            "TRY_CAST(a AS BIGINT)", "TRY_CAST(s AS INT)", "UPPER(s)", "s || 'z'", "COALESCE(b, 0)",
            "COALESCE(b, a)", "COALESCE(a, b)", "NULLIF(a, 1)", "IF(a > 1, a, b)", "IF(a > 1, a, 0)",
            "CASE WHEN a > 1 THEN 1 ELSE 0 END", "CASE WHEN a > 1 THEN 1 END", "ABS(a)", "FLOOR(x)", "CEIL(x)",
            "ROUND(x, 1)", "MOD(a, 2)", "POWER(a, 2)", "SQRT(a)", "CHAR_LENGTH(s)", "GREATEST(a, 2)",
            "LEAST(a, b)", "MD5(s)", "x + a", "x * x", "x / a", "NOT (a = 1)", "a IN (1, 2)", "a BETWEEN 0 AND 3",
            "1 + 1", "1.5", "1.50 * 2", "1E0", "'abc'", "''", "TRUE", "NULL", "CAST(NULL AS INT)", "-5",
            "2147483648", "9223372036854775807", "0.001", "123.456", "x'00FF'", "DATE '2020-01-01'",
            "TIME '12:34:56'", "TIMESTAMP '2020-01-01 00:00:00'", "TIMESTAMP '2020-01-01 00:00:00.123'",
            "TIMESTAMP '2020-01-01 00:00:00.123456'", "U&'\\00e4'", "'it''s'", "_UTF16'abc'", "'é😀'",
            "CONCAT(s, 'a')", "CONCAT_WS(',', s, 'a')", "SUBSTRING(s, 1)", "SUBSTRING(s, 1, 1)", "TRIM(s)",
            "REPLACE(s, 'x', 'y')", "POSITION('x' IN s)", "LPAD(s, 3, '0')", "RPAD(s, 3, '0')",
            "SPLIT_INDEX(s, ',', 0)", "REGEXP_EXTRACT(s, '(.)', 1)", "REGEXP_REPLACE(s, 'x', 'y')",
            "JSON_VALUE(s, '$.a')", "SHA256(s)", "LOWER(s)", "s LIKE 'x%'", "s LIKE 'x%' ESCAPE '!'",
            "a IS DISTINCT FROM b", "a IS NOT DISTINCT FROM b", "(a = b) IS TRUE", "CAST(s AS STRING)",
            "a BETWEEN b AND 3", "b IN (1, NULL)", "a > 0 AND b > 0", "a > 0 OR b > 0",
        ],
    ),
    Group(
        name="integer edges",
        columns={"ti": "TINYINT", "si": "SMALLINT", "i": "INT", "l": "BIGINT"},
        rows=_INTEGERS,
        cases=[
            *[f"{c} {op} {v}" for c in ("ti", "si", "i", "l") for op in ("+", "-", "*") for v in (1, -1, 2)],
            *[f"{c} / -1" for c in ("ti", "si", "i", "l")],
            *[f"{c} / 2" for c in ("ti", "si", "i", "l")],
            *[f"{c} % {v}" for c in ("ti", "si", "i", "l") for v in (-1, 3, -3)],
            *[f"-{c}" for c in ("ti", "si", "i", "l")],
            *[f"{fn}({c})" for fn in ("ABS", "CEIL", "FLOOR", "SQRT", "CEILING", "ROUND")
              for c in ("ti", "si", "i", "l")],
            *[f"ROUND({c}, {n})" for c in ("ti", "si", "i", "l") for n in (-1, -2, 0, 1, 2)],
            *[f"MOD({c}, 3)" for c in ("ti", "si", "i", "l")],
            "MOD(i, -3)", "MOD(l, 4)", "MOD(i, l)", "MOD(10, i)", "10 / i", "10 % i", "l / i", "i / l", "ti / si",
            "1.0 / i", "i / 0", "MOD(i, 0)", "i / CAST(0 AS DOUBLE)", "i / 0.0", "i % 0.0",
            "POWER(i, 2)", "POWER(l, 0.5)", "POWER(2, i)", "POWER(ti, si)", "POWER(i, -1)",
            "i + l", "ti + si", "ti * ti", "si * si", "i * i", "l * l", "i - l",
            "i BETWEEN 0 AND 10", "i NOT BETWEEN 0 AND 10", "i BETWEEN 10 AND 0",
            "i IN (1, -7, 5)", "i NOT IN (1, -7)", "i IN (1, NULL)", "i NOT IN (1, NULL)", "l IN (1, 2.5)",
            "i IN (l, 0)", "GREATEST(i, l)", "GREATEST(ti, si, i)", "LEAST(i, 0)", "LEAST(i, l, 5)",
            "GREATEST(i, 1.5)", "LEAST(i, CAST(NULL AS INT))", "GREATEST(1, 2)", "GREATEST(i)",
            "i BETWEEN SYMMETRIC 10 AND 0", "NULLIF(i, 0)", "NULLIF(i, l)", "NULLIF(ti, 1)", "COALESCE(i, -1)",
            "COALESCE(ti, i)", "COALESCE(i, l)", "COALESCE(ti, 300)", "COALESCE(i, 1.5)",
        ],
    ),
    Group(
        name="double and float edges",
        columns={"d": "DOUBLE", "f": "FLOAT"},
        rows=_DOUBLES,
        cases=[
            "d + 1", "f + 1", "d - f", "d * d", "f * f", "d / 0", "f / 0", "d / d", "d / f", "d % 1", "f % 1",
            "d % 0.3", "d % 0", "-d", "-f", "+d", "d % f", "d / -0.0E0", "MOD(d, 2)", "MOD(f, 2)",
            "ABS(d)", "ABS(f)", "CEIL(d)", "CEIL(f)", "FLOOR(d)", "FLOOR(f)", "SQRT(d)", "SQRT(f)",
            "ROUND(d)", "ROUND(f)", "ROUND(d, 1)", "ROUND(d, 2)", "ROUND(d, -1)", "ROUND(d, -3)", "ROUND(f, 1)",
            "ROUND(f, -1)", "ROUND(d, 20)", "POWER(d, 2)", "POWER(f, 2)", "POWER(d, 0)", "POWER(d, 0.5)",
            "POWER(d, -1)", "POWER(2, d)", "POWER(-8, d)", "POWER(d, d)", "POWER(f, f)",
            "d = d", "d <> d", "d < 0", "d > 0", "d >= d", "f = f", "f = d", "d = CAST('NaN' AS DOUBLE)",
            "d = 0", "d = CAST('-0.0' AS DOUBLE)", "f = 0.1", "d = 0.1", "f < d", "d > CAST('Infinity' AS DOUBLE)",
            "d IS DISTINCT FROM d", "d IS NOT DISTINCT FROM f", "d IN (1.5, 2.5)",
            "d IN (CAST('NaN' AS DOUBLE))", "d BETWEEN -1 AND 1", "GREATEST(d, 1)", "GREATEST(d, f)",
            "LEAST(d, 1)", "LEAST(d, 0.0E0)", "GREATEST(d, CAST('NaN' AS DOUBLE))", "NULLIF(d, 0)",
            "NULLIF(d, d)", "COALESCE(d, f)", "COALESCE(f, 1)", "COALESCE(d, 1.5)", "d IS NULL",
            "CASE WHEN d > 0 THEN d ELSE f END", "CASE d WHEN 1.5 THEN 'x' ELSE 'y' END", "IF(d > 1, d, 0)",
            "CONCAT('', CAST(d AS STRING))", "CAST(d AS STRING)", "CAST(f AS STRING)", "d || 'x'",
        ],
    ),
    Group(
        name="decimal edges",
        columns={"x": "DECIMAL(10, 2)", "y": "DECIMAL(20, 0)", "z": "DECIMAL(38, 10)"},
        rows=_DECIMALS,
        cases=[
            "x + x", "x + y", "x + z", "y + y", "z + z", "z - y", "x * x", "x * y", "x * z", "y * y", "z * z",
            "y * y * y", "x / y", "y / y", "x / 3", "y / 3", "z / y", "z / z", "1 / y", "x / 7", "1.0 / 3",
            "10 / y", "x % y", "z % y", "y % 7", "x % 0.3", "-x", "-z", "ABS(x)", "ABS(z)", "CEIL(x)", "CEIL(z)",
            "FLOOR(x)", "FLOOR(z)", "FLOOR(y)", "ROUND(x)", "ROUND(x, 1)", "ROUND(x, -1)", "ROUND(x, 5)",
            "ROUND(y, -2)", "ROUND(z, 3)", "ROUND(z, 0)", "ROUND(x, -9)", "SQRT(x)", "POWER(x, 2)",
            "POWER(x, 0.5)", "POWER(2, x)", "POWER(y, y)", "MOD(x, 3)", "MOD(y, 4)", "MOD(z, 0.7)", "MOD(10, y)",
            "x = z", "x < y", "z >= y", "x IN (1, 12.34, 0.5)", "x BETWEEN 0 AND 12.345", "GREATEST(x, y)",
            "GREATEST(x, z)", "LEAST(x, z, 1)", "GREATEST(x, 1.5E0)", "NULLIF(x, 0)", "COALESCE(x, y)",
            "COALESCE(x, 0)", "COALESCE(y, x)", "CASE WHEN x > 0 THEN x ELSE y END",
            "CASE WHEN x > 0 THEN x ELSE 1 END", "CASE WHEN x > 0 THEN x ELSE 1.5E0 END",
            "x + 1", "x + 1.5", "x * 1.5E0", "x - 1E0", "x + CAST(1 AS BIGINT)", "x * CAST(2 AS TINYINT)",
            "x / CAST(3 AS SMALLINT)", "x / CAST(3 AS FLOAT)", "CAST(x AS STRING)", "CAST(z AS STRING)",
            "x / 0", "x % 0", "x / 0.0", "x IS DISTINCT FROM z", "x * 0.001", "z * 0.0000000001",
            "CAST(x AS DECIMAL(10, 1))", "CAST(x AS DECIMAL(4, 2))", "CAST(y AS DECIMAL(38, 20))",
            "CAST(z AS DECIMAL(5, 0))", "CAST(x AS INT)", "x || ''",
        ],
    ),
    Group(
        name="decimal operators of given precision",
        columns={"a": "DECIMAL(38, 0)", "b": "DECIMAL(38, 18)", "c": "DECIMAL(38, 38)", "e": "DECIMAL(1, 1)",
                 "g": "DECIMAL(18, 6)"},
        rows=[
            ["10", "1.500000000000000000", "0.12345678901234567890123456789012345678", "0.5", "2.345678"],
            ["99999999999999999999999999999999999999", "99999999999999999999.999999999999999999",
             "0.99999999999999999999999999999999999999", "0.9", "999999999999.999999"],
            ["-3", "-0.000000000000000001", "-0.00000000000000000000000000000000000001", "-0.1", "-0.000001"],
            ["7", "3.000000000000000000", "0.33333333333333333333333333333333333333", "0.3", "7.000000"],
        ],
        cases=[
            f"{left} {op} {right}" for op in _OPERATORS for left in ("a", "b", "c", "e", "g")
            for right in ("a", "b", "c", "e", "g")
        ],
    ),
]
