"""Which checkpoint a start of a job restores: the latest committed one; if that is damaged, the youngest retained one
before it that is whole.

Going back is decided here as far as files tell. Whether a sink has committed what lies between is told by its markers
when the tasks have recovered: then the job goes on only if its user accepts repeated output. A store that does not
answer is not a damaged checkpoint: that is raised as it is, and the start is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.store import CheckpointStore, DamagedCheckpointError
from runtime.ids import JobId
from runtime.job_settings import ACCEPT_DUPLICATES, RECOVERY_PATH

_log = logging.getLogger(__name__)

VERIFIED_BYTES_MAX = 64 << 20
"""A checkpoint up to this size is read as a whole before any task runs; the files of a larger one are compared with
their checksums by the tasks that read them."""


class RetainedCheckpoint(msgspec.Struct, frozen=True):
    pointer: CheckpointPointer
    manifest: CheckpointManifest


class RestoreChoice(msgspec.Struct, frozen=True):
    """`earlier`: whole ones before it, oldest first. `damage`: what is wrong with the newer ones; empty = nothing."""

    chosen: RetainedCheckpoint
    earlier: tuple[RetainedCheckpoint, ...] = ()
    damage: str = ""


def choose_checkpoint(
    store: CheckpointStore, job_id: JobId, pointer: CheckpointPointer, suspects: Iterable[str] = ()
) -> RestoreChoice:
    """`suspects`: files that tasks have found damaged. Raises RestoreRefusedError when no whole checkpoint is left, or
    the damaged one is the job's end; OSError when the store cannot be read."""
    damages: list[str] = []
    whole: list[RetainedCheckpoint] = []
    for candidate in (pointer, *reversed(pointer.earlier)):
        try:
            manifest = _read_whole(store, job_id, candidate, frozenset(suspects), thorough=not whole)
        except DamagedCheckpointError as error:
            has_been_removed = candidate is not pointer and error.is_missing and error.damaged_file == candidate.path
            if not whole and not has_been_removed:
                damages.append(f"checkpoint {candidate.checkpoint_id} is damaged: {error}")
            if candidate.stopped_with:
                raise _end_is_damaged(damages[-1], candidate.stopped_with) from error
        else:
            whole.append(RetainedCheckpoint(candidate, manifest))
    if not whole:
        raise RestoreRefusedError(
            "; ".join(damages),
            hint="No earlier checkpoint of the job is retained. Bring the file back and submit the job again with "
            f"SET '{RECOVERY_PATH}' = '{store.location(job_id, pointer)}', or start it from a savepoint.",
        )
    if damages:
        _log.warning(
            "job %s: %s; going back to checkpoint %d", job_id, "; ".join(damages), whole[0].manifest.checkpoint_id
        )
    return RestoreChoice(whole[0], tuple(reversed(whole[1:])), "; ".join(damages))


def output_would_repeat(damage: str, marker: int, restored_id: int, location: str) -> RestoreRefusedError:
    """A sink has committed more than the checkpoint before the damaged one holds."""
    return RestoreRefusedError(
        f"{damage}; going on from checkpoint {restored_id} would repeat output, because a sink has committed up to "
        f"checkpoint {marker}",
        hint="Bring the damaged file back and submit the job again from it, or accept that the output since checkpoint "
        f"{restored_id} is written twice: SET '{ACCEPT_DUPLICATES}' = 'true' and SET '{RECOVERY_PATH}' = '{location}', "
        "then submit the job again.",
    )


def _read_whole(
    store: CheckpointStore, job_id: JobId, pointer: CheckpointPointer, suspects: frozenset[str], *, thorough: bool
) -> CheckpointManifest:
    """Raises DamagedCheckpointError. `thorough`: it may be restored, so its files are looked at."""
    manifest = store.read(job_id, pointer)
    if not thorough:
        return manifest
    store.check(job_id, manifest.files)
    small = manifest.state_bytes <= VERIFIED_BYTES_MAX
    store.verify(job_id, [handle for handle in manifest.files if small or handle.path in suspects])
    lost = sorted(suspects & set(manifest.epoch_files))
    if lost:
        raise DamagedCheckpointError(f"{store.files(job_id).locate(lost[0])}: a task could not read it", lost[0])
    return manifest


def _end_is_damaged(damage: str, savepoint: str) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"{damage}; it is the last one of a job that was stopped with a savepoint",
        hint=f"Submit the job again from the savepoint: SET '{RECOVERY_PATH}' = '{savepoint}'.",
    )
