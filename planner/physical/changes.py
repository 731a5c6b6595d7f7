"""What is taken out of a changelog on its way from one operator to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.ir import operators as ir
from planner.ir.operators import ChangelogMode
from planner.physical.streams import Stream

if TYPE_CHECKING:
    from planner.physical.translate import Translator


def without_update_before(stream: Stream, translator: Translator) -> Stream:
    """The stream, which may be several for UNION ALL, without −U."""
    schema = translator.graph[stream.producers[0]].output
    uid = translator.uids.make(translator.sink_name, "drop-update-before")
    operator = ir.DropUpdateBefore(uid, "DropUpdateBefore", schema)
    added = translator.add(operator, stream.parallelism, stream, (), ChangelogMode.UPSERT)
    return Stream((added,), stream.parallelism, stream.selection, stream.order[:1])
