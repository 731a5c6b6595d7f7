"""Guards, sharing, filters and errors of compiled calcs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.ir import types as t
from runtime.operators.expressions.calc import compile_calc, compile_expression
from runtime.operators.expressions.context import UnsupportedExpression
from runtime.operators.expressions.errors import ExpressionError
from tests.unit.runtime.expressions.build import batch, boolean, call, column, context, lit

A, B, S, P = column(0), column(1), column(2, t.STRING), column(3, t.BOOLEAN)
DIVISION = call("DIVIDE", A, B, text="a / b")
ROWS = batch(
    (t.INT, [10, 10, None, 7]),
    (t.INT, [2, 0, 0, None]),
    (t.STRING, ["5", "x", " 7", None]),
    (t.BOOLEAN, [True, False, None, True]),
)


def test_case_divides_only_where_its_condition_is_true() -> None:
    safe = call("CASE", boolean("NEQ", B, lit(0)), DIVISION, lit(-1))
    assert compile_calc(None, [safe], context())(ROWS).column(0).to_pylist() == [5, -1, -1, -1]


def test_and_evaluates_the_right_side_where_the_left_is_true_or_null() -> None:
    bigger = boolean("GT", DIVISION, lit(1))
    calc = compile_calc(None, [boolean("AND", boolean("NEQ", B, lit(0)), bigger)], context())
    assert calc(ROWS).column(0).to_pylist() == [True, False, False, None]
    with pytest.raises(ExpressionError) as raised:
        compile_calc(None, [boolean("AND", lit(None, t.BOOLEAN), bigger)], context())(ROWS)
    assert raised.value.row_index == 1


def test_or_stops_at_true() -> None:
    calc = compile_calc(None, [boolean("OR", boolean("EQ", B, lit(0)), boolean("GT", DIVISION, lit(1)))], context())
    assert calc(ROWS).column(0).to_pylist() == [True, True, True, None]


def test_coalesce_stops_at_the_first_value() -> None:
    calc = compile_calc(None, [call("COALESCE", A, DIVISION)], context())
    assert calc(ROWS.slice(0, 2)).column(0).to_pylist() == [10, 10]


def test_where_drops_rows_before_projections_run() -> None:
    calc = compile_calc(boolean("NEQ", B, lit(0)), [DIVISION, A], context())
    result, mask = calc.filtered(ROWS)
    assert result.to_pydict() == {"c0": [5], "c1": [10]}
    assert mask is not None
    assert mask.to_pylist() == [True, False, False, False]


def test_a_filter_that_passes_all_rows_has_no_mask() -> None:
    result, mask = compile_calc(lit(True, t.BOOLEAN), [A], context()).filtered(ROWS)
    assert mask is None
    assert result.num_rows == 4


def test_a_filter_of_null_passes_nothing() -> None:
    assert compile_calc(lit(None, t.NULL), [A], context())(ROWS).num_rows == 0


def test_the_error_names_expression_values_and_the_first_row_that_fails() -> None:
    rows = 1000
    divisors = [1] * rows
    divisors[613] = divisors[700] = 0
    data = batch((t.INT, list(range(rows))), (t.INT, divisors))
    with pytest.raises(ExpressionError, match=r"a / b failed on \(613, 0\) in row 613") as raised:
        compile_calc(None, [A, DIVISION], context())(data)
    assert raised.value.expression == "a / b"
    assert raised.value.values == (613, 0)
    assert raised.value.row_index == 613
    assert (raised.value.domain, raised.value.retry) == ("user", False)


def test_the_row_of_an_error_counts_rows_before_the_filter() -> None:
    keep_positive = boolean("GT", A, lit(0))
    data = batch((t.INT, [0, 0, 5]), (t.INT, [0, 0, 0]))
    with pytest.raises(ExpressionError) as raised:
        compile_calc(keep_positive, [DIVISION], context())(data)
    assert raised.value.row_index == 2


def test_a_bad_text_is_named() -> None:
    strict = call("CAST", S, text="CAST(s AS INT)")
    with pytest.raises(ExpressionError, match="cannot parse 'x' as INT"):
        compile_calc(None, [strict], context())(ROWS)
    assert compile_calc(None, [call("TRY_CAST", S)], context())(ROWS).column(0).to_pylist() == [5, None, 7, None]


def test_equal_expressions_are_computed_once() -> None:
    doubled = call("PLUS", A, B)
    calc = compile_calc(None, [call("TIMES", doubled, doubled), doubled], context())
    assert sum(" = k" in line for line in calc.source.splitlines()) == 2


def test_what_can_fail_is_not_shared_between_different_guards() -> None:
    branch = call("CASE", P, DIVISION, lit(0))
    guarded_only = compile_calc(None, [branch, branch], context())
    assert guarded_only.source.count("guarded(") == 1
    with pytest.raises(ExpressionError):
        compile_calc(None, [branch, DIVISION], context())(ROWS)


def test_what_cannot_fail_needs_no_guard() -> None:
    by_literal = call("CASE", P, call("DIVIDE", A, lit(2)), call("TRY_CAST", S))
    assert "guarded(" not in compile_calc(None, [by_literal], context()).source


def test_constants_are_folded_and_repeated() -> None:
    calc = compile_calc(
        None, [call("PLUS", lit(1), lit(2)), call("UPPER", lit("x", t.STRING), type=t.STRING)], context()
    )
    assert " = k" not in calc.source
    assert calc(ROWS).to_pydict() == {"c0": [3] * 4, "c1": ["X"] * 4}


def test_a_constant_that_fails_does_so_only_where_it_is_evaluated() -> None:
    never = call("CASE", boolean("GT", A, lit(100)), call("DIVIDE", lit(1), lit(0)), lit(-1))
    assert compile_calc(None, [never], context())(ROWS).column(0).to_pylist() == [-1] * 4


def test_no_rows_give_no_rows() -> None:
    calc = compile_calc(boolean("GT", DIVISION, lit(0)), [DIVISION, S], context())
    assert calc(ROWS.slice(0, 0)).schema == calc.schema


def test_the_clock_is_read_once_per_batch() -> None:
    reads: list[int] = []

    def clock() -> int:
        reads.append(len(reads))
        return 1_700_000_000_000 + len(reads)

    now = call("NOW", type=t.timestamp_ltz(3))
    unix = call("UNIX_TIMESTAMP", type=t.BIGINT)
    calc = compile_calc(None, [now, now, unix], context(clock=clock))
    result = calc(ROWS)
    assert len(reads) == 1
    assert result.column(0).equals(result.column(1))
    assert result.column(2).to_pylist() == [1_700_000_000] * 4


def test_local_time_and_date_follow_the_session_zone() -> None:
    at = 1_700_000_000_000  # 2023-11-14T22:13:20Z, the next day in Tokyo
    zoned = context("Asia/Tokyo", lambda: at)
    calc = compile_calc(None, [call("LOCALTIMESTAMP", type=t.timestamp(3)), call("CURRENT_DATE", type=t.DATE)], zoned)
    row = calc(ROWS.slice(0, 1)).to_pylist()[0]
    assert [str(value) for value in row.values()] == ["2023-11-15 07:13:20", "2023-11-15"]


def test_uuids_are_never_shared() -> None:
    uuid = call("UUID", type=t.char(36))
    result = compile_calc(None, [uuid, uuid], context())(ROWS)
    assert len({value for name in ("c0", "c1") for value in result.column(name).to_pylist()}) == 8


def test_window_bounds_follow_the_wall_clock_of_the_zone() -> None:
    hour, day = 3_600_000, 86_400_000
    instants = pa.array([1_700_000_000_000, -1, None], pa.int64()).view(pa.timestamp("ms", "UTC"))
    data = pa.RecordBatch.from_arrays([instants], ["c0"])
    arguments = column(0, t.timestamp_ltz(3)), lit(day, t.BIGINT), lit(hour, t.BIGINT)
    bounds = [
        call("TUMBLE_START", *arguments, type=t.timestamp(3)),
        call("TUMBLE_END", *arguments, type=t.timestamp(3)),
        call("TUMBLE_TIME", *arguments, type=t.timestamp_ltz(3)),
    ]
    row = compile_calc(None, bounds, context("Europe/Berlin"))(data).to_pylist()
    assert [str(value) for value in row[0].values()] == [
        "2023-11-14 01:00:00",
        "2023-11-15 01:00:00",
        "2023-11-14 23:59:59.999000+00:00",
    ]
    assert str(row[1]["c0"]) == "1969-12-31 01:00:00"
    assert row[2] == {"c0": None, "c1": None, "c2": None}


def test_one_expression_alone() -> None:
    minus = call("MINUS_INTERVAL", column(0, t.timestamp(3)), lit(5000, t.INTERVAL_DAY_TIME), type=t.timestamp(3))
    data = pa.RecordBatch.from_arrays([pa.array([5000, None], pa.timestamp("ms"))], ["c0"])
    assert compile_expression(minus, context())(data).cast(pa.int64()).to_pylist() == [0, None]


def test_what_no_kernel_takes_is_refused_at_compilation() -> None:
    with pytest.raises(UnsupportedExpression, match="CAST from BOOLEAN to DATE"):
        compile_calc(None, [call("CAST", P, type=t.DATE)], context())
    with pytest.raises(UnsupportedExpression, match="the unit DAY cannot be applied to TIME"):
        compile_calc(None, [call("EXTRACT", lit("DAY", t.STRING), column(0, t.time()), type=t.BIGINT)], context())
    pattern = lit("[a&&[b]]", t.STRING)
    with pytest.raises(UnsupportedExpression, match="nested classes"):
        compile_calc(None, [call("REGEXP_EXTRACT", S, pattern, type=t.STRING)], context())


def test_parts_that_fail_are_guarded_too() -> None:
    lists = t.array(t.STRING)
    strict = call("CAST", column(0, lists), type=t.array(t.INT), text="CAST(a AS ARRAY<INT>)")
    data = batch((lists, [["1", "2"], ["x"], None]), (t.INT, [1, 2, 3]))
    with pytest.raises(ExpressionError, match="cannot parse 'x' as INT") as raised:
        compile_calc(None, [strict], context())(data)
    assert raised.value.row_index == 1
    safe = call("CASE", boolean("EQ", B, lit(1)), strict, lit(None, t.NULL), type=t.array(t.INT))
    assert compile_calc(None, [safe], context())(data).column(0).to_pylist() == [[1, 2], None, None]


def test_array_positions_below_one_are_errors() -> None:
    data = batch((t.array(t.INT), [[1], [2]]), (t.INT, [1, 0]))
    item = call("ITEM_ARRAY", column(0, t.array(t.INT)), B, text="a[b]")
    with pytest.raises(ExpressionError, match="array positions begin at 1"):
        compile_calc(None, [item], context())(data)
