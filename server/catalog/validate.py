"""Asks connectors whether a table's options make sense, and what they can do with it."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.api import SinkConnector, SourceConnector, TableDefinition
from connectors.errors import OptionError
from connectors.registry import connector, connector_names
from planner.catalog import MetadataKey, ObjectPath, TableCapabilities, TableEntry
from planner.errors import Span, SqlError, SqlState
from planner.ir.types import Field
from planner.sql.statements import OptionItem
from server.secrets import without_values

_NO_SUCH_DIRECTION = ("", "connector")
"""Value of `OptionError.option` when a connector cannot be read (or written) at all."""


def capabilities(path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableCapabilities:
    """What the connector named in `options` can do. Raises SqlError without span for a bad option."""
    try:
        source, sink = _directions(_definition(path, entry, options))
    except OptionError as error:
        raise _sql_error(error, path, options, ()) from error
    metadata: dict[str, MetadataKey] = {}
    if source is not None:
        metadata = {key: MetadataKey(t) for key, t in source.metadata_types.items()}
    if sink is not None:
        metadata |= {key: MetadataKey(t, is_writable=True) for key, t in sink.metadata_types.items()}
    return TableCapabilities(
        is_source=source is not None,
        is_sink=sink is not None,
        is_bounded=source is not None and source.bounded,
        metadata=metadata,
    )


def check_options(path: ObjectPath, entry: TableEntry, items: tuple[OptionItem, ...], statement: Span) -> None:
    """Raises SqlError at the place of the option that is unknown, missing or malformed."""
    try:
        _directions(_definition(path, entry, entry.options))
    except OptionError as error:
        raise _sql_error(error, path, entry.options, items, statement) from error


def _definition(path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableDefinition:
    return TableDefinition(
        identifier=str(path),
        options=dict(options),
        columns=tuple(Field(c.name, c.type) for c in entry.physical),
        primary_key=entry.primary_key.columns if entry.primary_key is not None else (),
    )


def _directions(table: TableDefinition) -> tuple[SourceConnector | None, SinkConnector | None]:
    """The table as source and as sink, None where its connector has no such direction."""
    name = table.options.get("connector", "")
    if not name:
        known = ", ".join(connector_names())
        raise OptionError("the table has no option 'connector'", option="connector", hint=f"Available: {known}.")
    kind = connector(name)
    source: SourceConnector | None = None
    sink: SinkConnector | None = None
    first_refusal: OptionError | None = None
    try:
        source = kind.source(table)
    except OptionError as error:
        if error.option not in _NO_SUCH_DIRECTION:
            raise
        first_refusal = error
    try:
        sink = kind.sink(table)
    except OptionError as error:
        if error.option not in _NO_SUCH_DIRECTION:
            raise
        if first_refusal is not None:
            raise first_refusal from error
    return source, sink


def _sql_error(
    error: OptionError,
    path: ObjectPath,
    options: Mapping[str, str],
    items: tuple[OptionItem, ...],
    otherwise: Span | None = None,
) -> SqlError:
    span = next((item.span for item in items if item.key == error.option), otherwise)
    message = without_values(error.message, options)
    hint = without_values(error.hint, options)
    return SqlError(SqlState.INVALID_PARAMETER, f"table {path}: {message}", span=span, hint=hint)
