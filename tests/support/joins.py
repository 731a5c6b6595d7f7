"""Row-wise references for regular joins and set operations, after Flink's operators, and streams to feed them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from planner.ir.operators import JoinKind, SetOperationKind
from tests.support.aggregates import KINDS, Row

Change = tuple[str, Row]
ADDS = ("+I", "+U")


class Entry:
    """A stored row and how many rows of the other side match it."""

    def __init__(self, row: Row, matches: int) -> None:
        self.row, self.matches = row, matches


class ReferenceJoin:
    """After the pseudo code in Flink's StreamingJoinOperator and StreamingSemiAntiJoinOperator. Where one of them sends
    −U or +U from beside a padded row, this sends −D or +I."""

    def __init__(self, kind: JoinKind, matches: Callable[[Row, Row], bool], widths: tuple[int, int]) -> None:
        self.kind = kind
        self.widths = widths
        self.sides: tuple[list[Entry], list[Entry]] = ([], [])
        self._matches = matches

    def change(self, side: int, kind: str, row: Row) -> list[Change]:
        adds = kind in ADDS
        own, other = self.sides[side], self.sides[1 - side]
        found = [e for e in other if (self._matches(row, e.row) if side == 0 else self._matches(e.row, row))]
        if adds:
            own.append(Entry(row, len(found)))
        else:
            own.remove(next(entry for entry in own if entry.row == row))
        output: list[Change] = []
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
            if side == 0:
                return [(kind, row)] if bool(found) == (self.kind is JoinKind.SEMI) else []
            for entry in found:
                if entry.matches == (0 if adds else 1):
                    output.append(("+I" if adds == (self.kind is JoinKind.SEMI) else "-D", entry.row))
                entry.matches += 1 if adds else -1
            return output
        pads = (self.kind.is_left_outer, self.kind.is_right_outer)
        crossed: list[Change] = []
        if pads[1 - side]:
            for entry in found:
                if entry.matches == (0 if adds else 1):
                    crossed.append(("-D" if adds else "+I", self._pair(1 - side, entry.row, None)))
                entry.matches += 1 if adds else -1
        if self.kind is not JoinKind.INNER:
            kind = "+I" if adds else "-D"
        output += [(kind, self._pair(side, row, e.row)) for e in found]
        if not found and pads[side]:
            output.append((kind, self._pair(side, row, None)))
        return crossed + output if adds else output + crossed

    def _pair(self, side: int, own: Row, other: Row | None) -> Row:
        other = (None,) * self.widths[1 - side] if other is None else other
        return own + other if side == 0 else other + own

    def batch(self) -> Counter[Row]:
        """The join of what there is now."""
        result: Counter[Row] = Counter()
        left, right = ([e.row for e in side] for side in self.sides)
        for row in left:
            found = [other for other in right if self._matches(row, other)]
            if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
                result[row] += bool(found) == (self.kind is JoinKind.SEMI)
                continue
            result.update(row + other for other in found)
            if not found and self.kind.is_left_outer:
                result[row + (None,) * self.widths[1]] += 1
        if self.kind.is_right_outer:
            for other in right:
                if not any(self._matches(row, other) for row in left):
                    result[(None,) * self.widths[0] + other] += 1
        return +result


class ReferenceSetOperation:
    """Two counts per row."""

    def __init__(self, kind: SetOperationKind) -> None:
        self.kind = kind
        self.counts: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())

    def shown(self, row: Row) -> int:
        left, right = self.counts[0][row], self.counts[1][row]
        match self.kind:
            case SetOperationKind.INTERSECT:
                return int(left > 0 and right > 0)
            case SetOperationKind.INTERSECT_ALL:
                return min(left, right)
            case SetOperationKind.EXCEPT:
                return int(left > 0 and right == 0)
            case SetOperationKind.EXCEPT_ALL:
                return max(left - right, 0)

    def change(self, side: int, kind: str, row: Row) -> list[Change]:
        before = self.shown(row)
        self.counts[side][row] = max(0, self.counts[side][row] + (1 if kind in ADDS else -1))
        moved = self.shown(row) - before
        return [("+I" if moved > 0 else "-D", row)] * abs(moved)

    def batch(self) -> Counter[Row]:
        return +Counter({row: self.shown(row) for row in set(self.counts[0]) | set(self.counts[1])})


class Stream:
    """Changes of one input. Removals are of rows that are there. `unique`: columns under which one row is there at a
    time."""

    def __init__(
        self,
        rng: random.Random,
        row: Callable[[random.Random], Row],
        *,
        only_inserts: bool,
        unique: tuple[int, ...] | None,
    ) -> None:
        self._rng = rng
        self._row = row
        self._only_inserts = only_inserts
        self._unique = unique
        self._there: list[Row] = []

    def take(self, most: int) -> list[Change]:
        """Between one and `most` changes."""
        rng, changes = self._rng, []
        for _ in range(rng.randint(1, most)):
            row = self._row(rng)
            if not self._only_inserts and rng.random() < 0.45 and self._there:
                gone = rng.choice(self._there)
                self._there.remove(gone)
                changes.append((rng.choice(("-U", "-D")), gone))
            elif self._unique is None or self._key(row) not in {self._key(r) for r in self._there}:
                self._there.append(row)
                changes.append(("+I" if self._only_inserts else rng.choice(ADDS), row))
        return changes

    def _key(self, row: Row) -> Row:
        assert self._unique is not None
        return tuple(row[i] for i in self._unique)


def kind_codes(changes: list[Change]) -> list[int]:
    return [KINDS.index(kind) for kind, _ in changes]
