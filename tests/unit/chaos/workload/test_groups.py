"""Members of groups against a real simulated cluster, and the pure parts that they are made of."""

from __future__ import annotations

import pytest

from kraft.chaos.checker import check_groups
from kraft.chaos.group_history import GroupAction
from kraft.chaos.history import OperationStatus
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload import base
from kraft.chaos.workload.admin import DELETE_TOPICS_VERSION
from kraft.chaos.workload.client import Client
from kraft.chaos.workload.groups import consumer_protocol, member
from kraft.chaos.workload.groups.board import GroupBoard, Standing
from kraft.protocol.consumer_protocol import subscribed_topics
from kraft.protocol.schemas.topics import (
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.unit.chaos.workload.stage import TOPIC, Stage, staged

KINDS = ("classic-member", "consumer-member")
NAMES = [("orders", number) for number in range(3)]


def group_of(kind: str, members: int = 3) -> list[WorkloadSpec]:
    specs = [WorkloadSpec(kind, n, TOPIC.name, per_second=10.0, group="g") for n in range(members)]
    return [*specs, WorkloadSpec("group-topic", members, per_second=2.0, group="g")]


def operations(stage: Stage, action: GroupAction) -> list:
    history = stage.workloads._around.groups.history
    return [one for one in history.operations if one.action is action and one.status is OperationStatus.OK]


@pytest.fixture
def living_on(monkeypatch):
    monkeypatch.setattr(base, "CRASHING_SHARE", 0.0)
    monkeypatch.setattr(member, "FREEZING_SHARE", 0.0)
    monkeypatch.setattr(member, "LEAVE_ODDS", 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_becomes_whole_and_goes_on_where_it_committed(kind, living_on):
    with staged(*group_of(kind)) as stage:
        stage.wait(lambda: not stage.workloads.groups_not_whole_since(0.0))
        stage.simulation.run_for(10.0)
        stage.finish()
        history = stage.workloads._around.groups.history
        commits, fetches = operations(stage, GroupAction.COMMIT), operations(stage, GroupAction.FETCH)
        assert len(commits) > 40
        assert len({commit.sender.member_id for commit in commits}) == 3
        assert {commit.key[1] for commit in commits} >= {0, 1, 2}
        assert len({commit.key[0] for commit in commits}) >= 3, "the group's own topic was made anew"
        assert any(fetch.offset >= 0 for fetch in fetches)
        assert all(fetch.tag in history.commits for fetch in fetches if fetch.offset >= 0)
        assert stage.oracles == set()
        assert check_groups(history, {}).anomalies == []


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_crash_and_freeze_leave_their_partitions_to_the_others(kind, monkeypatch):
    monkeypatch.setattr(base, "CRASHING_SHARE", 1.0)
    monkeypatch.setattr(base, "LIFE_S", (6.0, 9.0))
    monkeypatch.setattr(member, "FREEZING_SHARE", 1.0)
    monkeypatch.setattr(member, "FREEZE_AFTER_S", (1.0, 2.0))
    monkeypatch.setattr(member, "FREEZE_S", (3.0, 4.0))
    with staged(*group_of(kind)) as stage:
        stage.simulation.run_for(12.0)
        assert stage.verdicts.coverage[member.FROZE] > 2
        assert stage.verdicts.coverage[member.FENCED] > 0
        stage.workloads.calm()
        since_s = stage.simulation.now
        assert stage.workloads.groups_not_whole_since(since_s)
        stage.wait(lambda: not stage.workloads.groups_not_whole_since(since_s))
        stage.finish()
        assert stage.oracles == set()


def test_a_topic_that_a_late_deletion_took_is_not_grown_for_ever(living_on, monkeypatch):
    """A broker that was paused may carry out a request for the name long after another one did."""
    call_any, deleted = Client.call_any, []

    async def behind_a_deletion(client, request, version, answers):
        if isinstance(request, CreatePartitionsRequest):
            deletion = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=request.topics[0].name)], timeout_ms=1000
            )
            deleted.append(await call_any(client, deletion, DELETE_TOPICS_VERSION, DeleteTopicsResponse))
        return await call_any(client, request, version, answers)

    monkeypatch.setattr(Client, "call_any", behind_a_deletion)
    with staged(*group_of(KINDS[0], members=1)) as stage:
        stage.wait(lambda: len(deleted) > 1)
        stage.finish()
        assert stage.oracles == set()


def test_without_groups_there_is_no_internal_topic(living_on):
    with staged(WorkloadSpec("consumer", 0, TOPIC.name)) as stage:
        stage.simulation.run_for(1.0)
        assert "__consumer_offsets" not in stage.cluster.image().topic_ids
        assert stage.workloads.groups_not_whole_since(0.0) == []


# -- the board


@pytest.fixture
def board() -> GroupBoard:
    board = GroupBoard()
    for name in ("a", "b"):
        board.enlist("g", name, NAMES)
    return board


def stand(board: GroupBoard, name: str, generation: int, *numbers: int, at_s: float = 5.0) -> None:
    owned = frozenset(("orders", number) for number in numbers)
    board.stands("g", name, Standing(generation, owned, at_s))


def test_a_group_is_whole_when_all_are_confirmed_and_all_is_owned_once(board):
    assert list(board.not_whole_since(0.0)) == ["g"]
    stand(board, "a", 1, 0, 1)
    assert board.not_whole_since(0.0)
    stand(board, "b", 1, 2, at_s=6.0)
    assert not board.not_whole_since(4.9)
    assert board.not_whole_since(5.0)
    stand(board, "a", 1, 0, 1, at_s=7.0)
    board.stands("g", "b", None)
    assert not board.not_whole_since(5.9)
    assert "b is in no generation" in board.not_whole_since(6.0)["g"]


@pytest.mark.parametrize(
    ("generation", "numbers"),
    [(2, (2,)), (1, (1, 2)), (1, ())],
    ids=["ahead", "owned twice", "owned by nobody"],
)
def test_a_group_is_not_whole(board, generation, numbers):
    stand(board, "a", 1, 0, 1)
    stand(board, "b", generation, *numbers)
    assert board.not_whole_since(0.0)


def test_topics_beside_those_that_stay_do_not_count(board):
    stand(board, "a", 1, 0, 1)
    board.stands("g", "b", Standing(1, frozenset({("orders", 2), ("topic-of-g", 0)}), 5.0))
    assert not board.not_whole_since(0.0)


def test_a_group_is_whole_without_a_member_that_will_not_come_back(board):
    board.gone("g", "b")
    stand(board, "a", 1, 0, 1, 2)
    assert not board.not_whole_since(0.0)


# -- what members tell each other


def test_assignments_are_read_back():
    names = [("orders", 0), ("orders", 2), ("topic-of-g", 1)]
    assert consumer_protocol.assigned(consumer_protocol.assignment(names)) == set(names)
    assert consumer_protocol.assigned(consumer_protocol.assignment([])) == set()
    assert consumer_protocol.assigned(b"") == set()


def test_coordinators_read_the_subscription():
    assert subscribed_topics(consumer_protocol.subscription(["orders", "topic-of-g"])) == [
        "orders",
        "topic-of-g",
    ]


def test_the_leader_gives_each_partition_to_one_member():
    spread = consumer_protocol.spread(NAMES, ["b", "a"])
    assert spread == {"a": [NAMES[0], NAMES[2]], "b": [NAMES[1]]}
