"""The `nexmark` connector: option names follow the Nexmark source for Flink.

A table either has some of the columns `event_type INT`, `person ROW<…>`, `auction ROW<…>`, `bid ROW<…>` and holds
every event, or, with 'table.type' = 'person' | 'auction' | 'bid' (an addition of ours), the flat columns of that
kind and only its events. Any subset of the fields may be declared, in any order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa

from connectors.api import ReaderContext, SinkConnector, SourceReader, SplitEnumerator, TableDefinition
from connectors.arrow import Array, rows_without_columns
from connectors.errors import DirectionError, OptionError
from connectors.generated import GeneratorEnumerator, GeneratorReader, GeneratorSplit
from connectors.nexmark.columns import COLUMNS
from connectors.nexmark.events import AUCTION, BID, PERSON, Events, Settings
from connectors.options import SOURCE_OPTIONS, Options
from planner.ir.types import ChangelogMode, DataType, Field, TypeRoot, to_arrow

KINDS = {"person": PERSON, "auction": AUCTION, "bid": BID}
BASE_TIME_MS = 1_436_918_400_000
"""2015-07-15 00:00:00 UTC, the start of the benchmark's auction site."""
RATE_MAX = 1_000_000_000

OPTION_NAMES = SOURCE_OPTIONS | {
    "table.type",
    "tps",
    "first-event.rate",
    "rate.limited",
    "events.num",
    "base-time",
    "seed",
    "generators",
    "person.proportion",
    "auction.proportion",
    "bid.proportion",
    "person.avg-size",
    "auction.avg-size",
    "bid.avg-size",
    "bid.hot-ratio.auctions",
    "bid.hot-ratio.bidders",
    "auction.hot-ratio.sellers",
}

_TEXT = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_WHOLE = frozenset({TypeRoot.INTEGER, TypeRoot.BIGINT})
_MOMENT = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})


class NexmarkConnector:
    name = "nexmark"

    def source(self, table: TableDefinition) -> NexmarkSource:
        return NexmarkSource(table)

    def sink(self, table: TableDefinition) -> SinkConnector:
        raise DirectionError("nexmark is a source: nothing can be written to it", option="connector")


class NexmarkSource:
    """A table of events."""

    changelog = ChangelogMode.INSERT_ONLY
    metadata_types: Mapping[str, DataType] = {}

    def __init__(self, table: TableDefinition) -> None:
        options = Options(table)
        options.refuse_unknown(OPTION_NAMES)
        self._settings = _settings(options)
        self._numbers = options.optional_integer("events.num", 0) or None
        self._seed = options.integer("seed", 0)
        self._generators = options.integer("generators", 4, 1)
        self._limited = options.boolean("rate.limited", True)
        self._start_ms = None
        if options.text("base-time", "").strip().lower() != "now":
            self._start_ms = options.integer("base-time", BASE_TIME_MS)
        self._kind = KINDS.get(options.choice("table.type", "all", ("all", *KINDS)))
        self._columns = table.columns
        _check_columns(table, self._kind)

    @property
    def bounded(self) -> bool:
        return self._numbers is not None

    def enumerator(self) -> SplitEnumerator:
        start_ms = time.time_ns() // 1_000_000 if self._start_ms is None else self._start_ms
        return GeneratorEnumerator(self._generators, self._numbers, self._seed, start_ms)

    def reader(self, context: ReaderContext) -> SourceReader:
        columns = tuple(self._columns[i] for i in context.scan_columns)
        rate = self._settings.rate / self._generators if self._limited else None
        return GeneratorReader(Rows(self._settings, self._kind, columns), rate, context.rows_max)


class Rows:
    """Makes the batches of a table: of all kinds in nested columns, or of one kind in flat ones (`kind`)."""

    def __init__(self, settings: Settings, kind: int | None, columns: tuple[Field, ...]) -> None:
        self._settings = settings
        self._kind = kind
        self._columns = columns

    def __call__(self, split: GeneratorSplit, first: int, count: int) -> pa.RecordBatch:
        numbers = split.index + split.stride * np.arange(first, first + count, dtype=np.int64)
        events = Events(self._settings, split.seed, split.start_ms, numbers)
        if self._kind is None:
            arrays = [self._nested(events, column) for column in self._columns]
        else:
            events = events.of_kind(self._kind)
            arrays = [_declared(COLUMNS[self._kind][column.name](events), column.type) for column in self._columns]
        if not arrays:
            return rows_without_columns(len(events))
        return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])

    def _nested(self, events: Events, column: Field) -> Array:
        kinds = events.kinds
        if column.name == "event_type":
            return pa.array(kinds).cast(to_arrow(column.type))
        # The events of the kind, spread over their places: a row of another kind is NULL.
        kind = KINDS[column.name]
        mine = kinds == kind
        chosen = events.of_kind(kind)
        fields = column.type.fields
        members = [_declared(COLUMNS[kind][field.name](chosen), field.type) for field in fields]
        places = pa.array(np.cumsum(mine) - 1, mask=~mine)
        struct: Array = pa.StructArray.from_arrays(members, fields=list(to_arrow(column.type)))  # type: ignore[call-overload]
        return struct.take(places)


def _declared(array: Array, t: DataType) -> Array:
    """The array in the declared type; wall-clock time is read as UTC."""
    target = to_arrow(t)
    if t.root is TypeRoot.TIMESTAMP_LTZ:
        assert isinstance(target, pa.TimestampType)
        return array.cast(pa.timestamp(target.unit)).view(target)
    return array if array.type == target else array.cast(target)


def _settings(options: Options) -> Settings:
    default = Settings()
    rate = options.integer("first-event.rate", options.integer("tps", default.rate, 1), 1)
    if rate > RATE_MAX:
        raise options.bad("first-event.rate", f"at most {RATE_MAX}")
    return msgspec.structs.replace(
        default,
        rate=rate,
        person_proportion=options.integer("person.proportion", default.person_proportion, 1),
        auction_proportion=options.integer("auction.proportion", default.auction_proportion, 1),
        bid_proportion=options.integer("bid.proportion", default.bid_proportion, 0),
        hot_auction_ratio=options.integer("bid.hot-ratio.auctions", default.hot_auction_ratio, 1),
        hot_bidder_ratio=options.integer("bid.hot-ratio.bidders", default.hot_bidder_ratio, 1),
        hot_seller_ratio=options.integer("auction.hot-ratio.sellers", default.hot_seller_ratio, 1),
        person_size=options.integer("person.avg-size", default.person_size, 1),
        auction_size=options.integer("auction.avg-size", default.auction_size, 1),
        bid_size=options.integer("bid.avg-size", default.bid_size, 1),
    )


def _check_columns(table: TableDefinition, kind: int | None) -> None:
    """Raises OptionError for a column that events do not have, or that has another type."""
    if kind is not None:
        for column in table.columns:
            _check_field(table.identifier, column, kind, column.name)
        return
    for column in table.columns:
        if column.name == "event_type" and column.type.root in _WHOLE:
            continue
        if column.name not in KINDS or column.type.root is not TypeRoot.ROW:
            raise OptionError(
                f"table {table.identifier}: nexmark has no column '{column.name}' of type {column.type.summary()}",
                option="table.type",
                hint="Declare event_type INT and person, auction, bid as ROW<…>, or set 'table.type' to one of the "
                "three and declare its fields as columns.",
            )
        for field in column.type.fields:
            _check_field(table.identifier, field, KINDS[column.name], f"{column.name}.{field.name}")


def _check_field(table: str, field: Field, kind: int, path: str) -> None:
    if field.name not in COLUMNS[kind]:
        known = ", ".join(COLUMNS[kind])
        raise OptionError(
            f"table {table}: nexmark has no field '{path}'", option="table.type", hint=f"Fields: {known}."
        )
    made = COLUMNS[kind][field.name](Events(Settings(), 0, 0, np.zeros(0, np.int64))).type
    wanted = _TEXT if made == pa.string() else _WHOLE if made == pa.int64() else _MOMENT
    if field.type.root not in wanted:
        name = {pa.string(): "STRING", pa.int64(): "BIGINT"}.get(made, "TIMESTAMP(3)")
        message = f"table {table}: '{path}' of nexmark is a {name}, not {field.type.summary()}"
        raise OptionError(message, option="table.type")


CONNECTOR = NexmarkConnector()
