"""A Top-N against its row-wise reference: changes in random pieces, restored at another parallelism in between. What
is put out is compared change by change, or, for the net emission, batch by batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from planner.ir.operators import Emission
from planner.ir.ranks import Rank, RankFunction, SortKey
from planner.ir.types import ChangelogMode
from runtime.operators.registry import build_ordering
from tests.support.aggregates import Folded, Row, rows_of
from tests.support.ranks import SCHEMA, Change, Entry, RankReference, Subtasks, batch_of, cut, schema_of, shown

F = RankFunction
Output = list[tuple[str, Row]]


def rank_node(
    function: RankFunction = F.ROW_NUMBER,
    keys: tuple[int, ...] = (0,),
    order: tuple[SortKey, ...] = (SortKey(1),),
    first: int = 1,
    last: int = 2,
    puts_out_rank: bool = True,
    *,
    retracting: bool = False,
    upsert_key: tuple[int, ...] | None = None,
    types: Any = SCHEMA,
    **options: Any,
) -> Rank:
    mode = ChangelogMode.RETRACT if retracting else ChangelogMode.INSERT_ONLY
    return Rank(
        "operator",
        "rank",
        function,
        keys,
        order,
        first,
        last,
        puts_out_rank,
        mode,
        upsert_key,
        schema_of(types, ranked=puts_out_rank),
        **options,
    )


def difference(node: Rank, old: list[tuple[Entry, int]], new: list[tuple[Entry, int]]) -> Output:
    """The changes of one row from one ranking to another; their order among each other is checked by folding."""
    by_rank = node.function is F.ROW_NUMBER and (node.puts_out_rank or node.first == node.last)
    was = {rank if by_rank else id(entry): (entry, rank) for entry, rank in old}
    now = {rank if by_rank else id(entry): (entry, rank) for entry, rank in new}
    removed: Output = []
    added: Output = []
    for name in {**was, **now}:
        before, after = was.get(name), now.get(name)
        if before is not None and after is not None:
            if before[0] is after[0] and (before[1] == after[1] or not node.puts_out_rank):
                continue
            removed.append(("-U", row_of(node, *before)))
            added.append(("+U", row_of(node, *after)))
        elif before is not None:
            removed.append(("-D", row_of(node, *before)))
        elif after is not None:
            added.append(("+I", row_of(node, *after)))
    return removed + added


def row_of(node: Rank, entry: Entry, rank: int) -> Row:
    return shown((*entry.row, rank) if node.puts_out_rank else entry.row)


def every_step(node: Rank, reference: RankReference, kind: int, row: Row) -> list[Output]:
    """The outputs of one row: of a row that replaces another one two."""
    partition = reference.partition_of(row)
    before = reference.ranked(partition)
    steps = []
    if kind in (0, 2) and node.upsert_key is not None:
        reference.apply(3, row)
        between = reference.ranked(partition)
        steps.append(difference(node, before, between))
        before = between
    reference.apply(kind, row)
    steps.append(difference(node, before, reference.ranked(partition)))
    return steps


def check_run(
    rng: random.Random,
    folder: Path,
    node: Rank,
    changes: Sequence[Change],
    *,
    types: Any = SCHEMA,
    backend: str = "hashmap",
    rescales: int = 2,
    batch_sizes: Sequence[int] = (1, 4, 30, 300),
    look: Callable[[Subtasks], None] = lambda subtasks: None,
) -> None:
    """`look` is shown the operators after each batch."""
    retracting = node.input_changelog is not ChangelogMode.INSERT_ONLY
    reference = RankReference(node)
    subtasks = Subtasks(
        lambda context: build_ordering(node, context), folder, node.keys, 1 if not node.keys else 2, backend=backend
    )
    folded = Folded()
    for part in cut(rng, changes, batch_sizes):
        old = {partition: reference.ranked(partition) for partition in reference.partitions}
        expected: dict[Row, list[Output]] = {}
        for kind, row in part:
            unknown = reference.unknown
            steps = every_step(node, reference, kind, row)
            if kind in (0, 2):
                reference.unknown = unknown
            expected.setdefault(reference.partition_of(row), []).extend(steps)
        batch = batch_of(part, kinds=retracting, types=types)
        got = [(kind, shown(row)) for kind, row in rows_of(subtasks.process(batch))]
        folded.apply(got)
        for partition in {reference.partition_of(row) for _, row in part}:
            own = [change for change in got if reference.partition_of(change[1]) == partition]
            if node.emission is Emission.EVERY:
                for step in expected[partition]:
                    assert Counter(own[: len(step)]) == Counter(step), (node, partition, expected[partition], own)
                    own = own[len(step) :]
                assert not own
            else:
                wanted = net(node, old.get(partition, []), reference.ranked(partition))
                assert Counter(own) == Counter(wanted), (node, own, wanted)
        look(subtasks)
        if rng.random() < 0.1 and rescales:
            rescales -= 1
            subtasks.rescale(rng.choice((1, 2, 3)) if node.keys else 1)
    final = Counter(row_of(node, *ranked) for p in reference.partitions for ranked in reference.ranked(p))
    assert folded.rows == final
    if retracting:
        assert subtasks.count("numRetractionsWithoutState") == reference.unknown
        assert subtasks.count("numRowsStored") == reference.row_count
    subtasks.close()


def net(node: Rank, old: list[tuple[Entry, int]], new: list[tuple[Entry, int]]) -> Output:
    """What must be put out: by rank, by upsert key or by equal rows."""
    by_rank = node.function is F.ROW_NUMBER and (node.puts_out_rank or node.first == node.last)
    updates = by_rank or node.puts_out_rank

    def named(ranking: list[tuple[Entry, int]]) -> dict[Any, Row]:
        names: dict[Any, Row] = {}
        copies: Counter[Any] = Counter()
        for entry, rank in ranking:
            columns = node.upsert_key if node.upsert_key is not None else range(len(entry.row))
            name: Any = rank if by_rank else shown([entry.row[i] for i in columns])
            names[name, copies[name]] = row_of(node, entry, rank)
            copies[name] += 1
        return names

    was, now = named(old), named(new)
    output: Output = []
    for name in {**was, **now}:
        if was.get(name) == now.get(name):
            continue
        both = updates and name in was and name in now
        output += [("-U" if both else "-D", was[name])] if name in was else []
        output += [("+U" if both else "+I", now[name])] if name in now else []
    return output
