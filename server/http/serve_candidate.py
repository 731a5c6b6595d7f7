"""HTTP of one of several JobManagers, inside an event loop that has other work too."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Coroutine
from typing import Any

from runtime.api import JobClient, LeaderView, MetadataStore
from server.config import Config
from server.gateway import Gateway
from server.http.app import create_app
from server.http.leader_front import LeaderFront
from server.http.serve import HttpServer, open_gateway
from server.lazy_planner import load_planner


async def serve_candidate(
    config: Config,
    view: LeaderView,
    elected: Coroutine[Any, Any, tuple[JobClient, MetadataStore]],
    listener: socket.socket,
    until: Awaitable[None],
) -> None:
    """HTTP of one of several JobManagers until `until` is done: passed on to the leader, and answered here once
    `elected` has given a JobManager. Raises what `elected` raises."""
    front = LeaderFront(view)
    server = HttpServer(front, listener)
    serving = server.start()
    leading = asyncio.create_task(_lead(config, front, elected))
    ending = asyncio.ensure_future(until)
    try:
        await asyncio.wait({serving, ending, leading}, return_when=asyncio.FIRST_COMPLETED)
        if leading.done() and not ending.done():
            leading.result()
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        if leading.done() and not leading.cancelled() and leading.exception() is None:
            await leading.result().stop()
        leading.cancel()
        server.stop()
        await serving
        await front.close()


async def _lead(
    config: Config, front: LeaderFront, elected: Coroutine[Any, Any, tuple[JobClient, MetadataStore]]
) -> Gateway:
    load_planner()  # A standby has the time; a leader must not lose any.
    jobs, metadata = await elected
    gateway = await open_gateway(config, jobs, metadata)
    front.lead(create_app(gateway, config.jobmanager.slots_expected))
    return gateway
