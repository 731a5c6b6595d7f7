"""The nexmark source: the shape of its stream, repeatability, positions and pacing."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from connectors.api import SplitState
from connectors.errors import OptionError
from planner.ir.types import BIGINT, INT, STRING, DataType, row, timestamp, timestamp_ltz
from tests.unit.connectors.source_support import read_all, reader, rows_of, source, splits, table

PERSON = row(("id", BIGINT), ("name", STRING), ("emailAddress", STRING), ("dateTime", timestamp(3)))
AUCTION = row(("id", BIGINT), ("seller", BIGINT), ("category", BIGINT), ("expires", timestamp(3)))
BID = row(("auction", BIGINT), ("bidder", BIGINT), ("price", BIGINT), ("dateTime", timestamp(3)))
FLAT: dict[str, DataType] = {
    "auction": BIGINT,
    "bidder": BIGINT,
    "price": BIGINT,
    "channel": STRING,
    "url": STRING,
    "dateTime": timestamp(3),
    "extra": STRING,
}


def options(**given: str) -> dict[str, str]:
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in given.items()}
    return {"connector": "nexmark", "rate.limited": "false", **named}


def test_events_come_in_the_benchmarks_proportions_with_one_member_set() -> None:
    everything = table(options(events__num="5000"), event_type=INT, person=PERSON, auction=AUCTION, bid=BID)
    rows = rows_of(everything)
    assert Counter(found["c0"] for found in rows) == {0: 100, 1: 300, 2: 4600}
    for found in rows:
        members = [found["c1"], found["c2"], found["c3"]]
        assert [i for i, member in enumerate(members) if member is not None] == [found["c0"]]


def test_identifiers_refer_to_what_exists_or_is_about_to() -> None:
    everything = table(options(events__num="20000"), event_type=INT, person=PERSON, auction=AUCTION, bid=BID)
    batches = read_all(reader(everything), [SplitState(split) for split in splits(everything)])
    rows = [found for parts in batches.values() for batch in parts for found in batch.to_pylist()]
    people = {found["c1"]["id"] for found in rows if found["c1"]}
    auctions = {found["c2"]["id"] for found in rows if found["c2"]}
    assert (min(people), len(people)) == (1000, 400)
    assert (min(auctions), len(auctions)) == (1000, 1200)
    bids = [found["c3"] for found in rows if found["c3"]]
    assert all(bid["bidder"] <= max(people) + 10 and bid["auction"] <= max(auctions) + 10 for bid in bids)
    assert all(100 <= bid["price"] <= 100_000_000 for bid in bids)
    # Half of the bids go to the hot auction of their moment.
    assert 0.4 < sum(bid["auction"] % 100 == 0 for bid in bids) / len(bids) < 0.6


def test_the_same_seed_gives_the_same_rows_at_any_batch_size_and_another_seed_others() -> None:
    bids = table(options(events__num="3000", table__type="bid"), **FLAT)
    whole = rows_of(bids)
    assert rows_of(bids, rows_max=37) == whole
    assert len(whole) == 2760
    other = rows_of(table(options(events__num="3000", table__type="bid", seed="1"), **FLAT))
    assert other != whole
    assert [found["c5"] for found in other] == [found["c5"] for found in whole]


def test_event_time_advances_with_the_rate_from_the_base_time() -> None:
    bids = table(
        options(events__num="1000", table__type="bid", tps="100", base_time="0", generators="1"),
        dateTime=timestamp_ltz(3),
    )
    batches = read_all(reader(bids), [SplitState(split) for split in splits(bids)])
    columns: list[Any] = [batch.column(0) for parts in batches.values() for batch in parts]
    moments = [moment for column in columns for moment in column.view(pa.int64()).to_pylist()]
    assert moments == sorted(moments)
    assert (moments[0], moments[-1]) == (40, 9990)


def test_a_restored_reader_goes_on_where_it_was() -> None:
    bids = table(options(events__num="3000", table__type="bid"), **FLAT)
    whole = rows_of(bids)
    first = reader(bids, rows_max=400)
    begun = read_all(first, [SplitState(split) for split in splits(bids)], rows_wanted=1000)
    states = first.snapshot()
    second = reader(bids)
    rest = read_all(second, states)
    joined = [
        found for state in states for part in (begun, rest) for b in part[state.split.id] for found in b.to_pylist()
    ]
    assert joined == whole
    assert all(state.done for state in second.snapshot())


def test_emission_is_paced_by_the_wall_clock() -> None:
    bids = table(options(table__type="bid", tps="2000", rate__limited="true"), auction=BIGINT)
    made = reader(bids)
    began = time.monotonic()
    batches = read_all(made, [SplitState(split) for split in splits(bids)], rows_wanted=500)
    elapsed = time.monotonic() - began
    assert sum(batch.num_rows for parts in batches.values() for batch in parts) < 2000 * (elapsed + 0.1)
    assert elapsed > 0.2
    assert made.poll(0) == []


def test_rows_without_columns_are_counted() -> None:
    bids = table(options(events__num="100", table__type="bid"), **FLAT)
    batches = read_all(reader(bids, scan=()), [SplitState(split) for split in splits(bids)])
    assert sum(batch.num_rows for parts in batches.values() for batch in parts) == 92


def test_urls_and_channels_agree() -> None:
    bids = table(options(events__num="2000", table__type="bid"), channel=STRING, url=STRING)
    for found in rows_of(bids):
        channel, url = str(found["c0"]), str(found["c1"])
        assert url.startswith("https://www.nexmark.com/")
        assert ("channel_id=" in url) == channel.startswith("channel-")


@pytest.mark.parametrize(
    ("changed", "columns", "message"),
    [
        ({"tsp": "5"}, {"bid": BID}, "no option 'tsp'"),
        ({"tps": "0"}, {"bid": BID}, "'tps' must be at least 1"),
        ({"events__num": "many"}, {"bid": BID}, "'events.num' must be a whole number"),
        ({"table__type": "bidder"}, {"bid": BID}, "must be one of all, person, auction, bid"),
        ({}, {"price": BIGINT}, "no column 'price'"),
        ({}, {"bid": row(("cost", BIGINT))}, "no field 'bid.cost'"),
        ({}, {"bid": row(("price", STRING))}, "'bid.price' of nexmark is a BIGINT, not STRING"),
    ],
)
def test_wrong_options_and_columns_are_refused(
    changed: dict[str, str], columns: dict[str, DataType], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        source(table(options(**changed), **columns))


def test_it_is_bounded_only_by_a_number_of_events() -> None:
    assert source(table(options(events__num="1"), bid=BID)).bounded
    assert not source(table(options(events__num="0"), bid=BID)).bounded
    assert not source(table(options(), bid=BID)).bounded
