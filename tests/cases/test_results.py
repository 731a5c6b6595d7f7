"""Cases of results that change, as a client of the gateway reads them: pages, row kinds, batch mode, failures."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.standalone import GatewayError, Session, Standalone, request

KEYS, ROUNDS = 3, 40
KINDS = {"INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"}


@pytest.fixture
def session(cluster: Standalone, tmp_path: Path) -> Session:
    lines = [json.dumps({"k": f"k{i % KEYS}", "v": i}) for i in range(KEYS * ROUNDS)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    made = cluster.session({"parallelism.default": "2"})
    made.execute(
        f"CREATE TEMPORARY TABLE t (k STRING, v INT) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.jsonl', 'format' = 'json')"
    )
    return made


TOTALS = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM t GROUP BY k"


def expected() -> Counter[tuple[Any, ...]]:
    return Counter((f"k{i}", ROUNDS, sum(range(i, KEYS * ROUNDS, KEYS))) for i in range(KEYS))


def test_pages_of_changes_are_asked_for_again(session: Session) -> None:
    """Each page twice: the same changes both times, and each change once over all pages."""
    base = f"{session.url}/v1/sessions/{session.handle}"
    operation = request("POST", f"{base}/statements", {"statement": TOTALS})["operationHandle"]
    uri: str | None = f"/v1/sessions/{session.handle}/operations/{operation}/result/0"
    held: Counter[tuple[Any, ...]] = Counter()
    kinds = set()
    while uri is not None:
        page = request("GET", session.url + uri)
        if page["resultType"] == "NOT_READY":
            continue
        assert request("GET", session.url + uri)["results"]["data"] == page["results"]["data"]
        for row in page["results"]["data"]:
            kinds.add(row["kind"])
            fields = tuple(row["fields"])
            held[fields] += 1 if row["kind"] in ("INSERT", "UPDATE_AFTER") else -1
            assert held[fields] >= 0, f"{row} takes back what is not there"
        uri = page.get("nextResultUri")
    assert +held == expected()
    assert kinds <= KINDS
    assert "UPDATE_BEFORE" in kinds


def test_batch_mode_gives_each_final_row_once(session: Session) -> None:
    session.execute("SET 'execution.runtime-mode' = 'batch'")
    result = session.execute(TOTALS)
    assert set(result.kinds) == {"INSERT"}
    assert Counter(result.rows) == expected()
    assert session.execute("SELECT COUNT(*), SUM(v) FROM t WHERE v < 0").rows == [(0, None)]


def test_a_failure_in_a_group_tells_its_reader(session: Session) -> None:
    with pytest.raises(GatewayError, match="division by zero"):
        session.execute(f"SELECT k, SUM(100 / (v - {KEYS * ROUNDS - 1})) FROM t GROUP BY k")
    assert Counter(session.execute(TOTALS).rows) == expected()


def test_a_refusal_points_at_its_place(session: Session) -> None:
    with pytest.raises(GatewayError, match=r"42803.*`v`.*line 2, column 3"):
        session.execute("SELECT k,\n  v FROM t\nGROUP BY k")
