"""One cluster for all tests of a module that do not need one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two TaskManagers with two slots each. Whatever a test kills comes back; its jobs have ended when it ends."""
    with Cluster(tmp_path_factory.mktemp("cluster"), taskmanagers=2, slots=2) as running:
        yield running
