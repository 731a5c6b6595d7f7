"""A tumbling window table function without aggregation above becomes a projection.

`SELECT * FROM TUMBLE(…)` needs no state: each row's one window follows from its time column. HOP and CUMULATE give a
row several times and stay. Aggregations have taken the function into themselves before
(`planner.logical.windows.window_aggregate`).
"""

from __future__ import annotations

from planner.logical.nodes import Plan, WindowKind, WindowTableFunction
from planner.logical.rewrite import bottom_up
from planner.logical.windows import expanded


def expand_window_functions(plan: Plan) -> Plan:
    return bottom_up(plan, _expand)


def _expand(node: Plan) -> Plan:
    return expanded(node) if isinstance(node, WindowTableFunction) and node.window.kind is WindowKind.TUMBLE else node
