"""Reading requests: bodies, handles and parameters, with the errors Flink's gateway gives for bad ones."""

from __future__ import annotations

import uuid
from typing import TypeVar

import msgspec
import orjson
from fastapi import Request
from fastapi.responses import Response

from server.http.errors import BadRequestError, ErrorBody, bad_body, bad_parameter

BODY_BYTES_MAX = 16 * 1024 * 1024

_JSON = "application/json; charset=UTF-8"

T = TypeVar("T")


class OpenSessionRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    session_name: str | None = None
    properties: dict[str, str] | None = None


class ExecuteStatementRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    statement: str | None = None
    execution_timeout: int | None = None
    execution_config: dict[str, str] | None = None


class ConfigureSessionRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    statement: str | None = None
    execution_timeout: int | None = None


class CompleteStatementRequestBody(msgspec.Struct, frozen=True):
    statement: str | None = None
    position: int = 0


async def body_of(request: Request, kind: type[T]) -> T:
    """The JSON body; absent or empty counts as `{}`, unknown fields are ignored. Raises BadRequestError."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise BadRequestError("Request is too large.", f"the limit is {BODY_BYTES_MAX} bytes", status=413)
    try:
        return msgspec.convert(orjson.loads(data) if data.strip() else {}, kind, strict=False)
    except (orjson.JSONDecodeError, msgspec.ValidationError) as error:
        raise bad_body(kind.__name__, str(error)) from error


def handle(name: str, value: str) -> str:
    """A session or operation handle in canonical form; `name` is the path parameter's."""
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise bad_parameter("path", name, value) from None


def token(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise bad_parameter("path", "token", value)
    return int(value)


def json_response(data: bytes | dict[str, object], status: int = 200) -> Response:
    return Response(data if isinstance(data, bytes) else orjson.dumps(data), status, media_type=_JSON)


def error_response(error: ErrorBody) -> Response:
    return json_response(error.body, error.status)
