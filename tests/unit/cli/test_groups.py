"""`kraft groups`: what it makes of coordinators' and leaders' answers, and how it goes on when coordinators move."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pytest

from kraft.cli.app import run
from kraft.cli.groups.commands import STATES
from kraft.cli.groups.describe import offset_rows, oldest_unread, partitions_text
from kraft.cli.groups.group_client import Committed, Member
from kraft.cli.groups.log_positions import Ends, batch_time
from kraft.cli.shared import coordinators
from kraft.cli.shared.options import parse_names
from kraft.protocol.consumer_protocol import assigned_partitions
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.classic_groups import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kraft.protocol.schemas.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kraft.protocol.schemas.consumer_groups import DescribedGroup as DescribedConsumerGroup
from kraft.protocol.schemas.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraft.protocol.schemas.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition
from tests.support.fake_broker import FakeCluster

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ASSIGNMENT = (
    struct.pack(">hi", 1, 1)
    + struct.pack(">h1s", 1, b"a")
    + struct.pack(">iii", 2, 1, 0)
    + struct.pack(">i", -1)
)
"""Version 1 of Kafka's ConsumerProtocolAssignment: partitions 1 and 0 of topic a, no user data."""


# -- pure parts


def test_what_a_classic_member_has() -> None:
    assert assigned_partitions(ASSIGNMENT) == [A0, A1]
    assert assigned_partitions(b"") == []
    for length in range(len(ASSIGNMENT) - 4):
        assert assigned_partitions(ASSIGNMENT[:length]) == []
    assert assigned_partitions(b"\0\0\x7f\xff\xff\xff") == []


def test_the_time_of_a_record_by_its_batch() -> None:
    records = [(1_000, None, b"x", ()), (3_000, None, b"y", ())]
    batch = memoryview(build_batch(records, base_offset=7))
    assert batch_time(batch) == 1_000, (
        "an age is not understated, whichever record of the batch is the oldest unread"
    )
    assert batch_time(memoryview(b"")) is None
    assert batch_time(batch[:40]) is None
    assert batch_time(memoryview(build_batch([(-1, None, b"x", ())]))) is None


def test_the_oldest_unread_records() -> None:
    ends = Ends({A0: 5, A1: 0, B0: 0}, {A0: 9, A1: 4})
    committed = {A0: Committed(2, ""), A1: Committed(4, ""), B0: Committed(0, "")}
    assert oldest_unread(committed, ends) == {A0: 5}, "what retention took is not there to be read"


def test_rows_of_offsets() -> None:
    committed = {A0: Committed(7, "why"), A1: Committed(9, "")}
    rows = offset_rows([A0, A1, B0], committed, {A0: 10, A1: 8}, {A0: 1_000}, now_ms=3_500)
    assert rows == [
        {
            "topic": "a",
            "partition": 0,
            "current": 7,
            "log_end": 10,
            "lag": 3,
            "lag_s": 2.5,
            "metadata": "why",
        },
        {"topic": "a", "partition": 1, "current": 9, "log_end": 8, "lag": 0, "lag_s": None, "metadata": ""},
        {
            "topic": "b",
            "partition": 0,
            "current": None,
            "log_end": None,
            "lag": None,
            "lag_s": None,
            "metadata": None,
        },
    ]


def test_partitions_of_a_member_are_one_word() -> None:
    assert partitions_text(Member("m", None, "c", "h", [A0, A1, B0])) == "a:0,1;b:0"
    assert partitions_text(Member("m", None, "c", "h", [])) == ""


def test_names_however_they_are_capitalised() -> None:
    assert parse_names(["stable,EMPTY", "Dead"], STATES, "--state") == ["Stable", "Empty", "Dead"]
    assert parse_names([], STATES, "--state") == []
    with pytest.raises(UserError, match=r"--state is one of .*, not 'busy'"):
        parse_names(["stable,busy"], STATES, "--state")


# -- with brokers


Answer = Callable[[int, Message], Message | None]


class Coordinators(FakeCluster):
    """Topic a with two partitions of ten records; group g, which broker 2 coordinates once it is found."""

    def __init__(self, script: Answer = lambda broker_id, request: None) -> None:
        self.script = script
        """What a test has brokers answer instead; None: as they do."""
        super().__init__(brokers=2)
        topic = self.create_topic("a", leaders=(1, 2))
        for partition in topic.partitions:
            partition.append([(1_000, None, b"x", ())] * 10)
        self.members = [DescribedGroupMember("m-1", None, "app", "/127.0.0.1", b"", ASSIGNMENT)]
        self.committed = {0: 4, 1: 10}
        self.moving = 0
        """How many more times nobody coordinates: FindCoordinator says so first, then the coordinator itself."""

    def answer(self, broker_id: int, request: Message) -> Message:
        answer = self.script(broker_id, request) or self._group_answer(request)
        if answer is None:
            return super().answer(broker_id, request)
        self.requests.append((broker_id, request))
        return answer

    def _group_answer(self, request: Message) -> Message | None:
        match request:
            case FindCoordinatorRequest(coordinator_keys=[group]):
                code = self._moving_code(ErrorCode.COORDINATOR_NOT_AVAILABLE, even=True)
                return FindCoordinatorResponse(coordinators=[Coordinator(group, 2, "", 0, code)])
            case ConsumerGroupDescribeRequest(group_ids=[group]):
                code = (
                    self._moving_code(ErrorCode.NOT_COORDINATOR, even=False) or ErrorCode.GROUP_ID_NOT_FOUND
                )
                return ConsumerGroupDescribeResponse(groups=[DescribedConsumerGroup(code, group_id=group)])
            case DescribeGroupsRequest(groups=[group]):
                return DescribeGroupsResponse(groups=[self._described(group)])
            case OffsetFetchRequest():
                partitions = [OffsetFetchResponsePartitions(*one, 0, "") for one in self.committed.items()]
                topics = [OffsetFetchResponseTopics("a", partitions=partitions)] if partitions else []
                return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics)])
        return None

    def _moving_code(self, code: ErrorCode, *, even: bool) -> ErrorCode:
        if self.moving and (self.moving % 2 == 0) == even:
            self.moving -= 1
            return code
        return ErrorCode.NONE

    def _described(self, group: str) -> DescribedGroup:
        if group != "g":
            return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.", group, "Dead")
        state = "Stable" if self.members else "Empty"
        protocol = "range" if self.members else ""
        return DescribedGroup(0, None, group, state, "consumer", protocol, self.members)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "RETRY_WAIT_S", 0.01)


def asked(cluster: FakeCluster, *arguments: str) -> int:
    return run(["groups", *arguments, "--bootstrap-server", cluster.bootstrap])


@pytest.mark.parametrize("moving", [0, 1, 6])
def test_a_group_is_described_by_its_coordinator_also_after_it_has_moved(
    moving: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Coordinators() as cluster:
        cluster.moving = moving
        assert asked(cluster, "describe", "g", "--json") == EXIT_DONE
        told = json.loads(capsys.readouterr().out)
    assert {key: told[key] for key in ("group", "type", "state", "coordinator", "assignor")} == {
        "group": "g",
        "type": "classic",
        "state": "Stable",
        "coordinator": 2,
        "assignor": "range",
    }
    assert told["members"] == [
        {
            "member_id": "m-1",
            "instance_id": None,
            "client_id": "app",
            "host": "/127.0.0.1",
            "partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 1}],
        }
    ]
    assert [(row["partition"], row["current"], row["log_end"], row["lag"]) for row in told["offsets"]] == [
        (0, 4, 10, 6),
        (1, 10, 10, 0),
    ]
    assert told["offsets"][1]["lag_s"] is None


def test_no_coordinator_within_the_time_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coordinators, "COORDINATOR_TIMEOUT_S", 0.05)
    with Coordinators() as cluster:
        cluster.moving = 10_000
        assert asked(cluster, "describe", "g") == EXIT_UNDECIDED
    assert "no coordinator answers: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("describe", "none"),
        ("describe", "none", "--json"),
        ("reset-offsets", "none", "--all-topics", "--to-latest", "--execute"),
        ("delete-offsets", "none", "--topic", "a"),
        ("remove-member", "none", "--all"),
    ],
)
def test_an_unknown_group_fails_in_one_sentence(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with Coordinators() as cluster:
        assert asked(cluster, *command) == EXIT_FAILED
        changes = (OffsetCommitRequest, OffsetDeleteRequest, LeaveGroupRequest)
        assert not any(cluster.asked(kind) for kind in changes)
    told = capsys.readouterr()
    assert told.out == ""
    assert "there is no group none" in told.err


def test_groups_of_all_brokers_and_those_of_one_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    def script(broker_id: int, request: Message) -> Message | None:
        if not isinstance(request, ListGroupsRequest):
            return None
        assert (request.states_filter, request.types_filter) == (["Stable"], [])
        return ListGroupsResponse(groups=[ListedGroup(f"of-{broker_id}", "consumer", "Stable", "Classic")])

    with Coordinators(script) as cluster:
        assert asked(cluster, "list", "--state", "stable", "--json") == EXIT_DONE
        assert json.loads(capsys.readouterr().out) == {
            "groups": [
                {"group": f"of-{broker_id}", "type": "classic", "state": "Stable", "protocol": "consumer"}
                for broker_id in (1, 2)
            ]
        }
        cluster.script = lambda broker_id, request: (
            ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            if isinstance(request, ListGroupsRequest) and broker_id == 2
            else script(broker_id, request)
        )
        assert asked(cluster, "list", "--state", "stable") == EXIT_FAILED
        told = capsys.readouterr()
        assert told.out.split() == [
            "group",
            "type",
            "state",
            "protocol",
            "of-1",
            "classic",
            "Stable",
            "consumer",
        ]
        assert "the groups of broker 2 are not known" in told.err


def test_a_reset_needs_a_group_without_members(capsys: pytest.CaptureFixture[str]) -> None:
    with Coordinators() as cluster:
        assert (
            asked(cluster, "reset-offsets", "g", "--topic", "a", "--to-earliest", "--execute") == EXIT_FAILED
        )
        assert not cluster.asked(OffsetCommitRequest)
    assert "group g has 1 member and is Stable" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (ErrorCode.NONE, EXIT_DONE),
        (ErrorCode.UNKNOWN_MEMBER_ID, EXIT_FAILED),
        (ErrorCode.REQUEST_TIMED_OUT, EXIT_UNDECIDED),
    ],
)
def test_a_reset_is_shown_first_and_then_made(
    code: ErrorCode, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(broker_id: int, request: Message) -> Message | None:
        if not isinstance(request, OffsetCommitRequest):
            return None
        partitions = [
            OffsetCommitResponsePartition(one.partition_index, code) for one in request.topics[0].partitions
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("a", partitions=partitions)])

    command = ("reset-offsets", "g", "--topic", "a:0", "--shift-by", "-2", "--json")
    changes = [{"topic": "a", "partition": 0, "from": 4, "to": 2}]
    with Coordinators(script) as cluster:
        cluster.members = []
        assert asked(cluster, *command) == EXIT_DONE
        assert json.loads(capsys.readouterr().out) == {"group": "g", "changes": changes, "executed": False}
        assert not cluster.asked(OffsetCommitRequest)
        assert asked(cluster, *command, "--execute") == exit_code
        told = capsys.readouterr()
        assert json.loads(told.out) == {"group": "g", "changes": changes, "executed": code is ErrorCode.NONE}
        assert (code.name in told.err) == (code is not ErrorCode.NONE)
        (commit,) = cluster.asked(OffsetCommitRequest)
        assert (commit.member_id, commit.generation_id_or_member_epoch) == ("", -1)
        assert [(p.partition_index, p.committed_offset) for p in commit.topics[0].partitions] == [(0, 2)]


def test_what_a_reset_cannot_find(capsys: pytest.CaptureFixture[str]) -> None:
    with Coordinators() as cluster:
        cluster.members = []
        for topic, sentence in (
            ("gone", "topic gone does not exist"),
            ("a:7", "partition 7 of topic a does not exist"),
        ):
            assert asked(cluster, "reset-offsets", "g", "--topic", topic, "--to-latest") == EXIT_FAILED
            assert sentence in capsys.readouterr().err
        cluster.stop(1)
        assert asked(cluster, "reset-offsets", "g", "--topic", "a", "--to-latest") == EXIT_UNDECIDED
        assert "partition 0 of topic a cannot be looked up" in capsys.readouterr().err


def test_deletions_tell_of_each_group(capsys: pytest.CaptureFixture[str]) -> None:
    codes = {"g": ErrorCode.NONE, "busy": ErrorCode.NON_EMPTY_GROUP}

    def script(broker_id: int, request: Message) -> Message | None:
        if not isinstance(request, DeleteGroupsRequest):
            return None
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(name, codes[name]) for name in request.groups_names]
        )

    with Coordinators(script) as cluster:
        assert asked(cluster, "delete", "g", "busy", "g", "--json") == EXIT_FAILED
        told = capsys.readouterr()
        assert json.loads(told.out)["groups"] == [
            {"group": "g"},
            {"group": "busy", "error": "NON_EMPTY_GROUP", "message": "The group still has members."},
        ]
        assert "group busy: The group still has members." in told.err
        assert asked(cluster, "delete", "g") == EXIT_DONE


def test_offsets_are_deleted_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    def script(broker_id: int, request: Message) -> Message | None:
        if not isinstance(request, OffsetDeleteRequest):
            return None
        numbers = [one.partition_index for one in request.topics[0].partitions]
        codes = {0: ErrorCode.NONE, 1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        partitions = [OffsetDeleteResponsePartition(number, codes[number]) for number in numbers]
        return OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic("a", partitions)])

    with Coordinators(script) as cluster:
        assert asked(cluster, "delete-offsets", "g", "--topic", "a:0", "--json") == EXIT_DONE
        assert json.loads(capsys.readouterr().out) == {
            "group": "g",
            "partitions": [{"topic": "a", "partition": 0}],
        }
        assert asked(cluster, "delete-offsets", "g", "--topic", "a") == EXIT_FAILED
        assert "a-1: The group is subscribed to the topic" in capsys.readouterr().err
        for topic, sentence in (
            ("b", "no offsets of topic b"),
            ("a:2", "no offset of partition 2 of topic a"),
        ):
            assert asked(cluster, "delete-offsets", "g", "--topic", topic) == EXIT_FAILED
            assert sentence in capsys.readouterr().err
        assert asked(cluster, "delete-offsets", "g") == EXIT_USAGE


def test_members_are_removed_by_id_by_instance_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    def script(broker_id: int, request: Message) -> Message | None:
        if not isinstance(request, LeaveGroupRequest):
            return None
        members = [
            MemberResponse(
                one.member_id,
                one.group_instance_id,
                ErrorCode.UNKNOWN_MEMBER_ID if one.member_id == "m-9" else ErrorCode.NONE,
            )
            for one in request.members
        ]
        return LeaveGroupResponse(members=members)

    def named() -> list[tuple[str, str | None]]:
        return [
            (one.member_id, one.group_instance_id) for one in cluster.asked(LeaveGroupRequest)[-1].members
        ]

    with Coordinators(script) as cluster:
        cluster.members += [DescribedGroupMember("m-2", "static", "app", "/127.0.0.1", b"", b"")]
        assert asked(cluster, "remove-member", "g", "--all", "--json") == EXIT_DONE
        assert named() == [("m-1", None), ("", "static")]
        assert json.loads(capsys.readouterr().out) == {
            "group": "g",
            "members": [
                {"member_id": "m-1", "instance_id": None},
                {"member_id": None, "instance_id": "static"},
            ],
        }
        assert asked(cluster, "remove-member", "g", "--member", "m-9", "--instance", "static") == EXIT_FAILED
        assert named() == [("m-9", None), ("", "static")]
        assert "member m-9: The coordinator does not know this member." in capsys.readouterr().err
        assert asked(cluster, "remove-member", "g") == EXIT_USAGE
        assert asked(cluster, "remove-member", "g", "--all", "--member", "m-1") == EXIT_USAGE
