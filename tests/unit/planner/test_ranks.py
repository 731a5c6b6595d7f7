"""What ROW_NUMBER, RANK, DENSE_RANK, ORDER BY and LIMIT become, and the changelogs they give."""

from __future__ import annotations

import msgspec
import pytest

from planner.analysis.operators import comparison, logical
from planner.errors import Span, SqlError
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.job_graph import EdgeKind
from planner.ir.operators import ChangelogMode, RankFunction, SortKey
from planner.logical.expressions import identity
from planner.logical.nodes import (
    Calc,
    Column,
    Deduplicate,
    Limit,
    OverRank,
    Place,
    Plan,
    Rank,
    ResultSink,
    Sort,
    WindowRank,
    inputs_of,
)
from planner.logical.rank_bounds import NO_BOUND, RANK_TYPE
from planner.logical.ranks import settled_ranks
from planner.logical.rules.order_and_limit import order_and_limit
from planner.logical.rules.rank_filters import rank_filters
from planner.physical.build_job_graph import build_job_graph
from planner.settings import PlannerSettings, RuntimeMode
from planner.streaming.demand import Streaming
from planner.streaming.derive import derive
from tests.unit.planner.test_changelog import bound, script

SPAN = Span(0, 0)
ROWS = "SELECT k, v, w, ts FROM src"
CHANGES = "SELECT k, v FROM cdc"
COUNTS = "SELECT k, COUNT(*) AS c FROM src GROUP BY k"
TUMBLED = "SELECT * FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
CUMULATED = "SELECT * FROM CUMULATE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)"
WINDOWED = """SELECT k, window_start, window_end, window_time, COUNT(*) AS c
FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY k, window_start, window_end, window_time"""


def query(sql: str) -> Plan:
    """The tree of a SELECT without its sink."""
    return inputs_of(bound(sql))[0]


def index(plan: Plan, name: str) -> int:
    return [c.name for c in plan.columns].index(name)


def over(sql: str, keys: str, order: str, function: RankFunction = RankFunction.ROW_NUMBER) -> OverRank:
    """`function` OVER (PARTITION BY keys ORDER BY order) AS rn; `name-` is descending."""
    plan = query(sql)
    sort = tuple(
        SortKey(index(plan, n.rstrip("-")), n.endswith("-"), nulls_first=not n.endswith("-")) for n in order.split()
    )
    columns = (*plan.columns, Column("rn", RANK_TYPE))
    return OverRank(plan, function, tuple(index(plan, n) for n in keys.split()), sort, columns, Place("…", SPAN))


def numbered(plan: Plan, order: int) -> OverRank:
    """ROW_NUMBER() OVER (ORDER BY column `order`) AS rn."""
    return OverRank(plan, RankFunction.ROW_NUMBER, (), (SortKey(order),), (*plan.columns, Column("rn", RANK_TYPE)))


def bound_of(operator: str, value: int, plan: Plan) -> Expression:
    rank = InputRef(index(plan, "rn"), RANK_TYPE)
    return comparison(operator, rank, Literal(value, t.INT.with_nullable(False)), SPAN)


def where(plan: Plan, condition: Expression) -> Calc:
    return Calc(plan, condition, identity(plan.columns), plan.columns)


def top(plan: OverRank, last: int, first: int = 1) -> Plan:
    """The plan with the ranks first..last, settled."""
    condition = logical("AND", (bound_of("<=", last, plan), bound_of(">=", first, plan)))
    settled = settled_ranks(where(plan, condition))
    assert tuple(c.name for c in settled.columns) == tuple(c.name for c in plan.columns)
    return settled


def node(plan: Plan) -> Plan:
    """Without the calcs above."""
    while isinstance(plan, Calc):
        plan = plan.input
    return plan


# -- bounds -------------------------------------------------------------------------------------------


def test_a_bound_makes_a_top_n_and_leaves_the_other_conjuncts() -> None:
    plan = over(ROWS, "k", "v-")
    other = comparison(">", InputRef(2, t.BIGINT), Literal(0, t.BIGINT), SPAN)
    settled = settled_ranks(where(plan, logical("AND", (other, bound_of("<=", 3, plan)))))
    assert isinstance(settled, Calc)
    assert settled.condition == other
    rank = settled.input
    assert isinstance(rank, Rank)
    assert (rank.first, rank.last, rank.puts_out_rank, rank.keys) == (1, 3, True, (0,))
    assert rank.order == (SortKey(1, True, False),)


@pytest.mark.parametrize(
    ("condition", "goes_below"),
    [
        (Call("IS_NOT_NULL", (InputRef(0, t.STRING),), t.BOOLEAN), True),
        (Call("IS_NOT_NULL", (InputRef(1, t.INT),), t.BOOLEAN), False),
        (Call("IS_NOT_NULL", (Call("CAST", (InputRef(0, t.STRING),), t.INT),), t.BOOLEAN), False),
        (comparison("=", InputRef(0, t.STRING), Call("UUID", (), t.STRING), SPAN), False),
    ],
    ids=["the partition", "another column", "can fail", "another value each time"],
)
def test_a_condition_on_the_partition_is_asked_before_rows_are_ranked(condition: Expression, goes_below: bool) -> None:
    plan = over(ROWS, "k", "v")
    settled = settled_ranks(where(plan, logical("AND", (condition, bound_of("<=", 3, plan)))))
    rank = node(settled)
    assert isinstance(rank, Rank)
    assert (settled is rank) is goes_below
    below = rank.input
    assert (isinstance(below, Calc) and below.condition == condition) is goes_below


def test_bounds_of_several_filters_and_through_renames() -> None:
    plan = over(ROWS, "k", "v-")
    lower = where(plan, bound_of(">=", 2, plan))
    renamed = Calc(
        lower, None, (InputRef(4, RANK_TYPE), InputRef(0, t.STRING)), (Column("rn", RANK_TYPE), Column("a", t.STRING))
    )
    rank = node(settled_ranks(where(renamed, bound_of("<", 9, renamed))))
    assert isinstance(rank, Rank)
    assert (rank.first, rank.last) == (2, 8)


def test_a_filter_that_says_more_is_asked_again() -> None:
    plan = over(ROWS, "k", "v")
    settled = settled_ranks(where(plan, logical("OR", (bound_of("=", 1, plan), bound_of("=", 4, plan)))))
    assert isinstance(settled, Calc)
    assert settled.condition is not None
    rank = settled.input
    assert isinstance(rank, Rank)
    assert (rank.first, rank.last) == (1, 4)


def test_a_constant_rank_is_a_literal() -> None:
    settled = top(over(ROWS, "k", "v-"), 2, 2)
    assert isinstance(settled, Calc)
    assert settled.projections[-1] == Literal(2, RANK_TYPE)
    rank = settled.input
    assert isinstance(rank, Rank)
    assert not rank.puts_out_rank


def test_no_rank_at_all_is_an_empty_table() -> None:
    settled = top(over(ROWS, "k", "v"), 0)
    assert isinstance(settled, Calc)
    assert settled.condition == Literal(False, t.BOOLEAN.with_nullable(False))


def test_a_filter_without_upper_bound_settles_nothing() -> None:
    plan = over(ROWS, "k", "v")
    filtered = where(plan, bound_of(">=", 2, plan))
    assert settled_ranks(filtered) is filtered


@pytest.mark.parametrize("function", list(RankFunction))
def test_a_rank_without_bound_is_refused_by_name(function: RankFunction) -> None:
    plan = over(ROWS, "k", "v", function)
    with pytest.raises(SqlError, match=f"{function.value}.. without a constant upper bound") as caught:
        rank_filters(ResultSink(where(plan, bound_of(">=", 2, plan)), plan.columns), False)
    assert caught.value.span == SPAN
    assert "WHERE r <= 10" in caught.value.hint


def test_a_rank_without_bound_is_final_in_batch_mode_and_in_a_window() -> None:
    plan = over(ROWS, "k", "v")
    rank = node(inputs_of(rank_filters(ResultSink(plan, plan.columns), True))[0])
    assert isinstance(rank, Rank)
    assert rank.last == NO_BOUND
    windowed = over(WINDOWED, "window_start window_end", "c-")
    in_window = node(inputs_of(rank_filters(ResultSink(windowed, windowed.columns), False))[0])
    assert isinstance(in_window, WindowRank)
    assert in_window.last == NO_BOUND


# -- deduplication, windows ---------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "keeps_last"), [("ts", False), ("ts-", True)])
def test_first_or_last_row_by_event_time(order: str, keeps_last: bool) -> None:
    settled = top(over(ROWS, "k", order), 1)
    kept = node(settled)
    assert isinstance(kept, Deduplicate)
    assert (kept.keys, kept.time, kept.keeps_last, kept.is_processing_time) == ((0,), 3, keeps_last, False)
    assert settled.columns[3].type.is_rowtime


def test_first_row_by_arrival_only_inserts() -> None:
    plan = over("SELECT k, v, PROCTIME() AS p FROM src", "k", "p")
    kept = node(top(plan, 1))
    assert isinstance(kept, Deduplicate)
    assert kept.is_processing_time
    assert derive(kept).changelog.mode is ChangelogMode.INSERT_ONLY


@pytest.mark.parametrize("function", list(RankFunction))
def test_ranks_by_arrival_are_row_numbers_that_stay(function: RankFunction) -> None:
    rank = node(top(over("SELECT k, v, PROCTIME() AS p FROM src", "k", "p v", function), 3))
    assert isinstance(rank, Rank)
    assert (rank.function, rank.order) == (RankFunction.ROW_NUMBER, ())
    assert derive(rank).changelog.mode is ChangelogMode.INSERT_ONLY


@pytest.mark.parametrize(
    "plan",
    [
        over(ROWS, "k", "v"),
        over(ROWS, "k", "ts v"),
        over(ROWS, "k", "ts", RankFunction.RANK),
        over(CHANGES, "k", "v"),
    ],
    ids=["other column", "two columns", "ties", "changes"],
)
def test_everything_else_is_a_top_n(plan: OverRank) -> None:
    settled = top(plan, 1)
    assert isinstance(node(settled), Rank)
    assert not any(c.type.time_attribute for c in settled.columns)


def test_a_top_n_says_what_took_the_time_attribute() -> None:
    settled = top(over(ROWS, "k", "v"), 3)
    assert settled.columns[3].lost == "a Top-N took rows back by later ones"


@pytest.mark.parametrize(
    ("sql", "keys", "is_window"),
    [
        (WINDOWED, "window_start window_end", True),
        (WINDOWED, "window_end", True),
        (WINDOWED, "window_start", True),
        (WINDOWED, "window_time", True),
        (WINDOWED, "k", False),
        (TUMBLED, "window_start window_end k", True),
        (CUMULATED, "window_end", True),
        (CUMULATED, "window_start", False),
    ],
)
def test_partitions_within_a_window(sql: str, keys: str, is_window: bool) -> None:
    plan = over(sql, keys, "k")
    rank = node(top(plan, 3))
    assert isinstance(rank, WindowRank) is is_window
    if isinstance(rank, WindowRank):
        assert rank.input.columns[rank.end].name == "window_end"
        assert [rank.input.columns[k].name for k in rank.keys] == (["k"] if "k" in keys.split() else [])
        assert derive(rank).changelog.mode is ChangelogMode.INSERT_ONLY


@pytest.mark.parametrize(
    ("sql", "order", "is_latest"),
    [
        (TUMBLED, "ts-", True),
        (TUMBLED, "window_time-", True),
        (WINDOWED, "window_time-", True),
        (TUMBLED, "ts", False),
        (TUMBLED, "v-", False),
    ],
)
def test_deduplication_in_windows_keeps_the_last_of_equal_times(sql: str, order: str, is_latest: bool) -> None:
    rank = node(top(over(sql, "window_start window_end k", order), 1))
    assert isinstance(rank, WindowRank)
    assert rank.latest_of_ties is is_latest


def test_a_top_n_over_a_top_n_of_windows_is_one_of_windows() -> None:
    inner = top(over(WINDOWED, "k window_end", "c-"), 3)
    columns = (*inner.columns, Column("second", RANK_TYPE))
    outer = OverRank(inner, RankFunction.ROW_NUMBER, (index(inner, "window_end"),), (SortKey(4),), columns)
    condition = comparison("<=", InputRef(6, RANK_TYPE), Literal(1, t.INT), SPAN)
    assert isinstance(node(settled_ranks(where(outer, condition))), WindowRank)


# -- changelogs and upsert keys -----------------------------------------------------------------------


def changes(plan: Plan) -> str:
    """`+U` with updates, `-D` with deletes."""
    given = derive(plan).changelog
    return f"{'+U' if given.has_updates else ''}{'' if given.deletes.value == 'none' else '-D'}"


def keys(plan: Plan) -> list[list[str]]:
    return sorted(sorted(plan.columns[i].name for i in key) for key in derive(plan).upsert_keys)


def unranked(plan: Plan) -> Rank:
    rank = node(plan)
    assert isinstance(rank, Rank)
    return msgspec.structs.replace(rank, puts_out_rank=False, columns=rank.columns[: len(rank.input.columns)])


@pytest.mark.parametrize(
    ("plan", "kinds", "upsert_keys"),
    [
        (node(top(over(ROWS, "k", "v-"), 3)), "+U", [["k", "rn"]]),
        (unranked(top(over(ROWS, "k", "v-"), 3)), "-D", []),
        (unranked(top(over(ROWS, "k", "v-"), 1)), "+U", [["k"]]),
        (unranked(top(over(ROWS, "k", "v-"), 5, 5)), "+U", [["k"]]),
        (unranked(top(over(ROWS, "", "v-"), 1)), "+U", [[]]),
        (node(top(over(ROWS, "k", "v-", RankFunction.RANK), 3)), "+U-D", []),
        (unranked(top(over(ROWS, "k", "v-", RankFunction.RANK), 1)), "-D", []),
        (node(top(over(COUNTS, "", "c-"), 3)), "+U-D", [["rn"]]),
        (unranked(top(over(COUNTS, "", "c-"), 3)), "-D", [["k"]]),
        (unranked(top(over(CHANGES, "v", "k"), 3)), "-D", [["k", "v"]]),
        (node(top(over(CHANGES, "v", "k", RankFunction.DENSE_RANK), 3)), "+U-D", [["k", "v"]]),
        (
            node(top(over(WINDOWED, "window_end", "c-"), 3)),
            "",
            [["k", "window_end"], ["k", "window_start"], ["rn", "window_end"]],
        ),
        (node(top(over(ROWS, "k", "ts"), 1)), "+U", [["k"]]),
        (node(top(over(ROWS, "k", "ts-"), 1)), "+U", [["k"]]),
    ],
)
def test_changelogs(plan: Plan, kinds: str, upsert_keys: list[list[str]]) -> None:
    assert changes(plan) == kinds
    found = keys(plan)
    # Keys that name window_time are as good as those that name window_end.
    assert [k for k in found if "window_time" not in k] == upsert_keys


# -- ORDER BY and LIMIT -------------------------------------------------------------------------------


def limit(plan: Plan, count: int, offset: int = 0) -> Limit:
    return Limit(plan, count, offset, plan.columns)


def sort(plan: Plan, order: str) -> Sort:
    keys = tuple(SortKey(index(plan, n.rstrip("-")), n.endswith("-"), not n.endswith("-")) for n in order.split())
    return Sort(plan, keys, plan.columns, Place("…", SPAN))


def ordered(plan: Plan, is_batch: bool = False) -> Plan:
    (below,) = inputs_of(order_and_limit(ResultSink(plan, plan.columns), is_batch))
    return below


def test_order_by_with_limit_is_a_top_n() -> None:
    rank = ordered(limit(sort(query(ROWS), "v-"), 3, 2))
    assert isinstance(rank, Rank)
    assert (rank.first, rank.last, rank.keys, rank.puts_out_rank) == (3, 5, (), False)
    assert rank.order == (SortKey(1, True, False),)


def test_rows_of_a_top_n_come_in_order_in_batch_mode() -> None:
    sorted_ = ordered(limit(sort(query(ROWS), "v"), 3), is_batch=True)
    assert isinstance(sorted_, Sort)
    assert isinstance(sorted_.input, Rank)
    assert sorted_.order == sorted_.input.order


def test_an_order_by_a_column_that_is_not_selected() -> None:
    below = sort(query(ROWS), "v")
    shown = Calc(below, None, (InputRef(0, t.STRING),), below.columns[:1])
    calc = ordered(limit(shown, 3))
    assert isinstance(calc, Calc)
    assert isinstance(calc.input, Rank)
    assert calc.input.order == (SortKey(1),)


def test_limit_at_the_top_over_inserts_stays() -> None:
    assert isinstance(ordered(limit(query(ROWS), 3)), Limit)


@pytest.mark.parametrize("sql", [COUNTS, CHANGES])
def test_limit_over_changes_is_a_top_n_by_arrival(sql: str) -> None:
    rank = ordered(limit(query(sql), 3))
    assert isinstance(rank, Rank)
    assert (rank.first, rank.last, rank.order) == (1, 3, ())


def test_limit_in_a_sub_query_is_a_top_n_that_only_inserts() -> None:
    inner = limit(query(ROWS), 3)
    outer = top(
        OverRank(inner, RankFunction.ROW_NUMBER, (), (SortKey(1),), (*inner.columns, Column("rn", RANK_TYPE))), 2
    )
    rank = node(ordered(outer))
    assert isinstance(rank, Rank)
    below = rank.input
    assert isinstance(below, Rank)
    assert below.order == ()
    assert derive(below).changelog.mode is ChangelogMode.INSERT_ONLY
    assert below.columns[3].type.is_rowtime


def test_order_in_a_sub_query_is_no_order() -> None:
    inner = sort(query(ROWS), "v")
    outer = top(
        OverRank(inner, RankFunction.ROW_NUMBER, (), (SortKey(0),), (*inner.columns, Column("rn", RANK_TYPE))), 2
    )
    rank = node(ordered(outer))
    assert isinstance(rank, Rank)
    assert not isinstance(rank.input, Sort)


def test_sort_by_time() -> None:
    by_time = ordered(sort(query(ROWS), "ts v"))
    assert isinstance(by_time, Sort)
    by_arrival = query("SELECT k, PROCTIME() AS p FROM src")
    assert ordered(sort(by_arrival, "p k")) == by_arrival


@pytest.mark.parametrize("order", ["v", "ts-", "v ts"])
def test_other_orders_of_a_stream_are_refused(order: str) -> None:
    with pytest.raises(SqlError, match="only an ascending time attribute") as caught:
        ordered(sort(query(ROWS), order))
    assert caught.value.span == SPAN
    assert "LIMIT" in caught.value.hint
    assert isinstance(ordered(sort(query(ROWS), order), is_batch=True), Sort)


# -- operators ----------------------------------------------------------------------------------------


def operator_of(plan: Plan, settings: PlannerSettings | None = None) -> tuple[ir.Operator, EdgeKind, int]:
    """The operator of a settled plan's root, the edge into its vertex, and its parallelism."""
    own = settings or PlannerSettings(parallelism=4)
    sink = ResultSink(plan, plan.columns)
    graph = build_job_graph((sink,), Streaming((sink,), own), own, {})
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if isinstance(operator, ir.Rank | ir.Deduplicate | ir.WindowRank | ir.Sort):
                edge = next(e for e in graph.edges if e.target == vertex.id)
                return operator, edge.kind, vertex.parallelism
    raise AssertionError("no such operator")


def test_a_partitioned_top_n_is_hashed_by_its_partition() -> None:
    operator, edge, parallelism = operator_of(node(top(over(ROWS, "k", "v-"), 3)))
    assert isinstance(operator, ir.Rank)
    assert (edge, parallelism) == (EdgeKind.HASH, 4)
    assert operator.input_changelog is ChangelogMode.INSERT_ONLY
    assert operator.upsert_key is None
    assert operator.emits_update_before


def test_a_top_n_without_partition_is_one_and_takes_changes_by_their_key() -> None:
    operator, edge, parallelism = operator_of(unranked(top(over(COUNTS, "", "c-"), 3)))
    assert isinstance(operator, ir.Rank)
    assert (edge, parallelism) == (EdgeKind.SINGLE, 1)
    assert operator.input_changelog is ChangelogMode.RETRACT
    assert operator.upsert_key == (0,)


def test_operators_of_batch_mode_answer_at_the_end() -> None:
    batch = PlannerSettings(runtime_mode=RuntimeMode.BATCH)
    operator, _, _ = operator_of(node(top(over("SELECT k, v FROM files", "k", "v"), 3)), batch)
    assert isinstance(operator, ir.Rank)
    assert operator.emits_at_end


def test_the_operator_of_a_window_top_n_reads_the_window_off_its_rows() -> None:
    operator, edge, _ = operator_of(node(top(over(WINDOWED, "k window_end", "c-"), 3)))
    assert isinstance(operator, ir.WindowRank)
    assert edge is EdgeKind.HASH
    assert isinstance(operator.window, ir.TumbleWindow)
    assert operator.window.time_index is None
    assert operator.output.columns[operator.end].name == "window_end"


def test_a_sort_by_time_is_one_operator() -> None:
    operator, _, parallelism = operator_of(ordered(sort(query(ROWS), "ts v")))
    assert isinstance(operator, ir.Sort)
    assert (operator.time, parallelism) == (3, 1)


# -- identities ---------------------------------------------------------------------------------------

TOP = "INSERT INTO totals SELECT k, w FROM (SELECT *, {}() OVER (PARTITION BY k ORDER BY {}) AS rn FROM src) WHERE {}"


def state_of(sql: str) -> tuple[str, str]:
    """The uid of the query's Rank or Deduplicate and the fingerprint of its state."""
    graph = script().job(sql).job_graph
    kinds = (ir.Rank, ir.Deduplicate, ir.WindowRank)
    (uid,) = (o.uid for v in graph.vertices for o in v.operators if isinstance(o, kinds))
    return uid, next(f.state for f in graph.fingerprints if f.uid == uid)


def test_a_rank_is_known_again_by_its_partition_and_its_state_by_what_it_keeps() -> None:
    plain = state_of(TOP.format("ROW_NUMBER", "w DESC", "rn <= 3"))
    renamed = TOP.replace("AS rn", "AS place").format("ROW_NUMBER", "w DESC", "4 > place AND v > 0")
    assert state_of(renamed)[0] == plain[0]
    assert plain[0].endswith("totals/rank/[default_catalog.default_database.src.k]/0")
    for other in (("RANK", "w DESC", "rn <= 3"), ("ROW_NUMBER", "w", "rn <= 3"), ("ROW_NUMBER", "w DESC", "rn <= 4")):
        uid, state = state_of(TOP.format(*other))
        assert uid == plain[0]
        assert state != plain[1]


def test_the_state_of_a_deduplication() -> None:
    last, first = (state_of(TOP.format("ROW_NUMBER", order, "rn = 1")) for order in ("ts DESC", "ts"))
    assert last[0] == first[0]
    assert last[1] != first[1]
