"""What the pool of slots says is free for a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from runtime.api import JobState
from runtime.ids import JobId, SlotId, TaskManagerId
from runtime.jobmanager.job_events import RequestSlots
from runtime.jobmanager.scheduler import SlotInfo
from runtime.jobmanager.slot_pool import SlotPool


class Master:
    """Of a job's master what the pool asks for."""

    def __init__(self, slot_count: int, state: JobState) -> None:
        self.graph = SimpleNamespace(slot_count=slot_count)
        self.state = state

    def status(self) -> Any:
        return SimpleNamespace(state=self.state)

    def post(self, event: object) -> None:
        pass


def test_slots_that_a_restarting_job_will_ask_for_again_are_not_free_for_another() -> None:
    rescaled, other, ended = JobId("a" * 32), JobId("b" * 32), JobId("c" * 32)
    masters = {
        rescaled: Master(1, JobState.RUNNING),
        other: Master(3, JobState.RUNNING),
        ended: Master(3, JobState.FINISHED),
    }
    pool = SlotPool(cast(Any, masters))
    for number in range(6):
        pool.slot_added(SlotInfo(SlotId(f"t/{number}/0"), TaskManagerId("t"), "h", 1, 0, 1))
    pool.request_slots(rescaled, RequestSlots(1, {"default": 1}))
    pool.request_slots(other, RequestSlots(1, {"default": 3}))
    assert pool.slots_free_for(rescaled) == 2
    pool.release_slots(other)  # Its slots end, others take their place, and soon it asks for three of them.
    masters[other].state = JobState.RESTARTING
    for number in range(3):
        pool.slot_added(SlotInfo(SlotId(f"t/{number}/1"), TaskManagerId("t"), "h", 1, 0, 1))
    assert pool.slots_free == 5
    assert pool.slots_free_for(rescaled) == 2
    masters[other].state = JobState.CANCELLING
    assert pool.slots_free_for(rescaled) == 5
