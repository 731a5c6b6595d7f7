"""The last step: optimised trees of one job → JobGraph."""

from __future__ import annotations

from collections.abc import Mapping

from planner.errors import SqlError, SqlState
from planner.ir import operators as ir
from planner.ir.job_graph import JobGraph
from planner.logical.nodes import Plan, ResultSink, TableSink
from planner.physical.chaining import chain
from planner.physical.sinks import translate_result_sink, translate_table_sink
from planner.physical.translate import Translator
from planner.settings import PlannerSettings, RuntimeMode
from planner.streaming.demand import Streaming


def build_job_graph(
    sinks: tuple[Plan, ...], streaming: Streaming, settings: PlannerSettings, session_settings: Mapping[str, str]
) -> JobGraph:
    """The JobGraph of all sinks. Sinks are taken in name order, so that a shared source belongs to the first."""
    translator = Translator(settings, streaming)
    is_query = False
    for sink in sorted(sinks, key=_sink_name):
        match sink:
            case TableSink():
                translate_table_sink(sink, translator)
            case ResultSink():
                is_query = True
                translate_result_sink(sink, translator)
            case _:
                raise AssertionError(f"{type(sink).__name__} is no sink")
    vertices, edges = chain(translator.graph, settings.is_chaining_enabled, settings.max_parallelism)
    sources = [o.operator for o in translator.graph.operators if isinstance(o.operator, ir.Source)]
    is_bounded = all(s.bounded for s in sources)
    if settings.runtime_mode is RuntimeMode.BATCH and not is_bounded:
        endless = next(s.table.identifier for s in sources if not s.bounded)
        raise SqlError(
            SqlState.INVALID_PARAMETER,
            f"'execution.runtime-mode' = 'batch', and the source `{endless}` never ends",
            hint="Give it an end, such as 'scan.bounded.mode', or SET 'execution.runtime-mode' = 'streaming'.",
        )
    return JobGraph(
        name=settings.job_name or _default_name(sinks),
        vertices=vertices,
        edges=edges,
        settings=dict(session_settings),
        fingerprints=tuple(translator.fingerprints),
        bounded=is_bounded,
        is_query=is_query,
    )


def _sink_name(sink: Plan) -> str:
    return str(sink.path) if isinstance(sink, TableSink) else ""


def _default_name(sinks: tuple[Plan, ...]) -> str:
    names = [str(s.path) for s in sinks if isinstance(s, TableSink)]
    return f"insert-into_{','.join(names)}" if names else "collect"
