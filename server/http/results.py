"""A page of Arrow rows as the JSON of a result response."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import orjson

from runtime.api import JobId
from server.http.json_values import json_values
from server.http.logical_types import columns
from server.http.plain_text import plain_texts
from server.operations import Operation, Page

_KINDS = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")


class RowFormat(StrEnum):
    """How the fields of a row are written."""

    JSON = "JSON"
    PLAIN_TEXT = "PLAIN_TEXT"


def not_ready(next_uri: str) -> bytes:
    """The statement is still at work: ask under the same token."""
    return orjson.dumps({"resultType": "NOT_READY", "nextResultUri": next_uri})


def page_body(operation: Operation, page: Page, row_format: RowFormat, next_uri: str, zone: str) -> bytes:
    """The response for a page: the same page, format and zone give the same bytes.

    Raises UnmappableValueError when the JSON row format cannot hold a column.
    """
    result = operation.result
    assert result is not None
    body: dict[str, Any] = {"resultType": "EOS" if page.ended else "PAYLOAD", "isQueryResult": result.is_query}
    if result.job_id is not None:
        body["jobID"] = JobId(result.job_id)
    body["resultKind"] = "SUCCESS_WITH_CONTENT" if result.has_content else "SUCCESS"
    body["results"] = {
        "columns": columns(result.schema),
        "rowFormat": row_format.value,
        "data": _data(operation, page, row_format, zone),
    }
    if not page.ended:
        body["nextResultUri"] = next_uri
    if result.is_query:
        body["changelogMode"] = result.changelog.value
    if page.token == 0 and operation.notices:
        body["warnings"] = operation.notices
    return orjson.dumps(body)


def _data(operation: Operation, page: Page, row_format: RowFormat, zone: str) -> list[dict[str, Any]]:
    encode = json_values if row_format is RowFormat.JSON else plain_texts
    encoded = [
        encode(array, data_type, zone)
        for array, data_type in zip(page.rows.columns, operation.schema.types, strict=True)
    ]
    rows = zip(*encoded, strict=True)
    if page.row_kinds is None:
        return [{"kind": "INSERT", "fields": row} for row in rows]
    kinds = page.row_kinds.to_numpy().tolist()
    return [{"kind": _KINDS[kind], "fields": row} for kind, row in zip(kinds, rows, strict=True)]
