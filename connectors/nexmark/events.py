"""Nexmark's events as columns. Proportions, hot keys, prices and identifiers follow the generator of the Nexmark
benchmark for Flink (itself derived from Apache Beam's); texts are of fixed length, and every value is a function
of (seed, event number).

Events come in rounds of person + auction + bid proportions: first the persons of the round, then its auctions,
then its bids. Identifiers count from 1000 and never refer far ahead of what exists.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.arrow import Array, text_array
from connectors.generated import UInt64Array, below, letters, mix, unit

Ints = npt.NDArray[np.int64]

PERSON, AUCTION, BID = 0, 1, 2
FIRST_ID = 1000
FIRST_CATEGORY = 10
CATEGORIES = 5
ACTIVE_PEOPLE = 1000
AUCTIONS_IN_FLIGHT = 100
ID_LEAD = 10
HOT_STEP = 100
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS = 10_000
FIRST_NAMES = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()
LAST_NAMES = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()
CITIES = tuple("Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(","))
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
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

    def column(self, kind: int, name: str) -> Array:
        """A column of the events, all taken to be of this kind."""
        return COLUMNS[kind][name](self)

    # ----------------------------------------------------------------------------------------- identifiers

    def _last_person(self) -> Ints:
        """Number of the newest person at each event (from 0)."""
        count = self.settings.person_proportion
        last: Ints = self._rounds * count + np.minimum(self._places, count - 1)
        return last

    def _last_auction(self) -> Ints:
        """Number of the newest auction at each event (from 0; −1 before the first)."""
        s = self.settings
        place = np.clip(self._places - s.person_proportion, -1, s.auction_proportion - 1)
        last: Ints = self._rounds * s.auction_proportion + place
        return last

    def _some_person(self, stream: int) -> Ints:
        """A person among the newest, sometimes one that is about to come."""
        people = self._last_person() + 1
        active = np.minimum(people, ACTIVE_PEOPLE)
        return people - active + below(self.bits(stream), active + ID_LEAD)

    def _some_auction(self, stream: int) -> Ints:
        last = np.maximum(self._last_auction(), 0)
        oldest = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
        some: Ints = oldest + below(self.bits(stream), last - oldest + 1 + ID_LEAD)
        return some

    def _hot_or(self, ratio: int, stream: int, hot: Ints, other: Ints) -> Ints:
        """`hot` in ratio − 1 of ratio cases."""
        chosen: Ints = np.where(below(self.bits(stream), ratio) > 0, hot, other)
        return chosen

    # ---------------------------------------------------------------------------------------------- values

    def bits(self, stream: int) -> UInt64Array:
        return mix(self._keys, self._seed, stream)

    def prices(self, stream: int) -> Ints:
        """Cents between 1 and a million of the currency, evenly spread over the magnitudes."""
        return np.rint(10 ** (unit(self.bits(stream)) * 6) * 100).astype(np.int64)

    def text(self, stream: int, length: int) -> Array:
        return fixed_text(letters(self._keys, self._seed, stream, length, LETTERS))

    def pick(self, stream: int, words: tuple[str, ...] | list[str]) -> Array:
        """One of the words per event."""
        choice = below(self.bits(stream), len(words)).astype(np.int32)
        words_array: Array = pa.array(words, pa.string())
        return words_array.take(pa.array(choice))

    def person_id(self) -> Array:
        return pa.array(self._last_person() + FIRST_ID)

    def person_name(self) -> Array:
        names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
        return self.pick(1, names)

    def email(self) -> Array:
        return self._patterned(2, b"???????@?????.com", LETTERS)

    def credit_card(self) -> Array:
        return self._patterned(3, b"???? ???? ???? ????", b"0123456789")

    def auction_id(self) -> Array:
        return pa.array(self._last_auction() + FIRST_ID)

    def seller(self) -> Array:
        hot = self._last_person() // HOT_STEP * HOT_STEP
        some = self._some_person(8)
        return pa.array(self._hot_or(self.settings.hot_seller_ratio, 7, hot, some) + FIRST_ID)

    def expires_ms(self) -> Ints:
        """An auction closes when about as many auctions as are in flight have come after it."""
        s = self.settings
        horizon_events = AUCTIONS_IN_FLIGHT * s.round_length // max(s.auction_proportion, 1)
        horizon_ms = max(horizon_events * 1000 // s.rate, 2)
        return self.time_ms + 1 + below(self.bits(9), horizon_ms)

    def bid_auction(self) -> Array:
        hot = np.maximum(self._last_auction(), 0) // HOT_STEP * HOT_STEP
        some = self._some_auction(11)
        return pa.array(self._hot_or(self.settings.hot_auction_ratio, 10, hot, some) + FIRST_ID)

    def bidder(self) -> Array:
        hot = self._last_person() // HOT_STEP * HOT_STEP + 1
        some = self._some_person(13)
        return pa.array(self._hot_or(self.settings.hot_bidder_ratio, 12, hot, some) + FIRST_ID)

    def _channel_numbers(self) -> Ints:
        """0 … 3 for the hot channels, which have half of the bids; 4 … for the others."""
        hot = below(self.bits(15), len(HOT_CHANNELS))
        other = below(self.bits(16), OTHER_CHANNELS) + len(HOT_CHANNELS)
        return self._hot_or(2, 14, hot, other)

    def channel(self) -> Array:
        return _CHANNELS.take(pa.array(self._channel_numbers().astype(np.int32)))

    def url(self) -> Array:
        """Hot channels have one page each, the others a page with the number of the channel."""
        channels = self._channel_numbers()
        path = letters(self._keys, self._seed, 17, 15, LETTERS)
        hot = channels < len(HOT_CHANNELS)
        path[hot] = _HOT_PATHS[channels[hot]]
        middle = np.full((len(channels), 17), ord("/"), np.uint8)
        for part in range(3):
            middle[:, part * 6 : part * 6 + 5] = path[:, part * 5 : part * 5 + 5]
        numbered = b"/item.htm?query=1&channel_id=000000000"
        tail = np.broadcast_to(np.frombuffer(numbered, np.uint8), (len(channels), len(numbered))).copy()
        identifiers = channels * 214_749 % 1_000_000_000
        for digit in range(9):
            tail[:, len(numbered) - 1 - digit] = ord("0") + identifiers // 10**digit % 10
        head = np.broadcast_to(np.frombuffer(b"https://www.nexmark.com/", np.uint8), (len(channels), 24))
        whole = np.concatenate([head, middle, tail], axis=1)
        lengths = np.where(hot, whole.shape[1] - len(b"&channel_id=000000000"), whole.shape[1])
        keep = np.arange(whole.shape[1]) < lengths[:, None]
        offsets = np.zeros(len(channels) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return text_array(offsets, whole[keep])

    def _patterned(self, stream: int, pattern: bytes, alphabet: bytes) -> Array:
        """Texts of a pattern whose question marks are random."""
        shape = np.frombuffer(pattern, np.uint8)
        texts = np.broadcast_to(shape, (len(self._keys), len(pattern))).copy()
        places = np.flatnonzero(shape == ord("?"))
        texts[:, places] = letters(self._keys, self._seed, stream, len(places), alphabet)
        return fixed_text(texts)

    def moments(self, milliseconds: Ints) -> Array:
        return pa.array(milliseconds).view(pa.timestamp("ms"))


def fixed_text(texts: npt.NDArray[np.uint8]) -> Array:
    """A string array of equally long texts, one per row of the matrix."""
    count, length = texts.shape
    offsets = np.arange(count + 1, dtype=np.int32) * length
    return text_array(offsets.astype(np.int32), np.ascontiguousarray(texts).reshape(-1))


_CHANNELS: Array = pa.array([*HOT_CHANNELS, *(f"channel-{i}" for i in range(OTHER_CHANNELS))], pa.string())
_HOT_PATHS = letters(np.arange(len(HOT_CHANNELS), dtype=np.uint64), 0, 18, 15, LETTERS)

Column = Callable[[Events], Array]
# What the other columns of an event take, in bytes: `extra` fills up to the average size that is asked for.
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 80, 180, 90


COLUMNS: dict[int, dict[str, Column]] = {
    PERSON: {
        "id": Events.person_id,
        "name": Events.person_name,
        "emailAddress": Events.email,
        "creditCard": Events.credit_card,
        "city": lambda e: e.pick(4, CITIES),
        "state": lambda e: e.pick(5, STATES),
        "dateTime": lambda e: e.moments(e.time_ms),
        "extra": lambda e: e.text(20, max(e.settings.person_size - _PERSON_BYTES, 1)),
    },
    AUCTION: {
        "id": Events.auction_id,
        "itemName": lambda e: e.text(21, 20),
        "description": lambda e: e.text(22, 100),
        "initialBid": lambda e: pa.array(e.prices(23)),
        "reserve": lambda e: pa.array(e.prices(23) + e.prices(24)),
        "dateTime": lambda e: e.moments(e.time_ms),
        "expires": lambda e: e.moments(e.expires_ms()),
        "seller": Events.seller,
        "category": lambda e: pa.array(FIRST_CATEGORY + below(e.bits(25), CATEGORIES)),
        "extra": lambda e: e.text(26, max(e.settings.auction_size - _AUCTION_BYTES, 1)),
    },
    BID: {
        "auction": Events.bid_auction,
        "bidder": Events.bidder,
        "price": lambda e: pa.array(e.prices(27)),
        "channel": Events.channel,
        "url": Events.url,
        "dateTime": lambda e: e.moments(e.time_ms),
        "extra": lambda e: e.text(28, max(e.settings.bid_size - _BID_BYTES, 1)),
    },
}
