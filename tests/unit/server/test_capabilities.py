"""What the planner is told a table can do, by its connector and format."""

from __future__ import annotations

import pytest

from planner.catalog import ObjectPath, PhysicalColumn, PrimaryKey, TableCapabilities, TableEntry
from planner.errors import SqlError
from planner.ir.types import INT, STRING, ChangelogMode
from server.catalog.validate import capabilities

KAFKA = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "b:1"}
UPSERT = {**KAFKA, "connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
START = {"scan.startup.mode": "earliest-offset"}
INSERTS, UPSERTS, RETRACTS = ChangelogMode.INSERT_ONLY, ChangelogMode.UPSERT, ChangelogMode.RETRACT


def asked(options: dict[str, str], *, key: bool = False) -> TableCapabilities:
    columns = (PhysicalColumn("k", STRING), PhysicalColumn("v", INT))
    entry = TableEntry(columns, options, primary_key=PrimaryKey("pk", ("k",)) if key else None)
    return capabilities(ObjectPath("c", "d", "t"), entry, options)


@pytest.mark.parametrize(
    ("options", "key", "source", "sink"),
    [
        ({**KAFKA, **START, "format": "json"}, False, INSERTS, INSERTS),
        ({**KAFKA, **START, "format": "debezium-json"}, False, RETRACTS, RETRACTS),
        (UPSERT, True, UPSERTS, UPSERTS),
        ({"connector": "print"}, False, INSERTS, RETRACTS),
        ({"connector": "blackhole"}, False, INSERTS, RETRACTS),
        ({"connector": "filesystem", "path": "/p", "format": "debezium-json"}, False, RETRACTS, None),
        ({"connector": "datagen"}, False, INSERTS, INSERTS),
    ],
)
def test_changelogs(options: dict[str, str], key: bool, source: ChangelogMode, sink: ChangelogMode | None) -> None:
    found = asked(options, key=key)
    assert found.source_changelog is source
    assert sink is None or found.sink_changelog is sink


def test_metadata_of_the_format_is_readable_only() -> None:
    metadata = asked({**KAFKA, **START, "format": "debezium-json"}).metadata
    assert not metadata["value.source.timestamp"].is_writable
    assert metadata["timestamp"].is_writable
    assert "value.source.timestamp" not in asked({**KAFKA, **START, "format": "json"}).metadata


def test_events_with_a_schema_can_be_read_but_not_written() -> None:
    found = asked({**KAFKA, **START, "format": "debezium-json", "debezium-json.schema-include": "true"})
    assert found.is_source
    assert not found.is_sink
    assert "cannot write messages with a schema" in found.sink_refusal


def test_a_format_that_cannot_hold_the_columns_is_refused_at_once() -> None:
    with pytest.raises(SqlError, match="the raw format holds exactly one column, not 2"):
        asked({**KAFKA, **START, "format": "raw"})
