"""Scripts for the aligner: one line per event, the whole trace expected."""

from __future__ import annotations

import pytest

from runtime.elements import Barrier
from runtime.taskmanager.barrier_aligner import (
    AlignerCommand,
    BarrierAligner,
    BlockChannel,
    TakeSnapshot,
    UnblockChannel,
)


def told(commands: list[AlignerCommand]) -> str:
    words = []
    for command in commands:
        match command:
            case BlockChannel(channel=channel):
                words.append(f"block {channel}")
            case UnblockChannel(channel=channel):
                words.append(f"unblock {channel}")
            case TakeSnapshot(barrier=barrier, alignment_ms=alignment_ms):
                words.append(f"snapshot {barrier.checkpoint_id} after {alignment_ms:g}")
    return ", ".join(words) or "-"


def replay(channel_count: int, script: str) -> None:
    """Lines `event -> commands`; events: barrier CHANNEL ID, end CHANNEL, trigger ID, abort ID, wait MS."""
    aligner, now_ms = BarrierAligner(channel_count), 0.0
    for line in script.strip().splitlines():
        event, _, expected = (part.strip() for part in line.partition("->"))
        verb, *numbers = event.split()
        arguments = [int(n) for n in numbers]
        match verb:
            case "barrier":
                got = aligner.on_barrier(arguments[0], Barrier(arguments[1], 1), now_ms)
            case "end":
                got = aligner.on_ended(arguments[0], now_ms)
            case "trigger":
                got = aligner.on_trigger(Barrier(arguments[0], 1))
            case "abort":
                got = aligner.on_aborted(arguments[0])
            case "wait":
                now_ms += arguments[0]
                continue
        assert told(got) == expected, line


SCRIPTS = {
    "barriers of all channels": (
        3,
        """
        barrier 1 5 -> block 1
        wait 10
        barrier 0 5 -> block 0
        wait 20
        barrier 2 5 -> unblock 0, unblock 1, unblock 2, snapshot 5 after 30
        barrier 0 6 -> block 0
        """,
    ),
    "one channel never waits": (1, "barrier 0 1 -> unblock 0, snapshot 1 after 0"),
    "an ended channel counts as aligned": (
        2,
        """
        end 1       -> -
        barrier 0 1 -> unblock 0, snapshot 1 after 0
        """,
    ),
    "the end of the last missing channel completes the alignment": (
        3,
        """
        barrier 0 1 -> block 0
        end 1       -> -
        wait 7
        end 2       -> unblock 0, snapshot 1 after 7
        """,
    ),
    "a newer barrier gives up the older alignment": (
        2,
        """
        barrier 0 1 -> block 0
        barrier 1 2 -> unblock 0, block 1
        barrier 0 1 -> -
        barrier 0 2 -> unblock 0, unblock 1, snapshot 2 after 0
        """,
    ),
    "an aborted checkpoint is given up, and its late barriers ignored": (
        2,
        """
        barrier 0 1 -> block 0
        abort 1     -> unblock 0
        barrier 1 1 -> -
        abort 3     -> -
        barrier 0 3 -> -
        barrier 0 4 -> block 0
        abort 3     -> -
        barrier 1 4 -> unblock 0, unblock 1, snapshot 4 after 0
        """,
    ),
    "a source is triggered, each id once": (
        0,
        """
        trigger 1 -> snapshot 1 after 0
        trigger 1 -> -
        abort 2   -> -
        trigger 2 -> -
        trigger 3 -> snapshot 3 after 0
        """,
    ),
    "a task with live inputs is not triggered": (
        2,
        """
        trigger 1 -> -
        end 0     -> -
        trigger 1 -> -
        end 1     -> -
        trigger 1 -> snapshot 1 after 0
        """,
    ),
    "an ended producer's barrier triggers once all have ended": (
        2,
        """
        end 0       -> -
        barrier 0 1 -> -
        end 1       -> -
        barrier 0 1 -> snapshot 1 after 0
        barrier 1 1 -> -
        trigger 1   -> -
        """,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str) -> None:
    channel_count, script = SCRIPTS[name]
    replay(channel_count, script)
