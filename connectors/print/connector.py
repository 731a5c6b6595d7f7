"""The `print` connector: rows on the standard output (or error) of the process that runs the sink."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pyarrow as pa

from connectors.api import Committable, OwnerState, SinkContext, SinkWriter, SourceConnector, TableDefinition
from connectors.errors import DirectionError
from connectors.options import SINK_OPTIONS, Options
from connectors.print.text import lines
from planner.ir.types import ChangelogMode, DataType, Field


class PrintConnector:
    name = "print"

    def source(self, table: TableDefinition) -> SourceConnector:
        raise DirectionError("print is a sink: nothing can be read from it", option="connector")

    def sink(self, table: TableDefinition) -> PrintSink:
        return PrintSink(table)


class PrintSink:
    """Prints each change. Nothing is guaranteed: after a failure lines come again."""

    delivery_guarantee = "none"
    committing = False
    changelog = ChangelogMode.RETRACT
    transactional_id_prefix = None
    metadata_types: Mapping[str, DataType] = {}

    def __init__(self, table: TableDefinition) -> None:
        options = Options(table)
        options.refuse_unknown(SINK_OPTIONS | {"print-identifier", "standard-error"})
        self._columns = table.columns
        self._identifier = options.text("print-identifier", "")
        self._to_error = options.boolean("standard-error", False)

    def prepare(self, namespace: str) -> None:
        """Nothing to create."""

    def fence(self, namespace: str, owner_count: int) -> None:
        """Nothing is left open."""

    def writer(self, context: SinkContext) -> SinkWriter:
        return PrintWriter(self._columns, self._prefix(context), self._to_error)

    def _prefix(self, context: SinkContext) -> str:
        """Flink's: `identifier:subtask> `, each part only if there is one; subtasks count from 1."""
        subtask = str(context.subtask_index + 1) if context.parallelism > 1 else ""
        label = ":".join(part for part in (self._identifier, subtask) if part)
        return f"{label}> " if label else ""


class PrintWriter:
    """Writes a batch with one call, so that lines of several subtasks do not mix."""

    def __init__(self, columns: tuple[Field, ...], prefix: str, to_error: bool) -> None:
        self._columns = columns
        self._prefix = prefix
        self._to_error = to_error

    def recover(self, owners: list[OwnerState]) -> dict[int, int]:
        return {}

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        if batch.num_rows == 0:
            return
        stream = sys.stderr if self._to_error else sys.stdout
        stream.write("\n".join([*lines(batch, self._columns, row_kinds, self._prefix), ""]))
        stream.flush()

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...]:
        return ()

    def commit(self, checkpoint_id: int) -> None:
        """Nothing is held back."""

    def checkpoint_wanted(self) -> bool:
        return False

    def gauges(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


CONNECTOR = PrintConnector()
