"""Logical plan → physical operators: parallelism, exchanges, two-phase aggregation, uids.

A projection that only drops or reorders columns is no operator: it travels as a *selection* beside the stream until
an operator takes it in by its own indexes.
"""

from __future__ import annotations

import msgspec

from planner.errors import SqlError, SqlState
from planner.ir import operators as ir
from planner.ir.expressions import Expression, InputRef, shift_inputs
from planner.ir.job_graph import Fingerprint
from planner.ir.operators import ChangelogMode
from planner.logical.canonical import canonical_plan
from planner.logical.nodes import (
    Calc,
    ChangelogNormalize,
    Deduplicate,
    Expand,
    GroupAggregate,
    IntervalJoin,
    Join,
    Limit,
    LookupJoin,
    Plan,
    Rank,
    Scan,
    SetOperation,
    Sort,
    TemporalJoin,
    UnionAll,
    Unnest,
    Values,
    WindowAggregate,
    WindowJoin,
    WindowRank,
    WindowTableFunction,
)
from planner.logical.rules.prune_columns import remapped_call
from planner.physical.aggregates import (
    aligned_window,
    group_in_two_phases,
    group_partials,
    key_types,
    physical_window,
    window_in_two_phases,
    window_partials,
)
from planner.physical.joins import translate_join, translate_set_operation
from planner.physical.lookups import translate_lookup
from planner.physical.operator_graph import OperatorGraph
from planner.physical.ranks import translate_ranking
from planner.physical.sources import configured_parallelism, source_operator
from planner.physical.state_parts import aggregate_parts, row_parts
from planner.physical.streams import Stream, links_from, ordered, schema_of
from planner.physical.timed_joins import translate_timed_join
from planner.physical.uids import UidFactory, aggregate_layout, fingerprint, location, origin
from planner.physical.unnest import translate_unnest
from planner.settings import PlannerSettings, RuntimeMode
from planner.streaming.demand import Streaming


class Translator:
    """Translates the queries of one job into one operator graph; each node object is built once. Sinks are
    `planner.physical.sinks`' part."""

    def __init__(self, settings: PlannerSettings, streaming: Streaming) -> None:
        self.settings = settings
        self.streaming = streaming
        self.graph = OperatorGraph()
        self.fingerprints: list[Fingerprint] = []
        self.uids = UidFactory()
        self.sink_name = ""
        """Of the sink that is being translated: operators it is the first to need are named after it."""
        self._streams: dict[int, Stream] = {}

    def stream(self, plan: Plan) -> Stream:
        """The operators of `plan`, built if they are not yet there."""
        found = self._streams.get(id(plan))
        if found is None:
            found = ordered(self._translated(plan), plan, self.streaming.of(plan))
            self._streams[id(plan)] = found
        return found

    def add(
        self,
        operator: ir.Operator,
        parallelism: int,
        stream: Stream,
        hash_keys: tuple[int, ...] = (),
        changelog: ChangelogMode = ChangelogMode.INSERT_ONLY,
        slot_sharing_group: str = "",
    ) -> int:
        """Adds an operator behind the stream; `changelog` is of its output."""
        links = links_from(stream, self.graph, parallelism, hash_keys)
        return self.graph.add(operator, parallelism, links, changelog, slot_sharing_group)

    def add_two_inputs(
        self,
        operator: ir.Operator,
        left: Stream,
        right: Stream,
        hash_keys: tuple[tuple[int, ...], tuple[int, ...]],
        changelog: ChangelogMode,
    ) -> Stream:
        """Adds an operator with a left and a right input, each hashed by its keys (columns of its producers); without
        keys all rows meet in one subtask."""
        left_keys, right_keys = hash_keys
        parallelism = self.settings.parallelism if left_keys else 1
        links = links_from(left, self.graph, parallelism, left_keys, 0)
        links += links_from(right, self.graph, parallelism, right_keys, 1)
        added = self.graph.add(operator, parallelism, links, changelog)
        return Stream((added,), self.settings.parallelism)

    def _translated(self, plan: Plan) -> Stream:
        match plan:
            case Scan():
                return self._scan(plan)
            case ChangelogNormalize():
                return self._normalize(plan)
            case Values():
                operator = ir.Values(self.uids.make(self.sink_name, "values"), "Values", plan.rows, schema_of(plan))
                return Stream((self.graph.add(operator, 1),), 1)
            case Calc():
                return self._calc(plan)
            case WindowTableFunction():
                return self._assign_windows(plan)
            case WindowAggregate():
                return self._window_aggregate(plan)
            case GroupAggregate():
                return self._group_aggregate(plan)
            case Expand():
                return self._expand(plan)
            case Unnest():
                return translate_unnest(plan, self)
            case LookupJoin():
                return translate_lookup(plan, self)
            case UnionAll():
                return self._union(plan)
            case Limit():
                return self._limit(plan)
            case Join():
                return translate_join(plan, self)
            case IntervalJoin() | WindowJoin() | TemporalJoin():
                return translate_timed_join(plan, self)
            case SetOperation():
                return translate_set_operation(plan, self)
            case Rank() | Deduplicate() | WindowRank() | Sort():
                return translate_ranking(plan, self)
            case _:
                raise AssertionError(f"no operator for {type(plan).__name__}")

    def _mode(self, plan: Plan) -> ChangelogMode:
        return self.streaming.of(plan).changelog.mode

    # -- sources ------------------------------------------------------------------------------------

    def _scan(self, scan: Scan) -> Stream:
        uid = self.uids.make("source", str(scan.path), scan.options["connector"])
        operator = source_operator(scan, uid, self.settings)
        wanted = self.settings.parallelism
        configured = configured_parallelism(scan.options, "scan.parallelism", self.settings.max_parallelism)
        parallelism = configured or wanted
        if scan.capabilities.max_parallelism is not None:
            parallelism = min(parallelism, scan.capabilities.max_parallelism)
        if operator.changelog is not ChangelogMode.INSERT_ONLY and scan.entry.primary_key is None:
            if configured is not None and configured != wanted:
                raise SqlError(
                    SqlState.INVALID_PARAMETER,
                    f"'scan.parallelism' = '{configured}' of '{scan.path}' is not the job's parallelism ({wanted}), "
                    "and the table has no primary key by which its changes could be spread in order",
                    hint="Declare PRIMARY KEY (…) NOT ENFORCED, or leave 'scan.parallelism' out.",
                )
            # Nothing tells which changes belong together: they stay where they were read.
            wanted = parallelism
        self.fingerprints.append(fingerprint(uid, f"splits of {operator.table.connector}", "", location(scan.options)))
        group = scan.options.get("scan.slot-sharing-group", "")
        return Stream((self.graph.add(operator, parallelism, (), operator.changelog, group),), wanted)

    def _normalize(self, plan: ChangelogNormalize) -> Stream:
        scan = plan.input
        assert isinstance(scan, Scan)
        stream = self.stream(scan)
        uid = self.uids.make("changelog-normalize", str(scan.path), scan.options["connector"])
        operator = ir.ChangelogNormalize(
            uid=uid,
            name="ChangelogNormalize",
            keys=plan.keys,
            output=schema_of(plan),
            emits_update_before=self.streaming.of(plan).changelog.has_update_before,
            state_ttl_ms=self.settings.state_ttl_ms,
            delete_time=plan.delete_time,
        )
        parallelism = self.settings.parallelism
        added = self.add(operator, parallelism, stream, plan.keys, self._mode(plan))
        layout = repr([(c.name, c.type.sql()) for c in plan.columns])
        parts = row_parts(plan.columns, plan.keys)
        self.fingerprints.append(fingerprint(uid, f"{plan.keys}, {layout}", canonical_plan(plan), parts=parts))
        return Stream((added,), parallelism)

    # -- operators without keys ---------------------------------------------------------------------

    def _calc(self, calc: Calc) -> Stream:
        stream = self.stream(calc.input)
        mapping = stream.mapping(len(calc.input.columns))
        condition = shift_inputs(calc.condition, mapping) if calc.condition is not None else None
        projections = tuple(shift_inputs(p, mapping) for p in calc.projections)
        if condition is None and all(isinstance(p, InputRef) for p in projections):
            chosen = tuple(p.index for p in projections if isinstance(p, InputRef))
            return msgspec.structs.replace(stream, selection=chosen)
        return self._add_calc(stream, condition, projections, calc)

    def _add_calc(
        self, stream: Stream, condition: Expression | None, projections: tuple[Expression, ...], plan: Plan
    ) -> Stream:
        operator = ir.Calc(self.uids.make(self.sink_name, "calc"), "Calc", condition, projections, schema_of(plan))
        added = self.add(operator, stream.parallelism, stream, (), self._mode(plan))
        return Stream((added,), stream.parallelism)

    def materialised(self, stream: Stream, plan: Plan) -> Stream:
        """The stream with its selection carried out by an operator."""
        projections = tuple(InputRef(stream.column(i), c.type) for i, c in enumerate(plan.columns))
        return ordered(self._add_calc(stream, None, projections, plan), plan, self.streaming.of(plan))

    def _assign_windows(self, plan: WindowTableFunction) -> Stream:
        stream = self.stream(plan.input)
        if stream.selection is not None:
            stream = self.materialised(stream, plan.input)
        window = aligned_window(plan.window, stream.mapping(len(plan.columns)), self.settings.local_time_zone)
        uid = self.uids.make(self.sink_name, "assign-windows")
        operator = ir.AssignWindows(uid, "AssignWindows", window, schema_of(plan))
        added = self.add(operator, stream.parallelism, stream, (), self._mode(plan))
        return Stream((added,), stream.parallelism)

    def _expand(self, plan: Expand) -> Stream:
        stream = self.stream(plan.input)
        mapping = stream.mapping(len(plan.input.columns))
        projections = tuple(tuple(shift_inputs(e, mapping) for e in p) for p in plan.projections)
        operator = ir.Expand(self.uids.make(self.sink_name, "expand"), "Expand", projections, schema_of(plan))
        added = self.add(operator, stream.parallelism, stream, (), self._mode(plan))
        return Stream((added,), stream.parallelism)

    def _limit(self, limit: Limit) -> Stream:
        stream = self.stream(limit.input)
        # The limit passes rows through as they come, so the selection stays beside the stream.
        schema = self.graph[stream.producers[0]].output
        uid = self.uids.make(self.sink_name, "limit")
        operator = ir.Limit(uid, f"Limit({limit.count})", limit.count, limit.offset, schema)
        return Stream((self.add(operator, 1, stream),), 1, stream.selection)

    def _union(self, union: UnionAll) -> Stream:
        """The consumer reads all branches; each brings its columns into the common order itself."""
        streams: list[Stream] = []
        taken: set[int] = set()
        for branch in union.inputs:
            stream = self.stream(branch)
            is_shared = any(producer in taken for producer in stream.producers)
            if stream.selection is not None or is_shared:
                stream = self.materialised(stream, branch)
            taken.update(stream.producers)
            streams.append(stream)
        parallelism = max(s.parallelism for s in streams)
        producers = tuple(p for s in streams for p in s.producers)
        return Stream(producers, parallelism, None, tuple(o for s in streams for o in s.order))

    # -- aggregates ---------------------------------------------------------------------------------

    def _window_aggregate(self, plan: WindowAggregate) -> Stream:
        stream = self.stream(plan.input)
        mapping = stream.mapping(len(plan.input.columns))
        keys = stream.columns(plan.keys)
        calls = tuple(remapped_call(c, mapping) for c in plan.aggregates)
        window = physical_window(plan.window, mapping, self.settings.local_time_zone)
        origins = self._key_origins(plan)
        input_changelog = self._aggregated_changelog(plan)
        is_retracting = input_changelog is ChangelogMode.RETRACT
        is_two_phase = window_in_two_phases(plan, is_retracting, self.settings)
        if is_two_phase:
            uid = self.uids.make(self.sink_name, "local-window-aggregate", origins)
            local = ir.LocalWindowAggregate(
                uid=uid,
                name="LocalWindowAggregate",
                keys=keys,
                aggregates=calls,
                window=window,
                output=window_partials(plan, is_retracting),
                input_changelog=input_changelog,
            )
            stream = Stream((self.add(local, stream.parallelism, stream),), stream.parallelism)
            keys = tuple(range(len(keys)))
        uid = self.uids.make(self.sink_name, "global-window-aggregate", origins)
        operator = ir.GlobalWindowAggregate(
            uid=uid,
            name="GlobalWindowAggregate" if is_two_phase else "WindowAggregate",
            from_partials=is_two_phase,
            keys=keys,
            key_types=key_types(plan),
            aggregates=calls,
            window=window,
            properties=plan.properties,
            output=schema_of(plan),
            input_changelog=input_changelog,
        )
        return self._add_keyed(operator, plan, stream, keys)

    def _aggregated_changelog(self, plan: WindowAggregate | GroupAggregate) -> ChangelogMode:
        """What enters an aggregate: inserts, or changes with the old rows."""
        is_insert_only = self.streaming.of(plan.input).changelog.is_insert_only
        return ChangelogMode.INSERT_ONLY if is_insert_only else ChangelogMode.RETRACT

    def _group_aggregate(self, plan: GroupAggregate) -> Stream:
        stream = self.stream(plan.input)
        properties = self.streaming.of(plan)
        assert properties.emission is not None
        input_changelog = self._aggregated_changelog(plan)
        is_retracting = input_changelog is ChangelogMode.RETRACT
        keys = stream.columns(plan.keys)
        mapping = stream.mapping(len(plan.input.columns))
        calls = tuple(remapped_call(c, mapping) for c in plan.aggregates)
        origins = self._key_origins(plan)
        is_two_phase = group_in_two_phases(plan, properties.emission, is_retracting, self.settings)
        if is_two_phase:
            uid = self.uids.make(self.sink_name, "local-group-aggregate", origins)
            partials = group_partials(plan, is_retracting)
            local = ir.LocalGroupAggregate(uid, "LocalGroupAggregate", keys, calls, input_changelog, partials)
            stream = Stream((self.add(local, stream.parallelism, stream),), stream.parallelism)
            keys = tuple(range(len(keys)))
        operator = ir.GroupAggregate(
            uid=self.uids.make(self.sink_name, "group-aggregate", origins),
            name="GlobalGroupAggregate" if is_two_phase else "GroupAggregate",
            keys=keys,
            key_types=key_types(plan),
            aggregates=calls,
            input_changelog=input_changelog,
            output=schema_of(plan),
            from_partials=is_two_phase,
            emission=properties.emission,
            emits_update_before=properties.changelog.has_update_before,
            emits_row_over_nothing=not keys and properties.is_bounded,
            mini_batch=self.settings.mini_batch,
            state_ttl_ms=self.settings.state_ttl_ms if plan.state_ttl_ms is None else plan.state_ttl_ms,
            emits_at_end=self.settings.runtime_mode is RuntimeMode.BATCH,
        )
        return self._add_keyed(operator, plan, stream, keys)

    def _key_origins(self, plan: WindowAggregate | GroupAggregate) -> str:
        return "[" + ", ".join(origin(plan.input, k) for k in plan.keys) + "]"

    def _add_keyed(
        self,
        operator: ir.GlobalWindowAggregate | ir.GroupAggregate,
        plan: WindowAggregate | GroupAggregate,
        stream: Stream,
        keys: tuple[int, ...],
    ) -> Stream:
        """The operator behind an exchange by its keys; without keys there is one copy of it."""
        parallelism = self.settings.parallelism if keys else 1
        added = self.add(operator, parallelism, stream, keys, self._mode(plan))
        is_retracting = operator.input_changelog is not ChangelogMode.INSERT_ONLY
        layout = aggregate_layout(plan, from_partials=operator.from_partials, is_retracting=is_retracting)
        parts = aggregate_parts(plan, from_partials=operator.from_partials, is_retracting=is_retracting)
        self.fingerprints.append(fingerprint(operator.uid, layout, canonical_plan(plan), parts=parts))
        return Stream((added,), parallelism)
