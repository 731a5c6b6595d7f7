"""The graph of physical operators before chaining."""

from __future__ import annotations

import msgspec

from planner.ir.job_graph import EdgeKind
from planner.ir.operators import ChangelogMode, Operator, Schema, output_schema

DEFAULT_GROUP = "default"


class Link(msgspec.Struct, frozen=True):
    """An input of an operator: which operator it comes from, and how rows travel; 0 is the left input, 1 the right."""

    source: int
    kind: EdgeKind
    keys: tuple[int, ...] = ()
    input_index: int = 0


class PhysicalOperator(msgspec.Struct, frozen=True):
    id: int
    operator: Operator
    parallelism: int
    inputs: tuple[Link, ...]
    changelog: ChangelogMode
    """Of what leaves the operator."""
    slot_sharing_group: str

    @property
    def output(self) -> Schema:
        return output_schema(self.operator)


class OperatorGraph:
    """Operators in the order they were added: inputs before consumers."""

    def __init__(self) -> None:
        self.operators: list[PhysicalOperator] = []

    def add(
        self,
        operator: Operator,
        parallelism: int,
        inputs: tuple[Link, ...] = (),
        changelog: ChangelogMode = ChangelogMode.INSERT_ONLY,
        slot_sharing_group: str = "",
    ) -> int:
        """Its id. Without a slot-sharing group of its own an operator is in that of what it is joined to by forward
        edges."""
        group = slot_sharing_group or self._inherited_group(inputs)
        node = PhysicalOperator(len(self.operators), operator, parallelism, inputs, changelog, group)
        self.operators.append(node)
        return node.id

    def _inherited_group(self, inputs: tuple[Link, ...]) -> str:
        is_joined = bool(inputs) and all(link.kind is EdgeKind.FORWARD for link in inputs)
        groups = {self[link.source].slot_sharing_group for link in inputs}
        return groups.pop() if is_joined and len(groups) == 1 else DEFAULT_GROUP

    def __getitem__(self, operator_id: int) -> PhysicalOperator:
        return self.operators[operator_id]
