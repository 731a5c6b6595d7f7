"""The `upsert-kafka` connector's front door."""

from __future__ import annotations

from connectors.api import SinkConnector, SourceConnector, TableDefinition
from connectors.kafka.connector import KafkaSink, KafkaSource
from connectors.upsert_kafka.options import sink_options, source_options


class UpsertKafkaConnector:
    @property
    def name(self) -> str:
        return "upsert-kafka"

    def source(self, table: TableDefinition) -> SourceConnector:
        return KafkaSource(source_options(table), table.columns)

    def sink(self, table: TableDefinition) -> SinkConnector:
        return KafkaSink(sink_options(table), table.columns)


CONNECTOR = UpsertKafkaConnector()
