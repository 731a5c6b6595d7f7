"""Event time of a source subtask: scripts with the whole trace expected."""

from __future__ import annotations

import pytest

from runtime.elements import Watermark, WatermarkStatus
from runtime.operators.source_watermarks import SourceWatermarks


def replay(script: str, interval_ms: int = 200, idle_timeout_ms: int = 0) -> None:
    """Lines `SPLIT (new [WATERMARK] | rows MAXIMUM | silent MS | end) -> sent`, and `wait MS`.

    After each line the statuses, then the watermark that is due are asked for, as the source does."""
    marks, now_ms = SourceWatermarks(interval_ms, idle_timeout_ms), 0.0
    for line in script.strip().splitlines():
        event, _, expected = (part.strip() for part in line.partition("->"))
        words = event.split()
        if words[0] == "wait":
            now_ms += float(words[1])
        else:
            name, verb, number = words[0], words[1], int(words[2]) if len(words) > 2 else None
            match verb:
                case "new":
                    marks.add_split(name, number, ended=False)
                case "rows":
                    marks.on_rows(name, number)
                case "silent":
                    marks.on_silence(name, float(number or 0))
                case "end":
                    marks.on_ended(name)
        sent: list[Watermark | WatermarkStatus] = [*marks.status(), *marks.advance(now_ms)]
        told = [str(e.timestamp_ms) if isinstance(e, Watermark) else ("idle" if e.idle else "active") for e in sent]
        assert (", ".join(told) or "-") == expected, line


SCRIPTS = {
    "the last active split leaves its event time behind": (
        """
        a new       -> -
        b new       -> -
        a rows 500  -> -
        a end       -> -
        b rows 300  -> 300
        b rows 350  -> -
        b end       -> idle
        wait 200    -> 350
        c new       -> active
        c rows 900  -> 900
        """,
        0,
    ),
    "a known split that has not been read holds the minimum": (
        """
        a new       -> -
        b new       -> -
        a rows 1000 -> -
        a rows 9000 -> -
        b rows 500  -> 500
        """,
        0,
    ),
    "one per interval of the clock, or of event time": (
        """
        a new      -> -
        a rows 100 -> 100
        a rows 150 -> -
        wait 200   -> 150
        a rows 350 -> -
        a rows 351 -> 351
        """,
        0,
    ),
    "rows never lower it": (
        """
        a new      -> -
        a rows 500 -> 500
        a rows 100 -> -
        wait 1000  -> -
        """,
        0,
    ),
    "a silent split leaves the minimum until its next row": (
        """
        a new        -> -
        b new        -> -
        a rows 5000  -> -
        b silent 999 -> -
        b silent 1   -> 5000
        a rows 6000  -> 6000
        b rows 10    -> -
        a rows 9000  -> -
        b rows 7000  -> 7000
        """,
        1000,
    ),
    "rows set the idle clock back": (
        """
        a new        -> -
        a silent 900 -> -
        a rows 1     -> 1
        a silent 900 -> -
        a silent 100 -> idle
        a rows 2     -> active
        wait 200     -> 2
        """,
        1000,
    ),
    "an ended split leaves the minimum": (
        """
        a new       -> -
        b new       -> -
        a rows 1000 -> -
        b rows 10   -> 10
        b end       -> 1000
        """,
        0,
    ),
    "no split: idle; a split found later makes it active": (
        """
        wait 0     -> idle
        a new      -> active
        a rows 300 -> 300
        """,
        0,
    ),
    "restored maxima count": (
        """
        a new 700  -> 700
        a rows 300 -> -
        """,
        0,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str) -> None:
    script, idle_timeout_ms = SCRIPTS[name]
    replay(script, idle_timeout_ms=idle_timeout_ms)
