"""From graph and slots to descriptors: who has a channel to whom."""

from __future__ import annotations

import msgspec
import pytest

from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.checkpoint.recovery import plan_restore
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.jobmanager.deployment import DeploymentPlan, consumer_indexes, deployments
from runtime.jobmanager.execution_graph import ExecutionGraph, group_sizes
from runtime.jobmanager.scheduler import SlotInfo
from runtime.protocol.descriptors import TaskDescriptor
from runtime.protocol.messages import TaskState
from tests.support import graphs

JOB = JobId("f" * 32)


def deployed(graph: JobGraph, generation: int = 1) -> tuple[ExecutionGraph, dict[tuple[int, int], TaskDescriptor]]:
    execution = ExecutionGraph(graph, JOB, generation)
    slots = {
        group: tuple(
            SlotInfo(SlotId(f"tm/{group}{i}/1"), TaskManagerId("tm"), "host", 9000 + i, 0, 0) for i in range(size)
        )
        for group, size in group_sizes(graph).items()
    }
    execution.assign(slots)
    plan = DeploymentPlan("/c", "inc", {"sink": "ns"}, {"k": "v"}, plan_restore(graph, None, {}))
    messages = deployments(execution, plan)
    tasks = {(t.attempt.vertex_id, t.subtask_index): t for message in messages for t in message.tasks}
    for message in messages:
        assert {execution.slot(t.attempt).slot_id for t in message.tasks} == {message.slot_id}
    return execution, tasks


def two(kind: EdgeKind, source_parallelism: int, target_parallelism: int) -> JobGraph:
    return graphs.graph(
        graphs.vertex(0, graphs.generator(), parallelism=source_parallelism),
        graphs.vertex(1, graphs.sink(), parallelism=target_parallelism),
        edges=(graphs.edge(0, 1, kind),),
    )


@pytest.mark.parametrize(
    ("kind", "targets", "channels"),
    [
        (EdgeKind.FORWARD, 2, [[0], [1]]),
        (EdgeKind.HASH, 3, [[0, 1, 2], [0, 1, 2]]),
        (EdgeKind.REBALANCE, 3, [[0, 1, 2], [0, 1, 2]]),
        (EdgeKind.SINGLE, 1, [[0], [0]]),
        (EdgeKind.BROADCAST, 3, [[0, 1, 2], [0, 1, 2]]),
        (EdgeKind.RESCALE, 2, [[0], [1]]),
        (EdgeKind.RESCALE, 4, [[0, 1], [2, 3]]),
        (EdgeKind.RESCALE, 3, [[0, 1], [2]]),
        (EdgeKind.RESCALE, 1, [[0], [0]]),
    ],
)
def test_channels(kind: EdgeKind, targets: int, channels: list[list[int]]) -> None:
    _, tasks = deployed(two(kind, 2, targets))
    for index, expected in enumerate(channels):
        (output,) = tasks[0, index].outputs
        assert [end.attempt.subtask_index for end in output.consumers] == expected
        assert output.consumer_parallelism == targets
    for index in range(targets):
        (source,) = tasks[1, index].inputs
        producers = [i for i, consumers in enumerate(channels) if index in consumers]
        assert [end.attempt.subtask_index for end in source.producers] == producers
        assert source.edge_id == tasks[0, 0].outputs[0].edge_id


@pytest.mark.parametrize("producers", range(1, 8))
@pytest.mark.parametrize("consumers", range(1, 8))
def test_rescale_gives_everybody_a_partner_and_nobody_two_stretches(producers: int, consumers: int) -> None:
    source = graphs.vertex(0, graphs.generator(), parallelism=producers)
    target = graphs.vertex(1, graphs.sink(), parallelism=consumers)
    found = [consumer_indexes(EdgeKind.RESCALE, i, source, target) for i in range(producers)]
    assert {index for part in found for index in part} == set(range(consumers))
    assert [index for part in found for index in part] == sorted(index for part in found for index in part)
    channels = sum(len(part) for part in found)
    assert channels == max(producers, consumers)
    sizes = (
        [len(part) for part in found]
        if consumers > producers
        else [sum(index in part for part in found) for index in range(consumers)]
    )
    assert max(sizes) - min(sizes) <= 1


def test_slot_sharing_groups_never_share_a_slot() -> None:
    graph = two(EdgeKind.HASH, 2, 3)
    apart = msgspec.structs.replace(
        graph, vertices=(graph.vertices[0], msgspec.structs.replace(graph.vertices[1], slot_sharing_group="sinks"))
    )
    assert group_sizes(apart) == {"default": 2, "sinks": 3}
    assert apart.slot_count == 5
    execution, tasks = deployed(apart)
    assert len(execution.slots) == 5
    assert all(len(execution.attempts_in(slot.slot_id)) == 1 for slot in execution.slots)
    # Every channel between the groups leads to another slot.
    ends = [end.address.slot_id for end in tasks[0, 0].outputs[0].consumers]
    assert execution.slot(execution.attempt(0, 0)).slot_id not in ends


def test_a_slot_holds_one_task_of_every_vertex() -> None:
    execution, tasks = deployed(two(EdgeKind.HASH, 1, 3))
    assert len(execution.slots) == 3
    assert tasks[0, 0].outputs[0].consumers[0].address.slot_id == execution.slots[0].slot_id
    assert [len(execution.attempts_in(slot.slot_id)) for slot in execution.slots] == [2, 1, 1]


def test_descriptors_carry_what_the_task_needs() -> None:
    _, tasks = deployed(two(EdgeKind.HASH, 1, 2), generation=3)
    task = tasks[1, 1]
    assert (task.attempt.generation, task.attempt.number, task.parallelism) == (3, 2, 2)
    assert (task.namespaces, task.settings, task.incarnation) == ({"sink": "ns"}, {"k": "v"}, "inc")
    assert task.restored_checkpoint_id == 0
    assert [o.owner for o in task.restore[0].owners] == [1]
    assert tasks[0, 0].namespaces == {}


def test_a_forward_edge_cannot_change_parallelism() -> None:
    with pytest.raises(ValueError, match="changes parallelism"):
        deployed(two(EdgeKind.FORWARD, 2, 3))


def test_the_worked_example() -> None:
    """Five operators at parallelism 32 in three vertices: 160 operator subtasks, 96 tasks, 32 slots."""
    graph = graphs.graph(
        graphs.vertex(0, graphs.generator(), graphs.calc("c"), graphs.calc("local"), parallelism=32),
        graphs.vertex(1, graphs.calc("global"), parallelism=32),
        graphs.vertex(2, graphs.sink(), parallelism=32),
        edges=(graphs.edge(0, 1, EdgeKind.HASH), graphs.edge(1, 2, EdgeKind.HASH)),
    )
    execution, tasks = deployed(graph)
    assert graph.subtask_count == 160
    assert len(tasks) == 96
    assert len(execution.slots) == 32
    assert group_sizes(graph) == {"default": 32}


def test_illegal_reports_change_nothing() -> None:
    execution, _ = deployed(two(EdgeKind.HASH, 1, 1))
    attempt = execution.attempt(0, 0)
    assert not execution.move(attempt, TaskState.RUNNING)
    for state in (TaskState.SCHEDULED, TaskState.DEPLOYING, TaskState.INITIALIZING, TaskState.RUNNING):
        assert execution.move(attempt, state)
    assert execution.move(attempt, TaskState.FINISHED)
    assert not execution.move(attempt, TaskState.FAILED)
    assert execution.counts(0) == {"FINISHED": 1}


def test_a_region_is_deployed_alone_with_its_new_attempts() -> None:
    graph = two(EdgeKind.FORWARD, 2, 2)
    execution, _ = deployed(graph)
    old = execution.attempt(0, 0)
    attempts = execution.replace([(0, 1), (1, 1)])
    assert not execution.knows(AttemptId(JOB, 1, 0, 1, 0))
    assert execution.attempt(0, 0) == old
    plan = DeploymentPlan("/c", "inc", {"sink": "ns"}, {}, plan_restore(graph, None, {}))
    (message,) = deployments(execution, plan, attempts)
    assert [(t.attempt.key, t.attempt.number) for t in message.tasks] == [((0, 1), 1), ((1, 1), 1)]
    source, sink = message.tasks
    assert [end.attempt for end in source.outputs[0].consumers] == [sink.attempt]
    assert [end.attempt for end in sink.inputs[0].producers] == [source.attempt]
