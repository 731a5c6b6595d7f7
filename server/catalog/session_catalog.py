"""What one session sees: the shared catalog, its own `default_catalog`, and its temporary objects above both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.catalog import CatalogEntry, ObjectPath, TableCapabilities, TableEntry
from server.catalog.store import DEFAULT_DATABASE, SESSION_CATALOG, SHARED_CATALOG, CatalogStore
from server.catalog.validate import capabilities


class SessionCatalog:
    """Implements `planner.catalog.Catalog`. Changed only under its session's statement lock; read from any thread."""

    def __init__(
        self,
        shared: CatalogStore,
        *,
        current_catalog: str = SESSION_CATALOG,
        current_database: str = DEFAULT_DATABASE,
        own: Mapping[ObjectPath, CatalogEntry] | None = None,
        temporary: Mapping[ObjectPath, CatalogEntry] | None = None,
    ) -> None:
        self._shared = shared
        self.current_catalog = current_catalog
        self.current_database = current_database
        self.own: dict[ObjectPath, CatalogEntry] = dict(own or {})
        self.temporary: dict[ObjectPath, CatalogEntry] = dict(temporary or {})

    # -- planner.catalog.Catalog

    def lookup(self, path: ObjectPath) -> CatalogEntry | None:
        return self.temporary.get(path) or self.permanent(path)

    def names(self, catalog: str, database: str) -> Sequence[str]:
        local = {p.name for p in (*self.own, *self.temporary) if p.catalog == catalog and p.database == database}
        return sorted(local.union(self._shared.names(catalog, database)))

    def databases(self, catalog: str) -> Sequence[str]:
        return (DEFAULT_DATABASE,) if catalog in self.catalogs() else ()

    def catalogs(self) -> Sequence[str]:
        return (SESSION_CATALOG, SHARED_CATALOG)

    def capabilities(self, path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableCapabilities:
        return capabilities(path, entry, options)

    # -- changes

    def permanent(self, path: ObjectPath) -> CatalogEntry | None:
        """The definition under `path` that is not temporary."""
        return self.own.get(path) if path.catalog == SESSION_CATALOG else self._shared.lookup(path)

    def create(self, path: ObjectPath, entry: CatalogEntry, *, temporary: bool) -> bool:
        """False: the name is taken and nothing changed. In the shared catalog durable when it returns; blocks."""
        if temporary or path.catalog == SESSION_CATALOG:
            entries = self.temporary if temporary else self.own
            if path in entries:
                return False
            entries[path] = entry
            return True
        return self._shared.create(path, entry)

    def drop(self, path: ObjectPath, *, temporary: bool) -> None:
        """Takes away the temporary or the permanent definition; blocks."""
        if temporary:
            self.temporary.pop(path, None)
        elif path.catalog == SESSION_CATALOG:
            self.own.pop(path, None)
        else:
            self._shared.drop(path)
