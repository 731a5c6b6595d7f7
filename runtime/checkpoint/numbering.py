"""Which checkpoint ids a start of a job may use, given what its sinks have already made visible. Pure."""

from __future__ import annotations


def first_checkpoint_id(reserved_id: int, restored_id: int, highest_marker: int) -> int:
    """Ids grow over all restores, also over what other jobs have committed under the same namespace: an epoch below a
    marker would look committed and be lost. `reserved_id`: the job's next id as its records have it."""
    return max(reserved_id, restored_id + 1, highest_marker + 1)


def is_ahead(highest_marker: int, restored_id: int, marker_floor: int | None) -> bool:
    """Output beyond the checkpoint to be restored is visible already and would be repeated. Markers up to
    `marker_floor` were left by earlier jobs under the same namespace."""
    return highest_marker > max(restored_id, marker_floor or 0)


def add_markers(known: dict[str, dict[int, int]], found: dict[str, dict[int, int]]) -> None:
    """Markers by sink uid and owner that one more task has found; of an owner that several tasks saw the newest."""
    for uid, markers in found.items():
        of_sink = known.setdefault(uid, {})
        for owner, checkpoint_id in markers.items():
            of_sink[owner] = max(checkpoint_id, of_sink.get(owner, checkpoint_id))
