"""One RocksDB per operator: a column family per state, bounded memory, no write-ahead log."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import rocksdict

_MIB = 1 << 20
FILTER_BITS = 8
"""Per row in the database. Filters and indexes take some 1.3 bytes a row."""
UNLIMITED_BYTES = 256 * _MIB
"""What a database is given where memory is not limited."""
ITERATED_ROWS = 16_384
YIELDED_ROWS = 128
"""A scan lets the process's other threads run after so many rows; they would wait for it at each of their steps."""


class MemoryShares(msgspec.Struct, frozen=True):
    """How an operator's managed memory is divided, in bytes."""

    hot: int
    """Rows and blocks in columns."""
    memtables: int
    """Writes not yet in files, those of two generations together."""


def divide(managed_bytes: int) -> MemoryShares:
    """0 = unlimited. What is left is for filters and indexes of files, and for keys and rows on their way between the
    two."""
    total = managed_bytes or UNLIMITED_BYTES
    return MemoryShares(hot=total * 5 // 8, memtables=total // 8)


class Database:
    """Lives in a directory of its own below the process's temporary directory, until `close`."""

    def __init__(self, shares: MemoryShares) -> None:
        self._directory = tempfile.mkdtemp(prefix="headrace-rocksdb-")
        self._shares = shares
        self._write = rocksdict.WriteOptions()
        # Durable is the checkpoint: after a crash this directory is gone.
        self._write.disable_wal = True  # type: ignore[method-assign,assignment]
        self._database = rocksdict.Rdict(self._directory, self._options(0))
        self._families: list[Family] = []

    def family(self, name: str, prefix_bytes: int = 0) -> Family:
        """A new column family. `prefix_bytes` > 0: `scan_prefix` asks for prefixes of that length."""
        rows = self._database.create_column_family(name, self._options(prefix_bytes))
        family = Family(rows, self._database.get_column_family_handle(name), self._write, Path(self._directory))
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
        # Values are small and dense, the files a cache: what counts is CPU.
        options.set_compression_type(rocksdict.DBCompressionType.none())
        options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
        table = rocksdict.BlockBasedOptions()
        # What is used again is in columns; blocks would only push each other out of a cache.
        table.disable_cache()
        table.set_bloom_filter(FILTER_BITS, False)
        # Filters and indexes stay in memory: one that has to be read again costs more than the block that it spares.
        table.set_cache_index_and_filter_blocks(False)
        options.set_block_based_table_factory(table)
        if prefix_bytes:
            options.set_prefix_extractor(rocksdict.SliceTransform.create_fixed_prefix(prefix_bytes))
        return options


class Family:
    """A column family: byte keys to byte values, in the order of the keys' bytes."""

    def __init__(
        self, rows: rocksdict.Rdict, handle: rocksdict.ColumnFamily, write: rocksdict.WriteOptions, directory: Path
    ) -> None:
        self.directory = directory
        """For files that are to go with the database."""
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

    def count(self) -> int:
        """Keys, by looking at each."""
        options = rocksdict.ReadOptions()
        options.set_total_order_seek(True)
        rows = self._rows.iter(options)
        rows.seek_to_first()
        count = 0
        while rows.valid():
            count += 1
            rows.next()
        rows.status()
        return count

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
                if len(keys) % YIELDED_ROWS == 0:
                    time.sleep(0)
            rows.status()
            if not keys:
                return
            yield keys, values

    def close(self) -> None:
        self._iterator = None
