"""Jobs by the ids in URLs, and the answer to an unknown one."""

from __future__ import annotations

import re

from runtime.api import JobClient, JobId, JobStatus, UnknownJobError
from server.http.errors import NotFoundError, bad_parameter

NOT_FOUND = "org.apache.flink.runtime.rest.NotFoundException"


def parse_job_id(text: str) -> JobId:
    """Raises BadRequestError."""
    if re.fullmatch(r"[0-9a-fA-F]{32}", text) is None:
        raise bad_parameter("path", "jobid", text)
    return JobId(text.lower())


def no_job(job_id: JobId) -> NotFoundError:
    return NotFoundError(f"{NOT_FOUND}: Job {job_id} not found\n")


async def status_of(jobs: JobClient, text: str) -> JobStatus:
    """Raises BadRequestError, NotFoundError."""
    known = parse_job_id(text)
    try:
        return await jobs.status(known)
    except UnknownJobError:
        raise no_job(known) from None
