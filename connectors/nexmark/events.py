"""Nexmark's events as columns. Proportions, hot keys, prices and identifiers follow the generator of the Nexmark
benchmark for Flink (itself derived from Apache Beam's); texts are of fixed length, and every value is a function
of (seed, event number).

Events come in rounds of person + auction + bid proportions: first the persons of the round, then its auctions,
then its bids. Identifiers count from 1000 and never refer far ahead of what exists.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.arrow import Array, text_array
from connectors.generated import UInt64Array, below, letters, mix, unit

Ints = npt.NDArray[np.int64]

PERSON, AUCTION, BID = 0, 1, 2
FIRST_ID = 1000
ACTIVE_PEOPLE = 1000
AUCTIONS_IN_FLIGHT = 100
ID_LEAD = 10
HOT_STEP = 100
LETTERS = b"abcdefghijklmnopqrstuvwxyz"


class Settings(msgspec.Struct, frozen=True):
    """The shape of the event stream. `rate` is events per second of event time."""

    rate: int = 10_000
    person_proportion: int = 1
    auction_proportion: int = 3
    bid_proportion: int = 46
    hot_auction_ratio: int = 2
    hot_bidder_ratio: int = 4
    hot_seller_ratio: int = 4
    person_size: int = 200
    auction_size: int = 500
    bid_size: int = 100

    @property
    def round_length(self) -> int:
        return self.person_proportion + self.auction_proportion + self.bid_proportion


class Events:
    """The events with the given numbers; every column is made when it is asked for."""

    def __init__(self, settings: Settings, seed: int, start_ms: int, numbers: Ints) -> None:
        self.settings = settings
        self._seed = seed
        self._start_ms = start_ms
        self._numbers = numbers
        self._keys: UInt64Array = numbers.astype(np.uint64)
        self._rounds, self._places = np.divmod(numbers, settings.round_length)
        self.time_ms: Ints = start_ms + numbers * 1000 // settings.rate

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def kinds(self) -> npt.NDArray[np.int32]:
        """PERSON, AUCTION or BID per event."""
        s = self.settings
        kinds = np.full(len(self._numbers), BID, np.int32)
        kinds[self._places < s.person_proportion + s.auction_proportion] = AUCTION
        kinds[self._places < s.person_proportion] = PERSON
        return kinds

    def of_kind(self, kind: int) -> Events:
        """The events of one kind."""
        return Events(self.settings, self._seed, self._start_ms, self._numbers[self.kinds == kind])

    # ----------------------------------------------------------------------------------------- identifiers

    def last_person(self) -> Ints:
        """Number of the newest person at each event (from 0)."""
        count = self.settings.person_proportion
        last: Ints = self._rounds * count + np.minimum(self._places, count - 1)
        return last

    def last_auction(self) -> Ints:
        """Number of the newest auction at each event (from 0; −1 before the first)."""
        s = self.settings
        place = np.clip(self._places - s.person_proportion, -1, s.auction_proportion - 1)
        last: Ints = self._rounds * s.auction_proportion + place
        return last

    def some_person(self, stream: int) -> Ints:
        """A person among the newest, sometimes one that is about to come."""
        people = self.last_person() + 1
        active = np.minimum(people, ACTIVE_PEOPLE)
        return people - active + below(self.bits(stream), active + ID_LEAD)

    def some_auction(self, stream: int) -> Ints:
        last = np.maximum(self.last_auction(), 0)
        oldest = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
        some: Ints = oldest + below(self.bits(stream), last - oldest + 1 + ID_LEAD)
        return some

    def hot_or(self, ratio: int, stream: int, hot: Ints, other: Ints) -> Ints:
        """`hot` in ratio − 1 of ratio cases."""
        chosen: Ints = np.where(below(self.bits(stream), ratio) > 0, hot, other)
        return chosen

    # ---------------------------------------------------------------------------------------------- values

    def bits(self, stream: int) -> UInt64Array:
        return mix(self._keys, self._seed, stream)

    def prices(self, stream: int) -> Ints:
        """Cents between 1 and a million of the currency, evenly spread over the magnitudes."""
        return np.rint(10 ** (unit(self.bits(stream)) * 6) * 100).astype(np.int64)

    def letters(self, stream: int, length: int, alphabet: bytes) -> npt.NDArray[np.uint8]:
        """A random text of `length` bytes per event, as a matrix."""
        return letters(self._keys, self._seed, stream, length, alphabet)

    def text(self, stream: int, length: int) -> Array:
        return fixed_text(self.letters(stream, length, LETTERS))

    def pick(self, stream: int, words: tuple[str, ...] | list[str]) -> Array:
        """One of the words per event."""
        choice = below(self.bits(stream), len(words)).astype(np.int32)
        words_array: Array = pa.array(words, pa.string())
        return words_array.take(pa.array(choice))

    def patterned(self, stream: int, pattern: bytes, alphabet: bytes) -> Array:
        """Texts of a pattern whose question marks are random."""
        shape = np.frombuffer(pattern, np.uint8)
        texts = np.broadcast_to(shape, (len(self._keys), len(pattern))).copy()
        places = np.flatnonzero(shape == ord("?"))
        texts[:, places] = self.letters(stream, len(places), alphabet)
        return fixed_text(texts)

    def moments(self, milliseconds: Ints) -> Array:
        return pa.array(milliseconds).view(pa.timestamp("ms"))


def fixed_text(texts: npt.NDArray[np.uint8]) -> Array:
    """A string array of equally long texts, one per row of the matrix."""
    count, length = texts.shape
    offsets = np.arange(count + 1, dtype=np.int32) * length
    return text_array(offsets.astype(np.int32), np.ascontiguousarray(texts).reshape(-1))
