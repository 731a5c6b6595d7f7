"""Driving a source connector as a source operator does."""

from __future__ import annotations

import pyarrow as pa

from connectors.api import (
    MetadataField,
    ReaderContext,
    SourceConnector,
    SourceReader,
    Split,
    SplitState,
    TableDefinition,
)
from connectors.registry import connector
from planner.ir.types import DataType, Field


def table(options: dict[str, str], **columns: DataType) -> TableDefinition:
    return TableDefinition("t", options, tuple(Field(name, t) for name, t in columns.items()))


def source(definition: TableDefinition) -> SourceConnector:
    return connector(definition.options["connector"]).source(definition)


def reader(
    definition: TableDefinition,
    *,
    scan: tuple[int, ...] | None = None,
    metadata: tuple[MetadataField, ...] = (),
    rows_max: int = 8192,
    bytes_max: int = 2_000_000,
) -> SourceReader:
    scanned = tuple(range(len(definition.columns))) if scan is None else scan
    context = ReaderContext(0, 1, scanned, metadata, "UTC", rows_max, bytes_max)
    return source(definition).reader(context)


def splits(definition: TableDefinition) -> list[Split]:
    enumerator = source(definition).enumerator()
    found = enumerator.discover(frozenset())
    assert enumerator.discover(frozenset(split.id for split in found)) == []
    enumerator.close()
    return found


def read_all(
    made: SourceReader, states: list[SplitState], rows_wanted: int | None = None
) -> dict[str, list[pa.RecordBatch]]:
    """Batches per split until every split is done, or until there are as many rows as wanted; closes the reader."""
    made.add_splits(states)
    found: dict[str, list[pa.RecordBatch]] = {state.split.id: [] for state in states}
    open_splits = {state.split.id for state in states if not state.done}
    rows = 0
    try:
        while open_splits and (rows_wanted is None or rows < rows_wanted):
            for part in made.poll(100):
                found[part.split_id].append(part.batch)
                rows += part.batch.num_rows
                if part.done:
                    open_splits.discard(part.split_id)
    finally:
        made.close()
    return found


def rows_of(definition: TableDefinition, **arguments: int) -> list[dict[str, object]]:
    """All rows of a bounded table, split after split."""
    made = reader(definition, **arguments)  # type: ignore[arg-type]
    batches = read_all(made, [SplitState(split) for split in splits(definition)])
    return [row for parts in batches.values() for batch in parts for row in batch.to_pylist()]
