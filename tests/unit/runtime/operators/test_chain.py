"""Chains: the order of things, merged calcs, the registry, and the invariants that are checked around operators."""

from __future__ import annotations

import types
from collections.abc import Iterator

import pyarrow as pa
import pytest

from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from runtime.checkpoint.snapshot import OperatorRestore, OperatorSnapshot
from runtime.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Batch
from runtime.operators.calc import CalcOperator
from runtime.operators.chain import OperatorChain, merge_calcs
from runtime.operators.checks import CheckedOperator
from runtime.operators.limit import LimitOperator
from runtime.operators.protocol import FinishSnapshot, Operator
from runtime.operators.registry import build_operators
from runtime.operators.values import ValuesOperator
from runtime.protocol.messages import LimitReached
from tests.support.operators import ATTEMPT, Surroundings, batch_of, ints

NUMBERS = ir.Schema((ir.Column("n", t.INT),))
N: Expression = InputRef(0, t.INT)


def number(value: int) -> Literal:
    return Literal(value, t.INT)


def calc(condition: Expression | None, *projections: Expression) -> ir.Calc:
    columns = tuple(ir.Column(f"c{i}", p.type) for i, p in enumerate(projections))
    return ir.Calc("calc", "calc", condition, projections, ir.Schema(columns))


def values_of(batches: list[Batch]) -> list[object]:
    return [value for batch in batches for value in batch.data.column(0).to_pylist()]


class Scripted:
    """An operator that doubles each batch and fires one when time or input ends; writes down what it is told."""

    def __init__(self, name: str, story: list[str]) -> None:
        self.uid = name
        self._story = story

    def _tell(self, what: str) -> None:
        self._story.append(f"{self.uid} {what}")

    def open(self) -> None:
        self._tell("open")

    def process(self, batch: Batch) -> Iterator[Batch]:
        for turn in range(2):
            self._tell(f"row {batch.data.column(0)[0]}.{turn}")
            yield batch

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        self._tell(f"time {watermark_ms}")
        yield batch_of(ints(watermark_ms))

    def end(self, drain: bool) -> Iterator[Batch]:
        self._tell("end")
        return iter(())

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        return lambda: OperatorSnapshot(self.uid)

    def counters(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self._tell("close")
        raise OSError(self.uid)


class Behind(Scripted):
    """Its output is 5 ms behind its input."""

    watermark_delay_ms = 5

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        self._tell(f"time {watermark_ms}")
        yield from ()


class Pair(Behind):
    """Takes two inputs."""

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        self._tell(f"row {batch.data.column(0)[0]} of {input_index}")
        yield batch


@pytest.mark.parametrize("checked", [False, True])
def test_the_first_operator_hears_which_input_a_row_is_of(checked: bool) -> None:
    story: list[str] = []
    links: list[Operator] = [Pair("pair", story), Scripted("a", story)]
    if checked:
        links = [CheckedOperator(link, calc(None, InputRef(0, t.INT))) for link in links]
    chain = OperatorChain(links, lambda batch: None, lambda: None)
    chain.process(batch_of(ints(1)))
    chain.process(batch_of(ints(2)), 1)
    chain.process_at("a", batch_of(ints(3)))
    assert [line for line in story if "pair" in line] == ["pair row 1 of 0", "pair row 2 of 1"]
    assert [line for line in story if ".0" in line] == ["a row 1.0", "a row 2.0", "a row 3.0"]


@pytest.mark.parametrize("checked", [False, True])
def test_event_time_is_held_back_behind_operators_that_delay(checked: bool) -> None:
    story: list[str] = []
    links: list[Operator] = [Pair("pair", story), Behind("b", story), Behind("c", story)]
    if checked:
        links = [CheckedOperator(link, calc(None, InputRef(0, t.INT))) for link in links]
    chain = OperatorChain(links, lambda batch: None, lambda: None)
    for watermark_ms in (7, MAX_WATERMARK_MS):
        for _ in chain.advance(watermark_ms):
            pass
    assert [line for line in story if "time" in line] == [
        "pair time 7",
        "b time 2",
        "c time -3",
        *(f"{name} time {MAX_WATERMARK_MS}" for name in ("pair", "b", "c")),
    ]
    assert chain.watermark_behind(7) == -8
    assert chain.watermark_behind(MAX_WATERMARK_MS) == MAX_WATERMARK_MS
    assert chain.watermark_behind(MIN_WATERMARK_MS + 1) == MIN_WATERMARK_MS


def test_pieces_pass_on_one_by_one_and_time_follows_what_it_fired() -> None:
    story: list[str] = []
    out: list[Batch] = []
    chain = OperatorChain([Scripted("a", story), Scripted("b", story)], out.append, lambda: None)
    chain.open()
    chain.process(batch_of(ints(7)))
    assert story == ["b open", "a open", "a row 7.0", "b row 7.0", "b row 7.1", "a row 7.1", "b row 7.0", "b row 7.1"]
    assert values_of(out) == [7, 7, 7, 7]
    story.clear()
    assert list(chain.advance(9)) == []
    assert story == ["a time 9", "b row 9.0", "b row 9.1", "b time 9"]
    story.clear()
    with pytest.raises(OSError, match="a"):
        chain.close()
    assert story == ["a close", "b close"]


def test_what_had_ended_before_a_restore_does_not_end_again() -> None:
    """Of an aggregation without keys the row over nothing would be put out twice, once to one chained to it anew."""
    story: list[str] = []
    links = [Scripted("a", story), Scripted("b", story)]
    OperatorChain(links, lambda batch: None, lambda: None, frozenset({"a"})).end(True)
    assert [line for line in story if "end" in line] == ["b end"]


def test_a_yield_point_comes_after_each_piece() -> None:
    def cancelled() -> None:
        raise InterruptedError

    out: list[Batch] = []
    chain = OperatorChain([Scripted("a", [])], out.append, cancelled)
    with pytest.raises(InterruptedError):
        chain.process(batch_of(ints(7)))
    assert len(out) == 1


class Timed(Scripted):
    """With a timer every 10 ms, and a row held back by each batch."""

    def __init__(self, name: str, story: list[str]) -> None:
        super().__init__(name, story)
        self._timer_ms: int | None = 10
        self._held: list[Batch] = []

    def process(self, batch: Batch) -> Iterator[Batch]:
        self._held.append(batch)
        return iter(())

    def flush(self) -> Iterator[Batch]:
        held, self._held = self._held, []
        yield from held

    def timer_ms(self) -> int | None:
        return self._timer_ms

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        self._timer_ms = now_ms + 10
        yield batch_of(ints(now_ms))


def test_timers_fire_when_due_and_their_rows_go_on() -> None:
    story: list[str] = []
    out: list[Batch] = []
    plain = OperatorChain([Scripted("a", story)], out.append, lambda: None)
    assert plain.timer_ms() is None
    node = calc(None, N)
    links: list[Operator] = [CheckedOperator(Timed("a", story), node), Scripted("b", story), Timed("c", story)]
    chain = OperatorChain(links, out.append, lambda: None)
    assert chain.timer_ms() == 10
    assert list(chain.on_timers(12)) == []
    assert values_of(out) == [12]
    assert story == ["b row 12.0", "b row 12.1"]
    assert chain.timer_ms() == 22
    chain.flush()
    assert values_of(out) == [12, 12, 12]


def test_what_is_held_back_goes_before_time_moves() -> None:
    story: list[str] = []
    out: list[Batch] = []
    chain = OperatorChain([Timed("a", story), Scripted("b", story), Timed("c", story)], out.append, lambda: None)
    chain.process(batch_of(ints(7)))
    assert story == []
    assert list(chain.advance(9)) == []
    assert story == ["b row 7.0", "b row 7.1", "a time 9", "b row 9.0", "b row 9.1", "b time 9", "c time 9"]
    assert values_of(out) == [7, 7, 9, 9, 9, 9]
    story.clear()
    chain.process(batch_of(ints(8)))
    chain.end(drain=False)
    assert story == ["b row 8.0", "b row 8.1", "a end", "b end", "c end"]
    assert values_of(out)[6:] == [8, 8]


def run_calcs(nodes: tuple[ir.Operator, ...], *numbers: int | None) -> list[object]:
    surroundings = Surroundings()
    out: list[Batch] = []
    links = []
    for node in nodes:
        assert isinstance(node, ir.Calc)
        links.append(CheckedOperator(CalcOperator(node, surroundings.context), node))
    chain = OperatorChain(links, out.append, lambda: None)
    chain.open()
    chain.process(batch_of(ints(*numbers)))
    return values_of(out)


def test_calcs_merge_into_one() -> None:
    first = calc(Call("GT", (N, number(1)), t.BOOLEAN), Call("TIMES", (N, number(10)), t.INT))
    second = calc(Call("LT", (N, number(50)), t.BOOLEAN), Call("PLUS", (N, number(1)), t.INT))
    plain = calc(None, N)
    merged = merge_calcs((first, plain, second, plain))
    assert len(merged) == 1
    assert (
        run_calcs(merged, 1, 2, None, 4, 5, 6)
        == run_calcs((first, plain, second, plain), 1, 2, None, 4, 5, 6)
        == [
            21,
            41,
        ]
    )


def test_a_condition_of_the_first_guards_the_second() -> None:
    divide = Call("DIVIDE", (number(100), N), t.INT)
    nodes = (
        calc(Call("NEQ", (N, number(0)), t.BOOLEAN), N),
        calc(Call("GT", (divide, number(30)), t.BOOLEAN), N),
    )
    assert run_calcs(merge_calcs(nodes), 0, 2, 5) == [2]


def test_what_is_not_deterministic_stays_apart() -> None:
    uuid = calc(None, Call("UUID", (), t.char(36).with_nullable(False)))
    nodes = (uuid, calc(None, InputRef(0, t.char(36))))
    assert merge_calcs(nodes) == nodes


def test_a_calc_keeps_the_row_kinds_of_rows_that_pass() -> None:
    node = calc(Call("GT", (N, number(1)), t.BOOLEAN), N)
    operator = CalcOperator(node, Surroundings().context)
    operator.open()
    [out] = operator.process(batch_of(ints(1, 2, 3), kinds=[0, 1, 2]))
    assert out.row_kinds is not None
    assert out.row_kinds.to_pylist() == [1, 2]
    assert list(operator.process(batch_of(ints(0)))) == []
    assert operator.counters() == {"numRecordsFiltered": 2}


def test_limit_counts_skips_and_reports_once() -> None:
    surroundings = Surroundings()
    node = ir.Limit("limit", "limit", 3, 2, NUMBERS)
    limit = LimitOperator(node, surroundings.context, surroundings.environment)
    out = [piece for batch in ([1], [2, 3], [4, 5, 6], [7]) for piece in limit.process(batch_of(ints(*batch)))]
    assert values_of(out) == [3, 4, 5]
    assert surroundings.sent == [LimitReached(ATTEMPT)]
    assert limit.snapshot(1)() == limit.snapshot(2)()


def test_limit_goes_on_after_a_restore() -> None:
    node = ir.Limit("limit", "limit", 3, 0, NUMBERS)
    first = Surroundings()
    limit = LimitOperator(node, first.context, first.environment)
    list(limit.process(batch_of(ints(1, 2))))
    snapshot = limit.snapshot(1)()
    again = Surroundings(restore=OperatorRestore("limit", data=snapshot.data))
    limit = LimitOperator(node, again.context, again.environment)
    assert values_of(list(limit.process(batch_of(ints(3, 4))))) == [3]
    assert again.sent == [LimitReached(ATTEMPT)]


def test_values_are_given_once_also_over_a_restore() -> None:
    node = ir.Values("values", "values", ((number(1),), (number(2),)), NUMBERS)
    source = ValuesOperator(node, Surroundings().context)
    [rows] = source.poll(0)
    assert isinstance(rows, Batch)
    assert values_of([rows]) == [1, 2]
    assert source.ended
    restored = Surroundings(restore=OperatorRestore("values", data=source.snapshot(1)().data))
    assert ValuesOperator(node, restored.context).ended


class Wrong(Scripted):
    """Gives a column of another type than declared."""

    def process(self, batch: Batch) -> Iterator[Batch]:
        yield Batch(batch.data.cast(pa.schema([pa.field("c0", pa.int64())])))


def test_checks_refuse_other_schemas_falling_time_and_rows_after_the_end() -> None:
    node = calc(None, N)
    with pytest.raises(AssertionError, match="declared"):
        list(CheckedOperator(Wrong("x", []), node).process(batch_of(ints(1))))
    checked = CheckedOperator(Scripted("x", []), node)
    list(checked.advance(5))
    with pytest.raises(AssertionError, match="4 < 5"):
        list(checked.advance(4))
    list(checked.end(drain=True))
    with pytest.raises(AssertionError, match="after the end"):
        list(checked.process(batch_of(ints(1))))


TABLE = ir.TableRef("t", "blackhole", {"connector": "blackhole"}, NUMBERS)
WINDOW = ir.TumbleWindow(1, t.timestamp(3), 1000)
TIMED = ir.Schema((ir.Column("n", t.INT), ir.Column("ts", t.timestamp(3))))
TWICE = ir.Schema((*TIMED.columns, *TIMED.columns))
PAIRS = ir.Schema((*NUMBERS.columns, *NUMBERS.columns))
INSERTS = ir.ChangelogMode.INSERT_ONLY
ROW_NUMBER = ir.RankFunction.ROW_NUMBER
FILE = {"connector": "filesystem", "path": "/nowhere", "format": "json"}
LOOKED_UP = ir.TableRef("t", "filesystem", FILE, NUMBERS)
EXAMPLES: tuple[ir.Operator, ...] = (
    ir.Source("u", "source", TABLE, NUMBERS, (), (N,), NUMBERS),
    ir.Values("u", "values", (), NUMBERS),
    calc(None, N),
    ir.AssignWindows("u", "assign", WINDOW, TIMED),
    ir.Expand("u", "expand", ((N,),), NUMBERS),
    ir.LocalWindowAggregate("u", "local", (0,), (), WINDOW, TIMED),
    ir.GlobalWindowAggregate("u", "global", False, (0,), (t.INT,), (), WINDOW, (), NUMBERS),
    ir.LocalGroupAggregate("u", "local", (0,), (), ir.ChangelogMode.INSERT_ONLY, NUMBERS),
    ir.GroupAggregate("u", "group", (0,), (t.INT,), (), ir.ChangelogMode.INSERT_ONLY, NUMBERS),
    ir.ChangelogNormalize("u", "normalize", (0,), NUMBERS),
    ir.SinkMaterializer("u", "materializer", (0,), (), NUMBERS),
    ir.DropUpdateBefore("u", "drop", NUMBERS),
    ir.Join(
        "u",
        "join",
        ir.JoinKind.SEMI,
        (0,),
        (0,),
        (False,),
        None,
        NUMBERS,
        NUMBERS,
        INSERTS,
        INSERTS,
        None,
        None,
        NUMBERS,
    ),
    ir.IntervalJoin("u", "join", ir.JoinKind.INNER, (0,), (0,), (False,), 1, 1, 0, 9, None, TIMED, TIMED, TWICE),
    ir.TemporalJoin("u", "join", ir.JoinKind.LEFT, (0,), (0,), 1, 1, None, TIMED, TIMED, INSERTS, INSERTS, TWICE),
    ir.WindowJoin("u", "join", ir.JoinKind.INNER, (0,), (0,), (False,), 1, 1, WINDOW, None, TIMED, TIMED, TWICE),
    ir.LookupJoin(
        "u", "join", ir.JoinKind.LEFT, LOOKED_UP, ("n",), (0,), (None,), NUMBERS, None, NUMBERS, INSERTS, PAIRS
    ),
    ir.Unnest("u", "unnest", 0, t.array(t.INT), (), False, False, None, NUMBERS),
    ir.SetOperation("u", "except", ir.SetOperationKind.EXCEPT, NUMBERS),
    ir.Rank("u", "rank", ROW_NUMBER, (), (ir.SortKey(0),), 1, 3, False, INSERTS, None, NUMBERS),
    ir.Deduplicate("u", "deduplicate", (0,), None, True, NUMBERS),
    ir.WindowRank("u", "rank", ROW_NUMBER, (), 1, WINDOW, (ir.SortKey(0),), 1, 3, False, TIMED),
    ir.Sort("u", "sort", (ir.SortKey(0),), None, NUMBERS),
    ir.Limit("u", "limit", 1, 0, NUMBERS),
    ir.Sink("u", "sink", TABLE, NUMBERS),
    ir.Collect("u", "collect", NUMBERS),
)


def test_there_is_an_operator_for_each_of_a_job_graph() -> None:
    assert isinstance(ir.Operator, types.UnionType)
    assert {type(node) for node in EXAMPLES} == set(ir.Operator.__args__)
    for node in EXAMPLES:
        surroundings = Surroundings()
        built = build_operators((node,), lambda _, context=surroundings.context: context, surroundings.environment)  # type: ignore[misc]
        made: list[Operator | object] = [*built.links, *([] if built.source is None else [built.source])]
        assert len(made) == 1
