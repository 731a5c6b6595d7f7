"""HTTP of one of several JobManagers: its own application while it leads; else every request is passed on to the
leader, so that clients may use any address and need not follow redirects (Flink's do not)."""

from __future__ import annotations

import asyncio
import logging

import httpx2
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.api import LeaderView
from server.http.requests import BODY_BYTES_MAX, json_response

logger = logging.getLogger(__name__)
logging.getLogger("httpx2").setLevel(logging.WARNING)  # It tells of every request.

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 120.0
LOOK_S = 0.25
"""How often a request under way looks whether the same JobManager still leads."""
RETRY_AFTER_S = 1
_FORWARDED = "x-headrace-forwarded"
"""Marks what a standby has passed on: it is never passed on again, whatever two JobManagers think of each other."""
_OF_THE_CONNECTION = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)


class LeaderFront:
    """An ASGI application. `/healthz` is answered by every process for itself."""

    def __init__(self, view: LeaderView) -> None:
        self._view = view
        self._own: ASGIApp | None = None
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S), trust_env=False
        )

    def lead(self, app: ASGIApp) -> None:
        """From now on requests are answered here, as long as the lease is held."""
        self._own = app

    async def close(self) -> None:
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        if self._own is not None and self._view.leads:
            await self._own(scope, receive, send)
            return
        request = Request(scope, receive)
        if request.url.path == "/healthz":
            response: Response = json_response({"status": "ok"})
        else:
            response = await self._elsewhere(request)
        await response(scope, receive, send)

    async def _elsewhere(self, request: Request) -> Response:
        url = self._view.leader_url
        if self._view.leads:
            return _unavailable("this JobManager has just been elected and is starting")
        if self._own is not None or not url:
            return _unavailable("no JobManager leads at the moment" if not url else f"the JobManager at {url} leads")
        if _FORWARDED in request.headers:
            return _unavailable("this JobManager does not lead any more, and no other is known")
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                return json_response({"errors": ["Request is too large."]}, 413)
        forwarding = asyncio.create_task(self._forward(request, url, bytes(body)))
        try:
            while not forwarding.done():
                await asyncio.wait({forwarding}, timeout=LOOK_S)
                if self._view.leader_url != url and not forwarding.done():
                    # A leader that is paused or cut off would keep the client waiting for ever.
                    return _unavailable(f"the JobManager at {url} leads no more; whether it did this is not known")
            return forwarding.result()
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            logger.debug("forwarding to %s: %s", url, error)
            return _unavailable(f"the leading JobManager at {url} does not answer")
        finally:
            forwarding.cancel()

    async def _forward(self, request: Request, leader_url: str, body: bytes) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        # The path as it was sent: escapes in names must arrive as they were.
        path = request.scope.get("raw_path", request.url.path.encode()).decode("ascii")
        forwarded = self._client.build_request(request.method, f"{leader_url.rstrip('/')}{path}{query}", content=body)
        # The client's headers and no others: what a client leaves out means something, too.
        headers = {name: value for name, value in request.headers.items() if name not in _OF_THE_CONNECTION}
        headers |= {"content-length": str(len(body)), _FORWARDED: "1"}
        forwarded.headers = httpx2.Headers(headers)
        answer = await self._client.send(forwarded, stream=True)
        try:
            content = b"".join([piece async for piece in answer.aiter_raw()])
        finally:
            await answer.aclose()
        kept = {name: value for name, value in answer.headers.items() if name not in _OF_THE_CONNECTION}
        return Response(content, answer.status_code, kept)


def _unavailable(reason: str) -> Response:
    response = json_response({"errors": [reason]}, 503)
    response.headers["retry-after"] = str(RETRY_AFTER_S)
    return response
