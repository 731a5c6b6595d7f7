"""The WITH options of a table of files, for reading and for writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from connectors import registry
from connectors.api import Format, TableDefinition
from connectors.durations import duration_ms, memory_bytes
from connectors.errors import OptionError
from connectors.filesystem.files import local_path
from connectors.lookup_options import LOOKUP_OPTIONS
from connectors.options import SINK_OPTIONS, SOURCE_OPTIONS, Options

PARQUET = "parquet"
_PARQUET_OPTIONS = frozenset({"compression"})
_COMPRESSIONS = ("snappy", "gzip", "zstd", "lz4", "uncompressed")
MONITOR_INTERVAL = "source.monitor-interval"
_ROLLING = "sink.rolling-policy."
OPTION_NAMES = frozenset(
    {
        "path",
        "format",
        MONITOR_INTERVAL,
        f"{_ROLLING}file-size",
        f"{_ROLLING}rollover-interval",
        f"{_ROLLING}inactivity-interval",
        f"{_ROLLING}check-interval",
    }
)


class RollingPolicy(msgspec.Struct, frozen=True):
    """When a part file is complete; defaults are Flink's. Times are looked at once per `check_interval_ms`."""

    file_size_bytes: int = 128 << 20
    rollover_interval_ms: int = 1_800_000
    inactivity_interval_ms: int = 1_800_000
    check_interval_ms: int = 60_000


class FileOptions(msgspec.Struct, frozen=True):
    """`monitor_interval_ms` 0: the files are read as they are when the job starts. `format` is None for Parquet, which
    is no format of messages."""

    path: str
    format_name: str
    format_options: dict[str, str]
    monitor_interval_ms: int = 0
    rolling: RollingPolicy = RollingPolicy()

    @property
    def format(self) -> Format | None:
        return None if self.format_name == PARQUET else registry.format(self.format_name)


def parse_options(table: TableDefinition) -> FileOptions:
    """Raises OptionError."""
    options = Options(table)
    name = options.required("format")
    found = None if name == PARQUET else registry.format(name)
    prefix = f"{name}."
    own = {f"{prefix}{option}" for option in (_PARQUET_OPTIONS if found is None else found.option_names)}
    options.refuse_unknown(SOURCE_OPTIONS | SINK_OPTIONS | OPTION_NAMES | LOOKUP_OPTIONS | own)
    format_options = {key.removeprefix(prefix): value for key, value in table.options.items() if key in own}
    if found is None:
        _check_parquet(format_options)
    else:
        found.validate(format_options)
    monitor_interval_ms = _read(table.options, MONITOR_INTERVAL, duration_ms, 0)
    if MONITOR_INTERVAL in table.options and monitor_interval_ms < 1:
        raise OptionError(f"'{MONITOR_INTERVAL}' must be longer than 0", option=MONITOR_INTERVAL)
    usual = RollingPolicy()
    return FileOptions(
        path=local_path(options.required("path")),
        format_name=name,
        format_options=format_options,
        monitor_interval_ms=monitor_interval_ms,
        rolling=RollingPolicy(
            _read(table.options, f"{_ROLLING}file-size", memory_bytes, usual.file_size_bytes),
            _read(table.options, f"{_ROLLING}rollover-interval", duration_ms, usual.rollover_interval_ms),
            _read(table.options, f"{_ROLLING}inactivity-interval", duration_ms, usual.inactivity_interval_ms),
            _read(table.options, f"{_ROLLING}check-interval", duration_ms, usual.check_interval_ms),
        ),
    )


def _read(options: Mapping[str, str], name: str, parse: Callable[[str], int], default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError as problem:
        raise OptionError(f"'{name}': {problem}", option=name) from problem


def _check_parquet(options: Mapping[str, str]) -> None:
    compression = options.get("compression", "snappy").lower()
    if compression not in _COMPRESSIONS:
        raise OptionError(
            f"'parquet.compression' cannot be '{options['compression']}'",
            option="parquet.compression",
            hint=f"Choices: {', '.join(_COMPRESSIONS)}.",
        )
