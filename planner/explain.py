"""The text of EXPLAIN: the tree as bound, the tree as optimised with its stream properties, and the JobGraph."""

from __future__ import annotations

from planner.analysis.type_rules import plain
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.job_graph import Edge, EdgeKind, JobGraph
from planner.ir.operators import AggregateCall, AggregateFunction, Column
from planner.ir.types import TypeRoot
from planner.logical.nodes import (
    Calc,
    Limit,
    Plan,
    ResultSink,
    Scan,
    TableSink,
    UnionAll,
    Values,
    Window,
    WindowAggregate,
    WindowTableFunction,
    inputs_of,
)
from planner.logical.nodes import Column as PlanColumn
from planner.streaming.derive import derive
from planner.streaming.properties import StateBound

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
_SECTION = "== {} ==\n"


def explain_text(bound: tuple[Plan, ...], optimised: tuple[Plan, ...], graph: JobGraph) -> str:
    """All three sections; several sinks stand one below the other."""
    parts = [_SECTION.format("Abstract Syntax Tree")]
    parts += [plan_tree(plan, with_properties=False) + "\n" for plan in bound]
    parts.append(_SECTION.format("Optimized Plan"))
    parts += [plan_tree(plan, with_properties=True) + "\n" for plan in optimised]
    parts.append(_SECTION.format("Job Graph"))
    parts.append(job_graph_text(graph))
    return "".join(parts)


# -- plans --------------------------------------------------------------------------------------------


def plan_tree(plan: Plan, with_properties: bool) -> str:
    """One line per node, inputs indented below."""
    lines: list[str] = []

    def visit(node: Plan, prefix: str, child_prefix: str) -> None:
        text = prefix + _node_text(node)
        lines.append(text + (_properties_text(node) if with_properties else "") + "\n")
        inputs = inputs_of(node)
        for i, below in enumerate(inputs):
            is_last = i == len(inputs) - 1
            visit(below, child_prefix + ("+- " if is_last else ":- "), child_prefix + ("   " if is_last else ":  "))

    visit(plan, "", "")
    return "".join(lines)


def _node_text(node: Plan) -> str:
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
        case UnionAll():
            return f"UnionAll(fields=[{_names(node.columns)}])"
        case Limit():
            return f"Limit(fetch=[{node.count}], offset=[{node.offset}])"
        case TableSink():
            table = ", ".join((node.path.catalog, node.path.database, node.path.name))
            return f"Sink(table=[[{table}]], fields=[{_names(node.columns)}])"
        case ResultSink():
            return f"ResultSink(fields=[{_names(node.columns)}])"


def _path(scan: Scan) -> tuple[str, str, str]:
    return scan.path.catalog, scan.path.database, scan.path.name


def _names(columns: tuple[PlanColumn, ...]) -> str:
    return ", ".join(c.name for c in columns)


def _item(projection: Expression, name: str, below: Plan) -> str:
    text = expression_text(projection, below.columns)
    return text if text == name else f"{text} AS {name}"


def _window(window: Window, columns: tuple[PlanColumn, ...]) -> str:
    offset = f", offset=[{_duration(window.offset_ms)}]" if window.offset_ms else ""
    return f"TUMBLE(time=[{columns[window.time_index].name}], size=[{_duration(window.size_ms)}]{offset})"


def _duration(ms: int) -> str:
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms % factor == 0:
            return f"{ms // factor} {unit}"
    return f"{ms} ms"


def _properties_text(node: Plan) -> str:
    properties = derive(node)
    parts = [f"changelog=[{properties.changelog.mode.value}]"]
    keys = sorted(sorted(key) for key in properties.upsert_keys)
    if keys:
        named = ", ".join("{" + ", ".join(node.columns[i].name for i in key) + "}" for key in keys)
        parts.append(f"upsertKeys=[{named}]")
    if properties.emission is not None:
        parts.append(f"emit=[{properties.emission.value}]")
    if properties.state is not StateBound.NONE:
        parts.append(f"state=[{properties.state.value}]")
    return ", " + ", ".join(parts)


# -- expressions --------------------------------------------------------------------------------------


def expression_text(expression: Expression, columns: tuple[PlanColumn, ...]) -> str:
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
        return f"INTERVAL {_duration(int(value))}"
    if root is TypeRoot.INTERVAL_YEAR_MONTH:
        return f"INTERVAL {value} months"
    if root in (TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return f"{value}:{plain(literal.type).with_nullable(True).sql()}"
    return str(value)


def aggregate_text(call: AggregateCall, columns: tuple[PlanColumn, ...]) -> str:
    if call.function is AggregateFunction.COUNT_STAR:
        text = "COUNT(*)"
    else:
        assert call.argument is not None
        text = f"{call.function.value}({columns[call.argument].name})"
    return text if call.filter is None else f"{text} FILTER ({columns[call.filter].name})"


# -- job graph ----------------------------------------------------------------------------------------


def job_graph_text(graph: JobGraph) -> str:
    """Counts, then each vertex with its chain and its edges."""
    operators = sum(len(v.operators) for v in graph.vertices)
    counts = (
        f"{operators} operators, {graph.subtask_count} operator subtasks; {len(graph.vertices)} vertices, "
        f"{graph.task_count} tasks; {graph.slot_count} slots; {'bounded' if graph.bounded else 'unbounded'}\n"
    )
    lines = [counts]
    for vertex in graph.vertices:
        lines.append(f"Vertex {vertex.id}: parallelism={vertex.parallelism}\n")
        lines.extend(f"  {o.name}\n    uid={o.uid}\n" for o in vertex.operators)
        lines.extend(f"  --{_edge_text(edge)}--> Vertex {edge.target}\n" for edge in graph.outputs(vertex.id))
    return "".join(lines)


def _edge_text(edge: Edge) -> str:
    if edge.kind is not EdgeKind.HASH:
        return edge.kind.value
    return f"hash[{', '.join(_column_name(edge.schema.columns[k]) for k in edge.keys)}]"


def _column_name(column: Column) -> str:
    return column.name
