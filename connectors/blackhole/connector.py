"""The `blackhole` connector."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from connectors.api import Committable, OwnerState, SinkContext, SinkWriter, SourceConnector, TableDefinition
from connectors.errors import DirectionError
from connectors.options import SINK_OPTIONS, Options
from planner.ir.types import ChangelogMode, DataType


class BlackholeConnector:
    name = "blackhole"

    def source(self, table: TableDefinition) -> SourceConnector:
        raise DirectionError("blackhole is a sink: nothing can be read from it", option="connector")

    def sink(self, table: TableDefinition) -> BlackholeSink:
        return BlackholeSink(table)


class BlackholeSink:
    """Swallows rows."""

    delivery_guarantee = "none"
    committing = False
    changelog = ChangelogMode.RETRACT
    transactional_id_prefix = None
    metadata_types: Mapping[str, DataType] = {}

    def __init__(self, table: TableDefinition) -> None:
        Options(table).refuse_unknown(SINK_OPTIONS)

    def prepare(self, namespace: str) -> None:
        """Nothing to create."""

    def fence(self, namespace: str, owner_count: int) -> None:
        """Nothing is left open."""

    def writer(self, context: SinkContext) -> SinkWriter:
        return BlackholeWriter()


class BlackholeWriter:
    def recover(self, owners: list[OwnerState]) -> dict[int, int]:
        return {}

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        """The rows are gone."""

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


CONNECTOR = BlackholeConnector()
