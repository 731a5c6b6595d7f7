"""The text of EXPLAIN: the tree as bound, the tree as optimised with its stream properties, and the JobGraph."""

from __future__ import annotations

from planner.ir.job_graph import Edge, EdgeKind, JobGraph
from planner.ir.operators import Column
from planner.logical.nodes import Plan, TableSink, inputs_of
from planner.plan_text import node_text
from planner.streaming.demand import Streaming
from planner.streaming.properties import StateBound

_SECTION = "== {} ==\n"


def explain_text(bound: tuple[Plan, ...], optimised: tuple[Plan, ...], streaming: Streaming, graph: JobGraph) -> str:
    """All sections; several sinks stand one below the other."""
    parts = [_SECTION.format("Abstract Syntax Tree")]
    parts += [plan_tree(plan, None) + "\n" for plan in bound]
    parts.append(_SECTION.format("Optimized Plan"))
    parts += [plan_tree(plan, streaming) + "\n" for plan in optimised]
    if streaming.warnings:
        parts.append(_SECTION.format("Warnings"))
        parts.append("".join(f"{warning}\n" for warning in streaming.warnings) + "\n")
    parts.append(_SECTION.format("Job Graph"))
    parts.append(job_graph_text(graph))
    return "".join(parts)


# -- plans --------------------------------------------------------------------------------------------


def plan_tree(plan: Plan, streaming: Streaming | None) -> str:
    """One line per node, inputs indented below, with its properties if they are given."""
    lines: list[str] = []

    def visit(node: Plan, prefix: str, child_prefix: str) -> None:
        text = prefix + node_text(node)
        lines.append(text + (_properties_text(node, streaming) if streaming is not None else "") + "\n")
        inputs = inputs_of(node)
        for i, below in enumerate(inputs):
            is_last = i == len(inputs) - 1
            visit(below, child_prefix + ("+- " if is_last else ":- "), child_prefix + ("   " if is_last else ":  "))

    visit(plan, "", "")
    return "".join(lines)


def _properties_text(node: Plan, streaming: Streaming) -> str:
    properties = streaming.of(node)
    parts = [f"changelog=[{properties.changelog.mode.value}]"]
    keys = sorted(sorted(key) for key in properties.upsert_keys)
    if keys:
        named = ", ".join("{" + ", ".join(node.columns[i].name for i in key) + "}" for key in keys)
        parts.append(f"upsertKeys=[{named}]")
    if properties.emission is not None:
        parts.append(f"emit=[{properties.emission.value}]")
    if isinstance(node, TableSink):
        action = streaming.sink(node).materializer
        if action is not None:
            parts.append(f"materialize=[{action.value}]")
    if properties.state is not StateBound.NONE:
        parts.append(f"state=[{properties.state.value}]")
    return ", " + ", ".join(parts)


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
        group = "" if vertex.slot_sharing_group == "default" else f", slotSharingGroup={vertex.slot_sharing_group}"
        lines.append(f"Vertex {vertex.id}: parallelism={vertex.parallelism}{group}\n")
        lines.extend(f"  {o.name}\n    uid={o.uid}\n" for o in vertex.operators)
        lines.extend(f"  --{_edge_text(edge)}--> Vertex {edge.target}\n" for edge in graph.outputs(vertex.id))
    return "".join(lines)


def _edge_text(edge: Edge) -> str:
    if edge.kind is not EdgeKind.HASH:
        return edge.kind.value
    return f"hash[{', '.join(_column_name(edge.schema.columns[k]) for k in edge.keys)}]"


def _column_name(column: Column) -> str:
    return column.name
