"""The registry's door to the `csv` format."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.api import MetadataField
from connectors.errors import OptionError
from connectors.formats.csv.decode import CsvDecoder
from connectors.formats.csv.encode import CsvEncoder
from connectors.formats.csv.options import OPTION_NAMES, parse_options
from connectors.formats.rows import RowFormat
from planner.ir.types import Field, TypeRoot

_NOT_HELD = frozenset({TypeRoot.MAP, TypeRoot.MULTISET})
_NESTED = frozenset({TypeRoot.ARRAY, TypeRoot.ROW}) | _NOT_HELD


class CsvFormat(RowFormat):
    """Records of fields by position."""

    name = "csv"
    option_names = OPTION_NAMES

    def validate(self, options: Mapping[str, str]) -> None:
        parse_options(options)

    def decoder(
        self,
        columns: tuple[Field, ...],
        options: Mapping[str, str],
        local_time_zone: str,
        metadata_columns: tuple[MetadataField, ...] = (),
    ) -> CsvDecoder:
        """Instants are read and written in UTC with a `Z`, so the session's zone has no effect here."""
        return self.selecting_decoder(columns, tuple(range(len(columns))), options, local_time_zone)

    def selecting_decoder(
        self, columns: tuple[Field, ...], wanted: tuple[int, ...], options: Mapping[str, str], local_time_zone: str
    ) -> CsvDecoder:
        check_types(columns)
        return CsvDecoder(columns, wanted, parse_options(options))

    def encoder(self, columns: tuple[Field, ...], options: Mapping[str, str], local_time_zone: str) -> CsvEncoder:
        check_types(columns)
        return CsvEncoder(columns, parse_options(options))


def check_types(columns: tuple[Field, ...]) -> None:
    """Raises OptionError for a column whose type CSV cannot hold: maps, and arrays or rows inside one another."""
    for column in columns:
        t = column.type
        members = [member for member in (t.element, *(field.type for field in t.fields)) if member is not None]
        if t.root in _NOT_HELD or any(member.root in _NESTED for member in members):
            raise OptionError(f"column '{column.name}': the csv format cannot hold {t.summary()}", option="format")


FORMAT = CsvFormat()
