"""State files of several old subtasks as one list for a new one, each file once. Pure.

Every old subtask names its files in the order in which they are applied. Subtasks that were once one name the same
files, each with its own key groups, in the same order. So the lists are merged in an order that agrees with all of
them, and handles of one file whose key groups join become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import msgspec

from runtime.checkpoint.snapshot import SegmentHandle


def merged(chains: Sequence[Sequence[SegmentHandle]]) -> tuple[SegmentHandle, ...]:
    """`chains`: of each old subtask, in its order."""
    by_path: dict[str, list[SegmentHandle]] = {}
    for handle in (handle for chain in chains for handle in chain):
        by_path.setdefault(handle.path, []).append(handle)
    order = _order(chains)
    return tuple(joined for path in order for joined in _joined(by_path[path]))


def _order(chains: Sequence[Sequence[SegmentHandle]]) -> list[str]:
    """Of all files; those that no chain puts in order come by checkpoint: the small, young files of all subtasks, which
    can be merged then, stand at the end."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    priority: dict[str, tuple[int, int]] = {}
    for chain in chains:
        before: str | None = None
        for handle in chain:
            priority.setdefault(handle.path, (handle.checkpoint_id, len(priority)))
            if before is None or before == handle.path:
                sorter.add(handle.path)
            else:
                sorter.add(handle.path, before)
            before = handle.path
    try:
        sorter.prepare()
    except CycleError as error:
        raise AssertionError(f"subtasks disagree on the order of their state files: {error.args[1]}") from error
    order: list[str] = []
    ready: list[str] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=priority.__getitem__, reverse=True)
        order.append(ready.pop())
        sorter.done(order[-1])
    return order


def _joined(handles: list[SegmentHandle]) -> list[SegmentHandle]:
    """Handles of one file: neighbouring key groups together. A gap stays: what the file holds there is out of date."""
    found: list[SegmentHandle] = []
    for handle in sorted(handles, key=lambda h: h.key_group_first):
        if found and handle.key_group_first <= found[-1].key_group_last + 1:
            last = max(found[-1].key_group_last, handle.key_group_last)
            found[-1] = msgspec.structs.replace(found[-1], key_group_last=last)
        else:
            found.append(handle)
    return found
