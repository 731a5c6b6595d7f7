"""Placement of records."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import murmur2 as client_murmur2
from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka.options import PartitionerKind
from connectors.kafka.partitioner import Partitioner, murmur2

# Recorded from org.apache.kafka.common.utils.Utils.murmur2 (kafka-clients 4.1.2), as signed 32-bit numbers.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_equal_to_the_java_client() -> None:
    hashes = murmur2(pa.array(list(JAVA), pa.binary()))
    assert [int(value) for value in hashes.astype("i4")] == list(JAVA.values())


@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(0, 5), st.integers(1, 200))
def test_partitions_equal_the_clients_own(keys: list[bytes], cut: int, count: int) -> None:
    array = pa.array(keys, pa.binary()).slice(cut)
    partitions = Partitioner(PartitionerKind.DEFAULT, 0, count).partitions(array, len(array))
    assert partitions.tolist() == [client_murmur2(key, count) for key in keys[cut:]]


def test_records_without_a_key_stay_together_within_a_batch_and_move_on() -> None:
    partitioner = Partitioner(PartitionerKind.DEFAULT, 1, 3)
    assert [set(partitioner.partitions(None, 5).tolist()) for _ in range(4)] == [{1}, {2}, {0}, {1}]
    mixed = pa.array([b"k", None, b"k"])
    assert partitioner.partitions(mixed, 3).tolist() == [client_murmur2(b"k", 3), 2, client_murmur2(b"k", 3)]


def test_fixed_and_round_robin() -> None:
    assert Partitioner(PartitionerKind.FIXED, 5, 3).partitions(None, 3).tolist() == [2, 2, 2]
    robin = Partitioner(PartitionerKind.ROUND_ROBIN, 0, 3)
    assert robin.partitions(None, 4).tolist() == [0, 1, 2, 0]
    assert robin.partitions(None, 2).tolist() == [1, 2]


@pytest.mark.parametrize("kind", PartitionerKind)
def test_no_rows(kind: PartitionerKind) -> None:
    assert Partitioner(kind, 0, 3).partitions(pa.array([], pa.binary()), 0).tolist() == []
