"""`kraft topics create --if-not-exists`, `list PATTERN`, `offsets`, and `delete-records NAME --before`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kraft.cli.app import run
from kraft.cli.topics.delete_records import parse_target
from kraft.cli.topics.offsets import parse_time
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kraft.protocol.schemas.offsets import ListOffsetsRequest
from kraft.protocol.schemas.topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from tests.support.fake_broker import FakeCluster

TIME_MS = 1_700_000_000_000


class Topics(FakeCluster):
    """Creates no topic that is there, and deletes all records that it is asked to."""

    def answer(self, broker_id: int, request: Message) -> Message:
        if isinstance(request, CreateTopicsRequest):
            (wanted,) = request.topics
            is_there = wanted.name in self.topics
            code = ErrorCode.TOPIC_ALREADY_EXISTS if is_there else ErrorCode.NONE
            result = CreatableTopicResult(
                name=wanted.name, error_code=code, num_partitions=wanted.num_partitions, replication_factor=1
            )
            return CreateTopicsResponse(topics=[result])
        if isinstance(request, DeleteRecordsRequest):
            return DeleteRecordsResponse(
                topics=[
                    DeleteRecordsTopicResult(
                        topic.name,
                        [
                            DeleteRecordsPartitionResult(one.partition_index, one.offset)
                            for one in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        return super().answer(broker_id, request)


class Ran(NamedTuple):
    exit_code: int
    output: str
    errors: str

    @property
    def document(self) -> Any:
        return json.loads(self.output)


Kraft = Callable[..., Ran]


@pytest.fixture
def cluster() -> Iterator[Topics]:
    with Topics(2) as made:
        made.create_topic("orders", leaders=(1, 2, 1))
        made.create_topic("orders.eu")
        made.create_topic("__internal", is_internal=True)
        yield made


@pytest.fixture
def topics(cluster: Topics, capsys: pytest.CaptureFixture[str]) -> Kraft:
    def call(*arguments: str) -> Ran:
        exit_code = run(["topics", *arguments, "--bootstrap-server", cluster.bootstrap])
        shown = capsys.readouterr()
        return Ran(exit_code, shown.out, shown.err)

    return call


def test_a_topic_that_is_there_stays_as_it_is(topics: Kraft) -> None:
    assert topics("create", "orders").exit_code == EXIT_FAILED
    wanted = ("create", "orders", "--partitions", "7", "--if-not-exists")
    ran = topics(*wanted)
    assert (ran.exit_code, ran.output) == (EXIT_DONE, "")
    assert "exists already (partitions: 3, replication factor: 1)" in ran.errors
    document = topics(*wanted, "--json").document
    assert document.keys() == {"name", "topic_id", "partitions", "replication_factor", "created"}
    assert (document["partitions"], document["created"]) == (3, False)
    made = topics("create", "new", "--partitions", "7", "--if-not-exists", "--json").document
    assert (made["partitions"], made["created"]) == (7, True)


def test_topics_are_listed_by_an_expression(topics: Kraft) -> None:
    assert topics("list").output.split() == ["orders", "orders.eu"]
    assert topics("list", "orders.+").output.split() == ["orders.eu"]
    assert topics("list", "orders").output.split() == ["orders"]
    assert topics("list", ".*nal").output == "", "internal ones only with --json"
    assert [one["name"] for one in topics("list", ".*nal", "--json").document["topics"]] == ["__internal"]
    for nothing in ("nosuch", "nosuch.*", "späti"):
        ran = topics("list", nothing, "--json")
        assert (ran.exit_code, ran.document) == (EXIT_DONE, {"topics": []})
    assert topics("list", "(").exit_code == EXIT_USAGE


# offsets


def test_offsets_are_those_of_each_leader(topics: Kraft, cluster: Topics) -> None:
    for number, partition in enumerate(cluster.topics["orders"].partitions):
        for _ in range(number):
            partition.append([(TIME_MS, None, b"v", ())])
    cluster.topics["orders"].partitions[2].log_start_offset = 1
    latest = topics("offsets", "orders", "--json").document
    assert latest == {
        "name": "orders",
        "offsets": [{"partition": number, "offset": number, "timestamp": -1} for number in range(3)],
    }
    asked = [broker for broker, request in cluster.requests if isinstance(request, ListOffsetsRequest)]
    assert sorted(asked) == [1, 2]
    earliest = topics("offsets", "orders", "--time", "earliest", "--json").document["offsets"]
    assert [row["offset"] for row in earliest] == [0, 0, 1]
    at = topics("offsets", "orders", "--time", "2023-11-14T22:13:20Z")
    assert at.output.splitlines() == [
        "topic   partition  offset  timestamp",
        "orders  0          -       -",
        "orders  1          0       2023-11-14T22:13:20.000Z",
        "orders  2          0       2023-11-14T22:13:20.000Z",
    ]


def test_a_partition_that_nobody_tells_of_is_undecided(topics: Kraft, cluster: Topics) -> None:
    cluster.topics["orders"].partitions[0].leader = -1
    cluster.stop(2)
    ran = topics("offsets", "orders", "--json")
    assert ran.exit_code == EXIT_UNDECIDED
    assert [row.get("error") for row in ran.document["offsets"]] == [
        "LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE", None,
    ]  # fmt: skip
    table = topics("offsets", "orders")
    assert table.exit_code == EXIT_UNDECIDED
    assert table.output.splitlines()[1:] == ["orders  2          0       -"]
    assert "orders-0: " in table.errors
    assert "orders-1: " in table.errors


def test_a_refusal_is_a_failure(topics: Kraft, cluster: Topics) -> None:
    cluster.hook = lambda _, request: (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED if isinstance(request, ListOffsetsRequest) else None
    )
    ran = topics("offsets", "orders")
    assert (ran.exit_code, ran.output) == (EXIT_FAILED, "")
    assert len(ran.errors.splitlines()) == 1, "told once"
    assert topics("offsets", "nosuch").exit_code == EXIT_FAILED


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("latest", -1),
        ("earliest", -2),
        ("max-timestamp", -3),
        ("1", 1),
        (str(2**63 - 1), 2**63 - 1),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("2026-11-26T11:00:00Z", 1_795_690_800_000),
    ],
)
def test_times(text: str, time: int) -> None:
    assert parse_time(text) == time


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", str(2**63), "9" * 5000, "1969-12-31", "2026-13-01", "1e3"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(
        UserError, match="--time, where it is none of earliest, latest, max-timestamp,"
    ) as error:
        parse_time(text)
    assert error.value.exit_code == EXIT_USAGE


# delete-records


@pytest.mark.parametrize(
    ("target", "before", "deleted"),
    [
        ("orders", "5", [(0, 5), (1, 5), (2, 5)]),
        ("orders:1", "5", [(1, 5)]),
        ("orders:2, 0,2", "0", [(0, 0), (2, 0)]),
        ("orders:0", "high-watermark", [(0, -1)]),
        ("orders:0", "-1", [(0, -1)]),
    ],
)
def test_records_are_deleted_without_a_file(
    target: str, before: str, deleted: list[tuple[int, int]], topics: Kraft
) -> None:
    ran = topics("delete-records", target, "--before", before, "--json")
    assert ran.exit_code == EXIT_DONE, ran.errors
    assert [(row["partition"], row["low_watermark"]) for row in ran.document["partitions"]] == deleted


def test_partitions_that_are_not_there_are_told_once(topics: Kraft) -> None:
    ran = topics("delete-records", "orders:0,7,8", "--before", "5")
    assert (ran.exit_code, ran.output) == (EXIT_FAILED, "orders-0  low watermark 5\n")
    assert ran.errors.startswith("orders-7, orders-8: ")
    assert topics("delete-records", "nosuch", "--before", "5").exit_code == EXIT_FAILED


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("orders",),
        ("--before", "5"),
        ("orders", "--before", "5", "--offset-json-file", "x.json"),
        ("orders", "--before", "soon"),
        ("orders", "--before", "-2"),
        ("orders", "--before", str(2**63)),
        ("orders:", "--before", "5"),
        ("orders:x", "--before", "5"),
        ("orders:0,", "--before", "5"),
        (f"orders:{2**31}", "--before", "5"),
    ],
)
def test_what_does_not_say_what_to_delete(arguments: tuple[str, ...], topics: Kraft, cluster: Topics) -> None:
    assert topics("delete-records", *arguments).exit_code == EXIT_USAGE
    assert cluster.requests == []


def test_a_target() -> None:
    assert parse_target("t") == ("t", None)
    assert parse_target("t:3,1") == ("t", [1, 3])
