"""The registry's door to the `debezium-json` format."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.api import MetadataField
from connectors.errors import DirectionError
from connectors.formats.debezium_json.decode import METADATA, DebeziumDecoder
from connectors.formats.debezium_json.encode import DebeziumEncoder
from connectors.formats.json.format import check_types
from connectors.formats.json.options import JsonOptions, OptionReader
from planner.ir.types import ChangelogMode, DataType, Field

NAME = "debezium-json"
SCHEMA_INCLUDE = "schema-include"


class DebeziumJsonFormat:
    """Found by `'format' = 'debezium-json'`; names and rules are those of Flink's "Debezium Format" page."""

    name = NAME
    option_names = frozenset(
        {
            SCHEMA_INCLUDE,
            "ignore-parse-errors",
            "timestamp-format.standard",
            "map-null-key.mode",
            "map-null-key.literal",
            "encode.decimal-as-plain-number",
            "encode.ignore-null-fields",
        }
    )

    def validate(self, options: Mapping[str, str]) -> None:
        self._parsed(options)

    def changelog(self, options: Mapping[str, str]) -> ChangelogMode:
        return ChangelogMode.RETRACT

    def metadata_types(self, options: Mapping[str, str]) -> Mapping[str, DataType]:
        return METADATA

    def decoder(
        self,
        columns: tuple[Field, ...],
        options: Mapping[str, str],
        local_time_zone: str,
        metadata_columns: tuple[MetadataField, ...] = (),
    ) -> DebeziumDecoder:
        check_types(columns)
        json_options, schema_include = self._parsed(options)
        return DebeziumDecoder(columns, json_options, schema_include, metadata_columns, local_time_zone)

    def encoder(self, columns: tuple[Field, ...], options: Mapping[str, str], local_time_zone: str) -> DebeziumEncoder:
        """Raises DirectionError when the schema is asked for: it is Debezium's own and cannot be made."""
        check_types(columns)
        json_options, schema_include = self._parsed(options)
        if schema_include:
            raise DirectionError(
                "debezium-json cannot write messages with a schema",
                option=f"{NAME}.{SCHEMA_INCLUDE}",
                hint=f"Leave '{NAME}.{SCHEMA_INCLUDE}' out for a table that is written.",
            )
        return DebeziumEncoder(columns, json_options)

    def _parsed(self, options: Mapping[str, str]) -> tuple[JsonOptions, bool]:
        reader = OptionReader(NAME, options, self.option_names)
        return reader.json_options(), reader.boolean(SCHEMA_INCLUDE)


FORMAT = DebeziumJsonFormat()
