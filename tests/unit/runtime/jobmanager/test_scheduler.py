"""Slots: all or nothing, spread over TaskManagers, used once."""

from __future__ import annotations

from runtime.ids import JobId, SlotId, TaskManagerId
from runtime.jobmanager.scheduler import (
    EndSlot,
    GrantSlots,
    ReportMissing,
    ReportSlotLost,
    RequestWithdrawn,
    Scheduler,
    SchedulerCommand,
    SchedulerEvent,
    SlotAdded,
    SlotInfo,
    SlotRemoved,
    SlotsReleased,
    SlotsRequested,
    SlotsReturned,
)

A, B, C = JobId("a"), JobId("b"), JobId("c")


def slot(task_manager: str, index: int) -> SlotInfo:
    return SlotInfo(SlotId(f"{task_manager}/{index}/1"), TaskManagerId(task_manager), "host", 1, 0, 0)


def run(scheduler: Scheduler, *events: SchedulerEvent) -> list[SchedulerCommand]:
    commands: list[SchedulerCommand] = []
    for event in events:
        commands += scheduler.handle(event)
        scheduler.validate()
    return commands


def cluster(task_managers: int, slots: int) -> Scheduler:
    scheduler = Scheduler()
    run(scheduler, *(SlotAdded(slot(f"tm{t}", s)) for t in range(task_managers) for s in range(slots)))
    return scheduler


def granted(commands: list[SchedulerCommand]) -> list[str]:
    (grant,) = (c for c in commands if isinstance(c, GrantSlots))
    return [s.slot_id for slots in grant.slots.values() for s in slots]


def test_a_jobs_slots_are_spread_over_task_managers() -> None:
    scheduler = cluster(2, 2)
    assert granted(run(scheduler, SlotsRequested(A, {"default": 3}))) == ["tm0/0/1", "tm1/0/1", "tm0/1/1"]
    assert (scheduler.slots_total, scheduler.slots_free) == (4, 1)
    slots, free = scheduler.slots_of(TaskManagerId("tm1"))
    assert [s.slot_id for s in slots] == ["tm1/0/1", "tm1/1/1"]
    assert free == 1


def test_groups_get_slots_of_their_own() -> None:
    (grant,) = run(cluster(1, 3), SlotsRequested(A, {"default": 2, "other": 1}))
    assert isinstance(grant, GrantSlots)
    assert {group: len(slots) for group, slots in grant.slots.items()} == {"default": 2, "other": 1}
    assert len({s.slot_id for slots in grant.slots.values() for s in slots}) == 3


def test_too_few_slots_wait_until_a_task_manager_joins() -> None:
    scheduler = cluster(1, 1)
    assert run(scheduler, SlotsRequested(A, {"default": 3})) == [ReportMissing(A, 2)]
    assert run(scheduler, SlotAdded(slot("tm1", 0))) == [ReportMissing(A, 1)]
    assert len(granted(run(scheduler, SlotAdded(slot("tm1", 1))))) == 3


def test_a_smaller_job_may_pass_one_that_does_not_fit() -> None:
    scheduler = cluster(1, 1)
    run(scheduler, SlotsRequested(A, {"default": 2}))
    assert granted(run(scheduler, SlotsRequested(B, {"default": 1}))) == ["tm0/0/1"]
    assert run(scheduler, SlotsReleased(A)) == []
    assert run(scheduler, SlotAdded(slot("tm1", 0))) == []


def test_a_released_slot_is_ended_not_used_again() -> None:
    scheduler = cluster(1, 1)
    run(scheduler, SlotsRequested(A, {"default": 1}))
    assert run(scheduler, SlotsReleased(A)) == [EndSlot(slot("tm0", 0))]
    assert scheduler.slots_total == 0
    assert run(scheduler, SlotsRequested(B, {"default": 1})) == [ReportMissing(B, 1)]
    # The old process's death is no news to anybody.
    assert run(scheduler, SlotRemoved(slot("tm0", 0).slot_id)) == []


def test_the_loss_of_a_used_slot_is_reported_to_its_job() -> None:
    scheduler = cluster(1, 2)
    run(scheduler, SlotsRequested(A, {"default": 1}))
    assert run(scheduler, SlotRemoved(SlotId("tm0/0/1"))) == [ReportSlotLost(A, SlotId("tm0/0/1"))]
    assert run(scheduler, SlotRemoved(SlotId("tm0/1/1"))) == []
    assert scheduler.slots_total == 0


def test_an_offer_repeated_for_a_used_slot_changes_nothing() -> None:
    scheduler = cluster(1, 1)
    run(scheduler, SlotsRequested(A, {"default": 1}))
    assert run(scheduler, SlotAdded(slot("tm0", 0))) == []
    assert scheduler.slots_free == 0


def test_a_slot_is_best_where_its_files_are() -> None:
    scheduler = cluster(3, 1)
    tm1, tm2 = TaskManagerId("tm1"), TaskManagerId("tm2")
    request = SlotsRequested(A, {"default": 3}, preferred={"default": (tm2, None, tm1)})
    assert granted(run(scheduler, request)) == ["tm2/0/1", "tm0/0/1", "tm1/0/1"]


def test_a_wish_that_cannot_be_fulfilled_waits_for_nobody() -> None:
    scheduler = cluster(2, 1)
    gone = TaskManagerId("tm9")
    request = SlotsRequested(A, {"default": 2}, preferred={"default": (gone, TaskManagerId("tm0"))})
    assert granted(run(scheduler, request)) == ["tm1/0/1", "tm0/0/1"]


def test_requests_of_one_job_are_apart() -> None:
    scheduler = cluster(0, 0)
    run(scheduler, SlotsRequested(A, {"default": 1}, 1), SlotsRequested(A, {"default": 1}, 2))
    run(scheduler, SlotsRequested(A, {"default": 1}, 3), RequestWithdrawn(A, 1))
    (grant, short) = run(scheduler, SlotAdded(slot("tm0", 0)))
    assert isinstance(grant, GrantSlots)
    assert (grant.number, short) == (2, ReportMissing(A, 1, 3))
    # Some of a job's slots are given back; its other request waits on.
    assert run(scheduler, SlotsReturned(A, (SlotId("tm0/0/1"), SlotId("tm7/0/1")))) == [EndSlot(slot("tm0", 0))]
    assert run(scheduler, SlotsReturned(B, (SlotId("tm0/0/1"),))) == []
    assert granted(run(scheduler, SlotAdded(slot("tm0", 1)))) == ["tm0/1/1"]
    run(scheduler, SlotsRequested(A, {"default": 1}, 4))
    assert run(scheduler, SlotsReleased(A)) == [EndSlot(slot("tm0", 1))]
    assert run(scheduler, SlotAdded(slot("tm0", 2))) == []
