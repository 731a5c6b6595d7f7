"""Connectors and formats by name. A module is imported only when its name is asked for: Kafka's client library is
not loaded by a job that does not use it."""

from __future__ import annotations

import difflib
import importlib
from typing import cast

from connectors.api import Connector, Format
from connectors.errors import OptionError

_CONNECTORS = {
    "kafka": "connectors.kafka",
    "upsert-kafka": "connectors.upsert_kafka",
    "nexmark": "connectors.nexmark",
    "datagen": "connectors.datagen",
    "filesystem": "connectors.filesystem",
    "jdbc": "connectors.jdbc",
    "print": "connectors.print",
    "blackhole": "connectors.blackhole",
}
_FORMATS = {
    "csv": "connectors.formats.csv",
    "json": "connectors.formats.json",
    "debezium-json": "connectors.formats.debezium_json",
    "raw": "connectors.formats.raw",
}


def connector_names() -> tuple[str, ...]:
    return tuple(sorted(_CONNECTORS))


def connector(name: str) -> Connector:
    """The connector called `name`: the `CONNECTOR` object of its package's `connector` module. Raises OptionError
    naming the nearest known one."""
    return cast(Connector, _load(name, _CONNECTORS, "connector", ".connector", "CONNECTOR"))


def format(name: str) -> Format:
    """The format called `name`: the `FORMAT` object of its package's `format` module."""
    return cast(Format, _load(name, _FORMATS, "format", ".format", "FORMAT"))


def _load(name: str, table: dict[str, str], option: str, module: str, attribute: str) -> object:
    package = table.get(name)
    if package is None:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"Available: {', '.join(sorted(table))}."
        raise OptionError(f"there is no {option} '{name}'", option=option, hint=hint)
    return getattr(importlib.import_module(package + module), attribute)
