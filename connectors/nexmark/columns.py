"""The columns of each kind of event: what the benchmark's generator makes, as functions of a run of events."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from connectors.arrow import Array, text_array
from connectors.generated import below, letters
from connectors.nexmark.events import (
    AUCTION,
    AUCTIONS_IN_FLIGHT,
    BID,
    FIRST_ID,
    HOT_STEP,
    LETTERS,
    PERSON,
    Events,
    Ints,
)

FIRST_CATEGORY = 10
CATEGORIES = 5
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS = 10_000
FIRST_NAMES = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()
LAST_NAMES = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()
CITIES = tuple("Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(","))
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")

_CHANNELS: Array = pa.array([*HOT_CHANNELS, *(f"channel-{i}" for i in range(OTHER_CHANNELS))], pa.string())
_HOT_PATHS = letters(np.arange(len(HOT_CHANNELS), dtype=np.uint64), 0, 18, 15, LETTERS)


def person_id(events: Events) -> Array:
    return pa.array(events.last_person() + FIRST_ID)


def person_name(events: Events) -> Array:
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    return events.pick(1, names)


def email(events: Events) -> Array:
    return events.patterned(2, b"???????@?????.com", LETTERS)


def credit_card(events: Events) -> Array:
    return events.patterned(3, b"???? ???? ???? ????", b"0123456789")


def auction_id(events: Events) -> Array:
    return pa.array(events.last_auction() + FIRST_ID)


def seller(events: Events) -> Array:
    hot = events.last_person() // HOT_STEP * HOT_STEP
    some = events.some_person(8)
    return pa.array(events.hot_or(events.settings.hot_seller_ratio, 7, hot, some) + FIRST_ID)


def expires_ms(events: Events) -> Ints:
    """An auction closes when about as many auctions as are in flight have come after it."""
    s = events.settings
    horizon_events = AUCTIONS_IN_FLIGHT * s.round_length // max(s.auction_proportion, 1)
    horizon_ms = max(horizon_events * 1000 // s.rate, 2)
    return events.time_ms + 1 + below(events.bits(9), horizon_ms)


def bid_auction(events: Events) -> Array:
    hot = np.maximum(events.last_auction(), 0) // HOT_STEP * HOT_STEP
    some = events.some_auction(11)
    return pa.array(events.hot_or(events.settings.hot_auction_ratio, 10, hot, some) + FIRST_ID)


def bidder(events: Events) -> Array:
    hot = events.last_person() // HOT_STEP * HOT_STEP + 1
    some = events.some_person(13)
    return pa.array(events.hot_or(events.settings.hot_bidder_ratio, 12, hot, some) + FIRST_ID)


def _channel_numbers(events: Events) -> Ints:
    """0 … 3 for the hot channels, which have half of the bids; 4 … for the others."""
    hot = below(events.bits(15), len(HOT_CHANNELS))
    other = below(events.bits(16), OTHER_CHANNELS) + len(HOT_CHANNELS)
    return events.hot_or(2, 14, hot, other)


def channel(events: Events) -> Array:
    return _CHANNELS.take(pa.array(_channel_numbers(events).astype(np.int32)))


def url(events: Events) -> Array:
    """Hot channels have one page each, the others a page with the number of the channel."""
    channels = _channel_numbers(events)
    path = events.letters(17, 15, LETTERS)
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


Column = Callable[[Events], Array]
# What the other columns of an event take, in bytes: `extra` fills up to the average size that is asked for.
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 80, 180, 90


COLUMNS: dict[int, dict[str, Column]] = {
    PERSON: {
        "id": person_id,
        "name": person_name,
        "emailAddress": email,
        "creditCard": credit_card,
        "city": lambda e: e.pick(4, CITIES),
        "state": lambda e: e.pick(5, STATES),
        "dateTime": lambda e: e.moments(e.time_ms),
        "extra": lambda e: e.text(20, max(e.settings.person_size - _PERSON_BYTES, 1)),
    },
    AUCTION: {
        "id": auction_id,
        "itemName": lambda e: e.text(21, 20),
        "description": lambda e: e.text(22, 100),
        "initialBid": lambda e: pa.array(e.prices(23)),
        "reserve": lambda e: pa.array(e.prices(23) + e.prices(24)),
        "dateTime": lambda e: e.moments(e.time_ms),
        "expires": lambda e: e.moments(expires_ms(e)),
        "seller": seller,
        "category": lambda e: pa.array(FIRST_CATEGORY + below(e.bits(25), CATEGORIES)),
        "extra": lambda e: e.text(26, max(e.settings.auction_size - _AUCTION_BYTES, 1)),
    },
    BID: {
        "auction": bid_auction,
        "bidder": bidder,
        "price": lambda e: pa.array(e.prices(27)),
        "channel": channel,
        "url": url,
        "dateTime": lambda e: e.moments(e.time_ms),
        "extra": lambda e: e.text(28, max(e.settings.bid_size - _BID_BYTES, 1)),
    },
}
