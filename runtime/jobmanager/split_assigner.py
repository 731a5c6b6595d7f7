"""Hands splits to source tasks: those of the start, then what discovery finds while the generation runs. What a task
was given it is given again when it restarts, unless the checkpoint that it restores holds it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from connectors.api import SplitState
from connectors.errors import ConnectorError
from planner.ir.operators import Source
from runtime.checkpoint.recovery import RestorePlan
from runtime.ids import AttemptId
from runtime.jobmanager.execution_graph import ExecutionGraph
from runtime.jobmanager.preparation import Outside, SourceSplits, sources_of
from runtime.jobmanager.services import HelperThread, SlotProvider
from runtime.protocol.messages import AssignSplits, Failure
from runtime.taskmanager.failures import failure_of

_log = logging.getLogger(__name__)


class SplitAssigner:
    """Of one generation. `assign` before tasks start; `lost` when they end; `stop` when the generation ends."""

    def __init__(
        self,
        slots: SlotProvider,
        execution: ExecutionGraph,
        splits: dict[str, SourceSplits],
        outside: Outside,
        thread: HelperThread,
        fail: Callable[[Failure], None],
    ) -> None:
        self._slots = slots
        self._execution = execution
        self._splits = splits
        self._outside = outside
        self._thread = thread
        self._fail = fail
        self._given = {uid: [list(given) for given in found.assigned] for uid, found in splits.items()}
        """Source → subtask → splits."""
        self._live: set[AttemptId] = set()
        self._discovery: asyncio.Task[None] | None = None

    def assign(self, attempts: Collection[AttemptId], restored: RestorePlan) -> None:
        """Every source task among them hears once, also when there is nothing for it: a bounded one with no split
        ends."""
        for source, vertex_id, parallelism in sources_of(self._execution.graph):
            known = {state.split.id for state in restored.known_splits.get(source.uid, ())}
            for index in range(parallelism):
                attempt = self._execution.attempt(vertex_id, index)
                if attempt in attempts:
                    self._live.add(attempt)
                    given = tuple(s for s in self._given[source.uid][index] if s.split.id not in known)
                    self._send(attempt, source, given, self._splits[source.uid].discovery_interval_ms == 0)

    def lost(self, attempts: Collection[AttemptId]) -> None:
        """They get no more; what is found for their tasks waits for the next attempts."""
        self._live.difference_update(attempts)

    def start_discovery(self) -> None:
        if any(found.discovery_interval_ms for found in self._splits.values()):
            self._discovery = asyncio.get_running_loop().create_task(self._discover())

    def stop(self) -> None:
        if self._discovery is not None:
            self._discovery.cancel()
            self._discovery = None

    def _send(self, attempt: AttemptId, source: Source, splits: tuple[SplitState, ...], all_assigned: bool) -> None:
        slot = self._execution.slot(attempt)
        self._slots.send(slot, AssignSplits(slot.slot_id, attempt, source.uid, splits, all_assigned))

    async def _discover(self) -> None:
        """New splits go to subtasks in turn. An outside system that does not answer is asked again later."""
        known = {uid: found.known for uid, found in self._splits.items()}
        interval_ms = min(f.discovery_interval_ms for f in self._splits.values() if f.discovery_interval_ms)
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for source, vertex_id, parallelism in sources_of(self._execution.graph):
                if not self._splits[source.uid].discovery_interval_ms:
                    continue
                try:
                    fresh = await self._thread.run(self._outside.discover, source, known[source.uid])
                except ConnectorError as error:
                    _log.warning("job %s: looking for new splits: %s", self._execution.job_id, error.message)
                    if not error.retry:
                        self._fail(failure_of(error))
                        return
                    continue
                for number, split in enumerate(fresh, start=len(known[source.uid])):
                    self._given[source.uid][number % parallelism].append(split)
                    attempt = self._execution.attempt(vertex_id, number % parallelism)
                    if attempt in self._live:
                        self._send(attempt, source, (split,), False)
                known[source.uid] |= {split.split.id for split in fresh}
