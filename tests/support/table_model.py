"""A keyed table as a Python dict: what every backend must do, row by row."""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable
from typing import Any


def identity(value: Any) -> Hashable:
    """Equal exactly when the values are one key: NULL is one, -0.0 is 0.0, every NaN is one, maps have no order."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value + 0.0)
    if isinstance(value, dict):
        return tuple(sorted((name, identity(v)) for name, v in value.items()))
    if isinstance(value, list):
        if value and all(isinstance(v, tuple) for v in value):
            return frozenset((identity(k), identity(v)) for k, v in value)
        return tuple(identity(v) for v in value)
    return (type(value).__name__, value)


class ModelTable:
    """Rows by key: [key as first seen, values, sequence, last write]; in the order in which they were made."""

    def __init__(self, value_defaults: tuple[Any, ...], ttl_ms: int = 0) -> None:
        self.defaults = value_defaults
        self.ttl_ms = ttl_ms
        self.rows: dict[Hashable, list[Any]] = {}

    def _drop_expired(self, now_ms: int) -> None:
        if self.ttl_ms:
            self.rows = {k: row for k, row in self.rows.items() if row[2] + self.ttl_ms > now_ms}

    def ensure(self, key: tuple[Any, ...], now_ms: int = 0) -> bool:
        """Whether the key was made."""
        self._drop_expired(now_ms)
        name = tuple(identity(part) for part in key)
        if name in self.rows:
            return False
        self.rows[name] = [key, list(self.defaults), now_ms]
        return True

    def row(self, key: tuple[Any, ...], now_ms: int = 0) -> list[Any] | None:
        self._drop_expired(now_ms)
        return self.rows.get(tuple(identity(part) for part in key))

    def write(self, key: tuple[Any, ...], column: int, value: Any, now_ms: int = 0) -> None:
        row = self.row(key, now_ms)
        assert row is not None
        row[1][column] = value
        row[2] = now_ms

    def remove(self, key: tuple[Any, ...]) -> None:
        self.rows.pop(tuple(identity(part) for part in key), None)

    def prefix(self, prefix: tuple[Any, ...], now_ms: int = 0) -> list[tuple[Any, ...]]:
        """Keys with that prefix, oldest first."""
        self._drop_expired(now_ms)
        name = tuple(identity(part) for part in prefix)
        return [row[0] for key, row in self.rows.items() if isinstance(key, tuple) and key[: len(name)] == name]

    def contents(self, now_ms: int = 0) -> list[tuple[tuple[Any, ...], list[Any]]]:
        self._drop_expired(now_ms)
        return [(row[0], row[1]) for row in self.rows.values()]
