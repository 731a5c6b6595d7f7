"""Below a temporal join a deleted row says when it was deleted, if its source does.

    TemporalJoin(right time = at) over ChangelogNormalize over Scan(at METADATA FROM 'timestamp')
      →   … over ChangelogNormalize(delete_time = at) …

A deletion by key has no columns of its row; the normalisation fills them from the row that it takes back, whose time is
that of the last version: as if that had never been valid. A time that comes with the message is that of the deletion.
"""

from __future__ import annotations

import msgspec

from planner.catalog import PhysicalColumn
from planner.ir.expressions import InputRef
from planner.logical.nodes import Calc, ChangelogNormalize, Plan, Scan, TemporalJoin, with_inputs
from planner.logical.rewrite import bottom_up


def end_versions(plan: Plan) -> Plan:
    def end(node: Plan) -> Plan:
        if not isinstance(node, TemporalJoin):
            return node
        return with_inputs(node, (node.left, _ending(node.right, node.right_time)))

    return bottom_up(plan, end)


def _ending(plan: Plan, time: int) -> Plan:
    """The versions, of which column `time` says when they begin or end."""
    match plan:
        case Calc():
            projection = plan.projections[time]
            if not isinstance(projection, InputRef):
                return plan
            return with_inputs(plan, (_ending(plan.input, projection.index),))
        case ChangelogNormalize(input=Scan() as scan) if time not in plan.keys:
            is_in_row = isinstance(scan.entry.columns[scan.kept[time]], PhysicalColumn)
            return plan if is_in_row else msgspec.structs.replace(plan, delete_time=time)
        case _:
            return plan
