"""Reading a query's rows from the slot that holds them: the client's side."""

from __future__ import annotations

import asyncio

from runtime.api import ResultLostError, ResultPage
from runtime.exchange.frames import (
    HEADER_BYTES,
    FetchRequest,
    FrameError,
    FrameKind,
    encode,
    frame,
    parse_header,
)
from runtime.exchange.results import decode_page
from runtime.ids import AttemptId

_CONNECT_TIMEOUT_S = 10.0
_ANSWER_MARGIN_S = 30.0


async def fetch(address: tuple[str, int], attempt: AttemptId, sequence: int, rows_max: int, wait_ms: int) -> ResultPage:
    """Rows from number `sequence` on, at most `rows_max`; waits up to `wait_ms` when none is there (the page is then
    empty and asks for the same sequence again). The last page may be asked for again. Raises ResultLostError when
    the task or its process is gone, or the rows have been given out before."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S + wait_ms / 1000.0 + _ANSWER_MARGIN_S):
            return await _exchange(address, FetchRequest(attempt, sequence, rows_max, wait_ms))
    except (OSError, EOFError, TimeoutError, FrameError) as error:
        raise ResultLostError(f"the process that held the result does not answer: {error}") from error


async def _exchange(address: tuple[str, int], request: FetchRequest) -> ResultPage:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(frame(FrameKind.FETCH, encode(request)))
        await writer.drain()
        head = parse_header(await reader.readexactly(HEADER_BYTES))
        body = await reader.readexactly(head.length)
    finally:
        writer.close()
    if head.kind is FrameKind.LOST:
        raise ResultLostError(body.decode())
    if head.kind is not FrameKind.PAGE:
        raise FrameError(f"unexpected {head.kind.name}")
    return decode_page(body)
