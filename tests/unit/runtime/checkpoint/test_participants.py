"""What later checkpoints carry of a task that is done."""

from __future__ import annotations

from connectors.api import Committable
from runtime.checkpoint.coordination import TaskRole
from runtime.checkpoint.participants import Participants
from runtime.checkpoint.pending import PendingCheckpoint
from runtime.checkpoint.snapshot import InFlightHandle, OperatorSnapshot, SubtaskSnapshot
from runtime.ids import AttemptId, JobId


def test_neither_its_committed_epochs_nor_what_was_in_flight_behind_it() -> None:
    """The rows that its last, unaligned barrier had overtaken reach the consumers afterwards: named again they would be
    processed twice."""
    attempt = AttemptId(JobId("1" * 32), 1, 0, 0, 0)
    tasks = Participants([TaskRole(attempt, injects=True, commits=True)])
    checkpoint = PendingCheckpoint(1, 0, None, {attempt}, None, 0)
    operator = OperatorSnapshot("o", committables=(Committable(0, 1, "i", b"", 1, 1),))
    in_flight = (InFlightHandle(0, 0, 0, "rows", 1, 1, ""),)
    checkpoint.acks[attempt] = SubtaskSnapshot(0, "v", 0, 1, (operator,), finished=True, in_flight=in_flight)
    tasks.note_completion(checkpoint)
    (carried,) = tasks.snapshots(PendingCheckpoint(2, 0, None, set(), None, 0))
    assert carried.in_flight == ()
    assert carried.operators[0].committables == ()
    assert carried.finished
