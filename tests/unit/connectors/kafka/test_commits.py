"""The sink's decisions around its transactions: order of recovery, how far markers are read, what is pending when."""

from __future__ import annotations

import pytest

from connectors.api import Committable, OwnerState
from connectors.kafka.commits import MarkerScan, PendingEpochs, Publish, SinkRecovery, WriteMarker, may_repeat
from connectors.kafka.protocol import Marker, MarkerLost, Redo


def epoch(owner: int, checkpoint_id: int) -> Committable:
    return Committable(owner, checkpoint_id, "i", b"", 3, 30, file=f"{owner}-{checkpoint_id}")


def _complete(scan: MarkerScan) -> bool:
    """Read anew at each call, which the type checker does not expect of a property."""
    return scan.complete


def _pending(epochs: PendingEpochs) -> tuple[Committable, ...]:
    return epochs.pending


def test_a_new_subtask_owns_its_number_and_writes_its_first_marker() -> None:
    recovery = SinkRecovery(2, [], 7, "run")
    assert recovery.owners == (2,)
    assert recovery.resolve({}) == [WriteMarker(2, Marker(7, "run"))]
    assert recovery.found == {2: 7}


def test_own_owner_first_then_those_of_subtasks_that_are_no_more() -> None:
    states = [OwnerState(0, (epoch(0, 4),), 3, True), OwnerState(1, (epoch(1, 3), epoch(1, 4)), 2, True)]
    recovery = SinkRecovery(1, states, 4, "run")
    assert recovery.owners == (1, 0)
    steps = recovery.resolve({0: Marker(4, "i"), 1: Marker(3, "i")})
    assert steps == [Publish(1, (Redo(epoch(1, 4)),))]
    assert recovery.found == {0: 4, 1: 4}
    assert recovery.epochs == [epoch(1, 3), epoch(1, 4), epoch(0, 4)]


def test_markers_of_owners_that_nobody_takes_over_are_told_too() -> None:
    """A job that goes back to a savepoint of fewer subtasks, and is rescaled up later, finds them above its checkpoint:
    the ids of its own must have begun above them."""
    recovery = SinkRecovery(0, [OwnerState(0, (), 4, True)], 4, "run")
    assert recovery.resolve({0: Marker(4, "i"), 1: Marker(9, "i")}) == []
    assert recovery.found == {0: 4, 1: 9}


def test_nothing_is_published_when_one_owner_lost_its_marker() -> None:
    states = [OwnerState(0, (epoch(0, 4),), 3, True), OwnerState(1, (epoch(1, 4),), 2, True)]
    recovery = SinkRecovery(0, states, 4, "run")
    with pytest.raises(MarkerLost):
        recovery.resolve({0: Marker(3, "i")})


def test_markers_are_read_to_the_high_watermark_and_the_last_one_counts() -> None:
    scan = MarkerScan(5)
    scan.add(1, 0, Marker(1, "i"))
    scan.add(2, 0, Marker(2, "i"))
    scan.reached(3)  # The last stable offset: behind it another owner's transaction is open.
    assert not _complete(scan)
    scan.add(4, 0, Marker(3, "i"))
    assert _complete(scan)
    assert scan.markers == {0: Marker(3, "i")}
    assert MarkerScan(0).complete


def test_an_epoch_is_pending_until_its_commit_and_its_file_stays_one_commit_longer() -> None:
    epochs = PendingEpochs([epoch(0, 1)])
    epochs.seal(epoch(0, 2))
    epochs.seal(epoch(0, 3))  # Checkpoint 2 was given up.
    assert _pending(epochs) == (epoch(0, 2), epoch(0, 3))
    epochs.seal(epoch(0, 4))
    due = epochs.due(3)
    assert due == (Redo(epoch(0, 2)), Redo(epoch(0, 3)))
    assert _pending(epochs) == (epoch(0, 2), epoch(0, 3), epoch(0, 4))
    assert epochs.committed(due) == [epoch(0, 1)]
    assert _pending(epochs) == (epoch(0, 4),)
    assert epochs.committed(epochs.due(4)) == [epoch(0, 2), epoch(0, 3)]


@pytest.mark.parametrize(
    ("retriable", "fatal", "overdue", "expected"),
    [(True, False, False, True), (True, True, False, False), (True, False, True, False), (False, False, False, False)],
)
def test_only_the_same_request_is_repeated(retriable: bool, fatal: bool, overdue: bool, expected: bool) -> None:
    assert may_repeat(retriable=retriable, fatal=fatal, overdue=overdue) is expected
