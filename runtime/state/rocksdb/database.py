"""One RocksDB per operator: a column family per state, bounded memory, no write-ahead log."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator

import msgspec
import rocksdict

_MIB = 1 << 20
UNLIMITED_BYTES = 256 * _MIB
"""What a database is given where memory is not limited."""
ITERATED_ROWS = 16_384


class MemoryShares(msgspec.Struct, frozen=True):
    """How an operator's managed memory is divided, in bytes."""

    hot: int
    """Rows and blocks in columns."""
    block_cache: int
    """Blocks, indexes and filters of files."""
    memtables: int
    """Writes not yet in files, those of two generations together."""


def divide(managed_bytes: int) -> MemoryShares:
    """0 = unlimited. What is left is for what is in flight: keys and rows on their way between the two."""
    total = managed_bytes or UNLIMITED_BYTES
    return MemoryShares(hot=total * 5 // 8, block_cache=total // 16, memtables=total // 8)


class Database:
    """Lives in a directory of its own below the process's temporary directory, until `close`."""

    def __init__(self, shares: MemoryShares) -> None:
        self._directory = tempfile.mkdtemp(prefix="headrace-rocksdb-")
        self._shares = shares
        self._cache = rocksdict.Cache(shares.block_cache)
        self._write = rocksdict.WriteOptions()
        # Durable is the checkpoint: after a crash this directory is gone.
        self._write.disable_wal = True  # type: ignore[method-assign,assignment]
        self._database = rocksdict.Rdict(self._directory, self._options(0))
        self._families: list[Family] = []

    def family(self, name: str, prefix_bytes: int = 0) -> Family:
        """A new column family. `prefix_bytes` > 0: `scan_prefix` asks for prefixes of that length."""
        rows = self._database.create_column_family(name, self._options(prefix_bytes))
        family = Family(rows, self._database.get_column_family_handle(name), self._write)
        self._families.append(family)
        return family

    def close(self) -> None:
        """Close and remove it. No iterator may be open."""
        for family in self._families:
            family.close()
        self._database.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _options(self, prefix_bytes: int) -> rocksdict.Options:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_db_write_buffer_size(self._shares.memtables)
        options.set_write_buffer_size(max(64 << 10, self._shares.memtables // 2))
        options.set_max_write_buffer_number(2)
        options.set_target_file_size_base(max(_MIB, self._shares.memtables))
        options.set_max_background_jobs(2)
        options.set_max_open_files(256)
        options.set_keep_log_file_num(1)
        options.set_stats_dump_period_sec(0)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(10, False)
        table.set_cache_index_and_filter_blocks(True)
        options.set_block_based_table_factory(table)
        if prefix_bytes:
            options.set_prefix_extractor(rocksdict.SliceTransform.create_fixed_prefix(prefix_bytes))
        return options


class Family:
    """A column family: byte keys to byte values, in the order of the keys' bytes."""

    def __init__(self, rows: rocksdict.Rdict, handle: rocksdict.ColumnFamily, write: rocksdict.WriteOptions) -> None:
        self._rows = rows
        self._handle = handle
        self._write = write
        self._within_prefix = rocksdict.ReadOptions()
        self._within_prefix.set_prefix_same_as_start(True)

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """One multi-get."""
        values: list[bytes | None] = self._rows.get(keys)  # type: ignore[arg-type,assignment]
        return values

    def put(self, keys: Iterable[bytes], values: Iterable[bytes]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._handle)
        put = batch.put
        for key, value in zip(keys, values, strict=True):
            put(key, value)
        self._rows.write(batch, self._write)

    def delete(self, keys: Iterable[bytes]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._handle)
        delete = batch.delete
        for key in keys:
            delete(key)
        self._rows.write(batch, self._write)

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Keys from `first` to before `end`."""
        self._rows.delete_range(first, end, self._write)

    def scan_prefix(self, prefix: bytes) -> tuple[list[bytes], list[bytes]]:
        """Keys that start with `prefix`, and their values."""
        keys, values = [], []
        rows = self._rows.iter(self._within_prefix)
        rows.seek(prefix)
        while rows.valid():
            key = rows.key()
            if not key.startswith(prefix):
                break
            keys.append(key)
            values.append(rows.value())
            rows.next()
        rows.status()
        return keys, values

    def view(self) -> View:
        """The family as it is now."""
        return View(self._rows)

    def close(self) -> None:
        self._rows.close()


class View:
    """A fixed view: later changes, flushes and compactions do not show. It holds on to the files and memtables it
    reads until `close`. May be used in another thread than the one that made it."""

    def __init__(self, rows: rocksdict.Rdict) -> None:
        options = rocksdict.ReadOptions()
        options.set_total_order_seek(True)
        self._iterator: rocksdict.RdictIter | None = rows.iter(options)

    def pieces(
        self, first: bytes = b"", end: bytes | None = None, limit: int = ITERATED_ROWS
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Keys (from `first` to before `end`) and values in order, up to `limit` at once."""
        rows = self._iterator
        if rows is None:
            return
        rows.seek(first)
        while rows.valid():
            keys: list[bytes] = []
            values: list[bytes] = []
            while rows.valid() and len(keys) < limit:
                key = rows.key()
                if end is not None and key >= end:
                    break
                keys.append(key)
                values.append(rows.value())
                rows.next()
            rows.status()
            if not keys:
                return
            yield keys, values

    def close(self) -> None:
        self._iterator = None
