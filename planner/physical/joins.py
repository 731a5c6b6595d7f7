"""Regular joins and set operations as operators of two inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.ir import operators as ir
from planner.ir.operators import ChangelogMode, JoinKind
from planner.logical.canonical import canonical_plan
from planner.logical.nodes import Join, Plan, SetOperation, TwoInputs
from planner.physical.state_parts import join_parts, set_operation_parts
from planner.physical.streams import Stream, schema_of
from planner.physical.uids import condition_origin, fingerprint, join_keys_origin, origin, row_layout
from planner.settings import RuntimeMode
from planner.streaming.joins import unique_key
from planner.streaming.properties import Properties

if TYPE_CHECKING:
    from planner.physical.translate import Translator

_NAMES = {
    JoinKind.INNER: "Join",
    JoinKind.LEFT: "LeftJoin",
    JoinKind.RIGHT: "RightJoin",
    JoinKind.FULL: "FullJoin",
    JoinKind.SEMI: "SemiJoin",
    JoinKind.ANTI: "AntiJoin",
}


def input_streams(plan: TwoInputs, translator: Translator) -> tuple[Stream, Stream]:
    """Both inputs with exactly the columns of the plan: whole rows are kept in state."""
    left, right = (_exact(side, translator) for side in (plan.left, plan.right))
    return left, right


def _exact(plan: Plan, translator: Translator) -> Stream:
    stream = translator.stream(plan)
    return stream if stream.selection is None else translator.materialised(stream, plan)


def translate_join(plan: Join, translator: Translator) -> Stream:
    """A regular join; both sides are hashed by their keys."""
    left, right = input_streams(plan, translator)
    settings, properties = translator.settings, translator.streaming.of(plan)
    given_left, given_right = (translator.streaming.of(side) for side in (plan.left, plan.right))
    operator = ir.Join(
        uid=translator.uids.make(translator.sink_name, f"{plan.kind.value}-join", join_keys_origin(plan)),
        name=_NAMES[plan.kind],
        kind=plan.kind,
        left_keys=plan.left_keys,
        right_keys=plan.right_keys,
        null_safe=plan.null_safe,
        condition=plan.condition,
        left=schema_of(plan.left),
        right=schema_of(plan.right),
        left_changelog=kept_changelog(given_left),
        right_changelog=kept_changelog(given_right),
        left_unique_key=unique_key(given_left, plan.left_keys),
        right_unique_key=unique_key(given_right, plan.right_keys),
        output=schema_of(plan),
        left_state_ttl_ms=settings.state_ttl_ms if plan.left_ttl_ms is None else plan.left_ttl_ms,
        right_state_ttl_ms=settings.state_ttl_ms if plan.right_ttl_ms is None else plan.right_ttl_ms,
        emits_at_end=settings.runtime_mode is RuntimeMode.BATCH,
    )
    keys = (plan.left_keys, plan.right_keys)
    stream = translator.add_two_inputs(operator, left, right, keys, properties.changelog.mode)
    unique_keys = (operator.left_unique_key, operator.right_unique_key)
    layout, parts = join_layout(plan, *unique_keys), join_parts(plan, *unique_keys)
    translator.fingerprints.append(fingerprint(operator.uid, layout, canonical_plan(plan), parts=parts))
    return stream


def kept_changelog(given: Properties) -> ChangelogMode:
    """What enters an operator that keeps rows by content: inserts, or changes with the old rows."""
    if given.changelog.is_insert_only:
        return ChangelogMode.INSERT_ONLY
    assert given.changelog.mode is ChangelogMode.RETRACT, "rows that are kept come with their old rows"
    return ChangelogMode.RETRACT


def join_layout(plan: Join, left_unique_key: tuple[int, ...] | None, right_unique_key: tuple[int, ...] | None) -> str:
    """What the state consists of: rows of both sides, how they are found; on a side that is kept without partner also
    the number of its partners, which the condition decides."""
    counts_partners = plan.kind is not JoinKind.INNER
    condition = condition_origin(plan.condition, plan.left, plan.right) if counts_partners else ""
    sides = (row_layout(plan.left), row_layout(plan.right))
    keys = (plan.left_keys, plan.right_keys, plan.null_safe)
    return repr((plan.kind.value, sides, keys, left_unique_key, right_unique_key, condition))


def translate_set_operation(plan: SetOperation, translator: Translator) -> Stream:
    """INTERSECT or EXCEPT; both sides are hashed by all columns."""
    left, right = input_streams(plan, translator)
    for side in (plan.left, plan.right):
        kept_changelog(translator.streaming.of(side))
    settings, properties = translator.settings, translator.streaming.of(plan)
    every = tuple(range(len(plan.columns)))
    origins = "[" + ", ".join(origin(plan, i) for i in every) + "]"
    operator = ir.SetOperation(
        uid=translator.uids.make(translator.sink_name, plan.kind.value, origins),
        name="".join(part.capitalize() for part in plan.kind.value.split("-")),
        kind=plan.kind,
        output=schema_of(plan),
        state_ttl_ms=settings.state_ttl_ms,
        emits_at_end=settings.runtime_mode is RuntimeMode.BATCH,
    )
    stream = translator.add_two_inputs(operator, left, right, (every, every), properties.changelog.mode)
    layout = repr((plan.kind.value, [c.type.sql() for c in plan.columns]))
    print_ = fingerprint(operator.uid, layout, canonical_plan(plan), parts=set_operation_parts(plan))
    translator.fingerprints.append(print_)
    return stream
