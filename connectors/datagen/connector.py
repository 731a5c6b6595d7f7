"""The `datagen` connector: Flink's options, and two of ours: `seed` makes the rows repeatable from job to job,
`scan.parallelism` is the number of generators (1 by default, so that rows come in order)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from connectors.api import ReaderContext, SinkConnector, SourceReader, SplitEnumerator, TableDefinition
from connectors.arrow import rows_without_columns
from connectors.datagen.fields import FieldPlan, Generator, Rows
from connectors.errors import DirectionError
from connectors.generated import GeneratorEnumerator, GeneratorReader, GeneratorSplit
from connectors.options import SOURCE_OPTIONS, Options
from planner.ir.types import ChangelogMode, DataType

OPTION_NAMES = SOURCE_OPTIONS | {"rows-per-second", "number-of-rows", "seed"}
ROWS_PER_SECOND_DEFAULT = 10_000


class DatagenConnector:
    name = "datagen"

    def source(self, table: TableDefinition) -> DatagenSource:
        return DatagenSource(table)

    def sink(self, table: TableDefinition) -> SinkConnector:
        raise DirectionError("datagen is a source: nothing can be written to it", option="connector")


class DatagenSource:
    """A table of generated rows. It ends with `number-of-rows` or with its shortest sequence."""

    changelog = ChangelogMode.INSERT_ONLY
    metadata_types: Mapping[str, DataType] = {}

    def __init__(self, table: TableDefinition) -> None:
        options = Options(table)
        self._plan = FieldPlan(table.columns, options)
        options.refuse_unknown(OPTION_NAMES | self._plan.option_names)
        self._rate = options.integer("rows-per-second", ROWS_PER_SECOND_DEFAULT, 1)
        self._seed = options.optional_integer("seed")
        self._generators = options.integer("scan.parallelism", 1, 1)
        limits = [options.optional_integer("number-of-rows", 0), self._plan.sequence_rows]
        self._numbers = min((limit for limit in limits if limit is not None), default=None)

    @property
    def bounded(self) -> bool:
        return self._numbers is not None

    def enumerator(self) -> SplitEnumerator:
        seed = secrets.randbits(62) if self._seed is None else self._seed
        return GeneratorEnumerator(self._generators, self._numbers, seed, time.time_ns() // 1_000_000)

    def reader(self, context: ReaderContext) -> SourceReader:
        generators = [self._plan.generators[i] for i in context.scan_columns]
        return GeneratorReader(_Batches(generators, self._rate), self._rate / self._generators, context.rows_max)


class _Batches:
    """Makes batches; a row's moment is the start of the job plus its number over the rate."""

    def __init__(self, generators: list[Generator], rate: int) -> None:
        self._generators = generators
        self._rate = rate

    def __call__(self, split: GeneratorSplit, first: int, count: int) -> pa.RecordBatch:
        numbers = split.index + split.stride * np.arange(first, first + count, dtype=np.int64)
        if not self._generators:
            return rows_without_columns(count)
        rows = Rows(numbers, split.seed, split.start_ms + numbers * 1000 // self._rate)
        arrays = [generator(rows) for generator in self._generators]
        return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])


CONNECTOR = DatagenConnector()
