"""Hands rows to a connector's writer, and its commits to the commit thread."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from connectors import registry
from connectors.api import FinishingWriter, MetadataField, OwnerState, SinkContext, SinkWriter, TableDefinition
from planner.ir.operators import MetadataColumn, Sink, TableRef
from planner.ir.types import Field
from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import Batch
from runtime.operators.calc import LOCAL_TIME_ZONE
from runtime.operators.environment import TaskEnvironment
from runtime.operators.protocol import FinishSnapshot, OperatorContext
from runtime.operators.sink_constraints import ConstraintEnforcer
from runtime.protocol.messages import CheckpointRequested


def table_definition(table: TableRef) -> TableDefinition:
    """The table as a connector sees it."""
    columns = tuple(Field(c.name, c.type) for c in table.physical.columns)
    return TableDefinition(table.identifier, table.options, columns, table.primary_key)


def metadata_fields(columns: tuple[MetadataColumn, ...]) -> tuple[MetadataField, ...]:
    return tuple(MetadataField(c.name, c.key, c.type) for c in columns)


def select_columns(batch: Batch, selection: tuple[int, ...]) -> Batch:
    """The batch with column `selection[i]` as column i; empty = as it is."""
    if not selection:
        return batch
    columns = [batch.data.column(index) for index in selection]
    names = [f"c{index}" for index in range(len(columns))]
    return Batch(pa.RecordBatch.from_arrays(columns, names), batch.row_kinds)


class SinkOperator:
    """The last operator of a chain. `markers` after `open`: owner → checkpoint id of the marker found there."""

    def __init__(self, node: Sink, context: OperatorContext, environment: TaskEnvironment) -> None:
        self._node = node
        self._context = context
        self._environment = environment
        self._writer: SinkWriter | None = None
        self._checkpoint_requested = False
        self._constraints = ConstraintEnforcer(node)
        self._records = 0
        self.markers: dict[int, int] = {}

    @property
    def uid(self) -> str:
        return self._node.uid

    def open(self) -> None:
        """Fences and resolves what earlier attempts left behind; no source has started yet."""
        context, descriptor = self._context, self._environment.descriptor
        connector = registry.connector(self._node.table.connector)
        self._writer = connector.sink(table_definition(self._node.table)).writer(
            SinkContext(
                subtask_index=context.subtask_index,
                parallelism=context.parallelism,
                namespace=descriptor.namespaces.get(self.uid, ""),
                incarnation=descriptor.incarnation,
                attempt=str(context.attempt),
                files=context.files,
                restored_checkpoint_id=descriptor.restored_checkpoint_id,
                metadata_columns=metadata_fields(self._node.metadata_columns),
                local_time_zone=context.settings.get(LOCAL_TIME_ZONE, "UTC"),
                check=self._environment.check,
            )
        )
        owners = context.restore.owners if context.restore is not None else ()
        self.markers = self._writer.recover(list(owners) or [OwnerState(context.subtask_index)])

    @property
    def writer(self) -> SinkWriter:
        assert self._writer is not None, "the sink is not open"
        return self._writer

    def process(self, batch: Batch) -> Iterator[Batch]:
        batch = self._constraints.enforce(select_columns(batch, self._node.selection))
        if batch.row_count:
            self.writer.write(batch.data, batch.row_kinds)
            self._records += batch.row_count
            if not self._checkpoint_requested and self.writer.checkpoint_wanted():
                self._checkpoint_requested = True
                self._environment.send(CheckpointRequested(self._context.attempt))
        return iter(())

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        return iter(())

    def end(self, drain: bool) -> Iterator[Batch]:
        # After a stop without drain the next job goes on writing.
        if drain and isinstance(self.writer, FinishingWriter):
            self.writer.finish()
        return iter(())

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        snapshot = OperatorSnapshot(self.uid, committables=self.writer.prepare_commit(checkpoint_id))
        self._checkpoint_requested = False
        return lambda: snapshot

    def commit(self, checkpoint_id: int) -> None:
        """By the commit thread: the checkpoint's manifest is durable."""
        self.writer.commit(checkpoint_id)

    def counters(self) -> dict[str, float]:
        gauges = dict(self._writer.gauges()) if self._writer is not None else {}
        return {**gauges, "numRecordsSend": self._records, **self._constraints.counters()}

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
