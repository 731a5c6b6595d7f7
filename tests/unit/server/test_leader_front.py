"""HTTP of several JobManagers: whichever is asked, the leader answers; without one nobody pretends to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from server.http.leader_front import LeaderFront
from server.http.listener import bind
from server.http.serve import HttpServer


class View:
    def __init__(self) -> None:
        self.leads = False
        self.leader_url = ""


class Echo:
    """An application that tells what it was asked; `/slow` waits until it may go on."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.asked += 1
        if request.url.path == "/slow":
            await self.may_go_on.wait()
        body = await request.body()
        told = {
            "method": request.method,
            "path": scope["raw_path"].decode(),
            "query": request.url.query,
            "host": request.headers["host"],
            "accept": request.headers.get("accept"),
            "body": body.decode(),
        }
        response: Response = JSONResponse(told, 418, {"x-told": "yes"})
        await response(scope, receive, send)


class Pair:
    """Two JobManagers' HTTP and a client."""

    def __init__(self) -> None:
        self.views = [View(), View()]
        self.fronts = [LeaderFront(view) for view in self.views]
        self.urls: list[str] = []
        self.echo = Echo()
        self.client = httpx2.AsyncClient(trust_env=False)

    def lead(self, index: int) -> None:
        """What the election tells both."""
        self.views[index].leads = True
        for view in self.views:
            view.leader_url = self.urls[index]

    async def get(self, index: int, path: str) -> httpx2.Response:
        return await self.client.get(f"{self.urls[index]}{path}")


def with_pair(scenario: Callable[[Pair], Awaitable[None]]) -> None:
    async def run() -> None:
        pair = Pair()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(pair.client.aclose)
            for front in pair.fronts:
                listener = bind("127.0.0.1", 0)
                listener.listen()
                pair.urls.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
                server = HttpServer(front, listener)
                serving = server.start()
                stack.push_async_callback(front.close)
                stack.push_async_callback(asyncio.wait, {serving})
                stack.callback(server.stop)
            async with asyncio.timeout(30):
                await scenario(pair)

    asyncio.run(run())


def test_a_standby_passes_a_request_on_as_it_is() -> None:
    async def scenario(pair: Pair) -> None:
        pair.fronts[0].lead(pair.echo)
        pair.lead(0)
        for index in (0, 1):
            answer = await pair.client.post(
                f"{pair.urls[index]}/v1/a%2Fb/%C3%A4?x=1&y=%20", content=b'{"s": "SELECT 1"}'
            )
            assert (answer.status_code, answer.headers["x-told"]) == (418, "yes")
            assert answer.json() == {
                "method": "POST",
                "path": "/v1/a%2Fb/%C3%A4",
                "query": "x=1&y=%20",
                "host": pair.urls[index].removeprefix("http://"),
                "accept": "*/*",
                "body": '{"s": "SELECT 1"}',
            }
        # Flink's clients are known by what they leave out.
        bare = pair.client.build_request("GET", f"{pair.urls[1]}/info")
        del bare.headers["accept"]
        assert (await pair.client.send(bare)).json()["accept"] is None

    with_pair(scenario)


def test_without_a_leader_there_is_no_answer_but_a_sign_of_life() -> None:
    async def scenario(pair: Pair) -> None:
        assert (await pair.get(0, "/healthz")).status_code == 200
        refused = await pair.get(0, "/jobs")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json() == {"errors": ["no JobManager leads at the moment"]}
        # A leader that is not there, and two that each think that the other leads.
        pair.views[0].leader_url = "http://127.0.0.1:9"
        assert "does not answer" in (await pair.get(0, "/jobs")).json()["errors"][0]
        pair.views[0].leader_url, pair.views[1].leader_url = pair.urls[1], pair.urls[0]
        assert (await pair.get(0, "/jobs")).status_code == 503

    with_pair(scenario)


def test_a_leader_whose_lease_is_over_says_so_at_once() -> None:
    async def scenario(pair: Pair) -> None:
        pair.views[0].leads = True
        assert "is starting" in (await pair.get(0, "/jobs")).json()["errors"][0]
        pair.fronts[0].lead(pair.echo)
        assert (await pair.get(0, "/jobs")).status_code == 418
        pair.views[0].leads = False
        pair.views[0].leader_url = pair.urls[1]
        refused = await pair.client.post(f"{pair.urls[0]}/v1/sessions")
        assert (refused.status_code, refused.json()) == (503, {"errors": [f"the JobManager at {pair.urls[1]} leads"]})
        assert pair.echo.asked == 1

    with_pair(scenario)


def test_nobody_waits_for_a_leader_of_yesterday() -> None:
    async def scenario(pair: Pair) -> None:
        pair.fronts[0].lead(pair.echo)
        pair.lead(0)
        waiting = asyncio.create_task(pair.get(1, "/slow"))
        while not pair.echo.asked:
            await asyncio.sleep(0.01)
        pair.views[1].leader_url = ""
        refused = await waiting
        assert refused.status_code == 503
        assert "leads no more" in refused.json()["errors"][0]
        pair.echo.may_go_on.set()

    with_pair(scenario)
