"""Elements in flight that a restored task processes before any input."""

from __future__ import annotations

from collections import deque

import numpy as np
import pyarrow as pa

from connectors.api import CheckpointFiles
from runtime.checkpoint.in_flight import ChannelRef, InFlight, read
from runtime.checkpoint.snapshot import InFlightHandle, InFlightRestore
from runtime.elements import Batch, Element, Watermark, WatermarkStatus
from runtime.key_groups import hash_columns, key_group, key_group_range
from runtime.protocol.descriptors import TaskDescriptor


class RecoveredInput:
    """Taken in order, by the task's thread. What is left when a barrier overtakes it is in flight again."""

    def __init__(self, descriptor: TaskDescriptor) -> None:
        self._descriptor = descriptor
        self._waiting: deque[tuple[InFlightRestore, pa.Schema, deque[Element]]] = deque()

    @property
    def entered_operators(self) -> frozenset[str]:
        """Operators inside the chain that take rows themselves."""
        return frozenset(restore.handle.target_uid for restore in self._descriptor.in_flight)

    def load(self, files: CheckpointFiles) -> None:
        """Read all files: together they are no more than what was in memory when they were written. Raises
        DamagedFileError."""
        for restore in self._descriptor.in_flight:
            schema, elements = read(files, restore.handle)
            own = deque(kept for element in elements if (kept := self._own(restore, element)) is not None)
            if own:
                self._waiting.append((restore, schema, own))

    def _own(self, restore: InFlightRestore, element: Element) -> Element | None:
        """The part of an element that is for this subtask."""
        if not isinstance(element, Batch):
            return element if restore.with_times else None
        if restore.keys is None:
            return element
        vertex = self._descriptor.vertex
        first, last = key_group_range(self._descriptor.subtask_index, vertex.parallelism, vertex.max_parallelism)
        hashes = hash_columns([element.data.column(key) for key in restore.keys], element.row_count)
        groups = key_group(hashes, vertex.max_parallelism)
        rows = np.flatnonzero((groups >= first) & (groups <= last))
        if len(rows) == element.row_count:
            return element
        if not len(rows):
            return None
        kinds = None if element.row_kinds is None else element.row_kinds.take(rows)
        return Batch(element.data.take(rows), kinds)

    @property
    def remains(self) -> bool:
        return bool(self._waiting)

    def take(self) -> tuple[InFlightRestore, Element] | None:
        """The next element, or None."""
        if not self._waiting:
            return None
        restore, _, elements = self._waiting[0]
        element = elements.popleft()
        if not elements:
            self._waiting.popleft()
        return restore, element

    def rest(self) -> list[InFlight]:
        """What has not been taken."""
        return [InFlight(self._channel(r.handle, r.edge_id, schema), list(e)) for r, schema, e in self._waiting]

    def _channel(self, handle: InFlightHandle, edge_id: int, schema: pa.Schema) -> ChannelRef:
        own = self._descriptor.subtask_index
        uids = (handle.source_uid, handle.target_uid)
        return ChannelRef(edge_id, handle.producer_index, own, *uids, schema, handle.input_index)

    def position(self, restore: InFlightRestore, element: Watermark | WatermarkStatus) -> int:
        """The input channel of a watermark or status."""
        ends = [(e.edge_id, p.attempt.subtask_index) for e in self._descriptor.inputs for p in e.producers]
        return ends.index((restore.edge_id, restore.handle.producer_index))
