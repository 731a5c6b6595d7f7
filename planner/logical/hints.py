"""Hints behind SELECT: STATE_TTL and LOOKUP say something to the plan; those for batch joins are checked and no more.

A hint names tables of FROM as they are called there. What nothing in this SELECT can follow is refused: a hint that
silently does nothing is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from planner.analysis.scope import Scope
from planner.errors import Span, SqlError, SqlState, did_you_mean, not_supported
from planner.logical.nodes import Join, Plan, inputs_of
from planner.settings import parse_duration_ms
from planner.sql.statements import Hint, OptionItem

_BATCH_JOINS = ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP")
"""How a batch job joins; streaming ignores them, here as in Flink."""
_KNOWN = ("STATE_TTL", "LOOKUP", *_BATCH_JOINS)
_BOOLEANS = ("true", "false")
_RETRY = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")


class SelectHints:
    """The hints of one SELECT; it notes which of them its FROM has followed. Raises SqlError for one that is unknown or
    badly written."""

    def __init__(self, hints: tuple[Hint, ...]) -> None:
        self._joins: list[Hint] = []
        self._ttl: dict[str, tuple[int, OptionItem]] = {}
        self._lookups: dict[str, Hint] = {}
        self._followed: set[str] = set()
        self._from = Scope(())
        for hint in hints:
            match hint.name:
                case "STATE_TTL":
                    self._take_ttl(hint)
                case "LOOKUP":
                    table = _lookup_table(hint)
                    if table.value in self._lookups:
                        message = f"two LOOKUP hints for `{table.value}`"
                        raise SqlError(SqlState.SYNTAX_ERROR, message, span=table.span)
                    self._lookups[table.value] = hint
                case _ if hint.name in _BATCH_JOINS:
                    self._joins.append(hint)
                case _:
                    known = f"Hints are {', '.join(_KNOWN)} behind SELECT, and OPTIONS behind a table."
                    raise not_supported(f"the hint {hint.name}", hint.span, known)

    def _take_ttl(self, hint: Hint) -> None:
        _options_only(hint, "STATE_TTL('table' = '1 d')")
        for item in hint.options:
            if item.key in self._ttl:
                raise SqlError(SqlState.SYNTAX_ERROR, f"STATE_TTL names `{item.key}` twice", span=item.span)
            self._ttl[item.key] = (_at(item, parse_duration_ms, "STATE_TTL"), item)

    # -- FROM ---------------------------------------------------------------------------------------

    def on_join(self, plan: Plan, left: Scope, right: Scope) -> Plan:
        """The join with the times to live of the tables that it joins directly."""
        if not isinstance(plan, Join):
            return plan
        return msgspec.structs.replace(plan, left_ttl_ms=self._side_ttl(left), right_ttl_ms=self._side_ttl(right))

    def _side_ttl(self, side: Scope) -> int | None:
        name = _only_name(side)
        if name not in self._ttl:
            return None
        self._followed.add(name)
        return self._ttl[name][0]

    def lookup_of(self, table: Scope) -> tuple[tuple[str, str], ...]:
        """What LOOKUP says of the table that is read FOR SYSTEM_TIME AS OF."""
        name = _only_name(table)
        hint = self._lookups.get(name)
        if hint is None:
            return ()
        self._followed.add(f"LOOKUP {name}")
        return tuple((item.key, item.value) for item in hint.options if item.key != "table")

    def ttl_of_only_table(self) -> int | None:
        """The time to live of the one table of FROM, for what aggregates it."""
        return self._side_ttl(self._from)

    # -- checks -------------------------------------------------------------------------------------

    def see(self, from_: Scope) -> None:
        """FROM is built: every table named must be in it, and every look-up have been found."""
        self._from = from_
        for hint in self._joins:
            for name in hint.names:
                self._check_name(hint.name, name.parts[-1], name.span)
        for table, (_, item) in self._ttl.items():
            self._check_name("STATE_TTL", table, item.span)
        for table, hint in self._lookups.items():
            self._check_name("LOOKUP", table, hint.span)
            if f"LOOKUP {table}" not in self._followed:
                message = f"LOOKUP for `{table}`, which is not looked up"
                todo = f"Join it as of a processing time: JOIN {table} FOR SYSTEM_TIME AS OF …"
                raise not_supported(message, hint.span, todo)

    def see_settled(self, before: Plan, after: Plan) -> None:
        """What its joins have become is known: one that goes by time keeps rows as long as its times say."""
        if _sides_with_ttl(after) < _sides_with_ttl(before):
            message = "STATE_TTL for a join that keeps rows as long as their times and the watermark say"
            raise not_supported(message, self.ttl_span, "It is for regular joins. Leave the hint out.")

    def check(self) -> None:
        """The SELECT is planned: every time to live must have found its state."""
        for table, (_, item) in self._ttl.items():
            if table not in self._followed:
                message = f"STATE_TTL for `{table}`, of which this SELECT keeps no state"
                raise not_supported(message, item.span, "It is for tables that a SELECT joins, or groups alone.")

    def _check_name(self, hint: str, name: str, span: Span) -> None:
        names = self._from.relation_names
        if name not in names:
            message = f"{hint} names `{name}`, which is not in FROM"
            raise SqlError(SqlState.UNDEFINED_TABLE, message, span=span, hint=did_you_mean(name, names))

    @property
    def ttl_span(self) -> Span | None:
        """Of the first table that STATE_TTL names."""
        return next((item.span for _, item in self._ttl.values()), None)


def _sides_with_ttl(plan: Plan) -> int:
    own = 0
    if isinstance(plan, Join):
        own = (plan.left_ttl_ms is not None) + (plan.right_ttl_ms is not None)
    return own + sum(_sides_with_ttl(below) for below in inputs_of(plan))


def _only_name(scope: Scope) -> str:
    names = scope.relation_names
    return names[0] if len(scope.relations) == 1 and names else ""


def _options_only(hint: Hint, example: str) -> None:
    if hint.names or not hint.options:
        message = f"{hint.name} takes options in quotes"
        raise SqlError(SqlState.SYNTAX_ERROR, message, span=hint.span, hint=f"Write {example}.")


def _at(item: OptionItem, parse: Callable[[str, str], int], key: str) -> int:
    try:
        return parse(key, item.value)
    except SqlError as e:
        e.span = item.span
        raise


def _lookup_table(hint: Hint) -> OptionItem:
    """Checks a LOOKUP hint, whose options are Flink's, and gives the one that names the table."""
    _options_only(hint, "LOOKUP('table' = 'name', 'async' = 'true')")
    given = {item.key: item for item in hint.options}
    for item in hint.options:
        _check_lookup_option(item)
    table = given.get("table")
    if table is None:
        raise SqlError(SqlState.INVALID_PARAMETER, "LOOKUP without 'table'", span=hint.span, hint="Name the table.")
    missing = [key for key in _RETRY if key not in given]
    if missing and len(missing) < len(_RETRY):
        first = next(item for item in hint.options if item.key in _RETRY)
        message = f"'{first.key}' needs {', '.join(repr(key) for key in missing)} beside it"
        raise SqlError(SqlState.INVALID_PARAMETER, message, span=first.span)
    return table


def _check_lookup_option(item: OptionItem) -> None:
    words = {
        "async": _BOOLEANS,
        "shuffle": _BOOLEANS,
        "output-mode": ("ordered", "allow_unordered"),
        "retry-predicate": ("lookup_miss",),
        "retry-strategy": ("fixed_delay",),
    }
    match item.key:
        case "table":
            return
        case "capacity" | "max-attempts":
            if not item.value.isdigit() or int(item.value) == 0:
                raise _bad_value(item, "a number from 1")
        case "timeout" | "fixed-delay":
            _at(item, parse_duration_ms, item.key)
        case key if key in words:
            if item.value.lower() not in words[key]:
                raise _bad_value(item, " or ".join(f"'{word}'" for word in words[key]))
        case key:
            known = ["table", *words, "capacity", "max-attempts", "timeout", "fixed-delay"]
            message = f"LOOKUP has no option '{key}'"
            raise SqlError(SqlState.INVALID_PARAMETER, message, span=item.span, hint=did_you_mean(key, known))


def _bad_value(item: OptionItem, expected: str) -> SqlError:
    message = f"'{item.key}' = '{item.value}': expected {expected}"
    return SqlError(SqlState.INVALID_PARAMETER, message, span=item.span)
