"""Deriving stream properties from a plan, inputs first.

This half asks only what a node *may* give: with every −U, in streaming mode. What consumers need of it, and so what is
really sent, is `planner.streaming.demand`'s half.
"""

from __future__ import annotations

import itertools

from planner.ir.expressions import Expression, InputRef, Literal
from planner.ir.operators import AggregateFunction, ChangelogMode
from planner.logical.nodes import (
    AttachedWindow,
    Calc,
    ChangelogNormalize,
    Deduplicate,
    Expand,
    GroupAggregate,
    IntervalJoin,
    Join,
    Limit,
    LookupJoin,
    OverRank,
    Plan,
    Rank,
    ResultSink,
    Scan,
    SetOperation,
    Sort,
    TableSink,
    TemporalJoin,
    Unnest,
    Values,
    Window,
    WindowAggregate,
    WindowJoin,
    WindowRank,
    WindowTableFunction,
    inputs_of,
)
from planner.streaming import joins, timed_joins
from planner.streaming.kept_columns import kept_column
from planner.streaming.lookups import lookup_changelog, lookup_keys
from planner.streaming.properties import Changelog, Deletes, Properties, StateBound, UpsertKey
from planner.streaming.ranks import (
    deduplicate_changelog,
    rank_changelog,
    rank_keys,
    rank_state,
    sort_state,
    window_rank_keys,
)
from planner.streaming.unnest import unnest_changelog, unnest_constants, unnest_keys

INSERTS = Changelog()
ALL_CHANGES = Changelog(has_updates=True, has_update_before=True, deletes=Deletes.FULL)
_WINDOW_COLUMNS = 3
_VARIANTS_MAX = 16
"""Of one upsert key, where its columns are put out several times."""
_NO_KEYS: frozenset[UpsertKey] = frozenset()


def derive(plan: Plan) -> Properties:
    """The properties of the plan's root, all −U included."""
    return Derivation().of(plan)


class Derivation:
    """Properties of the nodes of one or more trees, each worked out once. In batch mode aggregates answer once, at the
    end of input, so nothing is updated."""

    def __init__(self, is_batch: bool = False, state_ttl_ms: int = 0) -> None:
        self._is_batch = is_batch
        self._state_ttl_ms = state_ttl_ms
        self._known: dict[int, tuple[Plan, Properties]] = {}

    def of(self, plan: Plan) -> Properties:
        found = self._known.get(id(plan))
        if found is None:
            # The node is kept, so that its id stays its own.
            found = self._known[id(plan)] = (plan, self._derived(plan))
        return found[1]

    def _derived(self, plan: Plan) -> Properties:
        inputs = tuple(self.of(i) for i in inputs_of(plan))
        is_bounded = plan.capabilities.is_bounded if isinstance(plan, Scan) else all(i.is_bounded for i in inputs)
        return Properties(
            changelog=self._changelog(plan, inputs),
            upsert_keys=_upsert_keys(plan, inputs),
            constants=_constants(plan, inputs),
            emission=None,
            has_watermark=_has_watermark(plan, inputs),
            is_bounded=is_bounded,
            state=self._state(plan, is_bounded, inputs),
        )

    def _changelog(self, plan: Plan, inputs: tuple[Properties, ...]) -> Changelog:
        match plan:
            case Scan():
                return _source_changelog(plan)
            case ChangelogNormalize():
                return ALL_CHANGES
            case Values() | WindowAggregate() | WindowRank():
                return INSERTS
            case Rank() | Deduplicate() if self._is_batch:
                return INSERTS
            case Rank():
                return rank_changelog(plan, inputs[0].changelog)
            case Deduplicate():
                return deduplicate_changelog(plan)
            case Unnest():
                return unnest_changelog(inputs[0].changelog)
            case LookupJoin():
                return lookup_changelog(plan, inputs[0].changelog)
            case OverRank():
                # Each row may change the ranks of all others.
                return ALL_CHANGES
            case GroupAggregate():
                if self._is_batch:
                    return INSERTS
                has_updates = bool(plan.aggregates)
                deletes = Deletes.NONE if inputs[0].changelog.is_insert_only else Deletes.FULL
                return Changelog(has_updates, has_updates, deletes)
            case IntervalJoin() | WindowJoin() | TemporalJoin():
                return timed_joins.timed_join_changelog(plan, inputs[0].changelog)
            case Join() | SetOperation():
                return INSERTS if self._is_batch else _two_inputs_changelog(plan, inputs)
            case _:
                return merged(tuple(i.changelog for i in inputs))

    def _state(self, plan: Plan, is_bounded: bool, inputs: tuple[Properties, ...]) -> StateBound:
        match plan:
            case WindowAggregate(window=window):
                aligned = window.window if isinstance(window, AttachedWindow) else window
                return StateBound.BY_TIMER if aligned.time_type.is_proctime else StateBound.BY_WATERMARK
            case Limit():
                return StateBound.BY_CONSTANT
            case WindowRank():
                return StateBound.BY_WATERMARK
            case Sort():
                return sort_state(plan, self._is_batch)
            case Rank() | Deduplicate():
                below = inputs[0]
                return self._keyed_bound(is_bounded, rank_state(plan, below.changelog, bool(below.upsert_keys)))
            case ChangelogNormalize():
                return self._keyed_bound(is_bounded, StateBound.BY_KEYS)
            case GroupAggregate():
                otherwise = StateBound.BY_KEYS if plan.keys else StateBound.BY_CONSTANT
                if keeps_values(plan, inputs[0].changelog):
                    otherwise = StateBound.UNBOUNDED
                return self._keyed_bound(is_bounded, otherwise, plan.state_ttl_ms)
            case Join():
                return joins.join_state(plan, inputs[0], inputs[1], self._state_ttl_ms)
            case IntervalJoin() | WindowJoin() | TemporalJoin():
                return timed_joins.timed_join_state(plan, inputs[1])
            case SetOperation():
                return self._keyed_bound(is_bounded, StateBound.BY_KEYS)
            case _:
                return StateBound.NONE

    def _keyed_bound(self, is_bounded: bool, otherwise: StateBound, own_ttl_ms: int | None = None) -> StateBound:
        if otherwise is StateBound.BY_CONSTANT:
            return otherwise
        if self._state_ttl_ms if own_ttl_ms is None else own_ttl_ms:
            return StateBound.BY_TTL
        return StateBound.BY_INPUT if is_bounded else otherwise


def merged(changelogs: tuple[Changelog, ...]) -> Changelog:
    """What a node that passes changes on gives of all its inputs."""
    kinds = [c.deletes for c in changelogs]
    deletes = next((d for d in (Deletes.BY_KEY, Deletes.FULL) if d in kinds), Deletes.NONE)
    updating = [c for c in changelogs if c.has_updates]
    return Changelog(bool(updating), bool(updating) and all(c.has_update_before for c in updating), deletes)


def _two_inputs_changelog(plan: Join | SetOperation, inputs: tuple[Properties, ...]) -> Changelog:
    left, right = (i.changelog for i in inputs)
    if isinstance(plan, SetOperation):
        return joins.set_operation_changelog(plan.kind, left, right)
    return joins.join_changelog(plan.kind, left, right)


def keeps_values(plan: GroupAggregate, input_: Changelog) -> bool:
    """Whether the state of one group grows with its rows."""
    ordered = (AggregateFunction.FIRST_VALUE, AggregateFunction.LAST_VALUE, AggregateFunction.LISTAGG)
    extremes = (AggregateFunction.MIN, AggregateFunction.MAX)
    is_retracting = not input_.is_insert_only
    return any(
        call.distinct
        or call.function is AggregateFunction.LISTAGG
        or (is_retracting and call.function in (*ordered, *extremes))
        for call in plan.aggregates
    )


def primary_key_positions(scan: Scan) -> tuple[int, ...] | None:
    """Where the table's primary key is in the scan's columns; None if it has none or not all of it is read."""
    key = scan.entry.primary_key
    if key is None:
        return None
    names = [scan.entry.columns[i].name for i in scan.kept]
    if any(name not in names for name in key.columns):
        return None
    return tuple(names.index(name) for name in key.columns)


def _source_changelog(scan: Scan) -> Changelog:
    match scan.capabilities.source_changelog:
        case ChangelogMode.INSERT_ONLY:
            return INSERTS
        case ChangelogMode.UPSERT:
            return Changelog(has_updates=True, has_update_before=False, deletes=Deletes.BY_KEY)
        case ChangelogMode.RETRACT:
            return ALL_CHANGES


# -- upsert keys --------------------------------------------------------------------------------------


def _upsert_keys(plan: Plan, inputs: tuple[Properties, ...]) -> frozenset[UpsertKey]:
    match plan:
        case Calc():
            return _kept_keys(plan.projections, inputs[0].upsert_keys)
        case WindowAggregate():
            return _window_keys(plan)
        case GroupAggregate():
            return frozenset({frozenset(range(len(plan.keys)))})
        case ChangelogNormalize():
            return frozenset({frozenset(plan.keys)})
        case Scan():
            # Appended rows may repeat a primary key.
            positions = primary_key_positions(plan)
            is_changelog = plan.capabilities.source_changelog is not ChangelogMode.INSERT_ONLY
            return frozenset({frozenset(positions)}) if is_changelog and positions is not None else _NO_KEYS
        case Expand():
            return _expanded_keys(plan, inputs[0].upsert_keys)
        case WindowTableFunction():
            # A row stands once in each of its windows, and the end tells them apart, also CUMULATE's.
            end = len(plan.columns) - _WINDOW_COLUMNS + 1
            return frozenset(key | {end} for key in inputs[0].upsert_keys)
        case Limit() | Sort() | TableSink() | ResultSink():
            return inputs[0].upsert_keys
        case Rank():
            return rank_keys(plan, inputs[0].upsert_keys)
        case Deduplicate():
            return frozenset({frozenset(plan.keys)})
        case Unnest():
            return unnest_keys(plan, inputs[0].upsert_keys)
        case LookupJoin():
            return lookup_keys(plan, inputs[0].upsert_keys)
        case WindowRank():
            return window_rank_keys(plan, inputs[0].upsert_keys)
        case Join():
            return joins.join_upsert_keys(plan, inputs[0], inputs[1])
        case IntervalJoin() | WindowJoin() | TemporalJoin():
            return timed_joins.timed_join_keys(plan, inputs[0], inputs[1])
        case SetOperation():
            return joins.set_operation_keys(plan, inputs[0], inputs[1])
        case _:
            # Branches of a union may share any key.
            return _NO_KEYS


def _kept_keys(projections: tuple[Expression, ...], keys: frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """A projection keeps the keys of which it passes every column, under each of the names it gives them."""
    positions: dict[int, list[int]] = {}
    for i, projection in enumerate(projections):
        column = kept_column(projection)
        if column is not None:
            positions.setdefault(column, []).append(i)
    found: set[UpsertKey] = set()
    for key in keys:
        if all(c in positions for c in key):
            variants = itertools.product(*(positions[c] for c in sorted(key)))
            found.update(frozenset(v) for v in itertools.islice(variants, _VARIANTS_MAX))
    return frozenset(found)


def _expanded_keys(plan: Expand, keys: frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """The keys that every projection passes in the same columns, with a column that tells the copies of a row apart."""
    marker = marker_column(plan)
    if marker is None:
        return _NO_KEYS
    positions: dict[int, int] = {}
    for i, column in enumerate(zip(*plan.projections, strict=True)):
        first = column[0]
        if isinstance(first, InputRef) and all(isinstance(e, InputRef) and e.index == first.index for e in column):
            positions.setdefault(first.index, i)
    kept = (key for key in keys if all(c in positions for c in key))
    return frozenset(frozenset(positions[c] for c in key) | {marker} for key in kept)


def marker_column(plan: Expand) -> int | None:
    """The column that holds another constant in each projection."""
    for i, column in enumerate(zip(*plan.projections, strict=True)):
        values = [e.value for e in column if isinstance(e, Literal)]
        if len(values) == len(plan.projections) == len(set(values)):
            return i
    return None


def _window_keys(node: WindowAggregate) -> frozenset[UpsertKey]:
    """Group keys and a window bound: each window of a key is put out once. CUMULATE's windows share their starts."""
    first_property = len(node.keys) + len(node.aggregates)
    window = node.window.window if isinstance(node.window, AttachedWindow) else node.window
    keys = range(len(node.keys))
    found: set[UpsertKey] = set()
    for i, which in enumerate(node.properties):
        if which.value == "window_start" and not _starts_differ(window):
            continue
        found.add(frozenset((*keys, first_property + i)))
    return frozenset(found)


def _starts_differ(window: Window) -> bool:
    return window.kind.value != "CUMULATE"


# -- constants, event time ----------------------------------------------------------------------------


def _constants(plan: Plan, inputs: tuple[Properties, ...]) -> frozenset[int]:
    match plan:
        case Calc():
            below = inputs[0].constants
            return frozenset(
                i
                for i, p in enumerate(plan.projections)
                if isinstance(p, Literal) or (isinstance(p, InputRef) and p.index in below)
            )
        case Limit() | Sort() | TableSink() | ResultSink() | WindowTableFunction():
            return inputs[0].constants
        case Unnest():
            return unnest_constants(plan, inputs[0].constants)
        case OverRank() | Rank() | Deduplicate() | WindowRank() | LookupJoin():
            # The rank, the table's columns come behind the input's.
            return inputs[0].constants
        case Join():
            return joins.join_constants(plan, inputs[0], inputs[1])
        case IntervalJoin() | WindowJoin() | TemporalJoin():
            return timed_joins.timed_join_constants(plan, inputs[0], inputs[1])
        case _:
            return frozenset()


def _has_watermark(plan: Plan, inputs: tuple[Properties, ...]) -> bool:
    if isinstance(plan, Scan):
        return plan.entry.watermark is not None
    return bool(inputs) and all(i.has_watermark for i in inputs)
