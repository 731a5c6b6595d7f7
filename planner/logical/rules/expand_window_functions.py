"""A window table function without aggregation above becomes a projection.

`SELECT * FROM TUMBLE(…)` needs no state: each row's window follows from its time column. Aggregations have taken
the function into themselves before (`planner.logical.windows.window_aggregate`).
"""

from __future__ import annotations

from planner.logical.nodes import Plan, WindowTableFunction
from planner.logical.rewrite import bottom_up
from planner.logical.windows import expanded


def expand_window_functions(plan: Plan) -> Plan:
    return bottom_up(plan, lambda node: expanded(node) if isinstance(node, WindowTableFunction) else node)
