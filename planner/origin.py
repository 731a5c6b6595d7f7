"""What a job was compiled from, kept with it: its statements and every definition that they used, as they were then.

So the same job can be compiled again, at another parallelism, when tables have changed or been dropped since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from planner.catalog import Catalog, CatalogEntry, ObjectPath, TableCapabilities, TableEntry

FORMAT_VERSION = 1


class OriginFormatError(ValueError):
    """The bytes were not written by this version."""


class _Definition(msgspec.Struct, frozen=True, array_like=True):
    path: ObjectPath
    entry: CatalogEntry


class _Capabilities(msgspec.Struct, frozen=True, array_like=True):
    path: ObjectPath
    options: dict[str, str]
    found: TableCapabilities


class JobOrigin(msgspec.Struct, frozen=True):
    """`inserts` are the texts of the job's INSERT statements; names in them are resolved against `catalog` and
    `database`."""

    inserts: tuple[str, ...]
    catalog: str
    database: str
    definitions: tuple[_Definition, ...]
    capabilities: tuple[_Capabilities, ...]
    version: int = FORMAT_VERSION


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(JobOrigin)


class RecordingCatalog:
    """A catalog that remembers what was asked of it. Implements Catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._definitions: dict[ObjectPath, CatalogEntry] = {}
        self._capabilities: list[_Capabilities] = []

    @property
    def current_catalog(self) -> str:
        return self._catalog.current_catalog

    @property
    def current_database(self) -> str:
        return self._catalog.current_database

    def lookup(self, path: ObjectPath) -> CatalogEntry | None:
        entry = self._catalog.lookup(path)
        if entry is not None:
            self._definitions[path] = entry
        return entry

    def names(self, catalog: str, database: str) -> Sequence[str]:
        return self._catalog.names(catalog, database)

    def databases(self, catalog: str) -> Sequence[str]:
        return self._catalog.databases(catalog)

    def catalogs(self) -> Sequence[str]:
        return self._catalog.catalogs()

    def capabilities(self, path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableCapabilities:
        found = self._catalog.capabilities(path, entry, options)
        asked = _Capabilities(path, dict(options), found)
        if asked not in self._capabilities:
            self._capabilities.append(asked)
        return found

    def origin(self, inserts: Sequence[str]) -> bytes:
        """All of it, with the texts of the job's INSERTs."""
        definitions = tuple(_Definition(path, self._definitions[path]) for path in sorted(self._definitions))
        return _encoder.encode(
            JobOrigin(
                tuple(inserts), self.current_catalog, self.current_database, definitions, tuple(self._capabilities)
            )
        )


class RecordedCatalog:
    """The catalog that a job saw. Implements Catalog."""

    def __init__(self, origin: JobOrigin) -> None:
        self._origin = origin
        self._definitions = {definition.path: definition.entry for definition in origin.definitions}

    @property
    def current_catalog(self) -> str:
        return self._origin.catalog

    @property
    def current_database(self) -> str:
        return self._origin.database

    def lookup(self, path: ObjectPath) -> CatalogEntry | None:
        return self._definitions.get(path)

    def names(self, catalog: str, database: str) -> Sequence[str]:
        return [p.name for p in self._definitions if (p.catalog, p.database) == (catalog, database)]

    def databases(self, catalog: str) -> Sequence[str]:
        return sorted({p.database for p in self._definitions if p.catalog == catalog})

    def catalogs(self) -> Sequence[str]:
        return sorted({path.catalog for path in self._definitions})

    def capabilities(self, path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableCapabilities:
        asked = dict(options)
        return next(c.found for c in self._origin.capabilities if (c.path, c.options) == (path, asked))


def decode_origin(data: bytes) -> JobOrigin:
    """Raises OriginFormatError."""
    try:
        origin = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise OriginFormatError(f"not the origin of a job: {error}") from error
    if origin.version != FORMAT_VERSION:
        raise OriginFormatError(f"origin format {origin.version} is not {FORMAT_VERSION}")
    return origin
