"""Operators that rank and order rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from planner.ir import operators as ir
from planner.ir.operators import ChangelogMode, SortKey
from planner.logical.canonical import canonical_plan
from planner.logical.nodes import Deduplicate, Rank, Sort, WindowRank
from planner.physical.aggregates import aligned_window
from planner.physical.state_parts import rank_parts
from planner.physical.streams import Stream, schema_of
from planner.physical.uids import fingerprint, origin, row_layout
from planner.settings import RuntimeMode
from planner.streaming.properties import UpsertKey

if TYPE_CHECKING:
    from planner.physical.translate import Translator


def translate_ranking(plan: Rank | Deduplicate | WindowRank | Sort, translator: Translator) -> Stream:
    """The operator of the node, behind an exchange by its keys; without keys there is one copy of it."""
    stream = translator.stream(plan.input)
    if stream.selection is not None:
        # Only what is read of a row is kept in state.
        stream = translator.materialised(stream, plan.input)
    operator = _operator(plan, translator)
    keys = () if isinstance(plan, Sort) else plan.keys
    parallelism = translator.settings.parallelism if keys else 1
    properties = translator.streaming.of(plan)
    added = translator.add(operator, parallelism, stream, keys, properties.changelog.mode)
    is_retracting = not translator.streaming.of(plan.input).changelog.is_insert_only
    layout = _layout(plan, is_retracting=is_retracting)
    parts = rank_parts(plan, is_retracting=is_retracting)
    print_ = fingerprint(operator.uid, layout, canonical_plan(plan), parts=parts)
    translator.fingerprints.append(print_)
    return Stream((added,), parallelism)


def _operator(
    plan: Rank | Deduplicate | WindowRank | Sort, translator: Translator
) -> ir.Rank | ir.Deduplicate | ir.WindowRank | ir.Sort:
    match plan:
        case Rank():
            return _rank(plan, translator)
        case Deduplicate():
            return _deduplicate(plan, translator)
        case WindowRank():
            return _window_rank(plan, translator)
        case Sort():
            is_batch = translator.settings.runtime_mode is RuntimeMode.BATCH
            return ir.Sort(
                uid=translator.uids.make(translator.sink_name, "sort", _origins(plan, (k.index for k in plan.order))),
                name="Sort" if is_batch else "TemporalSort",
                order=plan.order,
                time=None if is_batch else plan.order[0].index,
                output=schema_of(plan),
            )


def _rank(plan: Rank, translator: Translator) -> ir.Rank:
    properties = translator.streaming.of(plan)
    below = translator.streaming.of(plan.input)
    is_insert_only = below.changelog.is_insert_only
    assert properties.emission is not None
    return ir.Rank(
        uid=translator.uids.make(translator.sink_name, "rank", _origins(plan, plan.keys)),
        name="Rank" if plan.order or plan.keys else "Limit",
        function=plan.function,
        keys=plan.keys,
        order=plan.order,
        first=plan.first,
        last=plan.last,
        puts_out_rank=plan.puts_out_rank,
        input_changelog=ChangelogMode.INSERT_ONLY if is_insert_only else ChangelogMode.RETRACT,
        upsert_key=None if is_insert_only else _smallest(below.upsert_keys),
        output=schema_of(plan),
        emission=properties.emission,
        emits_update_before=properties.changelog.has_update_before,
        state_ttl_ms=translator.settings.state_ttl_ms,
        emits_at_end=translator.settings.runtime_mode is RuntimeMode.BATCH,
    )


def _deduplicate(plan: Deduplicate, translator: Translator) -> ir.Deduplicate:
    properties = translator.streaming.of(plan)
    assert properties.emission is not None
    return ir.Deduplicate(
        uid=translator.uids.make(translator.sink_name, "deduplicate", _origins(plan, plan.keys)),
        name="Deduplicate",
        keys=plan.keys,
        time=None if plan.is_processing_time else plan.time,
        keeps_last=plan.keeps_last,
        output=schema_of(plan),
        emission=properties.emission,
        emits_update_before=properties.changelog.has_update_before,
        state_ttl_ms=translator.settings.state_ttl_ms,
        emits_at_end=translator.settings.runtime_mode is RuntimeMode.BATCH,
    )


def _window_rank(plan: WindowRank, translator: Translator) -> ir.WindowRank:
    mapping = {i: i for i in range(len(plan.input.columns))}
    # The window is read off the rows.
    window = msgspec.structs.replace(plan.window, time_index=None)
    return ir.WindowRank(
        uid=translator.uids.make(translator.sink_name, "window-rank", _origins(plan, plan.keys)),
        name="WindowRank",
        function=plan.function,
        keys=plan.keys,
        end=plan.end,
        window=aligned_window(window, mapping, translator.settings.local_time_zone),
        order=plan.order,
        first=plan.first,
        last=plan.last,
        puts_out_rank=plan.puts_out_rank,
        output=schema_of(plan),
        latest_of_ties=plan.latest_of_ties,
    )


def _origins(plan: Rank | Deduplicate | WindowRank | Sort, columns: Iterable[int]) -> str:
    return "[" + ", ".join(origin(plan.input, c) for c in columns) + "]"


def _smallest(keys: frozenset[UpsertKey]) -> tuple[int, ...] | None:
    """The key of the fewest columns, the leftmost among equals."""
    smallest = min(keys, key=lambda key: (len(key), sorted(key)), default=None)
    return None if smallest is None else tuple(sorted(smallest))


def _layout(plan: Rank | Deduplicate | WindowRank | Sort, *, is_retracting: bool) -> str:
    """What the state consists of: whole rows, kept by their keys and order; over inserts only those that can still be
    seen, so the ranks are part of it."""
    rows = row_layout(plan.input)
    match plan:
        case Deduplicate():
            time = None if plan.is_processing_time else plan.time
            return f"{rows}, {plan.keys}, {time}, {'last' if plan.keeps_last else 'first'}"
        case Sort():
            return f"{rows}, {_order_layout(plan.order)}"
        case Rank():
            return f"{rows}, {_rank_layout(plan)}, {'retracting' if is_retracting else 'adding'}"
        case WindowRank():
            window = plan.window
            shape = f"{window.kind.value}, {window.size_ms}, {window.step_ms}, {window.offset_ms}"
            return f"{rows}, {_rank_layout(plan)}, {plan.end}, {shape}, {plan.latest_of_ties}"


def _rank_layout(plan: Rank | WindowRank) -> str:
    ranks = f"{plan.first}..{plan.last}, {'with' if plan.puts_out_rank else 'without'} rank"
    return f"{plan.function.value}, {plan.keys}, {_order_layout(plan.order)}, {ranks}"


def _order_layout(order: tuple[SortKey, ...]) -> str:
    return repr([(k.index, k.is_descending, k.nulls_first) for k in order])
