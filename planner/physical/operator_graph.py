"""The graph of physical operators before chaining."""

from __future__ import annotations

import msgspec

from planner.ir.job_graph import EdgeKind
from planner.ir.operators import ChangelogMode, Operator, Schema, output_schema


class Link(msgspec.Struct, frozen=True):
    """An input of an operator: which operator it comes from, and how rows travel."""

    source: int
    kind: EdgeKind
    keys: tuple[int, ...] = ()


class PhysicalOperator(msgspec.Struct, frozen=True):
    id: int
    operator: Operator
    parallelism: int
    inputs: tuple[Link, ...]
    changelog: ChangelogMode
    """Of what leaves the operator."""

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
    ) -> int:
        node = PhysicalOperator(len(self.operators), operator, parallelism, inputs, changelog)
        self.operators.append(node)
        return node.id

    def __getitem__(self, operator_id: int) -> PhysicalOperator:
        return self.operators[operator_id]
