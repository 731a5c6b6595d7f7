"""The data port of a slot: channels to and from other slots, and readers of results, on one I/O thread.

Two slots share one connection; the one with the smaller slot id opens it. What `DataServer` knows of slots and
channels belongs to the I/O thread and needs no lock; other threads hand it calls, or bytes for a connection. A lost
connection is never resumed: it fails the tasks whose channels were on it and had not ended.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable

import pyarrow as pa

from connectors.errors import ErrorDomain
from runtime.elements import Batch, Control, EndOfInput
from runtime.errors import TaskError
from runtime.exchange.channel import Inbox, InputChannel
from runtime.exchange.connection import FramedConnection
from runtime.exchange.credits import CreditWindow
from runtime.exchange.frames import (
    DATA_PROTOCOL_VERSION,
    FetchRequest,
    FrameError,
    FrameKind,
    Header,
    OpenChannel,
    OpenConnection,
    decode,
    decode_batch,
    decode_control,
    encode,
    encode_batch,
    encode_control,
    frame,
    header,
)
from runtime.exchange.io_thread import IoThread
from runtime.exchange.readers import ResultReaders
from runtime.ids import AttemptId, JobId, SlotId, task_manager_of
from runtime.protocol.descriptors import ChannelAddress

ChannelKey = tuple[int, AttemptId, AttemptId]
"""Edge, producer, consumer."""


class RemoteChannel:
    """The producer's side of a channel to another slot; see `OutputChannel`."""

    def __init__(self, key: ChannelKey, schema: pa.Schema, producer: Inbox) -> None:
        self.key = key
        self.schema = schema
        self.number = 0
        self.ended = False
        self._producer = producer
        self._window = CreditWindow()
        self._connection: FramedConnection | None = None

    @property
    def is_open(self) -> bool:
        return self._window.is_open

    def admits(self, byte_size: int) -> bool:
        return self._window.admits(byte_size)

    def send_batch(self, batch: Batch, byte_size: int) -> None:
        with self._producer.condition:
            self._window.take(byte_size)
        body = encode_batch(batch, self.schema)
        self._send(
            header(
                FrameKind.BATCH,
                channel=self.number,
                attempt=self.key[1].number,
                credit=byte_size,
                length=body.size,
            ),
            body,
        )

    def send_control(self, element: Control) -> None:
        self.ended = self.ended or isinstance(element, EndOfInput)
        body = encode_control(element)
        self._send(frame(FrameKind.CONTROL, body, channel=self.number, attempt=self.key[1].number))

    def _send(self, *parts: bytes | pa.Buffer) -> None:
        connection = self._connection
        # A lost connection has interrupted the task already; it ends at its next yield point.
        if connection is not None and not connection.closed:
            connection.enqueue(*parts)

    def connected(self, connection: FramedConnection, number: int) -> None:
        """I/O thread: the channel has a connection and a number; the consumer's answer follows."""
        self._connection, self.number = connection, number

    def on_capacity(self, capacity_bytes: int) -> None:
        """I/O thread."""
        with self._producer.condition:
            self._window.open(capacity_bytes)
            self._producer.condition.notify()

    def on_credit(self, byte_size: int) -> None:
        """I/O thread."""
        with self._producer.condition:
            self._window.give_back(byte_size)
            self._producer.condition.notify()

    def fail(self, error: TaskError) -> None:
        self._producer.interrupt(error)


class _RemoteInput:
    """The consumer's side of a channel from another slot."""

    def __init__(self, key: ChannelKey, schema: pa.Schema, channel: InputChannel) -> None:
        self.key = key
        self.schema = schema
        self.channel = channel
        self.ended = False

    def fail(self, error: TaskError) -> None:
        self.channel.inbox.interrupt(error)


class _Peer:
    """What this slot shares with another one. I/O thread only."""

    def __init__(self, slot_id: SlotId) -> None:
        self.slot_id = slot_id
        self.connection: FramedConnection | None = None
        self.lost = ""
        self.outputs: dict[int, RemoteChannel] = {}
        self.inputs: dict[int, _RemoteInput] = {}
        self.waiting: list[RemoteChannel] = []
        """Outputs to be opened once there is a connection."""
        self.expected: dict[ChannelKey, _RemoteInput] = {}
        """Inputs whose producer has not opened them yet."""
        self.early: dict[ChannelKey, tuple[int, bytes]] = {}
        """Channels opened by producers before the consumer was deployed here: their numbers and schemas."""
        self.numbers = itertools.count(1)


class DataServer:
    """Listens from construction on; `port` is where. `on_broken`: the I/O thread has met a mistake of ours and ended;
    nothing can be exchanged any more."""

    def __init__(
        self,
        host: str,
        slot_id: SlotId,
        on_broken: Callable[[Exception], None],
        listener: socket.socket | None = None,
    ) -> None:
        self._slot_id = slot_id
        self.on_broken = on_broken
        self._io = IoThread(host, self, listener)
        self.port = self._io.port
        self._peers: dict[SlotId, _Peer] = {}
        self._peer_of: dict[FramedConnection, _Peer] = {}
        self._job_id: JobId | None = None
        self._generation = 0
        self._newest: dict[tuple[int, int], tuple[int, int]] = {}
        self.readers = ResultReaders(self._io.call, self._io.after)
        """Where a Collect registers its buffer."""

    def start(self) -> None:
        self._io.start()

    def close(self) -> None:
        """Ends the I/O thread and closes every socket (for tests; a slot process just exits)."""
        self._io.close()

    # -------------------------------------------------------------------------------------------- any thread

    def begin(self, job_id: JobId, generation: int, attempts: list[AttemptId]) -> None:
        """Tasks of this job are about to be deployed here; older attempts of theirs are stale from now on."""
        self._io.call(lambda: self._begin(job_id, generation, attempts))

    def output(self, key: ChannelKey, address: ChannelAddress, schema: pa.Schema, producer: Inbox) -> RemoteChannel:
        """A channel to a consumer in another slot. It is open once the consumer has answered."""
        channel = RemoteChannel(key, schema, producer)
        self._io.call(lambda: self._add_output(channel, address))
        return channel

    def input(self, key: ChannelKey, address: ChannelAddress, schema: pa.Schema, channel: InputChannel) -> None:
        """Expect a channel from a producer in another slot."""
        self._io.call(lambda: self._add_input(_RemoteInput(key, schema, channel), address))

    def forget(self, attempt: AttemptId) -> None:
        """The task has ended: what still comes for it is dropped."""
        self._io.call(lambda: self._forget(attempt))

    # ------------------------------------------------------------------------------- I/O thread: connections

    def on_frame(self, connection: FramedConnection, head: Header, body: pa.Buffer) -> None:
        peer = self._peer_of.get(connection)
        if peer is not None:
            self._on_frame(peer, connection, head, body)
        elif head.kind is FrameKind.FETCH:
            self.readers.on_request(connection, decode(memoryview(body), FetchRequest))
        elif head.kind is FrameKind.OPEN:
            self._on_open(connection, decode(memoryview(body), OpenConnection))
        else:
            raise FrameError(f"a connection begins with {head.kind.name}")

    def on_lost(self, connection: FramedConnection, reason: str) -> None:
        self.readers.gone(connection)
        peer = self._peer_of.pop(connection, None)
        if peer is not None:
            peer.lost = reason
            self._fail_channels(peer)

    def _fail_channels(self, peer: _Peer) -> None:
        whose = f"a slot of TaskManager {task_manager_of(peer.slot_id)}"
        message = f"the connection to {whose} is lost ({peer.slot_id}): {peer.lost}"
        error = TaskError(message, domain=ErrorDomain.EXTERNAL, retry=True)
        ends: list[RemoteChannel | _RemoteInput] = [*peer.outputs.values(), *peer.waiting]
        ends += [*peer.inputs.values(), *peer.expected.values()]
        for end in ends:
            if not end.ended:
                end.fail(error)
        peer.outputs.clear()
        peer.waiting.clear()
        peer.inputs.clear()
        peer.expected.clear()

    # ---------------------------------------------------------------------------- I/O thread: slots and channels

    def _begin(self, job_id: JobId, generation: int, attempts: list[AttemptId]) -> None:
        self._job_id, self._generation = job_id, generation
        for attempt in attempts:
            self._newest[attempt.vertex_id, attempt.subtask_index] = (attempt.generation, attempt.number)
        for peer in self._peers.values():
            peer.early = {key: early for key, early in peer.early.items() if not self._is_stale(key[2])}

    def _is_stale(self, consumer: AttemptId) -> bool:
        newest = self._newest.get((consumer.vertex_id, consumer.subtask_index))
        return newest is not None and newest > (consumer.generation, consumer.number)

    def _peer(self, address: ChannelAddress) -> _Peer:
        """The slot at the address, with a connection being made if this side is the one to make it."""
        peer = self._peers.get(address.slot_id)
        if peer is None:
            peer = self._peers[address.slot_id] = _Peer(address.slot_id)
        if peer.connection is None and self._slot_id < address.slot_id:
            assert self._job_id is not None
            peer.connection = connection = self._io.connect(address.host, address.port)
            self._peer_of[connection] = peer
            hello = OpenConnection(DATA_PROTOCOL_VERSION, self._job_id, self._generation, self._slot_id, peer.slot_id)
            connection.enqueue(frame(FrameKind.OPEN, encode(hello)))
        return peer

    def _on_open(self, connection: FramedConnection, hello: OpenConnection) -> None:
        if hello.version != DATA_PROTOCOL_VERSION or hello.to_slot != self._slot_id:
            raise FrameError(f"a connection for {hello.to_slot}, version {hello.version}")
        if self._job_id is not None and (hello.job_id != self._job_id or hello.generation < self._generation):
            raise FrameError(f"a stale connection of job {hello.job_id}, generation {hello.generation}")
        peer = self._peers.get(hello.from_slot)
        if peer is None:
            peer = self._peers[hello.from_slot] = _Peer(hello.from_slot)
        if peer.connection is not None:
            raise FrameError(f"a second connection from slot {hello.from_slot}")
        peer.connection = connection
        self._peer_of[connection] = peer
        for channel in peer.waiting:
            self._open_channel(peer, channel)
        peer.waiting.clear()

    def _add_output(self, channel: RemoteChannel, address: ChannelAddress) -> None:
        peer = self._peer(address)
        if peer.lost:
            peer.waiting.append(channel)
            self._fail_channels(peer)
        elif peer.connection is None:
            peer.waiting.append(channel)
        else:
            self._open_channel(peer, channel)

    def _open_channel(self, peer: _Peer, channel: RemoteChannel) -> None:
        assert peer.connection is not None
        number = next(peer.numbers)
        peer.outputs[number] = channel
        channel.connected(peer.connection, number)
        edge_id, producer, consumer = channel.key
        opening = OpenChannel(edge_id, producer, consumer, channel.schema.serialize().to_pybytes())
        peer.connection.enqueue(frame(FrameKind.CHANNEL, encode(opening), channel=number, attempt=producer.number))

    def _add_input(self, remote: _RemoteInput, address: ChannelAddress) -> None:
        peer = self._peer(address)
        early = peer.early.pop(remote.key, None)
        if peer.lost or early is None:
            peer.expected[remote.key] = remote
            if peer.lost:
                self._fail_channels(peer)
        else:
            self._bind(peer, remote, *early)

    def _bind(self, peer: _Peer, remote: _RemoteInput, number: int, schema: bytes) -> None:
        """Producer and consumer are both there: announce the credit."""
        connection = peer.connection
        assert connection is not None
        if not pa.ipc.read_schema(pa.py_buffer(schema)).equals(remote.schema):
            connection.enqueue(frame(FrameKind.REFUSED, b"the schemas of the two sides differ", channel=number))
            return
        peer.inputs[number] = remote
        attempt = remote.key[1].number
        remote.channel.give_back = lambda size: connection.enqueue(
            header(FrameKind.CREDIT, channel=number, attempt=attempt, credit=size)
        )
        connection.enqueue(
            header(FrameKind.CAPACITY, channel=number, attempt=attempt, credit=remote.channel.capacity_bytes)
        )

    def _on_channel(self, peer: _Peer, connection: FramedConnection, number: int, opening: OpenChannel) -> None:
        consumer = opening.consumer
        if self._is_stale(consumer):
            connection.enqueue(frame(FrameKind.REFUSED, f"attempt {consumer} is stale".encode(), channel=number))
            return
        key = (opening.edge_id, opening.producer, consumer)
        remote = peer.expected.pop(key, None)
        if remote is None:
            peer.early[key] = (number, opening.schema)
        else:
            self._bind(peer, remote, number, opening.schema)

    def _on_frame(self, peer: _Peer, connection: FramedConnection, head: Header, body: pa.Buffer) -> None:
        match head.kind:
            case FrameKind.BATCH | FrameKind.CONTROL:
                remote = peer.inputs.get(head.channel)
                if remote is not None and remote.key[1].number == head.attempt:
                    self._on_element(remote, head, body)
            case FrameKind.CREDIT | FrameKind.CAPACITY:
                output = peer.outputs.get(head.channel)
                if output is not None and head.kind is FrameKind.CREDIT:
                    output.on_credit(head.credit)
                elif output is not None:
                    output.on_capacity(head.credit)
            case FrameKind.CHANNEL:
                self._on_channel(peer, connection, head.channel, decode(memoryview(body), OpenChannel))
            case FrameKind.REFUSED:
                output = peer.outputs.pop(head.channel, None)
                if output is not None:
                    reason = f"slot {peer.slot_id} refused a channel: {body.to_pybytes().decode()}"
                    output.fail(TaskError(reason, domain=ErrorDomain.INTERNAL, retry=True))
            case _:
                raise FrameError(f"unexpected {head.kind.name}")

    def _on_element(self, remote: _RemoteInput, head: Header, body: pa.Buffer) -> None:
        if head.kind is FrameKind.BATCH:
            remote.channel.put(decode_batch(body, remote.schema), head.credit)
        else:
            element = decode_control(memoryview(body))
            remote.ended = remote.ended or isinstance(element, EndOfInput)
            remote.channel.put(element)

    def _forget(self, attempt: AttemptId) -> None:
        for peer in self._peers.values():
            peer.outputs = {n: c for n, c in peer.outputs.items() if c.key[1] != attempt}
            peer.inputs = {n: c for n, c in peer.inputs.items() if c.key[2] != attempt}
            peer.waiting = [c for c in peer.waiting if c.key[1] != attempt]
            peer.expected = {k: c for k, c in peer.expected.items() if k[2] != attempt}
