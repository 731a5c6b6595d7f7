"""What consumers need of a changelog, from the sinks backwards, and what is sent therefore.

* −U is left out only if every consumer takes upserts on a known upsert key and no filter on the way reads a column
  outside that key: over `SELECT k, COUNT(*) AS c … GROUP BY k`, a sink of `WHERE c < 3` must take the row away when
  c reaches 3, and only the −U tells it so.
* An updating operator answers *every* change wherever a reader can see the changelog, and the *net* change of a batch
  where every path ends in an upsert sink or mini-batch is on.
"""

from __future__ import annotations

import msgspec

from planner.catalog import ComputedColumn
from planner.errors import SqlError, SqlState, not_supported
from planner.ir.expressions import Expression
from planner.ir.operators import ChangelogMode, ConflictAction, Emission
from planner.logical.expressions import is_deterministic
from planner.logical.nodes import (
    AttachedWindow,
    Calc,
    ChangelogNormalize,
    Deduplicate,
    GroupAggregate,
    IntervalJoin,
    Join,
    LookupJoin,
    Plan,
    Rank,
    ResultSink,
    Scan,
    SetOperation,
    Sort,
    TableSink,
    TemporalJoin,
    Unnest,
    WindowAggregate,
    WindowJoin,
    inputs_of,
)
from planner.plan_text import node_text
from planner.settings import NonDeterministicUpdate, PlannerSettings, RuntimeMode, UpsertMaterialize
from planner.streaming.derive import Derivation, merged
from planner.streaming.lookups import is_repeatable, lookup_changelog
from planner.streaming.properties import Changelog, Deletes, Properties, StateBound, UpsertKey
from planner.streaming.timed_joins import changing_side, refusal_of_changes, timed_join_changelog
from planner.streaming.unnest import unnest_changelog
from planner.streaming.upserts import sink_key, upserts_suffice

_Producers = Scan | ChangelogNormalize | GroupAggregate | Rank | Deduplicate


class SinkPlan(msgspec.Struct, frozen=True):
    """How a sink takes its input. `key`: positions of its primary key. `materializer`: what is kept per primary key
    before it, None without one. `upsert_key` is the input's, for the materialiser. `drops_update_before`: −U is of no
    use to it, in case it comes all the same."""

    key: tuple[int, ...]
    takes_upserts: bool
    drops_update_before: bool
    materializer: ConflictAction | None
    upsert_key: tuple[int, ...]


class Streaming:
    """The stream properties of all trees of one job. Shared sub-trees are one object; their consumers' needs add up."""

    def __init__(self, sinks: tuple[Plan, ...], settings: PlannerSettings) -> None:
        self._settings = settings
        self._is_batch = settings.runtime_mode is RuntimeMode.BATCH
        self._derivation = Derivation(self._is_batch, settings.state_ttl_ms)
        self._needs_update_before: set[int] = set()
        self._shows_changes: set[int] = set()
        self._sinks: dict[int, SinkPlan] = {}
        self._properties: dict[int, Properties] = {}
        order = _inputs_first(sinks)
        for plan in order:
            self._check(plan)
        for plan in reversed(order):
            self._demand(plan)
        for plan in order:
            self._settle(plan)
        self.warnings = tuple(warning for plan in order for warning in self._unrepeatable(plan))
        """Of EXPLAIN: what may be wrong, and is allowed by default as in Flink."""
        if self.warnings and settings.non_deterministic_update is NonDeterministicUpdate.TRY_RESOLVE:
            raise SqlError(
                SqlState.FEATURE_NOT_SUPPORTED,
                self.warnings[0],
                hint="SET 'table.optimizer.non-deterministic-update.strategy' = 'IGNORE' to run it all the same.",
            )

    def of(self, plan: Plan) -> Properties:
        """What the node really gives."""
        return self._properties[id(plan)]

    def sink(self, plan: TableSink) -> SinkPlan:
        return self._sinks[id(plan)]

    def input_changelog(self, plan: Plan) -> Changelog:
        """What enters a node of one input."""
        return self.of(inputs_of(plan)[0]).changelog

    # -- refusals -----------------------------------------------------------------------------------

    def _check(self, plan: Plan) -> None:
        """Raises SqlError for a node that cannot be right over what it would get."""
        changes = [self._derivation.of(i).changelog for i in inputs_of(plan)]
        match plan:
            case Scan() if plan.capabilities.source_changelog is not ChangelogMode.INSERT_ONLY:
                self._check_changelog_source(plan)
            case WindowAggregate() if not changes[0].is_insert_only and _is_processing_time(plan):
                # A row would be taken back in another window than the one it was counted in.
                raise not_supported(
                    f"a processing-time window aggregation over {changes[0].changes} changes, which "
                    f"{self._culprit(plan.input)} makes",
                    hint="Use windows of event time: each row is taken back in the window of its own time column.",
                )
            case Sort() if not changes[0].is_insert_only:
                message = f"ORDER BY over {changes[0].changes} changes, which {self._culprit(plan.input)} makes"
                raise _at(
                    plan, SqlState.FEATURE_NOT_SUPPORTED, message, "With LIMIT n the first n rows are kept up to date."
                )
            case IntervalJoin() | WindowJoin():
                side = changing_side(plan, changes)
                if side is not None:
                    given = self._derivation.of(side).changelog.changes
                    raise refusal_of_changes(plan, given, self._culprit(side))
            case TableSink():
                self._sinks[id(plan)] = self._sink_plan(plan)
            case _:
                pass

    def _check_changelog_source(self, scan: Scan) -> None:
        name, mode = str(scan.path), scan.capabilities.source_changelog
        if self._is_batch:
            raise SqlError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"the source '{name}' gives changes and cannot be read in batch mode",
                hint="SET 'execution.runtime-mode' = 'streaming'.",
            )
        if scan.entry.primary_key is None and mode is ChangelogMode.UPSERT:
            raise SqlError(
                SqlState.INVALID_DEFINITION,
                f"the source '{name}' gives updates without their old rows, and needs a primary key to find them",
                hint="Declare PRIMARY KEY (…) NOT ENFORCED.",
            )
        if scan.entry.primary_key is None and self._settings.has_duplicate_events:
            raise SqlError(
                SqlState.INVALID_DEFINITION,
                f"'table.exec.source.cdc-events-duplicate' needs a primary key, and the source '{name}' has none",
                hint="Declare PRIMARY KEY (…) NOT ENFORCED.",
            )

    def _unrepeatable(self, plan: Plan) -> list[str]:
        """What is said of columns that are another value each time, in changes that take rows back by their values."""
        condition = plan.condition if isinstance(plan, Calc | Join) else None
        takes_back = any(not self.of(i).changelog.is_insert_only for i in inputs_of(plan))
        if condition is not None and takes_back and not is_deterministic(condition):
            kind = type(plan).__name__
            because = "so the change that takes a row back may not find it"
            return [f"a condition of {kind} gives another answer each time it is asked, {because}"]
        is_needed = id(plan) in self._needs_update_before
        if isinstance(plan, LookupJoin) and takes_back and not is_repeatable(plan, is_needed):
            table = plan.table.path.name
            why = "may have changed between a row and the change that takes it back, which then does not find it"
            return [f"`{table}` is looked up for changes, and {why}"]
        if self.of(plan).changelog.is_insert_only or id(plan) not in self._needs_update_before:
            return []
        computed: list[tuple[str, Expression]] = []
        if isinstance(plan, Calc):
            computed = [(c.name, p) for c, p in zip(plan.columns, plan.projections, strict=True)]
        elif isinstance(plan, Scan):
            columns = (plan.entry.columns[i] for i in plan.kept)
            computed = [(c.name, c.expression) for c in columns if isinstance(c, ComputedColumn)]
        return [
            f"the column `{name}` is another value each time it is computed, so the change that takes a row back "
            "does not show the row it takes"
            for name, expression in computed
            if not is_deterministic(expression)
        ]

    def _culprit(self, plan: Plan) -> str:
        """The node that makes the changes that reach `plan`, as EXPLAIN shows it."""
        if not isinstance(plan, _Producers):
            for below in inputs_of(plan):
                if not self._derivation.of(below).changelog.is_insert_only:
                    return self._culprit(below)
        return node_text(plan)

    # -- sinks --------------------------------------------------------------------------------------

    def _sink_plan(self, sink: TableSink) -> SinkPlan:
        given = self._derivation.of(sink.input)
        mode = sink.capabilities.sink_changelog
        if mode is ChangelogMode.INSERT_ONLY and not given.changelog.is_insert_only:
            raise self._append_only(sink, given.changelog)
        key = sink_key(sink)
        takes_upserts = mode is ChangelogMode.UPSERT
        if takes_upserts and not key:
            raise _at(
                sink,
                SqlState.INVALID_DEFINITION,
                f"table sink '{sink.path}' takes updates by its primary key, and the table has none",
                "Declare PRIMARY KEY (…) NOT ENFORCED.",
            )
        known = _smallest(given.upsert_keys, frozenset(key) | given.constants)
        materializer = self._materializer(sink, given, known is None) if takes_upserts else None
        if sink.conflict is not None and not takes_upserts:
            raise _at(
                sink,
                SqlState.WRONG_OBJECT_TYPE,
                f"ON CONFLICT needs a sink that takes updates by its primary key, and '{sink.path}' does not",
            )
        upsert_key = _smallest(given.upsert_keys, None) or frozenset()
        drops = takes_upserts and materializer is None and upserts_suffice(sink.input, frozenset(key), self._derivation)
        return SinkPlan(key, takes_upserts, drops, materializer, tuple(sorted(upsert_key)))

    def _materializer(self, sink: TableSink, given: Properties, is_foreign: bool) -> ConflictAction | None:
        """`is_foreign`: no upsert key of the input lies within the primary key, so several rows may claim one."""
        is_updating = not given.changelog.is_insert_only
        if is_foreign and is_updating and sink.conflict is None and self._settings.requires_on_conflict:
            raise _at(
                sink,
                SqlState.INVALID_DEFINITION,
                f"the query's upsert key is not the primary key of table sink '{sink.path}', and the INSERT does not "
                "say what happens when rows of different keys meet",
                "Add ON CONFLICT DO DEDUPLICATE, ERROR or NOTHING.",
            )
        if sink.conflict in (ConflictAction.ERROR, ConflictAction.NOTHING):
            return sink.conflict if is_foreign else None
        match self._settings.upsert_materialize:
            case UpsertMaterialize.NONE:
                return None
            case UpsertMaterialize.FORCE:
                return ConflictAction.DEDUPLICATE
            case UpsertMaterialize.AUTO:
                return ConflictAction.DEDUPLICATE if is_foreign and is_updating else None

    def _append_only(self, sink: TableSink, given: Changelog) -> SqlError:
        return _at(
            sink,
            SqlState.WRONG_OBJECT_TYPE,
            f"table sink '{sink.path}' doesn't support consuming {given.changes} changes, "
            f"which is produced by node {self._culprit(sink.input)}",
            "Write to a table that takes updates, such as 'upsert-kafka' with a primary key, or aggregate in windows, "
            "whose results are final.",
        )

    # -- demand -------------------------------------------------------------------------------------

    def _demand(self, plan: Plan) -> None:
        """Passes what is needed of the node's output on to its inputs; consumers have been visited."""
        me = id(plan)
        needs, shows = me in self._needs_update_before, me in self._shows_changes
        if isinstance(plan, TableSink):
            own = self._sinks[me]
            needs, shows = not own.drops_update_before, not own.takes_upserts
        for side, below in enumerate(inputs_of(plan)):
            side_needs, side_shows = asked_of_input(plan, side, needs, shows)
            if side_needs:
                self._needs_update_before.add(id(below))
            if side_shows:
                self._shows_changes.add(id(below))

    def _settle(self, plan: Plan) -> None:
        properties = self._derivation.of(plan)
        emission: Emission | None = None
        match plan:
            case GroupAggregate() | ChangelogNormalize() | Rank() | Deduplicate():
                changelog = properties.changelog
                if changelog.has_updates:
                    is_needed = id(plan) in self._needs_update_before
                    changelog = msgspec.structs.replace(changelog, has_update_before=is_needed)
                if isinstance(plan, GroupAggregate | Rank | Deduplicate):
                    emission = self._emission(plan)
            case Scan() | Join() | SetOperation():
                changelog = properties.changelog
            case TemporalJoin():
                changelog = timed_join_changelog(plan, self.of(plan.left).changelog)
            case TableSink():
                changelog = self._sunk(plan, self.of(plan.input).changelog)
            case _:
                changelog = properties.changelog
                if not changelog.is_insert_only:
                    changelog = merged(tuple(self.of(i).changelog for i in inputs_of(plan)))
                if isinstance(plan, Unnest):
                    changelog = unnest_changelog(changelog)
                elif isinstance(plan, LookupJoin):
                    changelog = lookup_changelog(plan, changelog)
        state = properties.state
        if isinstance(plan, TableSink) and self._sinks[id(plan)].materializer is not None:
            state = StateBound.BY_TTL if self._settings.state_ttl_ms else StateBound.BY_KEYS
        self._properties[id(plan)] = msgspec.structs.replace(
            properties, changelog=changelog, emission=emission, state=state
        )

    def _emission(self, plan: Plan) -> Emission:
        if self._is_batch or self._settings.mini_batch is not None:
            return Emission.NET
        return Emission.EVERY if id(plan) in self._shows_changes else Emission.NET

    def _sunk(self, sink: TableSink, given: Changelog) -> Changelog:
        """What reaches the connector."""
        own = self._sinks[id(sink)]
        if own.materializer is not None:
            return Changelog(has_updates=True, has_update_before=False, deletes=Deletes.FULL)
        if own.drops_update_before and given.has_updates:
            return msgspec.structs.replace(given, has_update_before=False)
        return given


def asked_of_input(plan: Plan, side: int, needs: bool, shows: bool) -> tuple[bool, bool]:
    """What a node of which −U (`needs`) and each single change (`shows`) are asked, asks of its left (0) or right (1)
    input."""
    match plan:
        case ResultSink():
            return True, True
        case GroupAggregate() | WindowAggregate() | Rank() | Join() | SetOperation():
            # Of a join, too: between an update's old row and its new one the other side may change.
            return True, shows
        case ChangelogNormalize():
            return False, shows
        case TemporalJoin() if side == 1:
            # The versions end each other: an old row would blank the version it is of, and each version counts.
            return False, True
        case _:
            return needs, shows


def _is_processing_time(plan: WindowAggregate) -> bool:
    window = plan.window.window if isinstance(plan.window, AttachedWindow) else plan.window
    return window.time_type.is_proctime


def _inputs_first(sinks: tuple[Plan, ...]) -> list[Plan]:
    """Every node once, inputs before consumers."""
    seen: set[int] = set()
    order: list[Plan] = []

    def visit(plan: Plan) -> None:
        if id(plan) in seen:
            return
        seen.add(id(plan))
        for below in inputs_of(plan):
            visit(below)
        order.append(plan)

    for sink in sinks:
        visit(sink)
    return order


def _smallest(keys: frozenset[UpsertKey], within: UpsertKey | None) -> UpsertKey | None:
    """The key of the fewest columns, the leftmost among equals; only such as lie `within`, if given."""
    fitting = [key for key in keys if within is None or key <= within]
    return min(fitting, key=lambda key: (len(key), sorted(key)), default=None)


def _at(plan: TableSink | Sort, sqlstate: str, message: str, hint: str = "") -> SqlError:
    """An error at the table's name in the INSERT, at the ORDER BY."""
    if plan.place is None:
        return SqlError(sqlstate, message, hint=hint)
    return SqlError(sqlstate, message, span=plan.place.span, hint=hint, text=plan.place.script)
