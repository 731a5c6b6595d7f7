"""The registry's door to the `json` format."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.api import MetadataField
from connectors.errors import OptionError
from connectors.formats.json.decode import JsonDecoder
from connectors.formats.json.encode import JsonEncoder
from connectors.formats.json.options import OPTION_NAMES, parse_options
from connectors.formats.rows import RowFormat
from planner.ir.types import DataType, Field, TypeRoot


class JsonFormat(RowFormat):
    """JSON objects, one per message."""

    name = "json"
    option_names = OPTION_NAMES

    def validate(self, options: Mapping[str, str]) -> None:
        parse_options(options)

    def decoder(
        self,
        columns: tuple[Field, ...],
        options: Mapping[str, str],
        local_time_zone: str,
        metadata_columns: tuple[MetadataField, ...] = (),
    ) -> JsonDecoder:
        """Instants are read and written in UTC with a `Z`, so the session's zone has no effect here."""
        check_types(columns)
        return JsonDecoder(columns, parse_options(options))

    def encoder(self, columns: tuple[Field, ...], options: Mapping[str, str], local_time_zone: str) -> JsonEncoder:
        check_types(columns)
        return JsonEncoder(columns, parse_options(options))


def check_types(columns: tuple[Field, ...]) -> None:
    """Raises OptionError for a column whose type JSON cannot hold: a MAP or MULTISET whose keys are not strings."""
    for column in columns:
        _check_type(column.name, column.type)


def _check_type(path: str, t: DataType) -> None:
    for member in (t.element, t.key, *(field.type for field in t.fields)):
        if member is not None:
            _check_type(path, member)
    key = t.key if t.root is TypeRoot.MAP else t.element if t.root is TypeRoot.MULTISET else None
    if key is not None and not key.is_character:
        raise OptionError(
            f"column '{path}': the json format has string keys only, it cannot hold {t.summary()}", option="format"
        )


FORMAT = JsonFormat()
