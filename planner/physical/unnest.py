"""The operator that spreads collections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.ir import operators as ir
from planner.logical.nodes import Unnest
from planner.physical.streams import Stream, schema_of

if TYPE_CHECKING:
    from planner.physical.translate import Translator


def translate_unnest(plan: Unnest, translator: Translator) -> Stream:
    """It stays where its input is: it keeps no state, and elements leave in the order of their rows."""
    stream = translator.stream(plan.input)
    operator = ir.Unnest(
        uid=translator.uids.make(translator.sink_name, "unnest"),
        name="Unnest",
        collection=stream.column(plan.collection),
        collection_type=plan.input.columns[plan.collection].type,
        kept=stream.columns(plan.kept_columns),
        with_ordinality=plan.with_ordinality,
        is_outer=plan.is_outer,
        condition=plan.condition,
        output=schema_of(plan),
    )
    changelog = translator.streaming.of(plan).changelog.mode
    added = translator.add(operator, stream.parallelism, stream, (), changelog)
    return Stream((added,), stream.parallelism)
