"""Exceptions to error bodies in the shape Flink's clients read.

`{"errors": […]}`. Flink's shell shows the text after the *last* `Caused by: ` up to the first `\\n\\tat `, so the
chain ends with what a person should read. Beside it stand plain fields for programs: `code`, `message`, and for SQL
`sqlState`, `line`, `column`, `hint`, `excerpt` (the line with carets); Flink's own clients do not get them, since they
refuse unknown fields (see app.py). Status 500 is what Flink's gateway answers for
every failed statement; a token that cannot be served is the client's own fault: 410 if its page is gone, else 400.
"""

from __future__ import annotations

from typing import Any

import msgspec

from planner.errors import SqlError
from runtime.api import JobFailedError, StaleLeaderError
from server.errors import GatewayError, LimitReachedError, TokenAheadError, TokenPassedError
from server.secrets import masked_sql

_GATEWAY_EXCEPTION = "org.apache.flink.table.gateway.api.utils.SqlGatewayException"
_REST_EXCEPTION = "org.apache.flink.runtime.rest.handler.RestHandlerException"
_FRAME = "\n\tat headrace.server(gateway)"

_STATUS: dict[type[Exception], int] = {
    TokenPassedError: 410,
    TokenAheadError: 400,
    LimitReachedError: 503,
    StaleLeaderError: 503,
}


class ErrorBody(msgspec.Struct, frozen=True):
    """Status and body of an error response."""

    status: int
    body: dict[str, Any]


class BadRequestError(Exception):
    """A path, a query parameter or a body is malformed. `headline` and `cause` as Flink words them."""

    def __init__(self, headline: str, cause: str, status: int = 400) -> None:
        super().__init__(cause)
        self.headline = headline
        self.cause = cause
        self.status = status


class NotFoundError(Exception):
    """Nothing under this URL; `text` is what the body says."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def bad_parameter(kind: str, name: str, value: str) -> BadRequestError:
    """`kind` is path or query."""
    cause = f'Cannot resolve {kind} parameter ({name}) from value "{value}".'
    return BadRequestError(f"Bad request, could not parse parameters: {cause}", cause)


def bad_body(format_name: str, cause: str) -> BadRequestError:
    return BadRequestError(f"Request did not match expected format {format_name}.", cause)


# Classes of PostgreSQL: data exception, system error, internal error.
_FAILURE_STATES = {"user": "22000", "external": "58000", "internal": "XX000"}


def statement_error(error: Exception, step: str) -> ErrorBody:
    """What a failed statement or fetch answers; `step` names what was tried, e.g. `fetchResults`."""
    name, message = _readable(error)
    text = (
        f"<Exception on server side:\n{_GATEWAY_EXCEPTION}: Failed to {step}.{_FRAME}"
        f"\nCaused by: {name}: {_inert(message)}{_FRAME}\n\nEnd of exception on server side>"
    )
    return ErrorBody(_status(error), {"errors": ["Internal server error.", text], **_fields(error)})


def request_error(error: Exception, step: str) -> ErrorBody:
    """What a failed request about a session or an operation answers."""
    name, message = _readable(error)
    text = f"{_REST_EXCEPTION}: Failed to {step}.{_FRAME}\nCaused by: {name}: {_inert(message)}{_FRAME}\n"
    return ErrorBody(_status(error), {"errors": [text], **_fields(error)})


def bad_request(error: BadRequestError) -> ErrorBody:
    text = f"{_REST_EXCEPTION}: {_inert(error.headline)}{_FRAME}"
    text += (
        f"\nCaused by: org.apache.flink.runtime.rest.handler.HandlerRequestException: {_inert(error.cause)}{_FRAME}\n"
    )
    return ErrorBody(error.status, {"errors": [text], "code": "BAD_REQUEST", "message": error.cause})


def _status(error: Exception) -> int:
    return _STATUS.get(type(error), 500)


def _readable(error: Exception) -> tuple[str, str]:
    """Class name and text for people."""
    match error:
        case SqlError():
            place = f" (line {error.line}, column {error.column})" if error.line else ""
            lines = [
                f"[{error.sqlstate}] {error.message}{place}",
                masked_excerpt(error.caret()),
                _hint_line(error.hint),
            ]
            return "headrace.SqlError", "\n".join(line for line in lines if line)
        case JobFailedError():
            failure = error.failure
            return "headrace.JobFailed", "\n".join(x for x in (failure.message, _hint_line(failure.hint)) if x)
        case GatewayError():
            return _GATEWAY_EXCEPTION, error.message
        case _:
            return "headrace.InternalError", f"{type(error).__name__}: {error}"


def _hint_line(hint: str) -> str:
    return f"Hint: {hint}" if hint else ""


def _fields(error: Exception) -> dict[str, Any]:
    match error:
        case SqlError():
            fields: dict[str, Any] = {"code": "SQL_ERROR", "message": error.message, "sqlState": error.sqlstate}
            if error.line:
                fields |= {"line": error.line, "column": error.column, "excerpt": masked_excerpt(error.caret())}
            return fields | ({"hint": error.hint} if error.hint else {})
        case JobFailedError():
            failure = error.failure
            state = _FAILURE_STATES.get(failure.domain, _FAILURE_STATES["internal"])
            fields = {"code": "JOB_FAILED", "message": failure.message, "domain": failure.domain, "sqlState": state}
            return fields | ({"hint": failure.hint} if failure.hint else {})
        case GatewayError():
            return {"code": error.code, "message": error.message} | ({"hint": error.hint} if error.hint else {})
        case _:
            return {"code": "INTERNAL_ERROR", "message": f"{type(error).__name__}: {error}"}


def masked_excerpt(excerpt: str) -> str:
    """The source line and its carets. A line with a secret is shown masked and without carets: they would not fit."""
    line = excerpt.partition("\n")[0]
    hidden = masked_sql(line)
    return excerpt if hidden == line else hidden


def _inert(message: str) -> str:
    """The message without the two marks clients cut a stack trace by."""
    return message.replace("Caused by: ", "caused by: ").replace("\n\tat ", "\n  at ")
