"""A slot's budget: its parts add up, and state is shared by the operators that have some."""

from __future__ import annotations

import msgspec
import pytest

from planner.ir.operators import AggregateCall, AggregateFunction, GroupAggregate
from planner.ir.types import BIGINT, ChangelogMode, DataType
from runtime.taskmanager.slot_memory import MANAGED_BYTES_MIN, divide
from runtime.taskmanager.slot_runtime import needs_managed_memory
from tests.support import graphs


@pytest.mark.parametrize("process_bytes", [2_000_000_000, 5_000_000_001])
def test_the_parts_add_up_to_the_budget(process_bytes: int) -> None:
    memory = divide(process_bytes, 2)
    parts = msgspec.structs.asdict(memory)
    assert parts.pop("slot_bytes") == process_bytes // 2 == sum(parts.values())
    assert memory.managed_bytes > memory.slot_bytes // 2


def test_a_small_slot_has_some_memory_for_state() -> None:
    assert divide(100_000_000, 2).managed_bytes == MANAGED_BYTES_MIN


@pytest.mark.parametrize(
    ("keys", "function", "mode", "needed"),
    [
        ((0,), AggregateFunction.SUM, ChangelogMode.INSERT_ONLY, True),
        ((), AggregateFunction.SUM, ChangelogMode.RETRACT, False),
        ((), AggregateFunction.MAX, ChangelogMode.INSERT_ONLY, False),
        ((), AggregateFunction.MAX, ChangelogMode.RETRACT, True),
    ],
)
def test_an_aggregation_that_keeps_one_row_takes_no_share(
    keys: tuple[int, ...], function: AggregateFunction, mode: ChangelogMode, needed: bool
) -> None:
    key_types: tuple[DataType, ...] = (BIGINT,) * len(keys)
    call = AggregateCall(function, 0, BIGINT, BIGINT)
    node = GroupAggregate("agg", "agg", keys, key_types, (call,), mode, graphs.NUMBERS)
    assert needs_managed_memory(node) is needed
