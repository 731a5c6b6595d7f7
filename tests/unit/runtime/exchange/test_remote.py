"""Two data servers in one process: channels, credit, order, stale attempts, lost connections."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from runtime.elements import Barrier, Batch, Element, EndOfInput, Watermark
from runtime.errors import TaskError
from runtime.exchange.channel import Inbox, InputChannel, TaskCancelled
from runtime.exchange.frames import (
    DATA_PROTOCOL_VERSION,
    FrameError,
    FrameKind,
    OpenConnection,
    decode_batch,
    encode,
    encode_batch,
    frame,
    parse_header,
)
from runtime.exchange.local import LocalChannel
from runtime.exchange.remote import ChannelKey, DataServer, RemoteChannel
from runtime.ids import AttemptId, JobId, SlotId
from runtime.protocol.descriptors import ChannelAddress

JOB = JobId("ab" * 16)
SCHEMA = pa.schema([pa.field("c0", pa.int64())])


def attempt(vertex: int, number: int = 1, subtask: int = 0, generation: int = 1) -> AttemptId:
    return AttemptId(JOB, generation, vertex, subtask, number)


def rows(*values: int) -> Batch:
    return Batch(pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], ["c0"]))


def within(seconds: float, condition: Callable[[], bool]) -> None:
    """Polls: the data servers' threads do their part meanwhile."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "nothing happened in time"
        threading.Event().wait(0.002)


def take(inbox: Inbox, seconds: float = 10) -> Element:
    deadline_s = time.monotonic() + seconds
    while (taken := inbox.take()) is None:
        assert time.monotonic() < deadline_s, "no element in time"
        inbox.wait(0.1)
    return taken[1]


class Side:
    """One slot: its data server and an inbox for one task."""

    def __init__(self, name: str, *attempts: AttemptId) -> None:
        self.name = SlotId(name)
        self.broken: list[Exception] = []
        self.server = DataServer("127.0.0.1", self.name, self.broken.append)
        self.server.start()
        self.inbox = Inbox()
        self.server.begin(JOB, 1, list(attempts))

    @property
    def address(self) -> ChannelAddress:
        return ChannelAddress(self.name, "127.0.0.1", self.server.port)

    def output(self, key: ChannelKey, to: Side) -> RemoteChannel:
        return self.server.output(key, to.address, SCHEMA, self.inbox)

    def input(self, key: ChannelKey, of: Side, capacity_bytes: int = 1000) -> InputChannel:
        channel = self.inbox.add_channel(capacity_bytes)
        self.server.input(key, of.address, SCHEMA, channel)
        return channel


@pytest.fixture
def sides(request: pytest.FixtureRequest) -> Iterator[Callable[..., Side]]:
    made: list[Side] = []

    def make(name: str, *attempts: AttemptId) -> Side:
        made.append(Side(name, *attempts))
        return made[-1]

    yield make
    for side in made:
        side.server.close()
        assert side.broken == []


PRODUCER, CONSUMER = attempt(1), attempt(2)
KEY: ChannelKey = (1, PRODUCER, CONSUMER)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("consumer_first", [True, False])
def test_elements_arrive_in_order_whoever_connects(
    sides: Callable[..., Side], names: tuple[str, str], consumer_first: bool
) -> None:
    producer, consumer = sides(names[0], PRODUCER), sides(names[1], CONSUMER)
    if consumer_first:
        consumer.input(KEY, producer)
        channel = producer.output(KEY, consumer)
    else:
        channel = producer.output(KEY, consumer)
        consumer.input(KEY, producer)
    producer.inbox.wait_until(lambda: channel.is_open)
    channel.send_batch(rows(1, 2), 16)
    channel.send_control(Watermark(5))
    channel.send_control(Barrier(1, 1))
    channel.send_batch(rows(3), 8)
    channel.send_control(EndOfInput(True))
    first = take(consumer.inbox)
    assert isinstance(first, Batch)
    assert first.data.equals(rows(1, 2).data)
    assert take(consumer.inbox) == Watermark(5)
    assert take(consumer.inbox) == Barrier(1, 1)
    assert isinstance(take(consumer.inbox), Batch)
    assert take(consumer.inbox) == EndOfInput(True)


def test_credit_bounds_batches_but_not_control(sides: Callable[..., Side]) -> None:
    producer, consumer = sides("a", PRODUCER), sides("b", CONSUMER)
    consumer.input(KEY, producer, capacity_bytes=100)
    channel = producer.output(KEY, consumer)
    producer.inbox.wait_until(lambda: channel.is_open)
    assert channel.admits(5000), "one batch is always admitted"
    channel.send_batch(rows(1), 5000)
    assert not channel.admits(1)
    channel.send_control(Watermark(1))
    within(10, lambda: len(consumer.inbox.channels[0].elements) == 2)
    assert not channel.admits(1), "queued, but not taken yet"
    take(consumer.inbox)
    producer.inbox.wait_until(lambda: channel.admits(100))
    assert not channel.admits(5001) or channel.admits(100)


def test_a_blocked_channel_does_not_block_another(sides: Callable[..., Side]) -> None:
    producer, consumer = sides("a", PRODUCER), sides("b", CONSUMER)
    other: ChannelKey = (2, PRODUCER, CONSUMER)
    consumer.input(KEY, producer, capacity_bytes=100)
    consumer.input(other, producer, capacity_bytes=100)
    first, second = producer.output(KEY, consumer), producer.output(other, consumer)
    producer.inbox.wait_until(lambda: first.is_open and second.is_open)
    consumer.inbox.block(0)
    first.send_batch(rows(1), 100)
    second.send_batch(rows(2), 100)
    got = take(consumer.inbox)
    assert isinstance(got, Batch)
    assert got.data.column(0).to_pylist() == [2]
    producer.inbox.wait_until(lambda: second.admits(100))
    assert not first.admits(1)
    consumer.inbox.unblock(0)
    got = take(consumer.inbox)
    assert isinstance(got, Batch)
    assert got.data.column(0).to_pylist() == [1]
    producer.inbox.wait_until(lambda: first.admits(100))


def test_a_stale_consumer_attempt_is_refused(sides: Callable[..., Side]) -> None:
    producer, consumer = sides("a", PRODUCER), sides("b", attempt(2, number=2))
    channel = producer.output(KEY, consumer)
    with pytest.raises(TaskError, match="stale"):
        producer.inbox.wait_until(lambda: channel.is_open)


def test_different_schemas_are_refused(sides: Callable[..., Side]) -> None:
    producer, consumer = sides("a", PRODUCER), sides("b", CONSUMER)
    consumer.input(KEY, producer)
    schema = pa.schema([pa.field("c0", pa.string())])
    channel = producer.server.output(KEY, consumer.address, schema, producer.inbox)
    with pytest.raises(TaskError, match="schemas"):
        producer.inbox.wait_until(lambda: channel.is_open)


def test_a_lost_connection_fails_both_sides_unless_they_have_ended(sides: Callable[..., Side]) -> None:
    producer, consumer = sides("a", PRODUCER), sides("b", CONSUMER)
    ended: ChannelKey = (2, PRODUCER, CONSUMER)
    still_inbox = Inbox()
    still_channel = still_inbox.add_channel(100)
    consumer.server.input(ended, producer.address, SCHEMA, still_channel)
    consumer.input(KEY, producer)
    live, over = producer.output(KEY, consumer), producer.output(ended, consumer)
    producer.inbox.wait_until(lambda: live.is_open and over.is_open)
    over.send_control(EndOfInput(True))
    assert take(still_inbox) == EndOfInput(True)
    producer.server.close()
    with pytest.raises(TaskError) as caught:
        take(consumer.inbox)
    assert caught.value.domain == "external"
    assert caught.value.retry
    assert not still_inbox.interrupted


def test_a_slot_that_is_not_there_fails_the_task(sides: Callable[..., Side]) -> None:
    producer, gone = sides("a", PRODUCER), sides("b", CONSUMER)
    gone.server.close()
    channel = producer.output(KEY, gone)
    with pytest.raises(TaskError, match="lost"):
        producer.inbox.wait_until(lambda: channel.is_open)


def test_frames_for_a_forgotten_task_are_dropped(sides: Callable[..., Side]) -> None:
    producer, consumer = sides("a", PRODUCER), sides("b", CONSUMER)
    other: ChannelKey = (2, PRODUCER, attempt(3))
    consumer.input(KEY, producer)
    consumer.input(other, producer)
    gone, live = producer.output(KEY, consumer), producer.output(other, consumer)
    producer.inbox.wait_until(lambda: gone.is_open and live.is_open)
    consumer.server.forget(CONSUMER)
    forgotten = threading.Event()
    consumer.server._io.call(forgotten.set)
    assert forgotten.wait(10)
    gone.send_batch(rows(1), 8)
    live.send_control(Watermark(1))
    assert take(consumer.inbox) == Watermark(1)
    assert not consumer.inbox.channels[0].elements


def hello(to: Side, **changes: object) -> bytes:
    fields: dict[str, object] = {
        "version": DATA_PROTOCOL_VERSION,
        "job_id": JOB,
        "generation": 1,
        "from_slot": SlotId("z"),
        "to_slot": to.name,
    }
    return frame(FrameKind.OPEN, encode(OpenConnection(**{**fields, **changes})))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "greeting",
    [
        lambda side: hello(side, job_id=JobId("cd" * 16)),
        lambda side: hello(side, generation=0),
        lambda side: hello(side, to_slot=SlotId("other")),
        lambda side: hello(side, version=0),
        lambda side: frame(FrameKind.CREDIT, b""),
        lambda side: b"GET / HTTP/1.1\r\nHost: headrace\r\n\r\n",
    ],
    ids=["another job", "an older generation", "another slot", "another version", "no greeting", "not this protocol"],
)
def test_strangers_are_turned_away(sides: Callable[..., Side], greeting: Callable[[Side], bytes]) -> None:
    side = sides("b", CONSUMER)
    with socket.create_connection(("127.0.0.1", side.server.port), timeout=10) as stranger:
        stranger.sendall(greeting(side))
        # A reset says the same as an end.
        try:
            assert stranger.recv(1) == b""
        except ConnectionResetError:
            pass


def test_a_mistake_of_ours_is_not_silent() -> None:
    side = Side("a")

    def mistake() -> None:
        raise ZeroDivisionError

    side.server._io.call(mistake)
    within(10, lambda: bool(side.broken))
    side.server.close()
    assert isinstance(side.broken[0], ZeroDivisionError)


def test_a_local_channel_accounts_as_a_remote_one() -> None:
    producer, consumer = Inbox(), Inbox()
    channel = LocalChannel(consumer.add_channel(100), producer)
    batch = rows(1)
    channel.send_batch(batch, 80)
    assert not channel.admits(21)
    assert take(consumer) is batch
    assert channel.admits(100)


def test_an_inbox_serves_its_channels_in_turn() -> None:
    inbox = Inbox()
    channels = [inbox.add_channel(100) for _ in range(2)]
    for channel, number in itertools.product(channels, (1, 2)):
        channel.put(Watermark(channel.index * 10 + number))
    taken = [take(inbox) for _ in range(4)]
    assert taken == [Watermark(1), Watermark(11), Watermark(2), Watermark(12)]
    assert inbox.take() is None


def test_cancellation_ends_a_wait() -> None:
    inbox = Inbox()
    inbox.interrupt(TaskCancelled())
    inbox.interrupt(ValueError("later"))
    with pytest.raises(TaskCancelled):
        inbox.wait(None)
    with pytest.raises(TaskCancelled):
        inbox.wait_until(lambda: False)
    with pytest.raises(TaskCancelled):
        inbox.check()


def test_row_kinds_cross_the_wire() -> None:
    schema = SCHEMA.append(pa.field("row_kinds", pa.int8()))
    batch = Batch(rows(1, 2).data, pa.array([1, 2], pa.int8()))
    back = decode_batch(encode_batch(batch, schema), schema)
    assert back.data.equals(batch.data)
    assert back.row_kinds is not None
    assert back.row_kinds.to_pylist() == [1, 2]
    back = decode_batch(encode_batch(rows(1, 2), schema), schema)
    assert back.row_kinds is not None
    assert back.row_kinds.to_pylist() == [0, 0]
    with pytest.raises(FrameError, match="inserts only"):
        encode_batch(batch, SCHEMA)
    with pytest.raises(FrameError, match="on a channel of"):
        encode_batch(rows(1), pa.schema([pa.field("c0", pa.string())]))


def test_names_and_not_null_marks_are_the_channels() -> None:
    strict = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int64())], schema=pa.schema([pa.field("n", pa.int64(), False)])
    )
    assert decode_batch(encode_batch(Batch(strict), SCHEMA), SCHEMA).data.equals(rows(1).data)


def test_foreign_headers_are_refused() -> None:
    with pytest.raises(FrameError):
        parse_header(b"\xff" * 17)
