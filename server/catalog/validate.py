"""Asks connectors whether a table's options make sense, and what they can do with it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from connectors.api import AskableConnector, LookupConnector, SinkConnector, SourceConnector, TableDefinition
from connectors.errors import DirectionError, OptionError
from connectors.registry import connector, connector_names
from planner.catalog import MetadataKey, ObjectPath, TableCapabilities, TableEntry
from planner.errors import Span, SqlError, SqlState
from planner.ir.types import ChangelogMode, Field
from planner.sql.statements import OptionItem
from server.secrets import without_values


def capabilities(path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableCapabilities:
    """What the connector named in `options` can do. Raises SqlError without span for a bad option."""
    try:
        found = _directions(_definition(path, entry, options))
    except OptionError as error:
        raise _sql_error(error, path, options, ()) from error
    source, sink = found.source, found.sink
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
        source_changelog=source.changelog if source is not None else ChangelogMode.INSERT_ONLY,
        sink_changelog=sink.changelog if sink is not None else ChangelogMode.INSERT_ONLY,
        source_refusal=_reason(found.source_refusal, options),
        sink_refusal=_reason(found.sink_refusal, options),
        is_lookup=found.lookup is not None,
        lookup_refusal=_reason(found.lookup_refusal, options),
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


class _Directions(msgspec.Struct, frozen=True):
    """The table as source, as sink and for look-ups; None with the refusal where it cannot be used so."""

    source: SourceConnector | None
    sink: SinkConnector | None
    source_refusal: DirectionError | None = None
    sink_refusal: DirectionError | None = None
    lookup: LookupConnector | None = None
    lookup_refusal: DirectionError | None = None


def _directions(table: TableDefinition) -> _Directions:
    """Raises OptionError for options that are wrong whatever the table is used for."""
    name = table.options.get("connector", "")
    if not name:
        known = ", ".join(connector_names())
        raise OptionError("the table has no option 'connector'", option="connector", hint=f"Available: {known}.")
    kind = connector(name)
    source: SourceConnector | None = None
    sink: SinkConnector | None = None
    source_refusal = sink_refusal = None
    try:
        source = kind.source(table)
    except DirectionError as error:
        source_refusal = error
    try:
        sink = kind.sink(table)
    except DirectionError as error:
        if source_refusal is not None:
            raise source_refusal from error
        sink_refusal = error
    lookup: LookupConnector | None = None
    lookup_refusal: DirectionError | None = None
    if isinstance(kind, AskableConnector):
        try:
            lookup = kind.lookup(table)
        except DirectionError as error:
            lookup_refusal = error
    return _Directions(source, sink, source_refusal, sink_refusal, lookup, lookup_refusal)


def _reason(refusal: DirectionError | None, options: Mapping[str, str]) -> str:
    return "" if refusal is None else without_values(f"{refusal.message}. {refusal.hint}".strip(), options)


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
