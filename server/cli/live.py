"""The live view: the newest rows of a running query, redrawn in place, with rate and watermark above them. Of a result
that updates its rows it is the table as it is now, or the changes themselves where they are asked for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from server.cli.client import Column, Row, slots_missing
from server.cli.folded import FoldedRows
from server.cli.output import NULL_TEXT, OPS, one_line

ROWS_KEPT_MAX = 1_000
"""Rows that are printed when a query ends by itself; of a longer result the last ones."""

_RATE_WINDOW_S = 5.0
_JOB_INTERVAL_S = 1.0
_LINES_AROUND = 6


class LiveView:
    """Context manager around the reading of one query. `job` asks for the job's details, None if unknown. `fold`: the
    rows are changes, and their table is wanted. `count` is the number of rows (or changes) that came."""

    def __init__(
        self,
        console: Console,
        columns: Sequence[Column],
        job: Callable[[], dict[str, Any] | None],
        *,
        with_op: bool,
        fold: bool,
    ) -> None:
        self._console = console
        self._columns = columns
        self._with_op = with_op
        self._job = job
        self._started_s = time.monotonic()
        self._arrivals: deque[tuple[float, int]] = deque()
        self._job_asked_s = 0.0
        self._watermark_ms: int | None = None
        self._slots_missing = 0
        self.count = 0
        self._kept: deque[Row] = deque(maxlen=ROWS_KEPT_MAX)
        self._folded = FoldedRows() if with_op and fold else None
        self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._render)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def add(self, rows: Sequence[Row]) -> None:
        """Takes what came; called for empty pages too, so that the figures stay fresh."""
        now_s = time.monotonic()
        self.count += len(rows)
        self._kept.extend(rows)
        if self._folded is not None:
            self._folded.add(rows)
            if self._folded.overflowed:
                self._folded = None
        self._arrivals.append((now_s, len(rows)))
        while self._arrivals and now_s - self._arrivals[0][0] > _RATE_WINDOW_S:
            self._arrivals.popleft()
        if now_s - self._job_asked_s >= _JOB_INTERVAL_S:
            self._job_asked_s = now_s
            job = self._job()
            self._watermark_ms = _watermark(job)
            self._slots_missing = slots_missing(job)

    @property
    def with_op(self) -> bool:
        """Whether what is shown are changes."""
        return self._with_op and self._folded is None

    @property
    def table_size(self) -> int:
        """Rows of the table, or changes."""
        return self.count if self._folded is None else len(self._folded)

    def newest(self, count: int) -> list[Row]:
        return list(self._kept)[-count:] if self._folded is None else self._folded.newest(count)

    @property
    def rows_shown_max(self) -> int:
        return max(3, self._console.height - _LINES_AROUND)

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
        if self.with_op:
            table.add_column("op", no_wrap=True)
        for column in self._columns:
            table.add_column(Text(column.name), no_wrap=True, overflow="ellipsis")
        for row in self.newest(self.rows_shown_max):
            fields = [Text(NULL_TEXT, style="dim") if f is None else Text(one_line(str(f))) for f in row.fields]
            table.add_row(*([Text(OPS[row.kind])] if self.with_op else []), *fields)
        return Group(Text(self._figures(), style="reverse"), table)

    def _figures(self) -> str:
        now_s = time.monotonic()
        span_s = min(_RATE_WINDOW_S, max(now_s - self._started_s, 0.001))
        rate = sum(n for at_s, n in self._arrivals if now_s - at_s <= _RATE_WINDOW_S) / span_s
        rows = f"{self.table_size:,} rows"
        if self._with_op:
            rows = f"{self.count:,} changes" if self._folded is None else f"{rows} · {self.count:,} changes"
        parts = [rows, f"{rate:,.0f}/s", f"{now_s - self._started_s:.0f} s"]
        if self._watermark_ms is not None:
            parts.append(f"watermark {_instant(self._watermark_ms)}")
        if self._slots_missing:
            parts.append(f"waits for {self._slots_missing} more slots")
        return " " + " · ".join([*parts, "Ctrl-C ends the query"]) + " "


def _watermark(job: dict[str, Any] | None) -> int | None:
    """The lowest watermark of the job's vertices."""
    if job is None:
        return None
    marks = [v.get("metrics", {}).get("watermark-ms") for v in job.get("vertices", [])]
    return min((int(m) for m in marks if m is not None), default=None)


def _instant(epoch_ms: int) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "end of input" if epoch_ms > 0 else "none yet"
