"""What the planner asks of a catalog, and the definitions it puts there.

The planner does no I/O: the server implements `Catalog` over its sessions and its store, and answers from
memory. Entries are bound when they are created (`planner.api.bind_table`, `bind_view`), so a stored definition
cannot change its meaning later; they are plain frozen data and can be encoded with msgspec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from planner.ir.expressions import Expression
from planner.ir.types import ChangelogMode, DataType


class ObjectPath(msgspec.Struct, frozen=True, order=True):
    """Full identifier of a table or view; every part is case-sensitive."""

    catalog: str
    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.database}.{self.name}"

    def quoted(self) -> str:
        """The path as SQL text with backticks."""
        parts = (self.catalog, self.database, self.name)
        return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


class PhysicalColumn(msgspec.Struct, frozen=True, tag_field="kind", tag="physical"):
    """A column that the format reads and writes. A primary key column is NOT NULL."""

    name: str
    type: DataType
    comment: str | None = None


class ComputedColumn(msgspec.Struct, frozen=True, tag_field="kind", tag="computed"):
    """A column computed when the table is read; never written.

    `expression` refers by index to the table's *source row*: its physical columns in table order, then its
    metadata columns in table order. `text` is the expression as the user wrote it.
    """

    name: str
    type: DataType
    expression: Expression
    text: str
    comment: str | None = None


class MetadataColumn(msgspec.Struct, frozen=True, tag_field="kind", tag="metadata"):
    """A column under a connector's metadata key; a virtual one is read but not written."""

    name: str
    type: DataType
    key: str
    is_virtual: bool
    comment: str | None = None


TableColumn = PhysicalColumn | ComputedColumn | MetadataColumn


class Watermark(msgspec.Struct, frozen=True):
    """`WATERMARK FOR column AS expression`; the expression refers by index to `TableEntry.columns`."""

    column: str
    expression: Expression
    text: str


class PrimaryKey(msgspec.Struct, frozen=True):
    name: str
    columns: tuple[str, ...]


class TableEntry(msgspec.Struct, frozen=True, tag_field="kind", tag="table"):
    """A table's definition. The rowtime column's type carries the time-attribute mark."""

    columns: tuple[TableColumn, ...]
    options: dict[str, str]
    watermark: Watermark | None = None
    primary_key: PrimaryKey | None = None
    comment: str | None = None

    @property
    def physical(self) -> tuple[PhysicalColumn, ...]:
        return tuple(c for c in self.columns if isinstance(c, PhysicalColumn))

    @property
    def metadata(self) -> tuple[MetadataColumn, ...]:
        return tuple(c for c in self.columns if isinstance(c, MetadataColumn))

    @property
    def connector(self) -> str:
        return self.options.get("connector", "")


class ViewColumn(msgspec.Struct, frozen=True):
    name: str
    type: DataType


class ViewEntry(msgspec.Struct, frozen=True, tag_field="kind", tag="view"):
    """A view: its query's text, the names it was resolved against, and its columns when it was created.

    `query` is parsed and bound again where the view is used, with `catalog` and `database` as current ones.
    """

    query: str
    catalog: str
    database: str
    columns: tuple[ViewColumn, ...]
    comment: str | None = None


CatalogEntry = TableEntry | ViewEntry


class MetadataKey(msgspec.Struct, frozen=True):
    """A metadata key of a connector: the type it is read (and, if writable, written) as."""

    type: DataType
    is_writable: bool = False


class TableCapabilities(msgspec.Struct, frozen=True):
    """What a connector can do with a table that has given options.

    is_bounded: the source ends by itself. metadata: readable keys, including the format's with their prefix.
    source_changelog: what reading gives. An UPSERT source needs a primary key; it is normalised by it.
    sink_changelog: the most that writing takes: appends only, upserts by the primary key (-U never arrives), or all
    kinds with full rows.
    max_parallelism: copies that make sense, e.g. 1 for a source with a single split; None without a limit.
    is_lookup: rows can be asked for by key at any moment (a join as of processing time).
    source_refusal, sink_refusal, lookup_refusal: why the table cannot be used so, in the connector's words.
    """

    is_source: bool
    is_sink: bool
    is_bounded: bool = False
    metadata: dict[str, MetadataKey] = {}
    source_changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    sink_changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    max_parallelism: int | None = None
    source_refusal: str = ""
    sink_refusal: str = ""
    is_lookup: bool = False
    lookup_refusal: str = ""


class Catalog(Protocol):
    """Read access to definitions, as one session sees them (temporary objects hide durable ones)."""

    @property
    def current_catalog(self) -> str: ...

    @property
    def current_database(self) -> str: ...

    def lookup(self, path: ObjectPath) -> CatalogEntry | None:
        """The definition under exactly this path, or None."""

    def names(self, catalog: str, database: str) -> Sequence[str]:
        """Names of all tables and views of a database (for hints); empty if it does not exist."""

    def databases(self, catalog: str) -> Sequence[str]:
        """Names of a catalog's databases; empty if the catalog does not exist."""

    def catalogs(self) -> Sequence[str]: ...

    def capabilities(self, path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableCapabilities:
        """What `entry`'s connector can do with the given options (its own, hints merged in).

        Raises `planner.errors.SqlError` without span for an unknown connector, an unknown or a bad option.
        """
