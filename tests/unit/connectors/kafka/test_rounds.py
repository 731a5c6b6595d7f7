"""How many records an idempotent producer is given at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from connectors.kafka.rounds import Rounds, running_sizes


class Client:
    """Stands in for a Producer whose records arrive at the second look."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.left: Callable[[], int] = lambda: len(self.waits) % 2

    def flush(self, timeout_s: float) -> int:
        self.waits.append(timeout_s)
        return self.left()


def rounds(client: Client, **settings: str) -> Rounds:
    return Rounds(cast(Any, client), {name.replace("_", "."): value for name, value in settings.items()})


def ends_of(sizes: list[int]) -> Any:
    return np.concatenate(([0], np.cumsum(sizes)))


def taken(pace: Rounds, partition: int, sizes: list[int]) -> list[int]:
    """The pieces in which records of one partition are handed over."""
    ends, first, pieces = ends_of(sizes), 0, []
    while first < len(sizes):
        pieces.append(pace.take(partition, ends, first, len(sizes)))
        first += pieces[-1]
    return pieces


def test_a_partition_gets_one_batch_then_all_are_waited_for() -> None:
    client = Client()
    pace = rounds(client, batch_size="1000")
    assert taken(pace, 0, [300] * 7) == [3, 3, 1]
    assert len(client.waits) == 4, "two rounds were waited for, two looks each"
    assert client.waits[1] > client.waits[0]


def test_a_client_that_sends_nothing_more_is_not_waited_for() -> None:
    client = Client()
    client.left = lambda: 500
    pace = rounds(client, batch_size="1000")
    assert taken(pace, 0, [300] * 7) == [3, 3, 1]
    assert 2.0 < sum(client.waits) < 3.0, "a second each"


def test_a_slow_client_is_waited_for() -> None:
    client = Client()
    client.left = lambda: 100 - len(client.waits)
    pace = rounds(client, batch_size="1000")
    assert taken(pace, 0, [300] * 4) == [3, 1]
    assert len(client.waits) == 100


def test_partitions_share_a_round() -> None:
    client = Client()
    pace = rounds(client, batch_size="1000")
    assert taken(pace, 0, [300] * 3) == [3]
    assert taken(pace, 1, [300] * 3) == [3]
    assert not client.waits
    assert taken(pace, 0, [300]) == [1]
    assert client.waits
    # The wait emptied the other partition, too.
    waited = len(client.waits)
    assert taken(pace, 1, [300] * 3) == [3]
    assert len(client.waits) == waited


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    client = Client()
    assert taken(rounds(client, batch_size="1000"), 0, [100, 5_000, 100]) == [1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"batch_num_messages": "2"}, [2, 2, 1]),
        ({"message_max_bytes": "1000"}, [3, 2]),
        ({"batch_size": "700", "message_max_bytes": "1000"}, [2, 2, 1]),
        ({}, [5]),
    ],
)
def test_the_clients_own_limits_count(settings: dict[str, str], expected: list[int]) -> None:
    assert taken(rounds(Client(), **settings), 3, [300] * 5) == expected


def test_a_new_transaction_begins_with_an_empty_round() -> None:
    client = Client()
    pace = rounds(client, batch_size="1000")
    assert taken(pace, 0, [900]) == [1]
    pace.begin()
    assert taken(pace, 0, [900]) == [1]
    assert not client.waits


def test_sizes_are_those_of_keys_and_values() -> None:
    values: Any = pa.array([b"", b"abc", None, b"abcdef"], pa.binary())
    keys: Any = pa.array([b"k", b"kk", b"k", b"k"], pa.binary())
    sizes = np.diff(running_sizes(values, keys))
    assert (sizes - sizes[0]).tolist() == [0, 4, 0, 6]
    without: Any = pa.nulls(4)
    assert np.diff(running_sizes(values[1:], without[1:])).tolist() == [27, 24, 30]
