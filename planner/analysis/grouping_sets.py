"""GROUP BY's items as keys and grouping sets: `a, ROLLUP (b, c)` is three sets over the keys a, b, c."""

from __future__ import annotations

from itertools import combinations, product

import msgspec
from sqlglot import exp

from planner.analysis.expressions import ExpressionBinder
from planner.analysis.names import without_aliases
from planner.analysis.scope import Scope
from planner.errors import Span, SqlError, SqlState
from planner.ir.expressions import Expression, InputRef, Literal, canonical
from planner.sql import nodes
from planner.sql.nodes import span_of

SETS_MAX = 1024
_KEYS_MAX = 50

_Set = frozenset[int]


class GroupingSets(msgspec.Struct, frozen=True):
    """`sets` are indexes of `keys`, in the order they are put out; a repeated set counts again.

    One set without keys is an aggregation over everything.
    """

    keys: tuple[Expression, ...]
    names: tuple[str, ...]
    sets: tuple[_Set, ...]

    @property
    def is_single(self) -> bool:
        return len(self.sets) == 1

    def is_in_every_set(self, key: int) -> bool:
        return all(key in s for s in self.sets)

    def grouping_ids(self) -> tuple[int, ...]:
        """A number per set: bit i from the left of `keys` is 1 where the key is not in the set (Flink's grouping id);
        above the keys' bits stands how often the set came before, so that repeated sets stay apart."""
        width = len(self.keys)
        seen: dict[_Set, int] = {}
        ids: list[int] = []
        for s in self.sets:
            repeated = seen.get(s, 0)
            seen[s] = repeated + 1
            ids.append(repeated << width | self.grouping_value(s, tuple(range(width))))
        return tuple(ids)

    def repetitions(self) -> tuple[int, ...]:
        """GROUP_ID() of each set: how often it came before."""
        return tuple(number >> len(self.keys) for number in self.grouping_ids())

    @staticmethod
    def grouping_value(set_: _Set, keys: tuple[int, ...]) -> int:
        """GROUPING(keys): the first key is the most significant bit, 1 where it is not in the set."""
        value = 0
        for key in keys:
            value = value << 1 | (key not in set_)
        return value


class _Reader:
    """Collects the distinct keys while it goes through the items."""

    def __init__(self, scope: Scope, script: str, aliases: frozenset[str]) -> None:
        self.binder = ExpressionBinder(scope, script, "GROUP BY")
        self.aliases = aliases
        self.keys: dict[str, tuple[int, str, Expression]] = {}

    def key(self, node: exp.Expr) -> int:
        with without_aliases("GROUP BY", self.aliases, self.binder.script):
            bound = self.binder.bind(node)
        if isinstance(bound, Literal):
            message = "GROUP BY takes expressions, not positions or constants"
            raise SqlError(SqlState.GROUPING_ERROR, message, span=span_of(node))
        text = canonical(bound)
        if text not in self.keys:
            index = len(self.keys)
            self.keys[text] = (index, self._name(node, bound, index), bound)
        return self.keys[text][0]

    def _name(self, node: exp.Expr, bound: Expression, index: int) -> str:
        if isinstance(node, nodes.NamePath):
            return str(node.args["expressions"][-1].this)
        return self.binder.scope.columns[bound.index].name if isinstance(bound, InputRef) else f"$k{index}"

    def unit(self, node: exp.Expr) -> _Set:
        """An expression or `(a, b)`."""
        if isinstance(node, nodes.GroupingElement):
            return frozenset(self.key(e) for e in node.args["expressions"])
        return frozenset((self.key(node),))

    def sets(self, node: exp.Expr) -> list[_Set]:
        """The grouping sets that one item stands for."""
        if not isinstance(node, nodes.GroupingElement) or node.args["kind"] == "SET":
            return [self.unit(node)]
        items: list[exp.Expr] = node.args["expressions"]
        if node.args["kind"] == "SETS":
            return [s for item in items for s in self.sets(item)]
        units = [self.unit(item) for item in items]
        if node.args["kind"] == "ROLLUP":
            return [_union(units[:length]) for length in range(len(units), -1, -1)]
        if 2 ** len(units) > SETS_MAX:
            raise _too_many(span_of(node))
        return [_union(chosen) for length in range(len(units), -1, -1) for chosen in combinations(units, length)]


def _union(units: list[_Set] | tuple[_Set, ...]) -> _Set:
    return frozenset().union(*units)


def _too_many(span: Span) -> SqlError:
    return SqlError(SqlState.TOO_COMPLEX, f"GROUP BY makes more than {SETS_MAX} grouping sets", span=span)


def read_grouping_sets(items: list[exp.Expr], scope: Scope, script: str, aliases: frozenset[str]) -> GroupingSets:
    """Several items of GROUP BY multiply: each set of one with each of the others."""
    reader = _Reader(scope, script, aliases)
    listed: list[list[_Set]] = []
    count = 1
    for item in items:
        listed.append(reader.sets(item))
        count *= len(listed[-1])
        if count > SETS_MAX:
            raise _too_many(span_of(item))
    keys = reader.keys.values()
    sets = tuple(_union(chosen) for chosen in product(*listed))
    if len(sets) > 1 and len(keys) > _KEYS_MAX:
        message = f"grouping sets over more than {_KEYS_MAX} keys"
        raise SqlError(SqlState.TOO_COMPLEX, message, span=span_of(items[0]))
    return GroupingSets(tuple(k[2] for k in keys), tuple(k[1] for k in keys), sets)
