"""A server over fake jobs, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.fakes import FakeServer
from tests.unit.server.gateway_client import Gateway


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    running = FakeServer(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def gateway(server: FakeServer) -> Iterator[Gateway]:
    with Gateway(server.url) as client:
        yield client
