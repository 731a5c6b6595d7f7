"""Event time over several channels: scripts with the whole trace expected."""

from __future__ import annotations

import pytest

from runtime.elements import Watermark
from runtime.taskmanager.watermark_valve import Output, WatermarkValve


def told(output: Output) -> str:
    words = [str(e.timestamp_ms) if isinstance(e, Watermark) else ("idle" if e.idle else "active") for e in output]
    return ", ".join(words) or "-"


def replay(channel_count: int, script: str) -> None:
    """Lines `CHANNEL (a number | idle | active | end) -> elements sent`."""
    valve = WatermarkValve(channel_count)
    for line in script.strip().splitlines():
        event, _, expected = (part.strip() for part in line.partition("->"))
        channel, what = event.split()
        index = int(channel)
        match what:
            case "idle" | "active":
                got = valve.on_status(index, what == "idle")
            case "end":
                got = valve.on_ended(index)
            case _:
                got = valve.on_watermark(index, int(what))
        assert told(got) == expected, line


SCRIPTS = {
    "the minimum over channels": (
        2,
        """
        0 10 -> -
        1 5  -> 5
        1 20 -> 10
        0 7  -> -
        """,
    ),
    "an idle channel leaves the minimum": (
        2,
        """
        0 10     -> -
        1 idle   -> 10
        0 30     -> 30
        1 active -> -
        0 40     -> 40
        1 35     -> -
        1 50     -> -
        0 45     -> 45
        """,
    ),
    "a channel that rejoins counts once it has caught up": (
        2,
        """
        0 10     -> -
        1 10     -> 10
        1 idle   -> -
        0 30     -> 30
        1 active -> -
        1 20     -> -
        0 40     -> 40
        1 41     -> -
        0 42     -> 41
        """,
    ),
    "all idle: the highest, then the status": (
        2,
        """
        0 10     -> -
        1 5      -> 5
        0 idle   -> -
        1 idle   -> 10, idle
        1 active -> active
        """,
    ),
    "an ended channel leaves for good": (
        3,
        """
        0 10  -> -
        1 5   -> -
        2 end -> 5
        1 end -> 10
        0 20  -> 20
        0 end -> -
        """,
    ),
    "an end that leaves only idle channels": (
        2,
        """
        0 10   -> -
        0 idle -> -
        1 3    -> 3
        1 end  -> 10, idle
        """,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str) -> None:
    channel_count, script = SCRIPTS[name]
    replay(channel_count, script)
