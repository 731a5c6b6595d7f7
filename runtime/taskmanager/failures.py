"""Exceptions of a task as the failure that travels to the JobManager."""

from __future__ import annotations

import traceback

import msgspec
import pyarrow as pa

from connectors.errors import ConnectorError, ErrorDomain
from runtime.errors import TaskError
from runtime.job_settings import SettingError
from runtime.protocol.messages import Failure


def failure_of(error: BaseException) -> Failure:
    """Errors that say whose fault they are keep it; anything else is an internal error, and another try may help.
    The traceback goes to `detail` only."""
    failure = _failure_of(error, "".join(traceback.format_exception(error)))
    damaged_file = getattr(error, "damaged_file", "")
    return msgspec.structs.replace(failure, damaged_file=damaged_file) if damaged_file else failure


def _failure_of(error: BaseException, detail: str) -> Failure:
    if isinstance(error, ConnectorError | TaskError):
        return Failure(error.message, error.domain.value, error.retry, error.hint, detail)
    if isinstance(error, SettingError):
        return Failure(str(error), ErrorDomain.USER.value, False, "", detail)
    domain = getattr(error, "domain", None)
    if isinstance(domain, str):
        # Operators and expressions have error classes of their own, with the same attributes.
        retry = bool(getattr(error, "retry", False))
        return Failure(str(error), str(domain), retry, str(getattr(error, "hint", "")), detail)
    if isinstance(error, OSError):
        return Failure(f"{type(error).__name__}: {error}", ErrorDomain.EXTERNAL.value, True, "", detail)
    if isinstance(error, pa.lib.ArrowCapacityError):
        message = f"a column of one batch would be larger than 2 GB: {error}"
        return Failure(message, ErrorDomain.USER.value, False, "Make the texts shorter.", detail)
    text = str(error)
    message = f"internal error: {type(error).__name__}" + (f": {text}" if text else "")
    return Failure(message, ErrorDomain.INTERNAL.value, True, "", detail)
