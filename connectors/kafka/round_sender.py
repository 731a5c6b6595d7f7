"""Sends records to an idempotent producer in rounds, from a thread of its own: what comes while a round is under way
waits here, not in the client (see `rounds`), and goes together as the next one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from connectors.kafka.client import failed, kafka_error
from connectors.kafka.rounds import Rounds
from connectors.kafka.transactions import send_records

QUEUED_BYTES_MAX = 8 << 20
WAIT_S = 0.1
"""Whoever waits looks this often whether the task is to end."""
_CLOSE_S = 10.0


class RoundSender:
    """`producer` has a linger time longer than a round; `linger_ms` is how long a round waits for further records.
    `check` raises when the task is to end."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        client: Mapping[str, str],
        linger_ms: float,
        check: Callable[[], None],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._rounds = Rounds(producer, client)
        self._linger_s = linger_ms / 1000
        self._check = check
        self._changed = threading.Condition()
        self._queue: list[pa.RecordBatch] = []
        self._queued_bytes = 0
        self._oldest_s = 0.0
        self._sending = False
        self._in_hurry = False
        self._is_closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-rounds", daemon=True)
        self._thread.start()

    @property
    def record_count(self) -> int:
        """Records that the broker has not acknowledged."""
        with self._changed:
            return sum(records.num_rows for records in self._queue) + (0 if self._is_closed else len(self._producer))

    def put(self, records: pa.RecordBatch) -> None:
        """Waits while many are queued. Raises what an earlier record has failed with."""
        with self._changed:
            self._wait(lambda: self._queued_bytes < QUEUED_BYTES_MAX)
            if not self._queue:
                self._oldest_s = time.monotonic()
            self._queue.append(records)
            self._queued_bytes += records.nbytes
            self._changed.notify_all()

    def flush(self) -> None:
        """Until the broker has all records. Ends: each is delivered or fails after the client's delivery time-out."""
        with self._changed:
            self._in_hurry = True
            self._changed.notify_all()
            self._wait(lambda: not self._queue and not self._sending)
            self._in_hurry = False

    def close(self) -> None:
        """What is under way is given up."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._producer.purge()
        self._thread.join(_CLOSE_S)
        # The client's threads and connections end with the last reference to it.
        del self._producer, self._rounds

    def _wait(self, ready: Callable[[], bool]) -> None:
        """With the lock held."""
        while self._failure is None and not ready():
            self._check()
            self._changed.wait(WAIT_S)
        if self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------------------------------------- the other thread

    def _run(self) -> None:
        try:
            while (due := self._next()) is not None:
                for records in due:
                    if self._is_closed:
                        break
                    send_records(self._producer, self._topic, records, self._delivered, rounds=self._rounds)
                # A client that has lost its broker is given nothing more.
                while len(self._producer) and not self._is_closed:
                    self._rounds.finish()
                self._rounds.begin()
                self._ended()
        except KafkaException as error:
            self._fail(failed(kafka_error(error), f"producing to topic {self._topic}"))
        except Exception as error:
            # Its traceback would keep the client alive.
            self._fail(error.with_traceback(None))

    def _next(self) -> list[pa.RecordBatch] | None:
        """The records of the next round, when it is time for it; None at the end."""
        with self._changed:
            while not self._is_closed and self._failure is None:
                wait_s: float | None = None
                if self._queue:
                    wait_s = self._oldest_s + self._linger_s - time.monotonic()
                    if wait_s <= 0 or self._in_hurry or self._queued_bytes >= self._rounds.batch_bytes:
                        due, self._queue, self._queued_bytes = self._queue, [], 0
                        self._sending = True
                        self._changed.notify_all()
                        return due
                self._changed.wait(wait_s)
        return None

    def _ended(self) -> None:
        with self._changed:
            self._sending = False
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._fail(failed(error, f"delivering records to topic {self._topic}"))
