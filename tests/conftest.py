"""Fixtures every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import s3 as s3_support
from tests.support.kafka import broker_for_tests
from tests.support.postgresql import PostgresServer, server_for_tests

# A run of the suite draws the same examples every time; `make fuzz` draws many new ones. No deadline per example:
# how long one takes says more about what else the machine does than about the code.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "fuzz", deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the golden files anew instead of comparing")


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Bootstrap servers of a real Kafka broker: the one that `make test` started, else one of the session's own,
    started at first use (under pytest-xdist: of the worker's own)."""
    with broker_for_tests() as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture(scope="session")
def s3() -> Iterator[s3_support.S3Server]:
    """A real S3 server, started at first use and shared by the session (under pytest-xdist: by the worker)."""
    with s3_support.server_for_tests() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, started at first use and shared by the session (under pytest-xdist: by the worker)."""
    with server_for_tests() as server:
        yield server
