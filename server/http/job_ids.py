"""Job ids in URLs, and the answer to an unknown one."""

from __future__ import annotations

import re

from runtime.api import JobId
from server.http.errors import NotFoundError, bad_parameter

NOT_FOUND = "org.apache.flink.runtime.rest.NotFoundException"


def parse_job_id(text: str) -> JobId:
    """Raises BadRequestError."""
    if re.fullmatch(r"[0-9a-fA-F]{32}", text) is None:
        raise bad_parameter("path", "jobid", text)
    return JobId(text.lower())


def no_job(job_id: JobId) -> NotFoundError:
    return NotFoundError(f"{NOT_FOUND}: Job {job_id} not found\n")
