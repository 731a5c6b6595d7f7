"""The operator that asks an outside table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.ir import operators as ir
from planner.logical.nodes import LookupJoin
from planner.physical.sources import table_ref
from planner.physical.streams import Stream, schema_of
from planner.settings import parse_duration_ms

if TYPE_CHECKING:
    from planner.physical.translate import Translator

_SHUFFLE = "shuffle"
_ASYNC_TIMEOUT = "3 min"
"""`table.exec.async-lookup.timeout` in Flink."""


def translate_lookup(plan: LookupJoin, translator: Translator) -> Stream:
    """It stays where its input is and keeps no state. With the hint 'shuffle' appended rows are spread by the keys of
    the look-up, so that each subtask's cache holds keys of its own; changes stay where they are, in order."""
    stream = translator.stream(plan.input)
    if stream.selection is not None:
        stream = translator.materialised(stream, plan.input)
    hint = dict(plan.hint)
    table, given = plan.table, translator.streaming.of(plan.input).changelog
    operator = ir.LookupJoin(
        uid=translator.uids.make(translator.sink_name, "lookup-join", str(table.path)),
        name=f"LookupJoin({table.path.name})",
        kind=plan.kind,
        table=table_ref(str(table.path), table.entry, table.options),
        lookup_columns=plan.lookup_columns,
        left_keys=plan.left_keys,
        constants=plan.constants,
        table_columns=ir.Schema(tuple(ir.Column(c.name, c.type) for c in table.columns)),
        condition=plan.condition,
        left=schema_of(plan.input),
        left_changelog=given.mode,
        output=schema_of(plan),
        hint=_hint(hint),
    )
    keys = tuple(key for key in plan.left_keys if key is not None)
    is_spread = hint.get(_SHUFFLE, "").lower() == "true" and given.is_insert_only and bool(keys)
    parallelism = translator.settings.parallelism if is_spread else stream.parallelism
    changelog = translator.streaming.of(plan).changelog.mode
    added = translator.add(operator, parallelism, stream, keys if is_spread else (), changelog)
    return Stream((added,), parallelism)


def _hint(options: dict[str, str]) -> ir.LookupHint:
    is_async = options.get("async", "false").lower() == "true"
    return ir.LookupHint(
        is_async=is_async,
        capacity=int(options.get("capacity", "100")),
        timeout_ms=parse_duration_ms("timeout", options.get("timeout", _ASYNC_TIMEOUT)) if is_async else 0,
        repeats=int(options["max-attempts"]) if "retry-predicate" in options else 0,
        delay_ms=parse_duration_ms("fixed-delay", options["fixed-delay"]) if "retry-predicate" in options else 0,
    )
