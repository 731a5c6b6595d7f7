"""Types of expressions: the functions and operators of the dialect, and Flink's rules for their results."""

from __future__ import annotations

import contextlib

import pytest

from planner import api
from planner.errors import SqlError
from planner.ir import functions as registry
from planner.ir.codec import decode, encode
from planner.ir.expressions import Call, InputRef, Literal, walk
from planner.ir.operators import Calc, Values
from tests.unit.planner.catalog import Script, error_of

TABLE = """CREATE TABLE t (
  i INT, b BIGINT, ti TINYINT, si SMALLINT, f FLOAT, d DOUBLE, dc DECIMAL(10, 2), s STRING, vc VARCHAR(20), c CHAR(5),
  bo BOOLEAN, byt BYTES, da DATE, tm TIME(3), ts TIMESTAMP(3), tl TIMESTAMP_LTZ(3), n INT NOT NULL,
  r ROW<x INT, y ROW<z STRING NOT NULL>>, a ARRAY<INT>, m MAP<STRING, INT>,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka');"""

TYPES = """
ABS(i) → INT
CEIL(dc) → DECIMAL(10, 0)
CEILING(f) → FLOAT
FLOOR(d) → DOUBLE
ROUND(dc) → DECIMAL(9, 0)
ROUND(dc, 1) → DECIMAL(10, 1)
ROUND(dc, -1) → DECIMAL(9, 0)
MOD(b, i) → INT
MOD(dc, 3) → DECIMAL(10, 2)
POWER(d, 2) → DOUBLE
SQRT(i) → DOUBLE
CHAR_LENGTH(s) → INT
UPPER(c) → VARCHAR(5)
LOWER(s) → STRING
TRIM(s) → STRING
TRIM(LEADING 'x' FROM vc) → VARCHAR(20)
TRIM(BOTH FROM s) → STRING
SUBSTRING(s, 2) → STRING
SUBSTRING(vc FROM 2 FOR 3) → VARCHAR(20)
SUBSTR(s, 1, 2) → STRING
POSITION('a' IN s) → INT
REPLACE(s, 'a', 'b') → STRING
CONCAT(s, vc, 'x') → STRING
CONCAT_WS(',', 'a', 'b') → STRING NOT NULL
SPLIT_INDEX(s, ',', 1) → STRING
REGEXP_EXTRACT(s, '(a)', 1) → STRING
REGEXP_REPLACE(s, 'a', 'b') → STRING
LPAD(s, 5, ' ') → STRING
RPAD(s, 5, ' ') → STRING
COALESCE(i, b, 0) → BIGINT NOT NULL
COALESCE(s, NULL) → STRING
NULLIF(n, 0) → INT
NULLIF(i, b) → INT
IF(bo, 1, 2.5) → DECIMAL(11, 1)
IFNULL(i, 0) → INT NOT NULL
GREATEST(i, b) → BIGINT
LEAST(s, vc) → STRING
DATE_FORMAT(ts, 'yyyy') → STRING
DATE_FORMAT(s, 'yyyy') → STRING
TO_TIMESTAMP(s) → TIMESTAMP(3)
TO_TIMESTAMP(s, 'yyyy') → TIMESTAMP(3)
TO_TIMESTAMP_LTZ(b, 3) → TIMESTAMP_LTZ(3)
TO_TIMESTAMP_LTZ(s) → TIMESTAMP_LTZ(3)
TO_DATE(s) → DATE
EXTRACT(WEEK FROM da) → BIGINT
YEAR(ts) → BIGINT
FLOOR(ts TO HOUR) → TIMESTAMP(3)
CEIL(da TO MONTH) → DATE
TIMESTAMPADD(DAY, 1, ts) → TIMESTAMP(3)
TIMESTAMPADD(SQL_TSI_HOUR, 1, da) → TIMESTAMP(6)
TIMESTAMPDIFF(SECOND, ts, ts) → INT
CURRENT_TIMESTAMP → TIMESTAMP_LTZ(3) NOT NULL
NOW() → TIMESTAMP_LTZ(3) NOT NULL
LOCALTIMESTAMP → TIMESTAMP(3) NOT NULL
CURRENT_DATE → DATE NOT NULL
PROCTIME() → TIMESTAMP_LTZ(3) NOT NULL
UNIX_TIMESTAMP() → BIGINT NOT NULL
UNIX_TIMESTAMP(s) → BIGINT
FROM_UNIXTIME(b) → STRING
MD5(s) → CHAR(32)
SHA256('x') → CHAR(64) NOT NULL
JSON_VALUE(s, '$.a') → STRING
JSON_VALUE(s, '$.a' RETURNING INT NULL ON EMPTY DEFAULT -1 ON ERROR) → INT
UUID() → CHAR(36) NOT NULL
i + b → BIGINT
i + dc → DECIMAL(13, 2)
dc - dc → DECIMAL(11, 2)
dc * dc → DECIMAL(21, 4)
dc / 3 → DECIMAL(21, 13)
i / 2.0 → DECIMAL(17, 6)
i / 2 → INT
d / i → DOUBLE
ti + si → SMALLINT
i % 3 → INT
b % ti → TINYINT
f + d → FLOAT
d + f → DOUBLE
-n → INT NOT NULL
+n → INT NOT NULL
i = b → BOOLEAN
n = 1 → BOOLEAN NOT NULL
ts > '2020-01-01 00:00:00' → BOOLEAN
tl = ts → BOOLEAN
bo AND NOT bo OR TRUE → BOOLEAN
CASE WHEN i > 1 THEN 'a' ELSE 'bcd' END → VARCHAR(3) NOT NULL
CASE i WHEN 1 THEN 1 WHEN 2 THEN 2.5 END → DECIMAL(11, 1)
CAST(s AS INT) → INT
TRY_CAST('1' AS INT) → INT
CAST(n AS STRING) → STRING NOT NULL
CAST(tl AS TIMESTAMP(3)) → TIMESTAMP(3)
CAST(NULL AS DECIMAL(5, 1)) → DECIMAL(5, 1)
n BETWEEN 1 AND 10 → BOOLEAN NOT NULL
i NOT BETWEEN SYMMETRIC 1 AND b → BOOLEAN
s IN ('a', 'b', NULL) → BOOLEAN
n IN (1, 2) → BOOLEAN NOT NULL
s NOT LIKE 'a#_' ESCAPE '#' → BOOLEAN
i IS NULL → BOOLEAN NOT NULL
bo IS NOT UNKNOWN → BOOLEAN NOT NULL
i IS NOT DISTINCT FROM NULL → BOOLEAN NOT NULL
'ab' || 'c' → CHAR(3) NOT NULL
vc || c → VARCHAR(25)
r.x → INT
t.r.y.z → STRING
a[1] → INT
m['k'] → INT
CARDINALITY(a) → INT
ARRAY[1, 2.5] → ARRAY<DECIMAL(11, 1) NOT NULL> NOT NULL
MAP['a', 1] → MAP<CHAR(1) NOT NULL, INT NOT NULL> NOT NULL
ROW(1, s) → ROW<`EXPR$0` INT NOT NULL, `EXPR$1` STRING> NOT NULL
ts + INTERVAL '1' DAY → TIMESTAMP(3)
INTERVAL '1' DAY + da → DATE
INTERVAL '1' HOUR * 2 → INTERVAL DAY TO SECOND(3) NOT NULL
X'0aFF' → BINARY(2) NOT NULL
'é😀' → CHAR(3) NOT NULL
1e3 → DOUBLE NOT NULL
0.001 → DECIMAL(4, 3) NOT NULL
.5 → DECIMAL(1, 1) NOT NULL
12345678901 → BIGINT NOT NULL
-2147483648 → INT NOT NULL
-9223372036854775808 → BIGINT NOT NULL
123456789012345678901234567890 → DECIMAL(30, 0) NOT NULL
DATE '2024-02-29' → DATE NOT NULL
TIMESTAMP '2024-02-29 01:02:03.123456789' → TIMESTAMP(9) NOT NULL
"""

CASES = [tuple(line.split(" → ")) for line in TYPES.strip().splitlines()]


@pytest.fixture(scope="module")
def script() -> Script:
    script = Script()
    script.run(TABLE)
    return script


@pytest.mark.parametrize(("expression", "type_text"), CASES, ids=[case[0] for case in CASES])
def test_result_type(script: Script, expression: str, type_text: str) -> None:
    job = script.job(f"SELECT {expression} AS x FROM t")
    assert job.result is not None
    assert job.result.columns[0].type.summary() == type_text
    assert decode(encode(job.job_graph)) == job.job_graph


def test_every_call_is_a_registry_row(script: Script) -> None:
    """What leaves the binder is known to the registry, row by row."""
    for expression, _ in CASES:
        graph = script.job(f"SELECT {expression} AS x FROM t").job_graph
        for vertex in graph.vertices:
            for operator in vertex.operators:
                projections = operator.projections if isinstance(operator, Calc) else ()
                for projection in projections:
                    for part in walk(projection):
                        assert not isinstance(part, Call) or part.function in registry.BY_ID, part


def test_no_call_without_a_type_reaches_the_runtime(script: Script) -> None:
    for expression, _ in CASES:
        graph = script.job(f"SELECT {expression} AS x FROM t").job_graph
        for operator in graph.vertices[0].operators:
            if isinstance(operator, Calc):
                types = [p.type for e in operator.projections for p in walk(e) if not isinstance(p, Literal)]
                assert all(type_.root.value != "NULL" for type_ in types), expression


def projection(script: Script, expression: str) -> object:
    (vertex, *_) = script.job(f"SELECT {expression} AS x FROM t").job_graph.vertices
    (calc,) = (o for o in vertex.operators if isinstance(o, Calc))
    return calc.projections[0]


def test_operands_are_cast_to_what_they_are_compared_in(script: Script) -> None:
    call = projection(script, "i = b")
    assert isinstance(call, Call)
    left, right = call.args
    assert isinstance(left, Call)
    assert left.function == "CAST"
    assert left.type.sql() == "BIGINT"
    assert isinstance(right, InputRef)


def test_literals_take_the_other_sides_type_without_a_cast(script: Script) -> None:
    call = projection(script, "b + 1")
    assert isinstance(call, Call)
    assert isinstance(call.args[1], Literal)
    assert call.args[1].type.sql() == "BIGINT NOT NULL"


def test_decimal_literals_keep_their_digits(script: Script) -> None:
    (vertex,) = script.job("SELECT 12345678901234567890.123456789 AS x").job_graph.vertices
    values = vertex.operators[0]
    assert isinstance(values, Values)
    assert values.rows[0][0] == Literal("12345678901234567890.123456789", values.output.types[0])


def test_long_conditions_are_flat(script: Script) -> None:
    condition = " OR ".join(f"i = {i}" for i in range(2000))
    (vertex, *_) = script.job(f"SELECT i FROM t WHERE {condition}").job_graph.vertices
    (calc,) = (o for o in vertex.operators if isinstance(o, Calc))
    assert isinstance(calc.condition, Call)
    assert calc.condition.function == "OR"
    assert len(calc.condition.args) == 2000


def test_long_sums_are_refused_not_a_crash() -> None:
    error = error_of("SELECT " + " + ".join(["1"] * 20_000))
    assert error.sqlstate == "54001"


@pytest.mark.parametrize("name", api.function_names())
def test_listed_functions_exist(script: Script, name: str) -> None:
    """SHOW FUNCTIONS lists nothing that a call would call unknown."""
    with contextlib.suppress(SqlError):
        script.run(f"SELECT {name}() FROM t")
        return
    message = error_of(TABLE + f"SELECT {name}() FROM t").message
    assert "no function" not in message


def test_names_are_case_sensitive_and_hostile_ones_are_legal() -> None:
    script = Script()
    script.run(
        """CREATE TABLE t (id INT, `ID` INT, `a"b` INT, `c``d` INT, `x" FROM t; DROP TABLE t; --` INT, `größe` INT)
        WITH ('connector' = 'filesystem')"""
    )
    job = script.job('SELECT `ID` AS upper_id, `c``d`, `x" FROM t; DROP TABLE t; --`, `größe` FROM t')
    assert job.result is not None
    assert job.result.names == ("upper_id", "c`d", 'x" FROM t; DROP TABLE t; --', "größe")
