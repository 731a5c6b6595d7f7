"""Scripts for the aligner: one line per event, the whole trace expected."""

from __future__ import annotations

import pytest

from runtime.elements import Barrier
from runtime.taskmanager.barrier_aligner import (
    AlignerCommand,
    BarrierAligner,
    BlockChannel,
    CompleteRecording,
    DropRecording,
    OvertakeChannel,
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
            case OvertakeChannel(channel=channel, checkpoint_id=checkpoint_id):
                words.append(f"overtake {channel} {checkpoint_id}")
            case TakeSnapshot(barrier=barrier, alignment_ms=alignment_ms, is_unaligned=is_unaligned):
                left = "" if barrier.aligned_timeout_ms is None else f" left {barrier.aligned_timeout_ms:g}"
                verb = "unaligned" if is_unaligned else "snapshot"
                words.append(f"{verb} {barrier.checkpoint_id} after {alignment_ms:g}{left}")
            case CompleteRecording(checkpoint_id=checkpoint_id, alignment_ms=alignment_ms):
                words.append(f"complete {checkpoint_id} after {alignment_ms:g}")
            case DropRecording(checkpoint_id=checkpoint_id):
                words.append(f"drop {checkpoint_id}")
    return ", ".join(words) or "-"


def barrier(checkpoint_id: int, timeout_ms: int | None = None) -> Barrier:
    return Barrier(checkpoint_id, 1, aligned_timeout_ms=timeout_ms)


def replay(channel_count: int, script: str) -> None:
    """Lines `event -> commands`; events: announce CHANNEL ID TIMEOUT, barrier CHANNEL ID [TIMEOUT], ending CHANNEL,
    end CHANNEL, trigger ID [TIMEOUT], abort ID, wait MS, time."""
    aligner, now_ms = BarrierAligner(channel_count), 0.0
    for line in script.strip().splitlines():
        event, _, expected = (part.strip() for part in line.partition("->"))
        verb, *numbers = event.split()
        arguments = [int(n) for n in numbers]
        match verb:
            case "announce":
                got = aligner.on_announced(arguments[0], barrier(*arguments[1:]), now_ms)
            case "barrier":
                got = aligner.on_barrier(arguments[0], barrier(*arguments[1:]), now_ms)
            case "ending":
                got = aligner.on_end_announced(arguments[0], now_ms)
            case "time":
                got = aligner.on_time(now_ms)
            case "end":
                got = aligner.on_ended(arguments[0], now_ms)
            case "trigger":
                got = aligner.on_trigger(barrier(*arguments))
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
    "what may overtake and is in time stays aligned, and passes on what is left of its time": (
        2,
        """
        announce 0 1 100 -> -
        barrier 0 1 100  -> block 0
        wait 30
        announce 1 1 60  -> -
        wait 10
        barrier 1 1 60   -> unblock 0, unblock 1, snapshot 1 after 40 left 50
        """,
    ),
    "the earliest time-out counts": (
        2,
        """
        announce 0 1 100 -> -
        wait 30
        announce 1 1 10  -> -
        wait 10
        time             -> overtake 0 1, overtake 1 1, unaligned 1 after 40 left 0, complete 1 after 40
        """,
    ),
    "when its time is over it overtakes what is queued, and records until the last barrier": (
        4,
        """
        end 3            -> -
        barrier 0 1 100  -> block 0
        announce 1 1 90  -> -
        wait 89
        time             -> -
        wait 1
        time             -> unblock 0, overtake 1 1, overtake 2 1, unaligned 1 after 90 left 0
        time             -> -
        announce 1 1 0   -> -
        wait 5
        announce 2 1 0   -> complete 1 after 95
        announce 2 1 0   -> -
        barrier 2 1 0    -> -
        """,
    ),
    "without a time-out the first barrier overtakes at once": (
        2,
        """
        announce 1 4 0 -> overtake 0 4, overtake 1 4, unaligned 4 after 0 left 0
        wait 3
        announce 0 4 0 -> complete 4 after 3
        """,
    ),
    "one channel without a time-out": (
        1,
        "announce 0 1 0 -> overtake 0 1, unaligned 1 after 0 left 0, complete 1 after 0",
    ),
    "a barrier that is taken before it was announced": (
        2,
        """
        barrier 0 1 0  -> unblock 0, overtake 1 1, unaligned 1 after 0 left 0
        announce 0 1 0 -> -
        announce 1 1 0 -> complete 1 after 0
        """,
    ),
    "no barrier comes on a channel whose end is queued": (
        3,
        """
        ending 2       -> -
        announce 0 1 0 -> overtake 0 1, overtake 1 1, overtake 2 1, unaligned 1 after 0 left 0
        ending 1       -> complete 1 after 0
        end 1          -> -
        """,
    ),
    "the end of the last channel completes an alignment whose time is over": (
        2,
        """
        barrier 0 1 10 -> block 0
        wait 20
        end 1          -> unblock 0, unaligned 1 after 20 left 0, complete 1 after 20
        """,
    ),
    "an aborted recording is dropped, and its late barriers ignored": (
        2,
        """
        announce 0 1 0 -> overtake 0 1, overtake 1 1, unaligned 1 after 0 left 0
        abort 1        -> drop 1
        announce 1 1 0 -> -
        barrier 1 1 0  -> -
        announce 1 2 0 -> overtake 0 2, overtake 1 2, unaligned 2 after 0 left 0
        announce 0 2 0 -> complete 2 after 0
        """,
    ),
    "a newer barrier drops an older recording": (
        2,
        """
        announce 0 1 0  -> overtake 0 1, overtake 1 1, unaligned 1 after 0 left 0
        announce 0 2 50 -> drop 1
        announce 1 1 0  -> -
        wait 50
        time            -> overtake 0 2, overtake 1 2, unaligned 2 after 50 left 0
        """,
    ),
    "an announced barrier is given up like one that was taken": (
        2,
        """
        announce 0 1 10 -> -
        abort 1         -> -
        wait 20
        time            -> -
        barrier 0 1 10  -> -
        """,
    ),
    "a source overtakes its own output": (
        0,
        """
        trigger 1 0   -> unaligned 1 after 0 left 0, complete 1 after 0
        trigger 2 100 -> snapshot 2 after 0 left 100
        announce 0 3 0 -> -
        """,
    ),
    "an ended producer's barrier overtakes once all have ended": (
        1,
        """
        ending 0       -> -
        end 0          -> -
        announce 0 1 0 -> unaligned 1 after 0 left 0, complete 1 after 0
        """,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str) -> None:
    channel_count, script = SCRIPTS[name]
    replay(channel_count, script)
