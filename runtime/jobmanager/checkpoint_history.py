"""What users see of a job's checkpoints: counts over all generations, the latest ones, and a short history with the
answers of every task. Figures only: nothing is decided by them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from runtime.api import CheckpointRecord, CheckpointState, CheckpointSummary, SubtaskCheckpoint
from runtime.checkpoint import savepoint as savepoints
from runtime.checkpoint.coordination import SavepointWanted, SubtaskAcked
from runtime.checkpoint.manifest import CheckpointCounts, CheckpointManifest
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.clock import wall_clock_ms

HISTORY_LENGTH = 10
"""Checkpoints that have ended, as many as Flink remembers by default."""


class CheckpointHistory:
    """Lives as long as the job's master; manifests carry the counts over to the next JobManager."""

    def __init__(self) -> None:
        self._triggered = 0
        self._completed = 0
        self._failed = 0
        self._restored_count = 0
        self._latest = CheckpointSummary()
        self._records: dict[int, CheckpointRecord] = {}
        """By id, oldest first."""

    @property
    def counts(self) -> CheckpointCounts:
        return CheckpointCounts(self._triggered, self._completed, self._failed)

    def summary(self) -> CheckpointSummary:
        records = tuple(reversed(self._records.values()))
        return msgspec.structs.replace(
            self._latest,
            triggered=self._triggered,
            completed=self._completed,
            failed=self._failed,
            in_progress=sum(record.state is CheckpointState.IN_PROGRESS for record in records),
            restored_count=self._restored_count,
            latest_failed=next((r for r in records if r.state is CheckpointState.FAILED), self._latest.latest_failed),
            history=records,
        )

    # ------------------------------------------------------------------------------------------------ a generation

    def restored(self, manifest: CheckpointManifest, path: str, stopped_with: str) -> None:
        """A generation starts from this checkpoint: what an earlier JobManager completed is known from it.
        `stopped_with`: the savepoint that has ended the job and is this checkpoint."""
        own = manifest.generation != savepoints.IMPORTED_GENERATION
        if own and self._latest.latest_completed_id < manifest.checkpoint_id:
            self._latest = msgspec.structs.replace(
                self._latest,
                latest_completed_id=manifest.checkpoint_id,
                latest_bytes=manifest.state_bytes,
                latest_full_bytes=manifest.state_bytes,
                latest_path=path,
            )
            counts = manifest.counts
            self._triggered, self._completed, self._failed = counts.triggered, counts.completed, counts.failed
        self._restored_count += 1
        self._latest = msgspec.structs.replace(
            self._latest,
            restored_id=manifest.checkpoint_id,
            restored_at_ms=wall_clock_ms(),
            restored_path=path,
            restored_is_savepoint=not own,
        )
        if stopped_with:
            self.savepoint(manifest, stopped_with)

    def generation_ended(self) -> None:
        """What was in flight comes to nothing."""
        for record in list(self._records.values()):
            if record.state is CheckpointState.IN_PROGRESS:
                self.failed(record.checkpoint_id, "the tasks of the job ended before it was complete", counted=False)

    # ------------------------------------------------------------------------------------------------ a checkpoint

    def triggered(self, checkpoint_id: int, subtask_count: int, savepoint: SavepointWanted | None) -> None:
        self._triggered += 1
        self._records[checkpoint_id] = CheckpointRecord(
            checkpoint_id=checkpoint_id,
            state=CheckpointState.IN_PROGRESS,
            triggered_at_ms=wall_clock_ms(),
            subtask_count=subtask_count,
            is_savepoint=savepoint is not None,
            stops=savepoint is not None and savepoint.stop,
        )
        ended = [r.checkpoint_id for r in self._records.values() if r.state is not CheckpointState.IN_PROGRESS]
        for number in ended[:-HISTORY_LENGTH]:
            del self._records[number]

    def acknowledged(self, event: SubtaskAcked, known_files: Collection[str]) -> None:
        """`known_files`: those of earlier checkpoints, not written for this one."""
        record = self._records.get(event.checkpoint_id)
        if record is None or record.state is not CheckpointState.IN_PROGRESS:
            return
        now_ms = wall_clock_ms()
        full_bytes, own_bytes = _sizes(event.snapshot, event.checkpoint_id, known_files)
        subtask = SubtaskCheckpoint(
            vertex_id=event.attempt.vertex_id,
            subtask_index=event.attempt.subtask_index,
            acknowledged_at_ms=now_ms,
            duration_ms=now_ms - record.triggered_at_ms,
            byte_size=own_bytes,
            full_byte_size=full_bytes,
            sync_ms=event.timings.sync_ms,
            async_ms=event.timings.async_ms,
            alignment_ms=event.timings.alignment_ms,
            is_unaligned=event.timings.is_unaligned,
            persisted_bytes=sum(handle.byte_size for handle in event.snapshot.in_flight),
            is_finished=event.snapshot.finished,
        )
        self._records[event.checkpoint_id] = msgspec.structs.replace(
            record,
            latest_ack_at_ms=now_ms,
            byte_size=record.byte_size + own_bytes,
            full_byte_size=record.full_byte_size + full_bytes,
            subtasks=(*record.subtasks, subtask),
        )

    def stored(self, manifest: CheckpointManifest, path: str, duration_ms: int) -> None:
        """The checkpoint is the job's latest."""
        record = self._ended(manifest.checkpoint_id, CheckpointState.COMPLETED, path=path, duration_ms=duration_ms)
        self._latest = msgspec.structs.replace(
            self._latest,
            latest_completed_id=manifest.checkpoint_id,
            latest_completed_at_ms=wall_clock_ms(),
            latest_duration_ms=float(duration_ms),
            latest_bytes=record.byte_size if record is not None else manifest.state_bytes,
            latest_full_bytes=manifest.state_bytes,
            latest_path=path,
        )

    def savepoint(self, manifest: CheckpointManifest, location: str) -> None:
        self._ended(manifest.checkpoint_id, CheckpointState.COMPLETED, path=location)
        self._latest = msgspec.structs.replace(
            self._latest,
            latest_savepoint_id=manifest.checkpoint_id,
            latest_savepoint_path=location,
            latest_savepoint_at_ms=wall_clock_ms(),
        )

    def completed(self) -> None:
        self._completed += 1

    def failed(self, checkpoint_id: int, reason: str, *, counted: bool = True) -> None:
        self._failed += counted
        record = self._ended(checkpoint_id, CheckpointState.FAILED, failure=reason)
        if record is not None:
            self._latest = msgspec.structs.replace(self._latest, latest_failed=record)

    def discarded(self, checkpoint_ids: Collection[int]) -> None:
        """Not retained any more."""
        for number in checkpoint_ids:
            if number in self._records:
                self._records[number] = msgspec.structs.replace(self._records[number], discarded=True)

    def _ended(
        self, checkpoint_id: int, state: CheckpointState, *, path: str = "", failure: str = "", duration_ms: int = -1
    ) -> CheckpointRecord | None:
        record = self._records.get(checkpoint_id)
        if record is None:
            return None
        now_ms = wall_clock_ms()
        ended = msgspec.structs.replace(
            record,
            state=state,
            ended_at_ms=now_ms,
            duration_ms=duration_ms if duration_ms >= 0 else now_ms - record.triggered_at_ms,
            path=path,
            failure=failure,
        )
        self._records[checkpoint_id] = ended
        return ended


def _sizes(snapshot: SubtaskSnapshot, checkpoint_id: int, known_files: Collection[str]) -> tuple[int, int]:
    """Bytes of everything in it, and of what was written for this checkpoint."""
    full = own = 0
    for operator in snapshot.operators:
        for segment in operator.segments:
            full += segment.byte_size
            own += 0 if segment.path in known_files else segment.byte_size
        for committable in operator.committables:
            full += committable.byte_size
            own += committable.byte_size if committable.checkpoint_id == checkpoint_id else 0
    in_flight = sum(handle.byte_size for handle in snapshot.in_flight)
    return full + in_flight, own + in_flight
