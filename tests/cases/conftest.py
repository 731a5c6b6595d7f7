"""One cluster for all cases of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.standalone import Standalone, standalone


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cases-cluster")) as running:
        yield running
