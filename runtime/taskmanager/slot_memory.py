"""How a slot's memory is divided. The parts add up to its share of the TaskManager's budget."""

from __future__ import annotations

import msgspec

BASE_BYTES = 150_000_000
"""An idle slot process with its libraries loaded."""
NETWORK_BYTES = 64_000_000
KAFKA_FRACTION = 0.1
RESERVE_FRACTION = 0.1
"""What nobody counts: batches on their way, pieces of snapshots, room that the allocator has not given back."""
MANAGED_BYTES_MIN = 32_000_000


class SlotMemory(msgspec.Struct, frozen=True):
    """Bytes of one slot by use. `managed`: state, shared equally by the slot's operators that have some."""

    slot_bytes: int
    base_bytes: int
    network_bytes: int
    kafka_bytes: int
    reserve_bytes: int
    managed_bytes: int


def divide(process_bytes: int, slot_count: int) -> SlotMemory:
    """The budget of one of `slot_count` equal slots. One that is too small for its parts has more than it was given."""
    slot_bytes = process_bytes // slot_count
    kafka, reserve = int(slot_bytes * KAFKA_FRACTION), int(slot_bytes * RESERVE_FRACTION)
    managed = max(MANAGED_BYTES_MIN, slot_bytes - BASE_BYTES - NETWORK_BYTES - kafka - reserve)
    return SlotMemory(slot_bytes, BASE_BYTES, NETWORK_BYTES, kafka, reserve, managed)
