"""The shared catalog: tables and views that every session sees and that survive a restart.

A record in the metadata store per definition; a mirror in memory answers look-ups. A change is on disk before the
mirror shows it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from planner.catalog import CatalogEntry, ObjectPath
from runtime.api import MetadataStore

SHARED_CATALOG = "headrace"
SESSION_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default_database"

_COLLECTION = "catalog"

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[CatalogEntry] = msgspec.msgpack.Decoder(CatalogEntry)
_path_decoder = msgspec.json.Decoder(ObjectPath)


class CatalogStore:
    """Thread-safe. Owner of collection `catalog` of the metadata store."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._entries: dict[ObjectPath, CatalogEntry] = {
            _path_decoder.decode(key): _decoder.decode(value) for key, value in metadata.items(_COLLECTION)
        }

    def lookup(self, path: ObjectPath) -> CatalogEntry | None:
        return self._entries.get(path)

    def names(self, catalog: str, database: str) -> Sequence[str]:
        """Names of all tables and views of a database, sorted."""
        with self._lock:
            return sorted(p.name for p in self._entries if p.catalog == catalog and p.database == database)

    def create(self, path: ObjectPath, entry: CatalogEntry) -> bool:
        """Durable when it returns True; False: the name is taken and nothing changed."""
        with self._lock:
            if path in self._entries:
                return False
            if not self._metadata.compare_and_set(_COLLECTION, _key(path), None, _encoder.encode(entry)):
                return False
            self._entries[path] = entry
            return True

    def drop(self, path: ObjectPath) -> None:
        """Durable when it returns; nothing happens to a name that is not there."""
        with self._lock:
            if path in self._entries:
                self._metadata.delete(_COLLECTION, _key(path))
                del self._entries[path]


def _key(path: ObjectPath) -> str:
    return msgspec.json.encode(path).decode()
