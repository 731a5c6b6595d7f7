"""The checkpoint coordinator against written traces (tests/scripts/coordinator): every event, every command.

A line `@<ms> event …` is an event; the indented lines below it are all commands it gives, in order.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from connectors.api import Committable
from runtime.checkpoint import coordination as c
from runtime.checkpoint.coordinator import CheckpointCoordinator
from runtime.checkpoint.snapshot import OperatorSnapshot, SubtaskSnapshot
from runtime.ids import AttemptId, JobId
from runtime.job_settings import CheckpointSettings
from runtime.protocol.messages import Failure

SCRIPTS = Path(__file__).parents[3] / "scripts" / "coordinator"
JOB = JobId("0" * 32)


class Trace:
    """One script and the coordinator it drives. Tasks are vertices of parallelism 1, named by a letter; `a'` is the
    attempt before the present one of `a`."""

    def __init__(self) -> None:
        self.settings = CheckpointSettings()
        self.roles: dict[str, c.TaskRole] = {}
        self.starts: dict[str, int] = {}
        self.coordinator: CheckpointCoordinator | None = None

    def attempt(self, name: str) -> AttemptId:
        task, before = name.rstrip("'"), name.count("'")
        vertex = list(self.roles).index(task) if task in self.roles else 99
        return AttemptId(JOB, 1, vertex, 0, self.starts.get(task, 0) - before)

    def name(self, attempt: AttemptId) -> str:
        return list(self.roles)[attempt.vertex_id]

    def header(self, words: list[str]) -> None:
        if words[0] == "settings":
            values = {key: int(value) for key, value in (word.split("=") for word in words[1:])}
            self.settings = CheckpointSettings(
                interval_ms=values["interval"],
                timeout_ms=values["timeout"],
                min_pause_ms=values.get("pause", 0),
                tolerable_failures=values.get("tolerable", 0),
                aligned_timeout_ms=values.get("aligned"),
                concurrent_max=values.get("concurrent", 1),
            )
        else:
            attempt = AttemptId(JOB, 1, len(self.roles), 0, 0)
            self.roles[words[1]] = c.TaskRole(attempt, "source" in words, "sink" in words)

    def event(self, words: list[str]) -> c.CoordinatorEvent:
        kind, rest = words[0], words[1:]
        failure = Failure("no", "external", True)
        match kind:
            case "tick":
                return c.Ticked()
            case "ack":
                return c.SubtaskAcked(self.attempt(rest[0]), int(rest[1]), self.snapshot(rest[0], rest[2:]))
            case "decline":
                return c.SubtaskDeclined(self.attempt(rest[0]), int(rest[1]), failure)
            case "commit":
                return c.SubtaskCommitted(self.attempt(rest[0]), int(rest[1]))
            case "ended":
                return c.TaskInputsEnded(self.attempt(rest[0]))
            case "finished":
                return c.TaskFinished(self.attempt(rest[0]))
            case "wanted":
                return c.CheckpointWanted(self.attempt(rest[0]))
            case "savepoint":
                return c.SavepointWanted(rest[0], "/sp", stop="stop" in rest, drain="drain" in rest)
            case "stored":
                return c.CheckpointStored(int(rest[0]))
            case "store-failed":
                return c.StoreFailed(int(rest[0]), failure)
            case "lost":
                return c.TasksLost(tuple(self.attempt(name) for name in rest))
            case "replaced":
                for name in rest:
                    self.starts[name] = self.starts.get(name, 0) + 1
                return c.TasksReplaced(
                    tuple(msgspec.structs.replace(self.roles[name], attempt=self.attempt(name)) for name in rest)
                )
            case _:
                raise ValueError(kind)

    def snapshot(self, name: str, words: list[str]) -> SubtaskSnapshot:
        epochs = [word.removeprefix("epoch=").split(":") for word in words if word.startswith("epoch=")]
        committables = tuple(Committable(int(owner), int(number), "i", b"", 1, 1) for owner, number in epochs)
        operators = (OperatorSnapshot(name, committables=committables),)
        return SubtaskSnapshot(self.attempt(name).vertex_id, name, 0, 1, operators, finished="finished" in words)

    def show(self, command: c.CoordinatorCommand) -> str:
        match command:
            case c.ReserveCheckpointId(checkpoint_id=number):
                return f"reserve {number}"
            case c.SendBarriers(checkpoint_id=number, attempts=attempts):
                kind = ("stop-" if command.stop else "") + ("full-" if command.full and not command.stop else "")
                wait = "" if command.aligned_timeout_ms is None else f" aligned={command.aligned_timeout_ms}"
                return f"{kind}barriers {number} " + " ".join(self.name(a) for a in attempts) + wait
            case c.EndSources():
                return "end-sources"
            case c.StoreCheckpoint(checkpoint_id=number, snapshots=snapshots, floors=floors, savepoint=savepoint):
                names = " ".join(s.vertex_uid for s in snapshots)
                shown = ",".join(f"{uid}/{owner}:{floor}" for (uid, owner), floor in sorted(floors.items()))
                copied = f" savepoint={savepoint.trigger_id}" if savepoint is not None else ""
                return f"store {number} {names}" + (f" floors={shown}" if shown else "") + copied
            case c.SavepointTaken(wanted=wanted):
                return f"savepoint-taken {wanted.trigger_id}"
            case c.SavepointFailed(trigger_id=trigger_id, failure=failure):
                return f"savepoint-failed {trigger_id} {failure.message}"
            case c.SendCommit(checkpoint_id=number):
                return f"commit {number}"
            case c.SendAbort(checkpoint_id=number, snapshots=snapshots):
                written = "".join(f" {s.vertex_uid}" for s in snapshots)
                return f"abort {number}" + (f" discards{written}" if written else "")
            case c.DiscardSnapshots(checkpoint_id=number, snapshots=snapshots):
                return f"discard {number} " + " ".join(s.vertex_uid for s in snapshots)
            case c.CheckpointCompleted(checkpoint_id=number, duration_ms=duration):
                return f"completed {number} {duration}"
            case c.FailJob():
                return "fail"
            case c.Ignored(reason=reason):
                return f"ignored {reason}"

    def run(self, text: str) -> str:
        """The script with the commands that really came."""
        out: list[str] = []
        for line in text.splitlines():
            if line.startswith(("settings ", "task ")):
                self.header(line.split())
            elif line.startswith("  "):
                continue
            out.append(line)
            if line.startswith("@"):
                if self.coordinator is None:
                    self.coordinator = CheckpointCoordinator(self.settings, self.roles.values(), 1, {}, 0)
                time, *words = line[1:].split()
                commands = self.coordinator.handle(self.event(words), int(time))
                self.coordinator.validate()
                deadline_ms = self.coordinator.deadline_ms
                assert words != ["tick"] or deadline_ms is None or deadline_ms > int(time), "the timer would spin"
                out.extend("  " + self.show(command) for command in commands)
        return "\n".join(out) + "\n"


def without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_trace(script: Path) -> None:
    expected = script.read_text()
    assert without_comments(Trace().run(expected)) == without_comments(expected)


def test_ids_and_floors_go_on_from_recovery() -> None:
    attempt = AttemptId(JOB, 3, 0, 0, 2)
    coordinator = CheckpointCoordinator(
        CheckpointSettings(interval_ms=1000), [c.TaskRole(attempt, True, True)], 42, {("sink", 1): 40}, now_ms=0
    )
    assert coordinator.handle(c.Ticked(), 1000) == [c.ReserveCheckpointId(42), c.SendBarriers(42, (attempt,))]
    snapshot = SubtaskSnapshot(0, "v", 0, 1, (OperatorSnapshot("sink"),))
    (store,) = coordinator.handle(c.SubtaskAcked(attempt, 42, snapshot), 1001)
    assert isinstance(store, c.StoreCheckpoint)
    assert store.floors == {("sink", 1): 40}
    assert store.triggered_at_ms == 1000


def test_a_finished_tasks_epochs_are_not_pending_for_ever() -> None:
    """Once committed, the snapshot that later checkpoints carry names no epoch: its file may be gone."""
    trace = Trace()
    trace.run(
        "settings interval=1000 timeout=5000\ntask a source sink\ntask b source\n"
        "@10 ended a\n@1000 tick\n@1001 ack a 1 finished epoch=0:1\n@1002 ack b 1\n@1003 stored 1\n@1004 commit a 1\n"
        "@2000 tick\n"
    )
    assert trace.coordinator is not None
    (store,) = trace.coordinator.handle(trace.event(["ack", "b", "2"]), 2001)
    assert isinstance(store, c.StoreCheckpoint)
    assert [o.committables for s in store.snapshots for o in s.operators] == [(), ()]
