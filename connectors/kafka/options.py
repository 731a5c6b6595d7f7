"""The WITH clause of a `kafka` table as typed, validated options. Loads no client library and connects to nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import msgspec

from connectors import registry
from connectors.api import Format, TableDefinition
from connectors.durations import duration_ms, memory_bytes
from connectors.errors import DirectionError, OptionError
from connectors.kafka.properties import OWNED, PREFIX, Client, java_properties, translate
from planner.ir.types import ChangelogMode

TRANSACTION_TIMEOUT_DEFAULT_MS = 60_000
DISCOVERY_INTERVAL_DEFAULT_MS = 300_000
SOFT_LIMIT_DEFAULT_BYTES = 256 << 20
HARD_LIMIT_DEFAULT_BYTES = 4 << 30

FORMAT_METADATA = "value."
"""What keys of metadata begin with that the value's format reads, not the connector."""


class StartupMode(StrEnum):
    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    GROUP_OFFSETS = "group-offsets"
    TIMESTAMP = "timestamp"
    SPECIFIC_OFFSETS = "specific-offsets"


class BoundedMode(StrEnum):
    UNBOUNDED = "unbounded"
    LATEST = "latest-offset"
    GROUP_OFFSETS = "group-offsets"
    TIMESTAMP = "timestamp"
    SPECIFIC_OFFSETS = "specific-offsets"


class OffsetReset(StrEnum):
    """Where group-offsets start-up begins when the group has no committed offset."""

    NONE = "none"
    EARLIEST = "earliest"
    LATEST = "latest"


class DeliveryGuarantee(StrEnum):
    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class PartitionerKind(StrEnum):
    DEFAULT = "default"
    FIXED = "fixed"
    ROUND_ROBIN = "round-robin"


class FormatOptions(msgspec.Struct, frozen=True):
    """A format, its options without prefix, and the physical columns it encodes (table column indexes).
    `option_prefix` is what the table's options of it begin with, e.g. `key.json.`."""

    name: str
    options: dict[str, str]
    columns: tuple[int, ...]
    option_prefix: str


class SourceOptions(msgspec.Struct, frozen=True):
    """How to read a table. Exactly one of `topics` and `topic_pattern` is set. `client` is librdkafka's."""

    identifier: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    client: Client
    group_id: str | None
    commit_group_offsets: bool
    isolation_level: str
    offset_reset: OffsetReset
    startup: StartupMode
    startup_offsets: dict[int, int]
    startup_timestamp_ms: int
    bounded: BoundedMode
    bounded_offsets: dict[int, int]
    bounded_timestamp_ms: int
    discovery_interval_ms: int
    value: FormatOptions
    key: FormatOptions | None
    key_prefix: str
    changelog: ChangelogMode

    @property
    def upsert(self) -> bool:
        """Whether a record updates the row of its key, and one without a value deletes it."""
        return self.changelog is ChangelogMode.UPSERT


class SinkOptions(msgspec.Struct, frozen=True):
    """How to write a table. `client` is librdkafka's configuration."""

    identifier: str
    topic: str
    client: Client
    guarantee: DeliveryGuarantee
    transactional_id_prefix: str | None
    transaction_timeout_ms: int
    partitioner: PartitionerKind
    soft_limit_bytes: int
    hard_limit_bytes: int
    value: FormatOptions
    key: FormatOptions | None
    key_prefix: str
    changelog: ChangelogMode
    buffer_rows_max: int = 0
    buffer_interval_ms: int = 0

    @property
    def committing(self) -> bool:
        """Whether records go out with checkpoints, in fenced transactions."""
        if self.upsert:
            return self.guarantee is not DeliveryGuarantee.NONE
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @property
    def upsert(self) -> bool:
        """Whether rows are upserts by their key, and deletions records without a value."""
        return self.changelog is ChangelogMode.UPSERT


_COMMON = frozenset({
    "connector", "topic", "topic-pattern", "format", "value.format", "key.format", "key.fields", "key.fields-prefix",
    "value.fields-include",
})  # fmt: skip
_SOURCE = frozenset({
    "scan.startup.mode", "scan.startup.specific-offsets", "scan.startup.timestamp-millis", "scan.bounded.mode",
    "scan.bounded.specific-offsets", "scan.bounded.timestamp-millis", "scan.topic-partition-discovery.interval",
    "scan.parallelism", "scan.slot-sharing-group", "scan.watermark.emit.strategy", "scan.watermark.idle-timeout",
})  # fmt: skip
_SINK = frozenset({
    "sink.partitioner", "sink.delivery-guarantee", "sink.transactional-id-prefix", "sink.parallelism",
    "sink.slot-sharing-group", "sink.write-ahead.soft-limit", "sink.write-ahead.hard-limit",
})  # fmt: skip
_REFUSED = {
    "sink.semantic": "Use 'sink.delivery-guarantee'.",
    "sink.transaction-naming-strategy": "Transactional ids are stable per sink subtask; leave the option out.",
    "sink.buffer-flush.max-rows": "Records are sent in batches; leave the option out.",
    "sink.buffer-flush.interval": "Records are sent in batches; leave the option out.",
    "scan.watermark.alignment.group": "Watermark alignment is not supported.",
    "scan.watermark.alignment.max-drift": "Watermark alignment is not supported.",
    "scan.watermark.alignment.update-interval": "Watermark alignment is not supported.",
}

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")
_OFFSET_ENTRY = re.compile(r"\s*partition\s*:\s*(\d+)\s*,\s*offset\s*:\s*(\d+)\s*")

T = TypeVar("T")


def source_options(table: TableDefinition) -> SourceOptions:
    """Validate a table for reading. Raises OptionError."""
    reader = OptionReader(table)
    startup = reader.choice("scan.startup.mode", StartupMode, StartupMode.GROUP_OFFSETS)
    formats = reader.formats()
    return checked_source_options(reader, table, startup, formats, _changelog(table, formats[0]))


def checked_source_options(
    reader: OptionReader,
    table: TableDefinition,
    startup: StartupMode,
    formats: tuple[FormatOptions, FormatOptions | None, str],
    changelog: ChangelogMode,
) -> SourceOptions:
    """What every source has. Raises OptionError."""
    topics, pattern = reader.topics()
    bounded = reader.choice("scan.bounded.mode", BoundedMode, BoundedMode.UNBOUNDED)
    group_id = reader.properties.get("group.id")
    if group_id is None and StartupMode.GROUP_OFFSETS in (startup, bounded):
        mode = "scan.startup.mode" if startup is StartupMode.GROUP_OFFSETS else "scan.bounded.mode"
        raise DirectionError(
            f"'{mode}' is 'group-offsets' but '{PREFIX}group.id' is not set",
            option=PREFIX + "group.id",
            hint="Set it, or choose another mode, e.g. 'scan.startup.mode' = 'earliest-offset'.",
        )
    startup_offsets = reader.offsets("scan.startup", startup == StartupMode.SPECIFIC_OFFSETS, topics)
    bounded_offsets = reader.offsets("scan.bounded", bounded == BoundedMode.SPECIFIC_OFFSETS, topics)
    value, key, key_prefix = formats
    return SourceOptions(
        identifier=table.identifier,
        topics=topics,
        topic_pattern=pattern,
        client=reader.client(),
        group_id=group_id,
        commit_group_offsets=reader.flag("commit.offsets.on.checkpoint", True),
        isolation_level=reader.property_choice(
            "isolation.level", ("read_committed", "read_uncommitted"), "read_committed"
        ),
        offset_reset=OffsetReset(reader.property_choice("auto.offset.reset", tuple(OffsetReset), OffsetReset.NONE)),
        startup=startup,
        startup_offsets=startup_offsets,
        startup_timestamp_ms=reader.timestamp("scan.startup", startup == StartupMode.TIMESTAMP),
        bounded=bounded,
        bounded_offsets=bounded_offsets,
        bounded_timestamp_ms=reader.timestamp("scan.bounded", bounded == BoundedMode.TIMESTAMP),
        discovery_interval_ms=reader.parsed(
            "scan.topic-partition-discovery.interval", duration_ms, DISCOVERY_INTERVAL_DEFAULT_MS
        ),
        value=value,
        key=key,
        key_prefix=key_prefix,
        changelog=changelog,
    )


def sink_options(table: TableDefinition) -> SinkOptions:
    """Validate a table for writing. Raises OptionError."""
    reader = OptionReader(table)
    value, key, key_prefix = reader.formats()
    changelog = _changelog(table, value)
    partitioner = reader.choice("sink.partitioner", PartitionerKind, PartitionerKind.DEFAULT)
    if partitioner is PartitionerKind.ROUND_ROBIN and key is not None:
        raise OptionError(
            "'sink.partitioner' = 'round-robin' cannot be combined with 'key.fields'", option="sink.partitioner"
        )
    return checked_sink_options(reader, table, partitioner, (value, key, key_prefix), changelog)


def _changelog(table: TableDefinition, value: FormatOptions) -> ChangelogMode:
    """What the records are by their format. Raises OptionError for a primary key over records that are only added."""
    changelog = registry.format(value.name).changelog(value.options)
    if table.primary_key and changelog is ChangelogMode.INSERT_ONLY:
        raise OptionError(
            f"a kafka table in format '{value.name}' cannot have a PRIMARY KEY: its records are only ever added, so "
            "several may have one key",
            option="connector",
            hint="For a topic whose newest record of a key counts use 'connector' = 'upsert-kafka'; else leave the "
            "PRIMARY KEY out.",
        )
    return changelog


def checked_sink_options(
    reader: OptionReader,
    table: TableDefinition,
    partitioner: PartitionerKind,
    formats: tuple[FormatOptions, FormatOptions | None, str],
    changelog: ChangelogMode,
    buffering: tuple[int, int] = (0, 0),
) -> SinkOptions:
    """What every sink has. Raises OptionError."""
    topics, pattern = reader.topics()
    if pattern is not None or len(topics) != 1:
        option = "topic" if pattern is None else "topic-pattern"
        raise DirectionError(f"a sink writes to one topic; '{option}' names several", option=option)
    prefix = table.options.get("sink.transactional-id-prefix")
    if prefix is not None and not _PREFIX.fullmatch(prefix):
        raise OptionError(
            f"'sink.transactional-id-prefix' must be 1 to 200 letters, digits, '.', '_' or '-', not '{prefix}'",
            option="sink.transactional-id-prefix",
        )
    soft = reader.parsed("sink.write-ahead.soft-limit", memory_bytes, SOFT_LIMIT_DEFAULT_BYTES)
    hard = reader.parsed("sink.write-ahead.hard-limit", memory_bytes, HARD_LIMIT_DEFAULT_BYTES)
    if hard <= soft:
        raise OptionError(
            "'sink.write-ahead.hard-limit' must be above 'sink.write-ahead.soft-limit'",
            option="sink.write-ahead.hard-limit",
        )
    value, key, key_prefix = formats
    for form in (value, key):
        if form is not None:
            # Now, not when the job starts: a format that cannot hold the columns, or cannot write with its options.
            fields = tuple(table.columns[index] for index in form.columns)
            registry.format(form.name).encoder(fields, form.options, "UTC")
    return SinkOptions(
        identifier=table.identifier,
        topic=topics[0],
        client=reader.client(),
        guarantee=reader.choice("sink.delivery-guarantee", DeliveryGuarantee, DeliveryGuarantee.AT_LEAST_ONCE),
        transactional_id_prefix=prefix,
        transaction_timeout_ms=reader.transaction_timeout_ms(),
        partitioner=partitioner,
        soft_limit_bytes=soft,
        hard_limit_bytes=hard,
        value=value,
        key=key,
        key_prefix=key_prefix,
        changelog=changelog,
        buffer_rows_max=buffering[0],
        buffer_interval_ms=buffering[1],
    )


class OptionRules(msgspec.Struct, frozen=True):
    """Which options a connector has: beside `known` those of its formats and `properties.*`. `refused` ones get a hint
    instead of a guess. `value_option`: the option that names the value's format, if only one may."""

    known: frozenset[str]
    refused: dict[str, str]
    value_option: str = ""


_RULES = OptionRules(_COMMON | _SOURCE | _SINK, _REFUSED)


class OptionReader:
    """One table's options while they are read; every failure names the option."""

    def __init__(self, table: TableDefinition, rules: OptionRules = _RULES) -> None:
        self._table = table
        self._rules = rules
        self._options = table.options
        self.properties = java_properties(table.options)
        self._names = [column.name for column in table.columns]
        self._formats = self._chosen_formats()
        self._refuse_unknown()

    def client(self) -> Client:
        if not self.properties.get("bootstrap.servers", "").strip():
            raise OptionError(
                f"'{PREFIX}bootstrap.servers' is missing",
                option=PREFIX + "bootstrap.servers",
                hint=f"For example '{PREFIX}bootstrap.servers' = 'localhost:9092'.",
            )
        return translate(self.properties)

    def topics(self) -> tuple[tuple[str, ...], str | None]:
        topic, pattern = self._options.get("topic"), self._options.get("topic-pattern")
        if (topic is None) == (pattern is None):
            said = "are both set" if topic is not None else "are both missing"
            raise OptionError(f"'topic' and 'topic-pattern' {said}; set exactly one", option="topic")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise OptionError(f"'topic-pattern' is no pattern: {error}", option="topic-pattern") from None
            return (), pattern
        assert topic is not None
        topics = tuple(each.strip() for each in topic.split(";"))
        for each in topics:
            if not _TOPIC.fullmatch(each) or each in (".", ".."):
                raise OptionError(f"'{each}' is not a topic name", option="topic")
        if len(set(topics)) != len(topics):
            raise OptionError("'topic' names a topic twice", option="topic")
        return topics, None

    def choice(self, option: str, kind: Callable[[str], T], default: T) -> T:
        text = self._options.get(option)
        if text is None:
            return default
        try:
            return kind(text.strip().lower())
        except ValueError:
            known = [str(each) for each in type(default)]  # type: ignore[attr-defined]
            raise _bad_choice(option, text, known) from None

    def property_choice(self, name: str, known: tuple[str, ...], default: str) -> str:
        text = self.properties.get(name)
        if text is None:
            return default
        if text.strip().lower() not in known:
            raise _bad_choice(PREFIX + name, text, [str(each) for each in known])
        return text.strip().lower()

    def flag(self, name: str, default: bool) -> bool:
        return self.property_choice(name, ("true", "false"), "true" if default else "false") == "true"

    def parsed(self, option: str, parse: Callable[[str], int], default: int) -> int:
        text = self._options.get(option)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise OptionError(f"'{option}': {error}", option=option) from None

    def transaction_timeout_ms(self) -> int:
        text = self.properties.get("transaction.timeout.ms")
        if text is None:
            return TRANSACTION_TIMEOUT_DEFAULT_MS
        if not text.strip().isdigit() or int(text) < 1_000:
            option = PREFIX + "transaction.timeout.ms"
            raise OptionError(f"'{option}' must be at least 1000 milliseconds, not '{text}'", option=option)
        return int(text)

    def timestamp(self, group: str, wanted: bool) -> int:
        option = group + ".timestamp-millis"
        if not self._belongs(option, group, "timestamp", wanted):
            return 0
        text = self._options[option].strip()
        if not text.isdigit():
            raise OptionError(f"'{option}' must be milliseconds since 1970, not '{text}'", option=option)
        return int(text)

    def offsets(self, group: str, wanted: bool, topics: tuple[str, ...]) -> dict[int, int]:
        option = group + ".specific-offsets"
        if not self._belongs(option, group, "specific-offsets", wanted):
            return {}
        if len(topics) != 1:
            raise OptionError(f"'{option}' needs a table of exactly one topic", option=option)
        offsets: dict[int, int] = {}
        for entry in filter(str.strip, self._options[option].split(";")):
            found = _OFFSET_ENTRY.fullmatch(entry)
            if found is None or int(found.group(1)) in offsets:
                raise OptionError(
                    f"'{option}' cannot be read at '{entry.strip()}'",
                    option=option,
                    hint="Expected: 'partition:0,offset:42;partition:1,offset:300', each partition once.",
                )
            offsets[int(found.group(1))] = int(found.group(2))
        if not offsets:
            raise OptionError(f"'{option}' is empty", option=option)
        return offsets

    def _belongs(self, option: str, group: str, mode: str, wanted: bool) -> bool:
        """Whether the option is to be read; a mode without its option, or the other way round, is an error."""
        given = option in self._options
        if wanted and not given:
            raise OptionError(f"'{group}.mode' = '{mode}' needs '{option}'", option=option)
        if given and not wanted:
            raise OptionError(f"'{option}' needs '{group}.mode' = '{mode}'", option=option)
        return given

    # ---- formats

    def _chosen_formats(self) -> dict[str, tuple[str, Format]]:
        """Option prefix (`json.` / `value.json.` / `key.json.`) -> format option and format."""
        plain, value, key = (self._options.get(o) for o in ("format", "value.format", "key.format"))
        if plain is not None and value is not None:
            raise OptionError("'format' and 'value.format' are both set; set one", option="format")
        if plain is None and value is None:
            missing = self._rules.value_option or "format"
            raise OptionError(f"'{missing}' is missing", option=missing, hint=f"For example '{missing}' = 'json'.")
        chosen = {}
        for option, name, lead in (
            ("format", plain, ""),
            ("value.format", value, "value."),
            ("key.format", key, "key."),
        ):
            if name is not None:
                chosen[f"{lead}{name}."] = (option, registry.format(name))
        return chosen

    def _refuse_unknown(self) -> None:
        known, refused = set(self._rules.known), self._rules.refused
        for prefix, (_, form) in self._formats.items():
            known.update(prefix + name for name in form.option_names)
        for option in self._options:
            if option in refused:
                raise OptionError(f"option '{option}' is not supported", option=option, hint=refused[option])
            if option not in known and not option.startswith(PREFIX):
                near = difflib.get_close_matches(option, [*known, PREFIX + "bootstrap.servers"], n=1)
                hint = f"Did you mean '{near[0]}'?" if near else ""
                raise OptionError(f"unknown option '{option}'", option=option, hint=hint)
        for name in ("transactional.id", "enable.idempotence", "group.instance.id", "partitioner"):
            if name in self.properties and name in OWNED:
                raise OptionError(
                    f"'{PREFIX}{name}' is decided by the connector", option=PREFIX + name, hint="Leave it out."
                )

    def formats(self, key_columns: tuple[int, ...] | None = None) -> tuple[FormatOptions, FormatOptions | None, str]:
        """Value format, key format, key prefix; columns are table indexes. `key_columns`: those of the key, by default
        what `key.fields` names."""
        key_columns = self._key_columns() if key_columns is None else key_columns
        prefix = self._options.get("key.fields-prefix", "")
        include = self._options.get("value.fields-include", "ALL").strip().upper()
        if include not in ("ALL", "EXCEPT_KEY"):
            raise _bad_choice("value.fields-include", include, ["ALL", "EXCEPT_KEY"])
        if prefix and include != "EXCEPT_KEY":
            raise OptionError(
                "'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY'", option="key.fields-prefix"
            )
        for index in key_columns:
            if not self._names[index].startswith(prefix):
                raise OptionError(
                    f"key column '{self._names[index]}' does not start with the prefix '{prefix}'",
                    option="key.fields-prefix",
                )
        everything = range(len(self._names))
        value_columns = tuple(i for i in everything if include == "ALL" or i not in key_columns)
        key: FormatOptions | None = None
        value: FormatOptions | None = None
        for lead, (option, form) in self._formats.items():
            given = {n.removeprefix(lead): v for n, v in self._options.items() if n.startswith(lead)}
            form.validate(given)
            if option == "key.format":
                if form.changelog(given) is not ChangelogMode.INSERT_ONLY:
                    raise OptionError(f"a key is no change: '{form.name}' cannot be its format", option=option)
                key = FormatOptions(form.name, given, key_columns, lead)
            else:
                value = FormatOptions(form.name, given, value_columns, lead)
        assert value is not None
        return value, key, prefix

    def _key_columns(self) -> tuple[int, ...]:
        fields, key_format = self._options.get("key.fields"), self._options.get("key.format")
        if (fields is None) != (key_format is None):
            missing = "key.fields" if fields is None else "key.format"
            raise OptionError(f"'key.fields' and 'key.format' belong together; '{missing}' is missing", option=missing)
        if fields is None:
            for option in ("key.fields-prefix", "value.fields-include"):
                if option in self._options and self._options[option].strip().upper() != "ALL":
                    raise OptionError(f"'{option}' needs 'key.fields'", option=option)
            return ()
        names = [each.strip() for each in fields.split(";") if each.strip()]
        for name in names:
            if name not in self._names:
                near = difflib.get_close_matches(name, self._names, n=1)
                hint = f"Did you mean '{near[0]}'?" if near else f"Columns: {', '.join(self._names)}."
                raise OptionError(f"'key.fields' names '{name}', which is no column", option="key.fields", hint=hint)
        if not names or len(set(names)) != len(names):
            raise OptionError("'key.fields' must name columns, each once", option="key.fields")
        return tuple(self._names.index(name) for name in names)


def _bad_choice(option: str, text: str, known: list[str]) -> OptionError:
    near = difflib.get_close_matches(text.strip().lower(), known, n=1)
    hint = (f"Did you mean '{near[0]}'? " if near else "") + f"Choices: {', '.join(known)}."
    return OptionError(f"'{option}' cannot be '{text}'", option=option, hint=hint)
