"""An expression that no kernel can evaluate is refused when the statement is submitted, at its place in the text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.standalone import GatewayError, Standalone, standalone


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    directory: Path = tmp_path_factory.mktemp("refused")
    with standalone(directory, taskmanagers=1, slots=1) as running:
        yield running


def test_a_regular_expression_only_java_understands_is_refused_before_the_job_starts(cluster: Standalone) -> None:
    session = cluster.session()
    with pytest.raises(GatewayError) as refused:
        session.execute("SELECT\n  REGEXP_REPLACE(x, '[a-z&&[^b]]', '')\nFROM (VALUES ('abc')) AS t(x)")
    text = str(refused.value)
    assert "0A000" in text
    assert "line 2, column 3" in text
    assert "REGEXP_REPLACE" in text
    assert session.execute("SHOW JOBS").rows == []
