"""What is shown of a job: figures of its tasks, failures, and how long its restarts take."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from planner.ir.job_graph import JobGraph
from runtime.api import CheckpointSummary, JobState, JobStatus, RecoverySummary, VertexStatus
from runtime.clock import monotonic_ms, wall_clock_ms
from runtime.ids import AttemptId
from runtime.jobmanager.exception_history import ExceptionHistory
from runtime.jobmanager.job import JobCore
from runtime.jobmanager.job_events import RecordFailure, ReportRestart
from runtime.metadata.jobs import JobRecord
from runtime.protocol.messages import TaskMetrics, TaskState

_log = logging.getLogger(__name__)


class JobPage:
    """Lives as long as the job's master."""

    def __init__(self, core: JobCore) -> None:
        self._core = core
        self._metrics: dict[AttemptId, TaskMetrics] = {}
        self._exceptions = ExceptionHistory()
        self._restart_ms = 0
        """How long the latest restart took."""

    def report(self, metrics: TaskMetrics) -> None:
        """Figures of one task; kept after the job has ended."""
        execution = self._core.execution
        if execution is not None and execution.knows(metrics.attempt):
            self._metrics[metrics.attempt] = metrics

    def deployed(self, attempts: Sequence[AttemptId]) -> None:
        """What earlier attempts of these tasks have reported, and those of earlier generations, is over."""
        keys = {attempt.key for attempt in attempts}
        generation = attempts[0].generation
        self._metrics = {
            attempt: metrics
            for attempt, metrics in self._metrics.items()
            if attempt.generation == generation and attempt.key not in keys
        }

    def failed(self, record: RecordFailure, graph: JobGraph) -> None:
        self._exceptions.add(record, graph, wall_clock_ms())

    def restarted(self, report: ReportRestart) -> None:
        self._restart_ms = report.duration_ms
        tasks = f"{report.tasks} of {report.of_tasks} tasks"
        _log.info("job %s: %s run again %d ms after they failed", self._core.job_id, tasks, report.duration_ms)

    def status(self, record: JobRecord, checkpoints: CheckpointSummary) -> JobStatus:
        core = self._core
        execution = core.execution
        graph = execution.graph if execution is not None else core.graph
        return JobStatus(
            job_id=record.job_id,
            name=record.name,
            state=core.state,
            start_ms=record.submitted_at_ms,
            end_ms=record.end_ms,
            state_timestamps_ms=record.state_timestamps_ms,
            vertices=tuple(
                VertexStatus(
                    v.id,
                    v.name,
                    v.parallelism,
                    v.max_parallelism,
                    execution.counts(v.id) if execution else {TaskState.CREATED.value: v.parallelism},
                    tuple(metrics for attempt, metrics in sorted(self._metrics.items()) if attempt.vertex_id == v.id),
                )
                for v in graph.vertices
            ),
            checkpoints=checkpoints,
            restarts=record.restarts,
            slots_missing=core.slots_missing,
            failure=core.failure or record.failure,
            generation=record.generation,
            is_query=graph.is_query,
            restore_notes=record.restore_notes,
            recovery=self._recovery(record),
            exceptions=self._exceptions.entries,
            exceptions_truncated=self._exceptions.is_truncated,
        )

    def _recovery(self, record: JobRecord) -> RecoverySummary:
        """Of a job that has ended nothing is down or up."""
        core = self._core
        if core.state.terminal:
            return RecoverySummary(core.full_restarts, self._restart_ms, -1, -1)
        if core.down_since_ms is not None:
            down_ms = monotonic_ms() - core.down_since_ms
            return RecoverySummary(core.full_restarts, down_ms, down_ms, 0)
        started_ms = record.state_timestamps_ms.get(JobState.RUNNING.value)
        up_ms = wall_clock_ms() - started_ms if started_ms is not None else 0
        return RecoverySummary(core.full_restarts, self._restart_ms, 0, up_ms)
