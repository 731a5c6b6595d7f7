"""The one HTTP application: routes, health, and what happens to every request before and after its handler."""

from __future__ import annotations

import logging
from importlib import metadata

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.api import StaleLeaderError
from server.gateway import Gateway
from server.http.errors import BadRequestError, NotFoundError, bad_request
from server.http.gateway import NEWEST, VERSIONS, gateway_router
from server.http.jobs import jobs_router
from server.http.metrics import CONTENT_TYPE, metrics_text
from server.http.requests import error_response, json_response
from server.lazy_planner import load_planner

logger = logging.getLogger(__name__)

PRODUCT_VERSION = metadata.version("headrace")


def create_app(gateway: Gateway, slots_expected: int = 0) -> FastAPI:
    """The application over a gateway that is (or will be) started. Ready = `slots_expected` slots are registered."""
    app = FastAPI(
        title="Headrace",
        version=PRODUCT_VERSION,
        description="Flink SQL Gateway API v1–v4, JobManager monitoring API, metrics and health.",
        docs_url=None,
        redoc_url=None,
    )
    for version in VERSIONS:
        router = gateway_router(gateway, version, PRODUCT_VERSION)
        app.include_router(router, prefix=f"/v{version}", include_in_schema=version == NEWEST)
    app.include_router(gateway_router(gateway, NEWEST, PRODUCT_VERSION), include_in_schema=False)
    router = jobs_router(gateway.jobs, PRODUCT_VERSION)
    app.include_router(router)
    app.include_router(router, prefix="/v1", include_in_schema=False)
    _add_health(app, gateway, slots_expected)
    _add_errors(app)
    app.add_middleware(_ForeignPageGuard)
    app.add_middleware(_StrictErrors)
    return app


def _add_health(app: FastAPI, gateway: Gateway, slots_expected: int) -> None:
    @app.get("/healthz", tags=["health"])
    async def healthz() -> Response:
        """The process answers."""
        return json_response({"status": "ok"})

    @app.get("/readyz", tags=["health"])
    async def readyz() -> Response:
        """Statements can run: 200, else 503."""
        overview = await gateway.jobs.overview()
        ready = overview.slots_total >= slots_expected
        if ready:
            load_planner()  # Not before: until then it would take the CPU that the start needs.
        body: dict[str, object] = {
            "status": "ready" if ready else "waiting for slots",
            "slotsTotal": overview.slots_total,
            "slotsExpected": slots_expected,
        }
        return json_response(body, 200 if ready else 503)

    @app.get("/metrics", tags=["metrics"])
    async def metrics() -> Response:
        """Prometheus text."""
        return PlainTextResponse(await metrics_text(gateway.jobs), media_type=CONTENT_TYPE)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(BadRequestError)
    async def on_bad_request(request: Request, error: BadRequestError) -> Response:
        return error_response(bad_request(error))

    @app.exception_handler(NotFoundError)
    async def on_not_found(request: Request, error: NotFoundError) -> Response:
        return json_response({"errors": [error.text]}, 404)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code in (404, 405):  # Flink answers a wrong method like an unknown URL.
            return json_response({"errors": [f"Not found: {request.url.path}"]}, 404)
        return json_response({"errors": [str(error.detail)]}, error.status_code)

    @app.exception_handler(StaleLeaderError)
    async def on_stale_leader(request: Request, error: StaleLeaderError) -> Response:
        return json_response({"errors": [f"{error}: ask again"]}, 503)

    @app.exception_handler(Exception)
    async def on_bug(request: Request, error: Exception) -> Response:
        logger.exception("request failed: %s %s", request.method, request.url.path, exc_info=error)
        return json_response({"errors": ["Internal server error."], "code": "INTERNAL_ERROR"}, 500)


class _ForeignPageGuard:
    """A web page of another origin must not drive a server on loopback through its reader's browser."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            headers = Headers(scope=scope)
            origin = headers.get("origin")
            if origin is not None and origin.partition("://")[2] != headers.get("host"):
                refusal = json_response({"errors": [f"requests from pages of {origin} are refused"]}, 403)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _StrictErrors:
    """Keeps error bodies to `errors` alone for Flink's own clients: they refuse a body with a field they do not know,
    and then show nothing of it. They are the ones that send no Accept header; every other HTTP client does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "accept" in Headers(scope=scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def send_strict(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] >= 400:
                start = message
            elif start is not None:
                content = orjson.loads(message["body"])
                body = orjson.dumps({"errors": content["errors"]}) if "errors" in content else message["body"]
                headers = MutableHeaders(raw=list(start["headers"]))
                headers["content-length"] = str(len(body))
                await send({**start, "headers": headers.raw})
                await send({**message, "body": body})
            else:
                await send(message)

        await self._app(scope, receive, send_strict)
