"""Sinks: exchanges that keep changes in order, the materialiser, and the operator that writes."""

from __future__ import annotations

from planner.catalog import MetadataColumn
from planner.errors import SqlError, SqlState
from planner.ir import operators as ir
from planner.ir.operators import ChangelogMode, ConflictAction
from planner.logical.canonical import canonical_plan
from planner.logical.nodes import ResultSink, TableSink
from planner.physical.changes import without_update_before
from planner.physical.sources import configured_parallelism, table_ref
from planner.physical.state_parts import row_parts
from planner.physical.streams import Stream, schema_of
from planner.physical.translate import Translator
from planner.physical.uids import fingerprint, location
from planner.settings import KeyedShuffle
from planner.streaming.demand import SinkPlan


def translate_table_sink(sink: TableSink, translator: Translator) -> None:
    """Adds the operators of an INSERT."""
    translator.sink_name = str(sink.path)
    stream = translator.stream(sink.input)
    plan = translator.streaming.sink(sink)
    given = translator.streaming.of(sink.input).changelog
    key = "sink.parallelism"
    parallelism = configured_parallelism(sink.options, key, translator.settings.max_parallelism) or stream.parallelism
    hash_keys: tuple[int, ...] = ()
    if plan.materializer is not None:
        stream = _materialized(sink, plan, plan.materializer, stream, parallelism, translator)
    else:
        if plan.drops_update_before and given.has_updates and given.has_update_before:
            stream = without_update_before(stream, translator)
        hash_keys = _hash_keys(sink, plan, stream, parallelism, translator)
    uid = translator.uids.make("sink", str(sink.path), sink.options["connector"])
    group = sink.options.get("sink.slot-sharing-group", "")
    operator = _operator(sink, uid, stream, translator)
    translator.add(operator, parallelism, stream, hash_keys, operator.changelog, group)
    layout = repr([c.type.sql() for c in sink.columns])
    print_ = fingerprint(uid, layout, canonical_plan(sink), location(sink.options))
    translator.fingerprints.append(print_)


def translate_result_sink(sink: ResultSink, translator: Translator) -> None:
    """Adds the operators of a SELECT."""
    translator.sink_name = "result"
    stream = translator.stream(sink.input)
    operator = ir.Collect(
        uid=translator.uids.make("collect"),
        name="Collect",
        input=schema_of(sink),
        changelog=translator.streaming.of(sink).changelog.mode,
        selection=stream.selection or (),
    )
    translator.add(operator, 1, stream)


def _operator(sink: TableSink, uid: str, stream: Stream, translator: Translator) -> ir.Sink:
    by_name = {c.name: c for c in sink.entry.columns}
    types = [c.type for c in sink.columns]
    metadata = tuple(
        ir.MetadataColumn(column.name, declared.key, column.type)
        for column in sink.columns
        if isinstance(declared := by_name[column.name], MetadataColumn)
    )
    nullable_inputs = [c.type.nullable for c in sink.input.columns]
    not_null = tuple(i for i, type_ in enumerate(types) if not type_.nullable and nullable_inputs[i])
    return ir.Sink(
        uid=uid,
        name=f"Sink: {sink.path.name}",
        table=table_ref(str(sink.path), sink.entry, sink.options),
        input=schema_of(sink),
        metadata_columns=metadata,
        changelog=translator.streaming.of(sink).changelog.mode,
        not_null_columns=not_null,
        not_null_enforcement=translator.settings.not_null_enforcement,
        length_enforcement=translator.settings.length_enforcement,
        selection=stream.selection or (),
    )


def _hash_keys(
    sink: TableSink, plan: SinkPlan, stream: Stream, parallelism: int, translator: Translator
) -> tuple[int, ...]:
    """By what the sink's rows are hashed; empty: they stay where they are, or go anywhere."""
    if parallelism == 1:
        return ()
    given = translator.streaming.of(sink.input)
    mode = translator.settings.keyed_shuffle
    moves = parallelism != stream.parallelism
    # A sink that keeps the last row of a key must see them all in one place.
    is_apart = plan.takes_upserts and not any(key <= frozenset(plan.key) for key in given.upsert_keys)
    if given.changelog.is_insert_only:
        # Appended rows of one key may come from anywhere.
        wants_hash = mode is KeyedShuffle.FORCE or (mode is KeyedShuffle.AUTO and (moves or is_apart))
        return stream.columns(plan.key) if wants_hash else ()
    if moves and not plan.key:
        raise SqlError(
            SqlState.INVALID_PARAMETER,
            f"'sink.parallelism' = '{parallelism}' of '{sink.path}' is not the parallelism of its changing input "
            f"({stream.parallelism}), and the table has no primary key by which they could be spread in order",
            hint="Declare PRIMARY KEY (…) NOT ENFORCED, or leave 'sink.parallelism' out.",
        )
    key = stream.columns(plan.key)
    # What is spread by another upsert key than the one within the primary key would part changes of the latter.
    is_spread = any(
        translator.graph[producer].parallelism != parallelism and not frozenset(order) <= frozenset(key)
        for producer, order in zip(stream.producers, stream.order, strict=False)
    )
    return key if moves or is_apart or (is_spread and plan.takes_upserts) or mode is KeyedShuffle.FORCE else ()


def _materialized(
    sink: TableSink,
    plan: SinkPlan,
    action: ConflictAction,
    stream: Stream,
    parallelism: int,
    translator: Translator,
) -> Stream:
    """The stream behind a materialiser, which all rows of one primary key of the sink reach."""
    if stream.selection is not None:
        # Only what the sink shows is kept in state, in its order.
        stream = translator.materialised(stream, sink.input)
    names = ", ".join(sink.columns[i].name for i in plan.key)
    uid = translator.uids.make(translator.sink_name, "sink-materializer", f"[{names}]")
    operator = ir.SinkMaterializer(
        uid=uid,
        name="SinkMaterializer",
        keys=plan.key,
        upsert_key=plan.upsert_key,
        output=schema_of(sink.input),
        action=action,
        state_ttl_ms=translator.settings.state_ttl_ms,
    )
    added = translator.add(operator, parallelism, stream, plan.key, ChangelogMode.UPSERT)
    layout = repr((plan.key, plan.upsert_key, [c.type.sql() for c in sink.input.columns], action.value))
    parts = row_parts(sink.input.columns, plan.key, plan.upsert_key, action.value)
    translator.fingerprints.append(fingerprint(uid, layout, canonical_plan(sink), parts=parts))
    return Stream((added,), parallelism)
