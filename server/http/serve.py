"""Runs the application on a port, inside an event loop that has other work too."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Iterator

import uvicorn
from starlette.types import ASGIApp

from runtime.api import JobClient, MetadataStore
from server.config import Config
from server.gateway import Gateway, GatewaySettings
from server.http.app import create_app
from server.lazy_planner import load_planner

logger = logging.getLogger(__name__)

_GRACE_S = 2
"""How long open requests may take to end; long-polls are shorter."""
_LOAD_AFTER_S = 5.0
"""When the planner is loaded if no statement needed it and nobody asked whether the cluster is ready."""


class _Server(uvicorn.Server):
    """Leaves signals to the process that it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves an application on a socket that is bound already."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=_GRACE_S,
                http="httptools",
            )
        )

    def start(self) -> asyncio.Task[None]:
        """The task ends when the server does."""
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        logger.info("listening on http://%s:%d", *self._listener.getsockname()[:2])
        if not ipaddress.ip_address(self._listener.getsockname()[0]).is_loopback:
            logger.warning("whoever reaches this port can run SQL: put a proxy that authenticates in front of it")
        return serving

    def stop(self) -> None:
        """Open requests may take `_GRACE_S` to end."""
        self._server.should_exit = True


async def open_gateway(config: Config, jobs: JobClient, metadata: MetadataStore) -> Gateway:
    """The gateway over a running JobManager, with its sessions and operations."""
    settings = GatewaySettings(
        long_poll_ms=config.gateway.long_poll_ms,
        rows_max=config.gateway.rows_max,
        session_idle_s=config.gateway.session_idle_s,
        query_idle_s=config.gateway.query_idle_s,
        sessions_max=config.gateway.sessions_max,
        check_interval_s=config.gateway.check_interval_s,
    )
    gateway = await asyncio.to_thread(Gateway, jobs, metadata, settings, config.job)
    await gateway.start()
    return gateway


async def serve(
    config: Config, jobs: JobClient, metadata: MetadataStore, listener: socket.socket, until: Awaitable[None]
) -> None:
    """Gateway and HTTP over a running JobManager until `until` is done; ends queries, leaves other jobs alone."""
    gateway = await open_gateway(config, jobs, metadata)
    server = HttpServer(create_app(gateway, config.jobmanager.slots_expected), listener)
    serving = server.start()
    ending = asyncio.ensure_future(until)
    loading = asyncio.get_running_loop().call_later(_LOAD_AFTER_S, load_planner)
    try:
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        loading.cancel()
        await gateway.stop()
        server.stop()
        await serving
