"""The decisions of recovery, as a table and against a random history."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.api import Committable, OwnerState
from connectors.kafka.protocol import Fork, Marker, MarkerLost, Recovery, Redo, marker_for, plan_recovery


def epoch(checkpoint_id: int, incarnation: str = "g1", records: int = 10) -> Committable:
    return Committable(0, checkpoint_id, incarnation, b"", records, 100)


def state(*pending: Committable, floor: int = 0) -> OwnerState:
    return OwnerState(0, pending, floor)


def marker(checkpoint_id: int, incarnation: str = "g1", upto: int | None = None) -> Marker:
    return Marker(checkpoint_id, incarnation, upto)


def redo_ids(recovery: Recovery) -> list[int]:
    return [each.committable.checkpoint_id for each in recovery.redo]


def test_first_start_writes_a_birth_marker() -> None:
    assert plan_recovery(state(), None) == Recovery(birth=True)


def test_nothing_pending_is_nothing_to_do() -> None:
    assert plan_recovery(state(floor=3), marker(3)) == Recovery()
    assert plan_recovery(state(), marker(9)) == Recovery()


def test_epochs_above_the_marker_are_redone_oldest_first() -> None:
    pending = state(epoch(7), epoch(5), epoch(6))
    assert redo_ids(plan_recovery(pending, marker(4))) == [5, 6, 7]
    assert redo_ids(plan_recovery(pending, marker(5))) == [6, 7]
    assert redo_ids(plan_recovery(pending, marker(7))) == []
    assert redo_ids(plan_recovery(pending, marker(8, "g2"))) == []


def test_a_partly_committed_epoch_goes_on_where_it_stopped() -> None:
    plan = plan_recovery(state(epoch(5), epoch(6)), marker(5, upto=4))
    assert plan.redo == (Redo(epoch(5), skip=4), Redo(epoch(6)))
    assert plan_recovery(state(epoch(5)), marker(5, upto=10)) == Recovery()


@pytest.mark.parametrize(
    "lost",
    [state(floor=1), state(epoch(1)), state(epoch(2), floor=1), OwnerState(0, marker_expected=True)],
)
def test_a_missing_marker_fails_closed(lost: OwnerState) -> None:
    with pytest.raises(MarkerLost, match="missing"):
        plan_recovery(lost, None)


def test_a_marker_below_an_acknowledged_commit_fails_closed() -> None:
    with pytest.raises(MarkerLost, match="checkpoint 3"):
        plan_recovery(state(epoch(5), floor=4), marker(3))


def test_the_same_checkpoint_of_another_history_is_a_fork() -> None:
    with pytest.raises(Fork):
        plan_recovery(state(epoch(5, "g1")), marker(5, "g2"))
    with pytest.raises(Fork):
        plan_recovery(state(epoch(5, "g1")), marker(5, "g2", upto=3))


def test_who_goes_back_writes_epochs_again_that_a_marker_of_another_line_may_not_stand_for() -> None:
    pending = msgspec.structs.replace(state(epoch(4), epoch(5)), repeats=True)
    assert redo_ids(plan_recovery(pending, marker(7, "g2"))) == [4, 5]
    # At or below the newest of them the marker is of their own line: nothing is repeated.
    assert redo_ids(plan_recovery(pending, marker(5))) == []
    assert redo_ids(plan_recovery(pending, marker(4))) == [5]
    assert redo_ids(plan_recovery(state(epoch(4), epoch(5)), marker(7, "g2"))) == []


def test_markers_survive_their_encoding() -> None:
    assert msgspec.json.encode(marker_for([Redo(epoch(5))], 7)) == (
        b'{"ckpt":5,"inc":"g1","upto":null,"count":10,"crc32":7,"v":1}'
    )
    assert msgspec.json.decode(msgspec.json.encode(marker(5, upto=3)), type=Marker) == marker(5, upto=3)


@given(st.data())
def test_every_epoch_is_committed_exactly_once_over_random_deaths(data: st.DataObject) -> None:
    """A model of one owner: checkpoints become durable or are aborted, commits happen or die before or after their
    transaction, recoveries die as well. Whatever happens, a durable epoch is committed once, in order."""
    visible: list[int] = []
    mark: Marker | None = None
    pending: tuple[Committable, ...] = ()  # what the running writer holds
    durable: tuple[Committable, ...] = ()  # what the newest committed checkpoint holds
    floor, number, generation = 0, 0, 1
    wanted: list[int] = []

    def commit(epochs: tuple[Redo, ...]) -> Marker:
        visible.extend(each.committable.checkpoint_id for each in epochs)
        return marker_for(epochs, 0)

    mark = Marker(0, "g1")
    for _ in range(data.draw(st.integers(1, 12))):
        number += 1
        pending = (*pending, epoch(number, f"g{generation}"))
        if data.draw(st.booleans()):  # the checkpoint becomes durable
            durable = pending
            wanted = [*wanted, *(e.checkpoint_id for e in pending if e.checkpoint_id not in wanted)]
            outcome = data.draw(st.sampled_from(["acknowledged", "dies before", "dies after"]))
            if outcome != "dies before":
                mark = commit(tuple(Redo(each) for each in pending))
            if outcome == "acknowledged":
                floor, pending = number, ()
                continue
        elif data.draw(st.booleans()):
            continue  # aborted, the attempt goes on
        generation += 1
        recovery = plan_recovery(OwnerState(0, durable, floor), mark)
        if recovery.redo:
            mark = commit(recovery.redo)
        pending = ()
    final = plan_recovery(OwnerState(0, durable, 0), mark)
    if final.redo:
        commit(final.redo)
    assert visible == wanted
