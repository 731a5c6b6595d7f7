"""`/metrics`: figures of the cluster, its jobs and tasks as Prometheus text, under the names Flink's dashboards use.

Values are gauges even where they count, as in Flink's reporter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from runtime.api import ClusterOverview, JobClient, JobStatus, TaskMetrics, VertexStatus
from server.secrets import masked_sql

Labels: TypeAlias = dict[str, str]
Sample: TypeAlias = tuple[str, Labels, float]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OPERATOR_METRICS = frozenset(
    """currentInputWatermark currentOutputWatermark numRecordsIn numRecordsOut numLateRecordsDropped watermarkLatency
    pendingRecords currentFetchEventTimeLag currentEmitEventTimeLag sourceIdleTime numRecordsInErrors numRecordsSend
    numRecordsSendErrors numRecordsSkipped numRecordsDroppedNotNull numValuesAdjustedToLength numGroups
    numRowsStored numRetractionsWithoutState numCountsClamped stateBytes numLocalStateReads
    numLocalStateFallbacks""".split()
)
_CACHE_METRICS = frozenset("hitCount missCount loadCount numLoadFailures latestLoadTime numCachedRecords".split())
"""Of lookup joins: a group of its own in Flink."""


async def metrics_text(jobs: JobClient) -> str:
    """Every figure there is, grouped by name."""
    overview, all_jobs = await jobs.overview(), await jobs.jobs()
    samples = list(_cluster(overview))
    for job in all_jobs:
        if not job.state.terminal:
            samples.extend(_job(job))
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample[0], []).append(sample)
    lines = []
    for name, group in by_name.items():
        lines.append(f"# TYPE {name} gauge")
        lines.extend(f"{name}{_labels(labels)} {_number(value)}" for _, labels, value in group)
    return "\n".join(lines) + "\n"


def _cluster(overview: ClusterOverview) -> Iterator[Sample]:
    running = overview.jobs_by_state.get("RUNNING", 0)
    yield "flink_jobmanager_numRunningJobs", {}, running
    yield "flink_jobmanager_numRegisteredTaskManagers", {}, overview.task_managers
    yield "flink_jobmanager_taskSlotsTotal", {}, overview.slots_total
    yield "flink_jobmanager_taskSlotsAvailable", {}, overview.slots_available


def _job(job: JobStatus) -> Iterator[Sample]:
    labels = {"job_id": job.job_id, "job_name": masked_sql(job.name)}
    prefix = "flink_jobmanager_job_"
    summary = job.checkpoints
    recovery = job.recovery
    yield prefix + "numRestarts", labels, job.restarts
    yield prefix + "fullRestarts", labels, recovery.full_restarts
    yield prefix + "restartingTime", labels, recovery.restarting_time_ms
    yield prefix + "downtime", labels, recovery.down_time_ms
    yield prefix + "uptime", labels, recovery.up_time_ms
    yield prefix + "numberOfCompletedCheckpoints", labels, summary.completed
    yield prefix + "numberOfFailedCheckpoints", labels, summary.failed
    yield prefix + "numberOfInProgressCheckpoints", labels, summary.in_progress
    yield prefix + "totalNumberOfCheckpoints", labels, summary.triggered
    if summary.restored_at_ms:
        yield prefix + "lastCheckpointRestoreTimestamp", labels, summary.restored_at_ms
    if summary.latest_completed_id:
        yield prefix + "lastCheckpointDuration", labels, summary.latest_duration_ms
        yield prefix + "lastCheckpointSize", labels, summary.latest_bytes
        yield prefix + "lastCheckpointFullSize", labels, summary.latest_full_bytes
        yield prefix + "lastCheckpointCompletedTimestamp", labels, summary.latest_completed_at_ms
    for vertex in job.vertices:
        for metrics in vertex.metrics:
            yield from _task(vertex, metrics, labels)


def _task(vertex: VertexStatus, metrics: TaskMetrics, job_labels: Labels) -> Iterator[Sample]:
    labels = {
        **job_labels,
        "task_id": f"{vertex.vertex_id:032x}",
        "task_name": vertex.name,
        "subtask_index": str(metrics.attempt.subtask_index),
        "task_attempt_num": str(metrics.attempt.number),
    }
    prefix = "flink_taskmanager_job_task_"
    yield prefix + "numRecordsIn", labels, metrics.records_in
    yield prefix + "numRecordsOut", labels, metrics.records_out
    yield prefix + "numBytesIn", labels, metrics.bytes_in
    yield prefix + "numBytesOut", labels, metrics.bytes_out
    yield prefix + "busyTimeMsPerSecond", labels, metrics.busy_ms_per_second
    yield prefix + "backPressuredTimeMsPerSecond", labels, metrics.backpressured_ms_per_second
    yield prefix + "idleTimeMsPerSecond", labels, metrics.idle_ms_per_second
    yield prefix + "isBackPressured", labels, float(metrics.backpressured_ms_per_second > 0)
    yield prefix + "cpuTimeMsPerSecond", labels, metrics.cpu_ms_per_second
    if metrics.watermark_ms is not None:
        yield prefix + "currentInputWatermark", labels, metrics.watermark_ms
    for uid, figures in metrics.operators.items():
        operator_labels = {**labels, "operator_id": uid}
        for name, value in figures.items():
            if name in _OPERATOR_METRICS:
                yield f"{prefix}operator_{name}", operator_labels, value
            elif name in _CACHE_METRICS:
                yield f"{prefix}operator_cache_{name}", operator_labels, value


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value)) if value != int(value) else str(int(value))
