"""Logical plan → physical operators: parallelism, exchanges, two-phase aggregation, uids.

A projection that only drops or reorders columns is no operator: it travels as a *selection* beside the stream until
an operator takes it in by its own indexes.
"""

from __future__ import annotations

import msgspec

from planner.catalog import MetadataColumn
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, shift_inputs
from planner.ir.job_graph import EdgeKind, Fingerprint
from planner.logical.nodes import (
    Calc,
    Limit,
    Plan,
    ResultSink,
    Scan,
    TableSink,
    UnionAll,
    Values,
    WindowAggregate,
)
from planner.logical.rules.prune_columns import remapped_call, scan_key
from planner.physical.operator_graph import Link, OperatorGraph
from planner.physical.sources import configured_parallelism, source_operator, table_ref
from planner.physical.uids import UidFactory, aggregate_layout, canonical_plan, fingerprint, location, origin
from planner.settings import AggregatePhases, KeyedShuffle, PlannerSettings

_COUNT = t.BIGINT.with_nullable(False)


class Stream(msgspec.Struct, frozen=True):
    """Rows leaving one or several operators (several only for UNION ALL).

    `selection[i]` is the operators' output column that is column i of the stream; None: all, in order.
    `parallelism` is what an operator that needs no exchange would run at.
    """

    producers: tuple[int, ...]
    parallelism: int
    selection: tuple[int, ...] | None = None


class Translator:
    """Translates the sinks of one job into one operator graph."""

    def __init__(self, settings: PlannerSettings, reuse_sources: bool) -> None:
        self.settings = settings
        self.graph = OperatorGraph()
        self.fingerprints: list[Fingerprint] = []
        self._uids = UidFactory()
        self._reuse_sources = reuse_sources
        self._shared_sources: dict[str, Stream] = {}
        self._sink_name = ""

    # -- sinks --------------------------------------------------------------------------------------

    def table_sink(self, sink: TableSink) -> None:
        self._sink_name = str(sink.path)
        stream = self._stream(sink.input)
        parallelism, hash_keys = self._sink_exchange(sink, stream)
        entry = sink.entry
        by_name = {c.name: c for c in entry.columns}
        types = [c.type for c in sink.columns]
        metadata = tuple(
            ir.MetadataColumn(column.name, declared.key, column.type)
            for column in sink.columns
            if isinstance(declared := by_name[column.name], MetadataColumn)
        )
        nullable_inputs = [c.type.nullable for c in sink.input.columns]
        not_null = tuple(i for i, type_ in enumerate(types) if not type_.nullable and nullable_inputs[i])
        uid = self._uids.make("sink", str(sink.path), sink.options["connector"])
        operator = ir.Sink(
            uid=uid,
            name=f"Sink: {sink.path.name}",
            table=table_ref(str(sink.path), entry, sink.options),
            input=ir.Schema(tuple(ir.Column(c.name, c.type) for c in sink.columns)),
            metadata_columns=metadata,
            not_null_columns=not_null,
            not_null_enforcement=self.settings.not_null_enforcement,
            selection=stream.selection or (),
        )
        self._add(operator, parallelism, stream, hash_keys)
        layout = repr([type_.sql() for type_ in types])
        self.fingerprints.append(fingerprint(uid, layout, canonical_plan(sink), location(sink.options)))

    def _sink_exchange(self, sink: TableSink, stream: Stream) -> tuple[int, tuple[int, ...]]:
        """Parallelism, and the hash keys if the primary key's rows must meet in one subtask, in order."""
        configured = configured_parallelism(sink.options, "sink.parallelism", self.settings.max_parallelism)
        parallelism = configured or stream.parallelism
        key = sink.entry.primary_key
        mode = self.settings.keyed_shuffle
        wants_hash = mode is KeyedShuffle.FORCE or (mode is KeyedShuffle.AUTO and parallelism != stream.parallelism)
        if key is not None and wants_hash and parallelism > 1:
            names = [c.name for c in sink.columns]
            columns = tuple(names.index(name) for name in key.columns)
            return parallelism, _selected(stream, columns)
        return parallelism, ()

    def result_sink(self, sink: ResultSink) -> None:
        self._sink_name = "result"
        stream = self._stream(sink.input)
        schema = ir.Schema(tuple(ir.Column(c.name, c.type) for c in sink.columns))
        operator = ir.Collect(self._uids.make("collect"), "Collect", schema, selection=stream.selection or ())
        self._add(operator, 1, stream)

    # -- streams ------------------------------------------------------------------------------------

    def _stream(self, plan: Plan) -> Stream:
        match plan:
            case Scan():
                return self._scan(plan)
            case Values():
                schema = _schema(plan)
                uid = self._uids.make(self._sink_name, "values")
                return Stream((self.graph.add(ir.Values(uid, "Values", plan.rows, schema), 1),), 1)
            case Calc():
                return self._calc(plan)
            case WindowAggregate():
                return self._window_aggregate(plan)
            case UnionAll():
                return self._union(plan)
            case Limit():
                return self._limit(plan)
            case _:
                raise AssertionError(f"no operator for {type(plan).__name__}")

    def _scan(self, scan: Scan) -> Stream:
        key = scan_key(scan)
        if self._reuse_sources and key in self._shared_sources:
            return self._shared_sources[key]
        uid = self._uids.make("source", str(scan.path), scan.options["connector"])
        operator = source_operator(scan, uid, self.settings)
        configured = configured_parallelism(scan.options, "scan.parallelism", self.settings.max_parallelism)
        parallelism = configured or self.settings.parallelism
        if scan.capabilities.max_parallelism is not None:
            parallelism = min(parallelism, scan.capabilities.max_parallelism)
        stream = Stream((self.graph.add(operator, parallelism),), self.settings.parallelism)
        self._shared_sources[key] = stream
        self.fingerprints.append(fingerprint(uid, f"splits of {operator.table.connector}", "", location(scan.options)))
        return stream

    def _calc(self, calc: Calc) -> Stream:
        stream = self._stream(calc.input)
        mapping = _mapping(stream, len(calc.input.columns))
        condition = shift_inputs(calc.condition, mapping) if calc.condition is not None else None
        projections = tuple(shift_inputs(p, mapping) for p in calc.projections)
        if condition is None and all(isinstance(p, InputRef) for p in projections):
            chosen = tuple(p.index for p in projections if isinstance(p, InputRef))
            return msgspec.structs.replace(stream, selection=chosen)
        return self._add_calc(stream, condition, projections, _schema(calc))

    def _add_calc(
        self,
        stream: Stream,
        condition: Expression | None,
        projections: tuple[Expression, ...],
        schema: ir.Schema,
    ) -> Stream:
        uid = self._uids.make(self._sink_name, "calc")
        operator = ir.Calc(uid, "Calc", condition, projections, schema)
        added = self._add(operator, stream.parallelism, stream)
        return Stream((added,), stream.parallelism)

    def _limit(self, limit: Limit) -> Stream:
        stream = self._stream(limit.input)
        # The limit passes rows through as they come, so the selection stays beside the stream.
        schema = self.graph[stream.producers[0]].output
        uid = self._uids.make(self._sink_name, "limit")
        operator = ir.Limit(uid, f"Limit({limit.count})", limit.count, limit.offset, schema)
        added = self._add(operator, 1, stream)
        return Stream((added,), 1, stream.selection)

    def _union(self, union: UnionAll) -> Stream:
        """The consumer reads all branches; each brings its columns into the common order itself."""
        streams: list[Stream] = []
        taken: set[int] = set()
        for branch in union.inputs:
            stream = self._stream(branch)
            is_shared = any(producer in taken for producer in stream.producers)
            if stream.selection is not None or is_shared:
                stream = self._materialised(stream, branch)
            taken.update(stream.producers)
            streams.append(stream)
        parallelism = max(s.parallelism for s in streams)
        return Stream(tuple(p for s in streams for p in s.producers), parallelism)

    def _materialised(self, stream: Stream, plan: Plan) -> Stream:
        """The stream with its selection carried out by an operator."""
        mapping = _mapping(stream, len(plan.columns))
        projections = tuple(InputRef(mapping[i], c.type) for i, c in enumerate(plan.columns))
        return self._add_calc(stream, None, projections, _schema(plan))

    # -- window aggregate ---------------------------------------------------------------------------

    def _window_aggregate(self, plan: WindowAggregate) -> Stream:
        stream = self._stream(plan.input)
        mapping = _mapping(stream, len(plan.input.columns))
        keys = tuple(mapping[k] for k in plan.keys)
        calls = tuple(remapped_call(c, mapping) for c in plan.aggregates)
        time = plan.input.columns[plan.window.time_index]
        window = ir.TumbleWindow(
            mapping[plan.window.time_index],
            time.type,
            plan.window.size_ms,
            plan.window.offset_ms,
            self.settings.local_time_zone,
        )
        key_types = tuple(plan.input.columns[k].type for k in plan.keys)
        key_origins = "[" + ", ".join(origin(plan.input, k) for k in plan.keys) + "]"
        two_phase = self.settings.aggregate_phases is not AggregatePhases.ONE_PHASE
        exchange_keys = keys
        if two_phase:
            uid = self._uids.make(self._sink_name, "local-window-aggregate", key_origins)
            local = ir.LocalWindowAggregate(
                uid, "LocalWindowAggregate", keys, calls, window, partial_schema(plan, calls)
            )
            added = self._add(local, stream.parallelism, stream)
            stream = Stream((added,), stream.parallelism)
            keys = exchange_keys = tuple(range(len(keys)))
        uid = self._uids.make(self._sink_name, "global-window-aggregate", key_origins)
        operator = ir.GlobalWindowAggregate(
            uid=uid,
            name="GlobalWindowAggregate" if two_phase else "WindowAggregate",
            from_partials=two_phase,
            keys=keys,
            key_types=key_types,
            aggregates=calls,
            window=window,
            properties=plan.properties,
            output=_schema(plan),
        )
        parallelism = self.settings.parallelism if keys else 1
        added = self._add(operator, parallelism, stream, exchange_keys)
        self.fingerprints.append(fingerprint(uid, aggregate_layout(plan), canonical_plan(plan)))
        return Stream((added,), parallelism)

    # -- edges --------------------------------------------------------------------------------------

    def _add(
        self,
        operator: ir.Operator,
        parallelism: int,
        stream: Stream,
        hash_keys: tuple[int, ...] = (),
    ) -> int:
        """Adds an operator behind the stream: by hash if keys are given, else forward or what parallelism asks."""
        links: list[Link] = []
        for producer in stream.producers:
            if hash_keys:
                kind = EdgeKind.HASH
            elif self.graph[producer].parallelism == parallelism:
                kind = EdgeKind.FORWARD
            else:
                kind = EdgeKind.SINGLE if parallelism == 1 else EdgeKind.REBALANCE
            links.append(Link(producer, kind, hash_keys))
        return self.graph.add(operator, parallelism, tuple(links))


def partial_schema(plan: WindowAggregate, calls: tuple[ir.AggregateCall, ...]) -> ir.Schema:
    """What the local phase sends: keys, window end, row count, accumulators."""
    columns = [ir.Column(plan.columns[i].name, plan.input.columns[k].type) for i, k in enumerate(plan.keys)]
    columns += [ir.Column("$window_end", _COUNT), ir.Column("$row_count", _COUNT)]
    for i, call in enumerate(calls):
        types = ir.accumulator_types(call)
        columns += [ir.Column(f"$accumulator{i}_{j}", type_) for j, type_ in enumerate(types)]
    return ir.Schema(tuple(columns))


def _schema(plan: Plan) -> ir.Schema:
    return ir.Schema(tuple(ir.Column(c.name, c.type) for c in plan.columns))


def _mapping(stream: Stream, width: int) -> dict[int, int]:
    """From the stream's columns to its operators' output columns."""
    if stream.selection is None:
        return {i: i for i in range(width)}
    return dict(enumerate(stream.selection))


def _selected(stream: Stream, columns: tuple[int, ...]) -> tuple[int, ...]:
    return columns if stream.selection is None else tuple(stream.selection[i] for i in columns)
