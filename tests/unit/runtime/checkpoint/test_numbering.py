"""Ids of checkpoints and what sinks have already made visible."""

from __future__ import annotations

from runtime.checkpoint.numbering import add_markers


def test_of_an_owner_that_several_tasks_have_seen_the_newest_marker_counts() -> None:
    """Another subtask may have read an owner's marker before its heir wrote the next one."""
    known: dict[str, dict[int, int]] = {}
    add_markers(known, {"sink": {0: 4, 1: 3}})
    add_markers(known, {"sink": {0: 3, 1: 5}, "other": {0: 1}})
    assert known == {"sink": {0: 4, 1: 5}, "other": {0: 1}}
