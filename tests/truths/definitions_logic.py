"""Three-valued logic, conditional functions and the order in which their parts are evaluated."""

from __future__ import annotations

from tests.truths.model import Group

_BOOLEANS = [[p, q] for p in (True, False, None) for q in (True, False, None)]

_LAZY: list[list[object]] = [
    [10, 2, "5", True],
    [10, 0, "x", True],
    [10, 0, "x", False],
    [None, 0, "7", None],
    [7, None, None, False],
    [-2147483648, -1, " 3 ", True],
]

GROUPS = [
    Group(
        name="three-valued logic",
        columns={"p": "BOOLEAN", "q": "BOOLEAN"},
        rows=_BOOLEANS,
        cases=[
            "p AND q", "p OR q", "NOT p", "p = q", "p <> q", "p < q", "p >= q", "p IS TRUE", "p IS FALSE",
            "p IS UNKNOWN", "p IS NOT TRUE", "p IS NOT FALSE", "p IS NOT UNKNOWN", "p IS NULL", "p IS NOT NULL",
            "p IS DISTINCT FROM q", "p IS NOT DISTINCT FROM q", "NOT (p AND q)", "NOT p OR q",
            "p AND NULL", "p OR NULL", "p AND TRUE", "p OR FALSE", "p AND q OR NOT p AND NOT q",
            "CASE WHEN p THEN 1 WHEN q THEN 2 ELSE 3 END", "CASE WHEN p THEN 1 WHEN q THEN 2 END",
            "CASE p WHEN q THEN 1 ELSE 0 END", "IF(p, 1, 2)", "IF(p, q, NOT q)", "COALESCE(p, q)",
            "COALESCE(p, q, TRUE)", "NULLIF(p, q)", "GREATEST(p, q)", "p IN (q, FALSE)", "p BETWEEN q AND TRUE",
            "CAST(p AS STRING) || CAST(q AS STRING)", "p = TRUE", "(p = q) IS NULL", "p = q IS NULL",
        ],
        filters=["p", "NOT p", "p AND q", "p OR q", "p IS NOT TRUE", "COALESCE(p, q)", "NULL", "p = q"],
    ),
    Group(
        name="lazy evaluation",
        columns={"a": "INT", "b": "INT", "s": "STRING", "p": "BOOLEAN"},
        rows=_LAZY,
        cases=[
            "CASE WHEN b <> 0 THEN a / b END", "CASE WHEN b = 0 THEN -1 ELSE a / b END", "IF(b <> 0, a / b, -1)",
            "IF(b = 0, -1, a / b)", "b <> 0 AND a / b > 1", "b = 0 OR a / b > 1", "a / b > 1 AND b <> 0",
            "a / b > 1 OR b = 0", "b IS NULL OR b = 0 OR a / b > 1", "COALESCE(a, 1 / b)", "COALESCE(1 / b, a)",
            "COALESCE(TRY_CAST(s AS INT), a / NULLIF(b, 0))", "NULLIF(b, 0)", "a / NULLIF(b, 0)",
            "CASE WHEN TRY_CAST(s AS INT) IS NOT NULL THEN CAST(s AS INT) ELSE 0 END",
            "CASE s WHEN 'x' THEN 0 ELSE CAST(s AS INT) END", "CASE b WHEN 0 THEN 0 ELSE a % b END",
            "CASE WHEN p THEN 1 ELSE a / b END", "CASE WHEN p THEN a / b ELSE 1 END",
            "CASE WHEN p THEN CASE WHEN b <> 0 THEN a / b ELSE -1 END ELSE -2 END", "p AND a / b = 5",
            "p OR a / b = 5", "NOT p AND a / b = 5", "CAST(s AS INT)", "TRY_CAST(s AS INT)", "a / b", "a % b",
            "MOD(a, b)", "IF(p, CAST(s AS INT), 0)", "COALESCE(p, a / b = 0)", "NULLIF(a, a / b)",
            "s = 'x' OR CAST(s AS INT) > 4", "s <> 'x' AND CAST(s AS INT) > 4",
            "CASE WHEN s = 'x' THEN NULL WHEN CAST(s AS INT) > 4 THEN 'big' ELSE 'small' END",
            "a IN (b, 10)", "GREATEST(a, IF(b = 0, 0, a / b))", "COALESCE(NULL, a)", "COALESCE(a)",
            "CASE WHEN a > 0 THEN 'x' ELSE 'yyy' END", "CASE WHEN a > 0 THEN 1 WHEN a < 0 THEN 1.5 ELSE NULL END",
            "IF(a > 0, 'x', NULL)", "IF(a > 0, 1, 2.5)", "CASE WHEN a > 0 THEN CAST(1 AS TINYINT) ELSE 70000 END",
            "CASE WHEN p THEN DATE '2020-01-01' ELSE NULL END", "(a / NULLIF(b, 0)) + (a / NULLIF(b, 0))",
        ],
        filters=[
            "b <> 0 AND a / b > 1", "b = 0 OR a / b > 1", "a / b > 1", "p", "CASE WHEN b <> 0 THEN a / b = 5 END",
            "TRY_CAST(s AS INT) > 4", "CAST(s AS INT) > 4", "s <> 'x' AND CAST(s AS INT) > 4", "a IS NULL",
        ],
    ),
    Group(
        name="text comparison",
        columns={"s": "STRING", "t": "STRING", "c": "CHAR(3)", "v": "VARCHAR(5)"},
        rows=[
            ["a", "b", "a", "a"],
            ["abc", "abc", "abc", "abc"],
            ["ABC", "abc", "ab", "ab "],
            ["", "a", "", ""],
            ["é", "z", "é", "z"],
            ["😀", "\uffee", "x", "xy"],
            ["a ", "a", "a  ", "a"],
            [None, "a", None, None],
        ],
        cases=[
            "s = t", "s <> t", "s < t", "s > t", "s <= t", "s >= t", "c = v", "c = 'a'", "s = c", "v < c",
            "s IS DISTINCT FROM t", "s IN ('a', 'abc')", "s NOT IN ('a', NULL)", "s BETWEEN 'a' AND 'b'",
            "GREATEST(s, t)", "LEAST(s, t)", "GREATEST(s, c, v)", "NULLIF(s, t)", "NULLIF(c, v)",
            "COALESCE(s, t)", "COALESCE(c, v)", "COALESCE(c, 'abcdef')", "CASE WHEN s < t THEN c ELSE v END",
            "CASE WHEN s < t THEN 'a' ELSE 'bcd' END", "c || v", "c || s", "IF(s < t, c, v)",
            "CASE s WHEN 'a' THEN 'one' WHEN t THEN 'same' ELSE 'other' END",
        ],
        filters=["s < t", "s = 'abc' OR t = 'a'", "s LIKE 'a%'", "NOT (s = t)"],
    ),
    Group(
        name="rows, arrays and maps",
        columns={"r": "ROW<x INT, y STRING>", "a": "ARRAY<INT>", "m": "MAP<STRING, INT>", "i": "INT"},
        rows=[
            [[1, "x"], [1, 2, 3], [["k", 1], ["j", 2]], 1],
            [[None, None], [], [], 2],
            [None, None, None, None],
            [[5, "é"], [None, 4], [["k", None]], 2],
        ],
        cases=[
            "r.x", "r.y", "r.x + 1", "a[1]", "a[i]", "m['k']", "m['zz']", "CARDINALITY(a)", "CARDINALITY(m)",
            "r IS NULL", "a IS NULL", "COALESCE(r.x, 0)", "ROW(i, 'a')", "ARRAY[i, 2]", "MAP['a', i]", "a = a",
            "ARRAY[1, 2][2]", "MAP['a', 1, 'b', 2]['b']", "a[4]", "r", "a", "m",
        ],
    ),
]
