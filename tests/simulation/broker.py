"""A Kafka broker as its clients see it: two topics (output rows, commit markers), transactional ids with fencing by
epoch, last stable offset and high watermark, and commits that are answered before they are visible.

Requests are calls at one instant; what takes time and can be lost is the way there and back (`sink.py`)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from connectors.kafka.protocol import Marker
from tests.simulation.kernel import Kernel
from tests.simulation.workload import Output

TRANSACTION_TIMEOUT_MS = 300
CLIENT_GIVES_UP_MS = 400


class Fenced(Exception):
    """A newer producer has taken the transactional id over."""


class Busy(Exception):
    """CONCURRENT_TRANSACTIONS: an earlier end of a transaction is not complete yet. The client asks again."""


class Transaction(msgspec.Struct, eq=False):
    """`decided` when the broker has logged how it ends; `visible` when its control records are written."""

    transactional_id: str
    epoch: int
    rows: list[Output] = []
    namespace: str = ""
    markers: dict[int, Marker] = {}
    decided: str = ""
    visible: bool = False


class Broker:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self.output: list[tuple[Transaction, Output]] = []
        self._marker_logs: dict[str, list[tuple[Transaction, int, Marker]]] = {}
        self.on_commit: Callable[[Transaction], None] = lambda transaction: None
        self.commits_slowly = kernel.chance(0.5)

    def initialize(self, transactional_id: str) -> int:
        """The new epoch. Raises Busy until nothing of older epochs is unresolved."""
        transaction = self._open.get(transactional_id)
        if transaction is not None:
            if not transaction.decided:
                self._epochs[transactional_id] += 1
                self._decide(transaction, "abort")
            raise Busy
        self._epochs[transactional_id] = epoch = self._epochs.get(transactional_id, -1) + 1
        return epoch

    def produce(self, transactional_id: str, epoch: int, rows: list[Output]) -> None:
        """Into the open transaction, which the first record begins."""
        transaction = self._transaction(transactional_id, epoch)
        self.output += [(transaction, row) for row in rows]
        transaction.rows += rows

    def mark(self, transactional_id: str, epoch: int, namespace: str, owner: int, marker: Marker) -> None:
        """A record in the marker topic of the namespace, in the open transaction."""
        transaction = self._transaction(transactional_id, epoch)
        self.marker_log(namespace).append((transaction, owner, marker))
        transaction.namespace = namespace
        transaction.markers[owner] = marker

    def _transaction(self, transactional_id: str, epoch: int) -> Transaction:
        self._check(transactional_id, epoch)
        transaction = self._open.get(transactional_id)
        if transaction is None:
            transaction = self._open[transactional_id] = Transaction(transactional_id, epoch)
            self._kernel.at(TRANSACTION_TIMEOUT_MS, None, self._expire, transaction)
        elif transaction.decided:
            raise Busy
        return transaction

    def end(self, transactional_id: str, epoch: int, decision: str) -> None:
        """Answers once the decision is logged. Asked again: Busy until the end is complete, then fine."""
        self._check(transactional_id, epoch)
        transaction = self._open.get(transactional_id)
        if transaction is None:
            return
        if transaction.decided:
            if transaction.decided != decision:
                raise Fenced
            raise Busy
        self._decide(transaction, decision)

    def marker_log(self, namespace: str) -> list[tuple[Transaction, int, Marker]]:
        """Records of the marker topic by offset: its length is the high watermark."""
        return self._marker_logs.setdefault(namespace, [])

    def markers(self, namespace: str, start: int) -> tuple[list[tuple[int, int, Marker]], int]:
        """Read-committed: (offset, owner, marker) from `start` on, and the position reached: the last stable offset,
        before the first record of a transaction that is not complete."""
        log = self.marker_log(namespace)
        stop = next((i for i, (transaction, _, _) in enumerate(log) if not transaction.visible), len(log))
        found = [
            (offset, owner, marker)
            for offset, (transaction, owner, marker) in enumerate(log[start:stop], start)
            if transaction.decided == "commit"
        ]
        return found, stop

    def roll_back_marker(self, namespace: str, owner: int) -> None:
        """The marker topic is restored from an old copy: of the owner only its first marker is there."""
        log = self.marker_log(namespace)
        committed = [i for i, (t, o, _) in enumerate(log) if o == owner and t.decided == "commit"]
        for index in committed[1:]:
            transaction, _, marker = log[index]
            log[index] = (transaction, -1, marker)

    def committed_output(self) -> list[Output]:
        return [row for transaction, row in self.output if transaction.decided == "commit" and transaction.visible]

    def has_unresolved(self) -> bool:
        """Read-committed readers would wait."""
        return bool(self._open)

    def _check(self, transactional_id: str, epoch: int) -> None:
        if self._epochs.get(transactional_id) != epoch:
            raise Fenced

    def _decide(self, transaction: Transaction, decision: str) -> None:
        transaction.decided = decision
        if decision == "commit":
            self.on_commit(transaction)
        kernel = self._kernel
        kernel.log(None, f"broker: {decision} of {transaction.transactional_id} {list(transaction.markers.values())}")
        delay_ms = kernel.below(20) if self.commits_slowly else 0
        kernel.at(delay_ms, None, self._complete, transaction)

    def _complete(self, transaction: Transaction) -> None:
        transaction.visible = True
        if self._open.get(transaction.transactional_id) is transaction:
            del self._open[transaction.transactional_id]

    def _expire(self, transaction: Transaction) -> None:
        if not transaction.decided:
            self._epochs[transaction.transactional_id] += 1
            self._decide(transaction, "abort")
