"""Windows over several splits, each out of order within the watermark's delay: no shape changes the answer."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.cases import ALL_SHAPES, Case, Shape, run_case
from tests.support.standalone import Standalone

START = dt.datetime(2025, 6, 1, 8)
SPLITS = 4
ROWS_PER_SPLIT = 400
DELAY_MS = 3_000
SIZE_MS = 5_000
KEYS = ("north", "south", "", None, "a key that is longer than sixteen bytes")


def random_inputs(seed: int) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str | None, int], list[int]]]:
    """Lines of each file, and the values of each (key, window start in ms)."""
    source = random.Random(seed)
    files: dict[str, tuple[str, ...]] = {}
    groups: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    for split in range(SPLITS):
        lines = []
        latest = 0
        # Each split runs at a pace of its own: their watermarks drift apart.
        pace_ms = source.randint(20, 400)
        for _ in range(ROWS_PER_SPLIT):
            latest += source.randint(0, pace_ms)
            at = max(0, latest - source.randint(0, DELAY_MS))
            key, value = source.choice(KEYS), source.randint(-(10**9), 10**9)
            stamp = (START + dt.timedelta(milliseconds=at)).isoformat(sep=" ", timespec="milliseconds")
            lines.append(json.dumps({"k": key, "ts": stamp, "v": value}))
            groups[key, at // SIZE_MS * SIZE_MS].append(value)
        files[f"part-{split}.jsonl"] = tuple(lines)
    return files, groups


@pytest.mark.parametrize("shape", ALL_SHAPES, ids=lambda shape: f"p{shape.parallelism}-b{shape.batch_rows}")
def test_windows_over_four_splits(shape: Shape, cluster: Standalone, tmp_path: Path) -> None:
    files, groups = random_inputs(seed=17)
    case = Case(
        name="four-splits",
        why="a row that is on time within its own split is never dropped",
        sql=(
            f"""
            CREATE TABLE readings (k STRING, ts TIMESTAMP(3), v BIGINT,
                                   WATERMARK FOR ts AS ts - INTERVAL '{DELAY_MS // 1000}' SECOND)
            WITH ('connector' = 'filesystem', 'path' = '{{dir}}', 'format' = 'json')
            """,
            f"""
            SELECT k, window_start, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS least, MAX(v) AS most
            FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '{SIZE_MS // 1000}' SECOND))
            GROUP BY k, window_start, window_end
            """,
        ),
        inputs=files,
        rows=tuple(
            (
                key,
                (START + dt.timedelta(milliseconds=start)).isoformat(sep=" "),
                len(values),
                sum(values),
                min(values),
                max(values),
            )
            for (key, start), values in groups.items()
        ),
    )
    run_case(case, shape, cluster, tmp_path)
