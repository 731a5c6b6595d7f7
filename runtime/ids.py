"""Typed ids. Fencing order: leader token > generation (one start of a job) > attempt (one start of one task)."""

from __future__ import annotations

from typing import NewType

import msgspec

JobId = NewType("JobId", str)
"""32 lower-case hex digits, as Flink prints them."""
TaskManagerId = NewType("TaskManagerId", str)
SlotId = NewType("SlotId", str)
"""`<task manager id>/<slot index>/<incarnation>`: a slot process serves one job once, so its successor has a new id."""


def task_manager_of(slot_id: SlotId) -> TaskManagerId:
    return TaskManagerId(slot_id.rsplit("/", 2)[0])


class AttemptId(msgspec.Struct, frozen=True, order=True):
    """One start of one task. `number` rises with every start of the same subtask within a generation."""

    job_id: JobId
    generation: int
    vertex_id: int
    subtask_index: int
    number: int

    @property
    def key(self) -> tuple[int, int]:
        """The task: vertex id and subtask index."""
        return self.vertex_id, self.subtask_index

    def __str__(self) -> str:
        return f"{self.job_id[:8]}-g{self.generation}-v{self.vertex_id}-s{self.subtask_index}-a{self.number}"
