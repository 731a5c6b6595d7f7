"""Request sequences recorded from Apache Flink's gateway, sent to ours: the same status and the same answers.

Of an error only the number of entries and the last cause are compared; its text where the protocol, not SQL, is at
fault. Tokens out of order differ on purpose (see test_result_pages.py).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.unit.server.fakes import FakeServer

DATA = Path(__file__).parents[2] / "data" / "gateway"
HANDLE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
JOB = re.compile(r"[0-9a-f]{32}")
OURS = {"warnings", "changelogMode"}


@pytest.mark.parametrize("name", ["sessions", "definitions", "inserts", "versions", "bad-requests"])
def test_answers_are_those_recorded(server: FakeServer, name: str) -> None:
    recording = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    known: dict[str, str] = {}
    with httpx2.Client(base_url=server.url, timeout=30) as http:
        for number, step in enumerate(recording["steps"]):
            replay(http, step, known, f"{name} step {number}: {step['request']} {step.get('about', '')}")


def replay(http: httpx2.Client, step: dict[str, Any], known: dict[str, str], where: str) -> None:
    method, path = filled(step["request"], known).split(" ", 1)
    content = None
    if "raw_body" in step:
        content = step["raw_body"].encode()
    elif "body" in step:
        content = filled(json.dumps(step["body"]), known).encode()
    answer = http.request(method, path, content=content)
    while answer.json().get("resultType") == "NOT_READY":
        answer = http.request(method, path, content=content)
    assert answer.status_code == step["status"], f"{where}: {answer.text}"
    body = answer.json()
    if "last_cause" in step:
        assert len(body["errors"]) == step["error_entries"], where
        compare_causes(body["errors"][-1], step["last_cause"], where)
        return
    for name, kind in (("sessionHandle", "session"), ("operationHandle", "operation"), ("jobID", "job")):
        if name in body:
            known[kind] = body[name]
    expected = json.loads(filled(json.dumps(step["answer"]), known))
    assert unplaced({k: v for k, v in body.items() if k not in OURS}, expected) == expected, where


def filled(text: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        text = text.replace("{" + name + "}", value)
    return text.replace("{nobody}", "00000000-0000-0000-0000-000000000000")


def unplaced(body: Any, expected: Any) -> Any:
    """`body` with the handles of this run replaced by the placeholders the recording has in their place."""
    if isinstance(expected, str) and isinstance(body, str):
        if expected == "{new}" and HANDLE.fullmatch(body):
            return expected
        if expected == "{job}" and JOB.fullmatch(body):
            return expected
    if isinstance(expected, dict) and isinstance(body, dict):
        return {key: unplaced(value, expected.get(key)) for key, value in body.items()}
    if isinstance(expected, list) and isinstance(body, list) and len(expected) == len(body):
        return [unplaced(b, e) for b, e in zip(body, expected, strict=True)]
    return body


PROTOCOL_EXCEPTIONS = ("org.apache.flink.table.gateway", "org.apache.flink.runtime.rest")


def compare_causes(text: str, recorded: str, where: str) -> None:
    """The words after the last cause, for errors of the protocol itself."""
    ours = text.rpartition("Caused by: ")[2].partition("\n\tat ")[0]
    assert ours, where
    if recorded.startswith(PROTOCOL_EXCEPTIONS):
        assert HANDLE.sub("{handle}", ours) == recorded, where
