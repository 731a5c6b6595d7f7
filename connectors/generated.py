"""What the generating sources (`nexmark`, `datagen`) share: splits, pacing and positions.

Row number i of split s is a pure function of (seed, s, i), so a split that is read again gives the same rows. The
splits interleave: split `index` of `stride` holds the numbers index, index + stride, … of the whole sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.api import Split, SplitBatch, SplitState

TICK_S: Final = 0.02
"""A paced reader answers at most this often, so that slow rates do not become batches of one row."""

UInt64Array = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class GeneratorSplit(msgspec.Struct, frozen=True):
    """One generator. `total`: how many numbers it has (None: without end); `start_ms`: epoch milliseconds that its
    event time is counted from."""

    index: int
    stride: int
    total: int | None
    seed: int
    start_ms: int


class GeneratorEnumerator:
    """Makes all generators at the first call of a job."""

    discovery_interval_ms = 0

    def __init__(self, count: int, numbers: int | None, seed: int, start_ms: int) -> None:
        """`numbers`: length of the whole sequence, None without end."""
        self._splits = []
        for index in range(count):
            total = None if numbers is None else max(0, -(-(numbers - index) // count))
            data = msgspec.json.encode(GeneratorSplit(index, count, total, seed, start_ms))
            self._splits.append(Split(f"generator-{index}", data))

    def discover(self, known: frozenset[str]) -> list[Split]:
        return [split for split in self._splits if split.id not in known]

    def close(self) -> None:
        """Nothing is held."""


class _Progress:
    """One split being read: the next number and when it may be emitted."""

    def __init__(self, state: SplitState, now_s: float) -> None:
        self.state = state
        self.split = msgspec.json.decode(state.split.data, type=GeneratorSplit)
        self.next = int(state.position) if state.position is not None else 0
        self.done = state.done
        self._from, self._since_s = self.next, now_s

    def due(self, rate: float | None, limit: int, now_s: float) -> int:
        """How many numbers may be emitted now."""
        if rate is not None:
            limit = min(limit, self._from + int((now_s - self._since_s) * rate) - self.next)
        if self.split.total is not None:
            limit = min(limit, self.split.total - self.next)
        return max(limit, 0)

    @property
    def exhausted(self) -> bool:
        return self.split.total is not None and self.next >= self.split.total


Generate = Callable[[GeneratorSplit, int, int], pa.RecordBatch]


class GeneratorReader:
    """Emits generated rows, paced by the wall clock. `generate(split, first, count)` gives the rows of the split's
    numbers first … first + count − 1 (it may leave some out); `rate` is numbers per second and split, None for as
    fast as they are asked for."""

    def __init__(self, generate: Generate, rate: float | None, rows_max: int) -> None:
        self._generate = generate
        self._rate = rate
        self._rows_max = rows_max
        self._splits: list[_Progress] = []
        self._answered_s = 0.0

    def add_splits(self, splits: list[SplitState]) -> None:
        now_s = time.monotonic()
        self._splits.extend(_Progress(state, now_s) for state in splits)

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        deadline_s = time.monotonic() + timeout_ms / 1000
        while True:
            now_s = time.monotonic()
            if self._rate is None or now_s >= self._answered_s + TICK_S:
                batches = self._due_batches(now_s)
                if batches:
                    self._answered_s = now_s
                    return batches
                wake_s = now_s + TICK_S
            else:
                wake_s = self._answered_s + TICK_S
            if now_s >= deadline_s:
                return []
            time.sleep(max(0.0, min(wake_s, deadline_s) - now_s))

    def _due_batches(self, now_s: float) -> list[SplitBatch]:
        active = [progress for progress in self._splits if not progress.done]
        batches = []
        for progress in active:
            count = progress.due(self._rate, max(1, self._rows_max // len(active)), now_s)
            if count == 0 and not progress.exhausted:
                continue
            batch = self._generate(progress.split, progress.next, count)
            progress.next += count
            progress.done = progress.exhausted
            batches.append(SplitBatch(progress.state.split.id, batch, progress.done))
        return batches

    def snapshot(self) -> list[SplitState]:
        return [msgspec.structs.replace(p.state, position=str(p.next).encode(), done=p.done) for p in self._splits]

    def notify_checkpoint_complete(self, checkpoint_id: int, states: list[SplitState]) -> None:
        """Nobody outside keeps positions."""

    def gauges(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


# ---------------------------------------------------------------------------------------- vectorised chance


def mix(numbers: UInt64Array, seed: int, stream: int) -> UInt64Array:
    """64 pseudo-random bits per number: splitmix64 of the number, keyed by seed and stream."""
    key = np.uint64((seed * 0xD1342543DE82EF95 + stream * 0xA24BAED4963EE407 + _GOLDEN) & _MASK)
    with np.errstate(over="ignore"):
        z = (numbers + key) * np.uint64(_GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def below(bits: UInt64Array, limits: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """Whole numbers from 0 to limit − 1 (limits up to 2³¹)."""
    scaled = (bits >> np.uint64(32)) * np.asarray(limits).astype(np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def unit(bits: UInt64Array) -> npt.NDArray[np.float64]:
    """Doubles in [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def letters(numbers: UInt64Array, seed: int, stream: int, length: int, alphabet: bytes) -> npt.NDArray[np.uint8]:
    """One random text of `length` bytes per number, as a matrix of bytes."""
    table = np.frombuffer(alphabet, np.uint8)
    words = -(-length // 4)
    drawn = np.empty((len(numbers), words), np.uint64)
    for word in range(words):
        drawn[:, word] = mix(numbers, seed, stream + 1000 * (word + 1))
    # Four letters per word, 16 bits each: the bias of the remainder is below one in a thousand.
    halves = drawn.view(np.uint16).reshape(len(numbers), words * 4)[:, :length]
    found: npt.NDArray[np.uint8] = table[halves % np.uint16(len(table))]
    return found
