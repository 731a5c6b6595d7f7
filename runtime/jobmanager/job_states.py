"""The states of a job and the moves between them. Pure."""

from __future__ import annotations

from collections import deque

from runtime.api import JobState
from runtime.ids import JobId
from runtime.jobmanager.job_events import FenceSinks, JobCommand, RecordState, ReleaseSlots
from runtime.protocol.messages import Failure

_ABORTS = frozenset({JobState.FAILING, JobState.CANCELLING, JobState.SUSPENDED})

JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.INITIALIZING: frozenset({JobState.CREATED, JobState.RESTARTING}) | _ABORTS,
    JobState.CREATED: frozenset({JobState.RUNNING, JobState.RESTARTING}) | _ABORTS,
    JobState.RUNNING: frozenset({JobState.FINISHED, JobState.RESTARTING}) | _ABORTS,
    JobState.RESTARTING: frozenset({JobState.CREATED, JobState.RUNNING, JobState.RESTARTING}) | _ABORTS,
    JobState.FAILING: frozenset({JobState.FAILED}),
    JobState.CANCELLING: frozenset({JobState.CANCELED}),
    JobState.SUSPENDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELED: frozenset(),
    JobState.FINISHED: frozenset(),
}
"""Legal moves. SUSPENDED is of this JobManager only: the next one starts the job again."""

HISTORY_LENGTH = 20
"""States an illegal transition is reported with."""


class IllegalTransitionError(Exception):
    """A broken invariant; carries the job's history."""


class JobStates:
    """The state a job is in. Every end passes the fence: the state behind it is taken once the sinks are fenced."""

    def __init__(self, job_id: JobId) -> None:
        self.job_id = job_id
        self.state = JobState.INITIALIZING
        self.failure: Failure | None = None
        """The latest."""
        self._end_state: JobState | None = None
        """Set while the fence of an ending job is under way."""
        self._history = deque([JobState.INITIALIZING], maxlen=HISTORY_LENGTH)

    @property
    def is_ending(self) -> bool:
        """Nothing but the end will follow."""
        return self._end_state is not None or self.state in (JobState.FAILING, JobState.CANCELLING)

    def abandon(self, failure: Failure) -> None:
        """FAILED from any state, for a shell that cannot go on."""
        self.failure = failure
        self.state = JobState.FAILED

    def _move(self, state: JobState, failure: Failure | None = None) -> list[JobCommand]:
        if state not in JOB_TRANSITIONS[self.state]:
            path = " → ".join(self._history)
            raise IllegalTransitionError(f"job {self.job_id}: {path} → {state} is not legal")
        self._history.append(state)
        self.state = state
        return [RecordState(state, failure)]

    def _fence(self, end_state: JobState) -> list[JobCommand]:
        self._end_state = end_state
        return [FenceSinks()]

    def _on_fenced(self) -> list[JobCommand]:
        if self._end_state is None:
            return []
        return self._move(self._end_state, self.failure if self._end_state is JobState.FAILED else None)

    def _on_suspended(self) -> list[JobCommand]:
        """A job that is ending stays recorded as such, so that the next JobManager ends it and does not start it."""
        ending = self.state in (JobState.CANCELLING, JobState.FAILING)
        return [ReleaseSlots()] if ending else [*self._move(JobState.SUSPENDED), ReleaseSlots()]
