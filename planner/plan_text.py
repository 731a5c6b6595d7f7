"""Nodes and expressions of a plan as one line of SQL-like text: EXPLAIN and error messages show it."""

from __future__ import annotations

from planner.analysis.type_rules import plain
from planner.analysis.windows import duration_text
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.operators import AggregateCall, AggregateFunction, SetOperationKind, SortKey
from planner.ir.types import TypeRoot
from planner.logical.nodes import (
    AttachedWindow,
    Calc,
    ChangelogNormalize,
    Column,
    Deduplicate,
    Expand,
    GroupAggregate,
    IntervalJoin,
    Join,
    Limit,
    LookupJoin,
    OverRank,
    Plan,
    Rank,
    ResultSink,
    Scan,
    SetOperation,
    Sort,
    TableSink,
    TemporalJoin,
    UnionAll,
    Unnest,
    Values,
    Window,
    WindowAggregate,
    WindowJoin,
    WindowKind,
    WindowRank,
    WindowTableFunction,
)
from planner.logical.rank_bounds import NO_BOUND
from planner.logical.rules.name_columns import joined_columns

_INFIX = {
    "PLUS": "+",
    "MINUS": "-",
    "TIMES": "*",
    "DIVIDE": "/",
    "MODULO": "%",
    "EQ": "=",
    "NEQ": "<>",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "AND": "AND",
    "OR": "OR",
    "CONCAT_OPERATOR": "||",
    "PLUS_INTERVAL": "+",
    "INTERVAL_PLUS": "+",
    "MINUS_INTERVAL": "-",
    "ADD_INTERVALS": "+",
    "SUBTRACT_INTERVALS": "-",
    "INTERVAL_TIMES": "*",
    "IS_DISTINCT_FROM": "IS DISTINCT FROM",
    "IS_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}
_POSTFIX = {
    "IS_NULL",
    "IS_NOT_NULL",
    "IS_TRUE",
    "IS_NOT_TRUE",
    "IS_FALSE",
    "IS_NOT_FALSE",
}


def node_text(node: Plan) -> str:
    match node:
        case Scan():
            text = f"TableSourceScan(table=[[{', '.join(_path(node))}]], fields=[{_names(node.columns)}]"
            if node.entry.watermark is not None:
                text += f", watermark=[{node.entry.watermark.column} AS {node.entry.watermark.text}]"
            return text + f", {'bounded' if node.capabilities.is_bounded else 'unbounded'})"
        case Values():
            rows = ", ".join("(" + ", ".join(expression_text(e, ()) for e in row) + ")" for row in node.rows)
            return f"Values(rows=[{rows}])"
        case Calc():
            select = ", ".join(
                _item(p, c.name, node.input) for p, c in zip(node.projections, node.columns, strict=True)
            )
            where = ""
            if node.condition is not None:
                where = f", where=[{expression_text(node.condition, node.input.columns)}]"
            return f"Calc(select=[{select}]{where})"
        case ChangelogNormalize():
            return f"ChangelogNormalize(key=[{', '.join(node.columns[k].name for k in node.keys)}])"
        case WindowTableFunction():
            return f"WindowTableFunction(window=[{_window(node.window, node.input.columns)}])"
        case WindowAggregate():
            below = node.input.columns
            keys = ", ".join(below[k].name for k in node.keys)
            calls = ", ".join(aggregate_text(c, below) for c in node.aggregates)
            properties = ", ".join(p.value for p in node.properties)
            return (
                f"WindowAggregate(groupBy=[{keys}], window=[{_window(node.window, below)}], "
                f"select=[{calls}], properties=[{properties}])"
            )
        case GroupAggregate():
            below = node.input.columns
            keys = ", ".join(below[k].name for k in node.keys)
            calls = ", ".join(aggregate_text(c, below) for c in node.aggregates)
            return f"GroupAggregate(groupBy=[{keys}], select=[{calls}])"
        case Expand():
            sets = ", ".join(
                "{" + ", ".join(expression_text(e, node.input.columns) for e in p) + "}" for p in node.projections
            )
            return f"Expand(projects=[{sets}], fields=[{_names(node.columns)}])"
        case UnionAll():
            return f"UnionAll(fields=[{_names(node.columns)}])"
        case Join() | IntervalJoin() | WindowJoin() | TemporalJoin():
            return f"{type(node).__name__}({join_text(node)})"
        case LookupJoin():
            return f"LookupJoin({_lookup_text(node)})"
        case SetOperation():
            return f"{_SET_OPERATIONS[node.kind]}(fields=[{_names(node.columns)}])"
        case OverRank() | Rank() | WindowRank() | Deduplicate() | Sort():
            return _ranking_text(node)
        case Limit():
            return f"Limit(fetch=[{node.count}], offset=[{node.offset}])"
        case TableSink():
            table = ", ".join((node.path.catalog, node.path.database, node.path.name))
            conflict = f", onConflict=[{node.conflict.value}]" if node.conflict is not None else ""
            return f"Sink(table=[[{table}]], fields=[{_names(node.columns)}]{conflict})"
        case ResultSink():
            return f"ResultSink(fields=[{_names(node.columns)}])"
        case Unnest():
            return f"Unnest({_unnest_text(node)})"
        case _:
            return f"{type(node).__name__}(fields=[{_names(node.columns)}])"


def _unnest_text(node: Unnest) -> str:
    parts = [f"collection=[{node.input.columns[node.collection].name}]"]
    parts.append(f"joinType=[{'left' if node.is_outer else 'inner'}]")
    if node.with_ordinality:
        parts.append("ordinality=[true]")
    columns = joined_columns(node.columns[: len(node.kept_columns)], node.columns[len(node.kept_columns) :])
    if node.condition is not None:
        parts.append(f"where=[{expression_text(node.condition, columns)}]")
    return ", ".join([*parts, f"select=[{_names(columns)}]"])


def _lookup_text(node: LookupJoin) -> str:
    columns = joined_columns(node.input.columns, node.table.columns)
    keys = [
        f"{name}={expression_text(constant, ()) if constant is not None else columns[left or 0].name}"
        for name, left, constant in zip(node.lookup_columns, node.left_keys, node.constants, strict=True)
    ]
    parts = [f"table=[{node.table.path}]", f"joinType=[{node.kind.value}]", f"lookup=[{', '.join(keys)}]"]
    if node.condition is not None:
        parts.append(f"where=[{expression_text(node.condition, columns)}]")
    if node.hint:
        parts.append(f"hint=[{', '.join(f'{key}={value}' for key, value in node.hint)}]")
    return ", ".join([*parts, f"select=[{_names(columns)}]"])


_SET_OPERATIONS = {
    SetOperationKind.INTERSECT: "Intersect",
    SetOperationKind.INTERSECT_ALL: "IntersectAll",
    SetOperationKind.EXCEPT: "Except",
    SetOperationKind.EXCEPT_ALL: "ExceptAll",
}


def join_text(node: Join | IntervalJoin | TemporalJoin | WindowJoin) -> str:
    """Kind, keys, remaining condition and columns. A name that both sides have gets a number on the right, as in
    Flink."""
    columns = joined_columns(node.left.columns, node.right.columns)
    width = len(node.left.columns)
    null_safe = getattr(node, "null_safe", ()) or (False,) * len(node.left_keys)
    keys = [
        f"{columns[left].name} {'IS NOT DISTINCT FROM' if is_safe else '='} {columns[width + right].name}"
        for left, right, is_safe in zip(node.left_keys, node.right_keys, null_safe, strict=True)
    ]
    parts = [f"joinType=[{node.kind.value}]", f"on=[{' AND '.join(keys) or 'true'}]", *_timing(node, columns)]
    if node.condition is not None:
        parts.append(f"where=[{expression_text(node.condition, columns)}]")
    parts.append(f"select=[{_names(columns[: len(node.columns)])}]")
    return ", ".join(parts)


def _timing(node: Join | IntervalJoin | TemporalJoin | WindowJoin, columns: tuple[Column, ...]) -> list[str]:
    """What bounds the state of a join."""
    width = len(node.left.columns)
    match node:
        case IntervalJoin():
            is_processing_time = node.is_processing_time
            left = "left PROCTIME()" if is_processing_time else columns[node.left_time].name
            right = "right PROCTIME()" if is_processing_time else columns[width + node.right_time].name
            lower, upper = (_moved(left, ms) for ms in (node.lower_ms, node.upper_ms))
            return [f"time=[{right} BETWEEN {lower} AND {upper}]"]
        case WindowJoin():
            left, right = columns[node.left_end].name, columns[width + node.right_end].name
            return [f"window=[{window_text(node.window, f'end=[{left} = {right}]')}]"]
        case TemporalJoin():
            return [f"time=[{columns[width + node.right_time].name} AS OF {columns[node.left_time].name}]"]
        case Join():
            return []


def _moved(time: str, by_ms: int) -> str:
    return time if by_ms == 0 else f"{time} {'-' if by_ms < 0 else '+'} {duration_text(abs(by_ms))}"


def _ranking_text(node: OverRank | Rank | WindowRank | Deduplicate | Sort) -> str:
    below = node.input.columns
    if isinstance(node, Sort):
        return f"Sort(orderBy=[{_order(node.order, below)}])"
    keys = ", ".join(below[k].name for k in node.keys)
    if isinstance(node, Deduplicate):
        kept = "LastRow" if node.keeps_last else "FirstRow"
        time = "PROCTIME" if node.is_processing_time else "ROWTIME"
        return f"Deduplicate(keep=[{kept}], key=[{keys}], order=[{time}])"
    by = f"partitionBy=[{keys}], orderBy=[{_order(node.order, below)}]"
    if isinstance(node, OverRank):
        return f"OverRank(rankType=[{node.function.value}], {by}, rank=[{node.columns[-1].name}])"
    last = "" if node.last == NO_BOUND else f", rankEnd={node.last}"
    text = f"rankType=[{node.function.value}], rankRange=[rankStart={node.first}{last}], {by}"
    text += f", select=[{_names(node.columns)}]"
    if isinstance(node, Rank):
        return f"Rank({text})"
    ties = ", ties=[LastRow]" if node.latest_of_ties else ""
    return f"WindowRank(window=[{_window(AttachedWindow(node.end, node.window), below)}], {text}{ties})"


def _order(order: tuple[SortKey, ...], columns: tuple[Column, ...]) -> str:
    """NULLs are named where they are not where Flink has them by default: first ascending, last descending."""
    shown: list[str] = []
    for key in order:
        text = f"{columns[key.index].name} {'DESC' if key.is_descending else 'ASC'}"
        if key.nulls_first is key.is_descending:
            text += f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        shown.append(text)
    return ", ".join(shown)


def _path(scan: Scan) -> tuple[str, str, str]:
    return scan.path.catalog, scan.path.database, scan.path.name


def _names(columns: tuple[Column, ...]) -> str:
    return ", ".join(c.name for c in columns)


def _item(projection: Expression, name: str, below: Plan) -> str:
    text = expression_text(projection, below.columns)
    return text if text == name else f"{text} AS {name}"


def _window(window: Window | AttachedWindow, columns: tuple[Column, ...]) -> str:
    if isinstance(window, AttachedWindow):
        place, window = f"end=[{columns[window.end_index].name}]", window.window
    else:
        place = f"time=[{'PROCTIME()' if window.time_index is None else columns[window.time_index].name}]"
    return window_text(window, place)


def window_text(window: Window, place: str) -> str:
    """The window, and which column it is of."""
    text = f"{window.kind.value}({place}, size=[{duration_text(window.size_ms)}]"
    if window.kind is not WindowKind.TUMBLE:
        text += f", {'slide' if window.kind is WindowKind.HOP else 'step'}=[{duration_text(window.step_ms)}]"
    return text + (f", offset=[{duration_text(window.offset_ms)}]" if window.offset_ms else "") + ")"


# -- expressions --------------------------------------------------------------------------------------


def expression_text(expression: Expression, columns: tuple[Column, ...]) -> str:
    """The expression as SQL-like text over named columns."""
    match expression:
        case InputRef(index=index):
            return columns[index].name
        case Literal():
            return _literal_text(expression)
        case Call(function=function, args=args):
            shown = [expression_text(a, columns) for a in args]
            if function in _INFIX and len(args) > 1:
                return "(" + f" {_INFIX[function]} ".join(shown) + ")"
            if function in _POSTFIX:
                return f"{shown[0]} {function.replace('_', ' ')}"
            if function in ("CAST", "TRY_CAST"):
                return f"{function}({shown[0]} AS {plain(expression.type).with_nullable(True).sql()})"
            if function == "FIELD":
                return f"{shown[0]}.{args[0].type.fields[_literal_index(args[1])].name}"
            if function in ("ITEM_ARRAY", "ITEM_MAP"):
                return f"{shown[0]}[{shown[1]}]"
            return f"{function}({', '.join(shown)})"


def _literal_index(expression: Expression) -> int:
    assert isinstance(expression, Literal)
    assert isinstance(expression.value, int)
    return expression.value


def _literal_text(literal: Literal) -> str:
    value, root = literal.value, literal.type.root
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return "'" + str(value).replace("'", "''") + "'"
    if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return f"X'{value}'"
    if root is TypeRoot.INTERVAL_DAY_TIME:
        return f"INTERVAL {duration_text(int(value))}"
    if root is TypeRoot.INTERVAL_YEAR_MONTH:
        return f"INTERVAL {value} months"
    if root in (TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return f"{value}:{plain(literal.type).with_nullable(True).sql()}"
    return str(value)


def aggregate_text(call: AggregateCall, columns: tuple[Column, ...]) -> str:
    if call.function is AggregateFunction.COUNT_STAR:
        text = "COUNT(*)"
    else:
        assert call.argument is not None
        distinct = "DISTINCT " if call.distinct else ""
        text = f"{call.function.value}({distinct}{columns[call.argument].name})"
    return text if call.filter is None else f"{text} FILTER ({columns[call.filter].name})"
