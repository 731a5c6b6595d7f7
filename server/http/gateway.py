"""The SQL Gateway REST API, versions 1 to 4, as recorded from Apache Flink's own gateway.

A URL without version means the newest. Long-polling, the fields beside `errors`, and the query parameters `maxRows`
and `timeZone` of a result are additions; clients that do not know them lose nothing.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import Response

from server.errors import UnsupportedRequestError
from server.gateway import Gateway
from server.http.errors import bad_parameter, request_error, statement_error
from server.http.json_values import UnmappableValueError
from server.http.requests import (
    CompleteStatementRequestBody,
    ConfigureSessionRequestBody,
    ExecuteStatementRequestBody,
    OpenSessionRequestBody,
    body_of,
    error_response,
    handle,
    json_response,
    token,
)
from server.http.results import RowFormat, not_ready, page_body
from server.settings import zone_name

PRODUCT_NAME = "Headrace"
VERSIONS = (1, 2, 3, 4)
NEWEST = VERSIONS[-1]

_ROWS_ENCODED_INLINE_MAX = 200
"""Larger pages are encoded in a thread: the event loop also carries the JobManager's heartbeats."""


def gateway_router(gateway: Gateway, version: int, product_version: str) -> APIRouter:
    """The routes of one API version, without prefix."""
    router = APIRouter(tags=["SQL gateway"])
    _add_info(router, product_version)
    _add_sessions(router, gateway)
    _add_statements(router, gateway)
    _add_operations(router, gateway, version)
    if version >= 2:
        _add_from_version_2(router, gateway)
    return router


def _add_info(router: APIRouter, product_version: str) -> None:
    @router.get("/info")
    async def info() -> Response:
        """Name and version of this server."""
        return json_response({"productName": PRODUCT_NAME, "version": product_version})

    @router.get("/api_versions")
    async def api_versions() -> Response:
        """Versions of this API."""
        return json_response({"versions": [f"V{v}" for v in VERSIONS]})


def _add_sessions(router: APIRouter, gateway: Gateway) -> None:
    @router.post("/sessions")
    async def open_session(request: Request) -> Response:
        """Open a session. Body: `{"sessionName"?, "properties"?}`."""
        body = await body_of(request, OpenSessionRequestBody)
        try:
            opened = await gateway.open_session(body.session_name or "", body.properties or {})
        except Exception as error:
            return error_response(request_error(error, "openSession"))
        return json_response({"sessionHandle": opened})

    @router.get("/sessions/{session_handle}")
    async def session_config(session_handle: str) -> Response:
        """Effective settings of a session, secrets masked."""
        known = handle("session_handle", session_handle)
        try:
            return json_response({"properties": gateway.properties(known)})
        except Exception as error:
            return error_response(request_error(error, "getSessionConfig"))

    @router.delete("/sessions/{session_handle}")
    async def close_session(session_handle: str) -> Response:
        """Close a session: its queries end, its INSERT jobs run on."""
        known = handle("session_handle", session_handle)
        try:
            await gateway.close_session(known)
        except Exception as error:
            return error_response(request_error(error, "closeSession"))
        return json_response({"status": "CLOSED"})

    @router.post("/sessions/{session_handle}/heartbeat")
    async def heartbeat(session_handle: str) -> Response:
        """Keep a session from expiring."""
        known = handle("session_handle", session_handle)
        try:
            gateway.session(known)
        except Exception as error:
            return error_response(request_error(error, "getSessionConfig"))
        return json_response({})


def _add_statements(router: APIRouter, gateway: Gateway) -> None:
    @router.post("/sessions/{session_handle}/statements")
    async def execute_statement(session_handle: str, request: Request) -> Response:
        """Submit one statement. Its errors show when its result is fetched."""
        known = handle("session_handle", session_handle)
        body = await body_of(request, ExecuteStatementRequestBody)
        try:
            _refuse_timeout(body.execution_timeout)
            operation = gateway.submit(known, body.statement or "", body.execution_config or {})
        except Exception as error:
            return error_response(statement_error(error, "execute statement"))
        return json_response({"operationHandle": operation})


def _add_operations(router: APIRouter, gateway: Gateway, version: int) -> None:
    @router.get("/sessions/{session_handle}/operations/{operation_handle}/status")
    async def status(session_handle: str, operation_handle: str) -> Response:
        """RUNNING, FINISHED (a query: as soon as its job runs), ERROR or CANCELED."""
        session, operation = _handles(session_handle, operation_handle)
        try:
            return json_response({"status": gateway.status(session, operation).value})
        except Exception as error:
            return error_response(request_error(error, "getOperationInfo"))

    @router.post("/sessions/{session_handle}/operations/{operation_handle}/cancel")
    async def cancel(session_handle: str, operation_handle: str) -> Response:
        """Cancel a statement that is still at work."""
        session, operation = _handles(session_handle, operation_handle)
        try:
            return json_response({"status": (await gateway.cancel(session, operation)).value})
        except Exception as error:
            return error_response(request_error(error, "cancelOperation"))

    @router.delete("/sessions/{session_handle}/operations/{operation_handle}/close")
    async def close(session_handle: str, operation_handle: str) -> Response:
        """Forget an operation; a query's job ends."""
        session, operation = _handles(session_handle, operation_handle)
        try:
            await gateway.close(session, operation)
        except Exception as error:
            return error_response(request_error(error, "closeOperation"))
        return json_response({"status": "CLOSED"})

    @router.get("/sessions/{session_handle}/operations/{operation_handle}/result/{result_token}")
    async def fetch_results(
        session_handle: str, operation_handle: str, result_token: str, request: Request
    ) -> Response:
        """A page of a result; `rowFormat` JSON or PLAIN_TEXT."""
        session, operation = _handles(session_handle, operation_handle)
        wanted = token(result_token)
        row_format = _row_format(request, version)
        rows_max = _rows_max(request, gateway.settings.rows_max)
        zone = _time_zone(request)
        suffix = f"?rowFormat={row_format.value}" if version >= 2 else ""
        uri = f"/v{version}/sessions/{session}/operations/{operation}/result/"
        try:
            found, page = await gateway.fetch(session, operation, wanted, rows_max)
            if page is None:
                return json_response(not_ready(f"{uri}{wanted}{suffix}"))
            arguments = (found, page, row_format, f"{uri}{wanted + 1}{suffix}", zone or found.zone)
            if page.rows.num_rows <= _ROWS_ENCODED_INLINE_MAX:
                return json_response(page_body(*arguments))
            return json_response(await asyncio.to_thread(page_body, *arguments))
        except UnmappableValueError as error:
            return json_response(_unmappable(error), 500)
        except Exception as error:
            return error_response(statement_error(error, "fetchResults"))


def _add_from_version_2(router: APIRouter, gateway: Gateway) -> None:
    @router.post("/sessions/{session_handle}/configure-session")
    async def configure_session(session_handle: str, request: Request) -> Response:
        """Run SET, RESET, USE, CREATE or DROP and wait for it."""
        known = handle("session_handle", session_handle)
        body = await body_of(request, ConfigureSessionRequestBody)
        try:
            _refuse_timeout(body.execution_timeout)
            await gateway.configure(known, body.statement or "")
        except Exception as error:
            return error_response(statement_error(error, "configure session"))
        return json_response({})

    @router.get("/sessions/{session_handle}/complete-statement")
    async def complete_statement(session_handle: str, request: Request) -> Response:
        """Candidates for the word at a position. A GET with a body, as in Flink."""
        known = handle("session_handle", session_handle)
        body = await body_of(request, CompleteStatementRequestBody)
        try:
            return json_response({"candidates": gateway.complete(known, body.statement or "", body.position)})
        except Exception as error:
            return error_response(statement_error(error, "complete statement"))


def _handles(session_handle: str, operation_handle: str) -> tuple[str, str]:
    return handle("session_handle", session_handle), handle("operation_handle", operation_handle)


def _row_format(request: Request, version: int) -> RowFormat:
    text = request.query_params.get("rowFormat", RowFormat.JSON.value)
    if version == 1:
        return RowFormat.JSON
    try:
        return RowFormat(text.upper())
    except ValueError:
        raise bad_parameter("query", "rowFormat", text) from None


def _rows_max(request: Request, most: int) -> int:
    text = request.query_params.get("maxRows")
    if text is None:
        return most
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise bad_parameter("query", "maxRows", text)
    return min(int(text), most)


def _time_zone(request: Request) -> str | None:
    text = request.query_params.get("timeZone")
    if text is None:
        return None
    zone = zone_name(text)
    if not zone:
        raise bad_parameter("query", "timeZone", text)
    return zone


def _refuse_timeout(timeout_ms: int | None) -> None:
    if timeout_ms:
        raise UnsupportedRequestError(
            "SqlGatewayService doesn't support timeout mechanism now.", hint="Leave out executionTimeout or send 0."
        )


def _unmappable(error: UnmappableValueError) -> dict[str, object]:
    return {
        "errors": ["Internal server error. Could not map response to JSON."],
        "code": "UNMAPPABLE_VALUE",
        "message": f"the JSON row format has no form for {error}",
        "hint": "Fetch the same token with rowFormat=PLAIN_TEXT.",
    }
