"""Paging by token: the same token gives the same page, no row is lost or doubled, wrong tokens are the client's."""

from __future__ import annotations

import time

import pytest

from planner.ir import types as t
from runtime.api import Failure, JobState
from server.statements.result import texts
from tests.unit.server.fakes import FakeQuery, FakeServer
from tests.unit.server.gateway_client import Gateway, StatementFailedError

VALUES = "SELECT id FROM (VALUES (1)) AS v(id)"


def ids(count: int, **options: bool) -> FakeQuery:
    return FakeQuery.of((t.INT,), [(i,) for i in range(count)], **options)


def test_small_pages_join_to_the_whole_result(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = ids(25)
    pages = list(gateway.pages(gateway.submit(VALUES), maxRows=10))
    assert [len(page["results"]["data"]) for page in pages] == [10, 10, 5, 0]
    assert [row["fields"][0] for page in pages for row in page["results"]["data"]] == list(range(25))
    assert [page["resultType"] for page in pages] == ["PAYLOAD"] * 3 + ["EOS"]
    assert "nextResultUri" not in pages[-1]


def test_a_repeated_token_gives_the_same_bytes(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = ids(25)
    operation = gateway.submit(VALUES)
    gateway.first(operation, maxRows=10)
    second = gateway.page(operation, 1, maxRows=10)
    assert gateway.page(operation, 1, maxRows=10).content == second.content
    assert gateway.page(operation, 1, maxRows=3).content == second.content
    as_text = gateway.page(operation, 1, rowFormat="PLAIN_TEXT").json()
    assert as_text["results"]["data"][0]["fields"] == ["10"]
    assert as_text["nextResultUri"].endswith("result/2?rowFormat=PLAIN_TEXT")


def test_tokens_out_of_order_are_client_errors(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = ids(25)
    operation = gateway.submit(VALUES)
    gateway.first(operation, maxRows=10)
    for token in (1, 2):
        assert gateway.page(operation, token, maxRows=10).status_code == 200
    passed = gateway.page(operation, 0)
    assert passed.status_code == 410
    assert "Expecting token to be 3 or 2, but found 0." in passed.json()["errors"][1]
    assert gateway.page(operation, 99).status_code == 400
    assert gateway.page(operation, -1).status_code == 400
    assert gateway.page(operation, "x").status_code == 400
    assert gateway.page(operation, 3).json()["resultType"] == "EOS"
    assert gateway.page(operation, 3).json()["resultType"] == "EOS"
    assert gateway.page(operation, 4).status_code == 400


def test_bad_formats_and_sizes_are_client_errors(server: FakeServer, gateway: Gateway) -> None:
    operation = gateway.submit("SHOW CATALOGS")
    gateway.first(operation)
    assert gateway.page(operation, 1, rowFormat="XML").status_code == 400
    assert gateway.page(operation, 1, maxRows=0).status_code == 400
    assert gateway.page(operation, 1, timeZone="Mars").status_code == 400


def test_a_statement_at_work_is_not_ready_under_the_same_token(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.before_submit = lambda: time.sleep(0.5)
    operation = gateway.submit(VALUES)
    assert gateway.status(operation) == "RUNNING"
    started_s = time.monotonic()
    answer = gateway.page(operation, 0).json()
    assert time.monotonic() - started_s < 0.5
    assert answer == {
        "resultType": "NOT_READY",
        "nextResultUri": f"{gateway.operation_path(operation)}/result/0?rowFormat=JSON",
    }
    assert gateway.first(operation)["resultType"] in ("PAYLOAD", "EOS")


def test_a_query_without_rows_is_held_for_the_long_poll(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = FakeQuery(ended=False)
    operation = gateway.submit(VALUES)
    gateway.first(operation)
    started_s = time.monotonic()
    page = gateway.page(operation, 1).json()
    assert 0.09 <= time.monotonic() - started_s < 2
    assert page["resultType"] == "PAYLOAD"
    assert page["results"]["data"] == []
    assert gateway.status(operation) == "FINISHED"


def test_results_of_two_sessions_do_not_mix(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = ids(3)
    mine = gateway.submit(VALUES)
    gateway.first(mine)
    with Gateway(server.url) as other:
        server.jobs.query = FakeQuery.of((t.INT,), [(100,)])
        theirs = other.submit(VALUES)
        assert other.first(theirs)["results"]["data"][0]["fields"] == [100]
        assert gateway.page(mine, 0).json()["results"]["data"][0]["fields"] == [0]
        other_path = f"/v4/sessions/{gateway.session}/operations/{theirs}/result/0"
        assert gateway.http.get(other_path).json()["code"] == "UNKNOWN_OPERATION"


def test_kinds_of_change_are_named(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = FakeQuery.of((t.INT,), [(1,), (1,), (2,), (2,)], kinds=[0, 1, 2, 3])
    page = gateway.first(gateway.submit(VALUES))
    assert [row["kind"] for row in page["results"]["data"]] == ["INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"]


def test_a_query_that_fails_while_running_tells_its_reader(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = ids(1, ended=False)
    server.jobs.query.failure = Failure("cannot cast 'x' to INT", "user", False, "Use TRY_CAST.")
    operation = gateway.submit(VALUES)
    pages = gateway.pages(operation)
    assert len(next(pages)["results"]["data"]) == 1
    with pytest.raises(StatementFailedError) as failure:
        next(pages)
    body = failure.value.body
    assert body["message"] == "cannot cast 'x' to INT"
    assert body["hint"] == "Use TRY_CAST."
    last_cause = body["errors"][1].rpartition("Caused by: ")[2].partition("\n\tat ")[0]
    assert last_cause == "headrace.JobFailed: cannot cast 'x' to INT\nHint: Use TRY_CAST."
    assert gateway.status(operation) == "ERROR"
    assert gateway.page(operation, 1).status_code == 500


def test_closing_a_query_cancels_its_job(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = ids(1, ended=False)
    operation = gateway.submit(VALUES)
    job_id = gateway.first(operation)["jobID"]
    cancel = gateway.http.post(f"{gateway.operation_path(operation)}/cancel")
    assert cancel.status_code == 500
    assert "from FINISHED to CANCELED" in cancel.json()["errors"][0]
    assert server.jobs.states[job_id] is JobState.RUNNING
    for _ in range(2):
        assert gateway.http.delete(f"{gateway.operation_path(operation)}/close").json() == {"status": "CLOSED"}
    assert server.jobs.states[job_id] is JobState.CANCELED
    assert gateway.http.get(f"{gateway.operation_path(operation)}/status").status_code == 500


def test_cancelling_while_a_statement_is_submitted_takes_the_job_back(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.before_submit = lambda: time.sleep(0.3)
    operation = gateway.submit(VALUES)
    assert gateway.page(operation, 0).json()["resultType"] == "NOT_READY"
    assert gateway.http.post(f"{gateway.operation_path(operation)}/cancel").json() == {"status": "CANCELED"}
    assert gateway.status(operation) == "CANCELED"
    assert "in CANCELED status" in gateway.page(operation, 0).json()["message"]
    deadline_s = time.monotonic() + 10
    while JobState.CANCELED not in server.jobs.states.values():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_closing_a_session_ends_its_queries_and_keeps_its_inserts(server: FakeServer, gateway: Gateway) -> None:
    server.jobs.query = ids(1, ended=False)
    query = gateway.first(gateway.submit(VALUES))["jobID"]
    gateway.run("CREATE TABLE s (k INT) WITH ('connector' = 'datagen')")
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    insert = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]
    assert gateway.http.delete(f"/v4/sessions/{gateway.session}").json() == {"status": "CLOSED"}
    assert server.jobs.states[query] is JobState.CANCELED
    assert server.jobs.states[insert] is JobState.RUNNING


def test_stored_results_are_paged_too(server: FakeServer, gateway: Gateway) -> None:
    pages = list(gateway.pages(gateway.submit("SHOW FUNCTIONS"), maxRows=7))
    names = [row["fields"][0] for page in pages for row in page["results"]["data"]]
    assert max(len(page["results"]["data"]) for page in pages) == 7
    assert names == sorted(set(names))
    assert texts("function name", names).rows.num_rows == len(names)
