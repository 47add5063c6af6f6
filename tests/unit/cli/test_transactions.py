"""`kraft transactions`: what it makes of coordinators' and leaders' answers, and what it asks of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kraft.cli.app import run
from kraft.cli.shared import coordinators
from kraft.cli.transactions import commands
from kraft.cli.transactions.hanging import Hanging, Open, hanging, open_for, still_open
from kraft.cli.transactions.transaction_client import ProducersOf, Transaction, batches
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.find_coordinator import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraft.protocol.schemas.producers import (
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducerState,
)
from kraft.protocol.schemas.transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE
from partitions.topic_partition import TopicPartition
from tests.support.fake_broker import FakeCluster

NOW_MS = 1_000_000
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
OPEN = ProducerState(7, 3, 9, NOW_MS - 1_000, -1, 40)
IDLE = ProducerState(8, 0, 4, NOW_MS - 1_000, 2, -1)


def held(*partitions: TopicPartition) -> Transaction:
    return Transaction("t1", 7, 3, "Ongoing", 1, list(partitions), NOW_MS - 2_000, 60_000)


# -- pure parts


def test_what_is_open_for_longer() -> None:
    told = ProducersOf({A1: [OPEN], A0: [IDLE, OPEN]}, {})
    assert open_for(told, NOW_MS, 999) == [Open(A0, OPEN), Open(A1, OPEN)], (
        "an idle producer has nothing open"
    )
    assert open_for(told, NOW_MS, 1_000) == [], "it is to be older, not as old"


def test_what_a_coordinator_still_ends_does_not_hang() -> None:
    candidates = [Open(A0, OPEN), Open(A1, OPEN)]
    assert hanging(candidates, {7: [held(A0, A1)]}) == []
    elsewhere = held(A1)
    assert hanging(candidates, {7: [elsewhere]}) == [Hanging(Open(A0, OPEN), elsewhere)]
    assert hanging(candidates, {8: [held(A0, A1)]}) == [Hanging(one, None) for one in candidates]


def test_what_ended_between_two_looks_does_not_hang() -> None:
    found = [Hanging(Open(A0, OPEN), None), Hanging(Open(A1, OPEN), None)]
    later = ProducerState(7, 4, 0, NOW_MS, -1, 50)
    assert still_open(found, ProducersOf({A0: [later], A1: [OPEN]}, {})) == found[1:]


def test_batches() -> None:
    assert list(batches([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
    assert list(batches([], 2)) == []


# -- with brokers

Answer = Callable[[int, Message], Message | None]


class Coordinators(FakeCluster):
    """Topic a, whose partitions brokers 1 and 2 lead; t1 on broker 1 has an open transaction in a-0, t2 on broker 2 is
    at rest. Producer 7 is t1's, and has an open transaction in the logs of `open_in`."""

    def __init__(self) -> None:
        super().__init__(brokers=2)
        self.create_topic("a", leaders=(1, 2))
        self.script: Answer = lambda broker_id, request: None
        self.open_in = {A0}
        self.last_ms = NOW_MS - 60_000
        self.marker_codes: list[ErrorCode] = []

    def answer(self, broker_id: int, request: Message) -> Message:
        answer = self.script(broker_id, request) or self._answer(broker_id, request)
        if answer is None:
            return super().answer(broker_id, request)
        self.requests.append((broker_id, request))
        return answer

    def _answer(self, broker_id: int, request: Message) -> Message | None:
        match request:
            case FindCoordinatorRequest(coordinator_keys=[key], key_type=CoordinatorType.TRANSACTION):
                return FindCoordinatorResponse(
                    coordinators=[Coordinator(key, 1 if key == "t1" else 2, "", 0)]
                )
            case ListTransactionsRequest():
                found = {1: ListedTransaction("t1", 7, "Ongoing"), 2: ListedTransaction("t2", 8, "Empty")}
                one = found[broker_id]
                wanted = not request.producer_id_filters or one.producer_id in request.producer_id_filters
                return ListTransactionsResponse(transaction_states=[one] if wanted else [])
            case DescribeTransactionsRequest(transactional_ids=ids):
                return DescribeTransactionsResponse(transaction_states=[self._described(one) for one in ids])
            case DescribeProducersRequest(topics=topics):
                return DescribeProducersResponse(
                    topics=[
                        DescribeProducersTopicResult(
                            topic.name, [self._producers(topic.name, n) for n in topic.partition_indexes]
                        )
                        for topic in topics
                    ]
                )
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=7, producer_epoch=4)
            case WriteTxnMarkersRequest(markers=[marker]):
                code = self.marker_codes.pop(0) if self.marker_codes else ErrorCode.NONE
                (topic,) = marker.topics
                results = [WritableTxnMarkerPartitionResult(n, code) for n in topic.partition_indexes]
                return WriteTxnMarkersResponse(
                    markers=[
                        WritableTxnMarkerResult(
                            marker.producer_id, [WritableTxnMarkerTopicResult(topic.name, results)]
                        )
                    ]
                )
        return None

    def _described(self, transactional_id: str) -> DescribedTransaction:
        if transactional_id == "t1":
            topics = [DescribedTransactionTopic("a", [0])]
            return DescribedTransaction(0, "t1", "Ongoing", 60_000, NOW_MS - 5_000, 7, 3, topics)
        if transactional_id == "t2":
            return DescribedTransaction(0, "t2", "CompleteAbort", 60_000, NOW_MS - 9_000, 8, 0, [])
        return DescribedTransaction(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id, "", 0, -1, -1, -1, []
        )

    def _producers(self, topic: str, number: int) -> DescribeProducersPartition:
        is_open = TopicPartition(topic, number) in self.open_in
        active = [ProducerState(7, 3, 9, self.last_ms, -1, 40)] if is_open else []
        return DescribeProducersPartition(number, 0, None, active)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(coordinators, "RETRY_WAIT_S", 0.01)
    monkeypatch.setattr(commands, "_now_ms", lambda: NOW_MS)
    with Coordinators() as made:
        yield made


class Told:
    """One command, run to its end."""

    def __init__(self, capsys: pytest.CaptureFixture[str], cluster: FakeCluster, *arguments: str) -> None:
        self.exit_code = run(["transactions", *arguments, "--bootstrap-server", cluster.bootstrap])
        self.out, err = capsys.readouterr()
        self.err = " ".join(err.split())

    @property
    def transactions(self) -> Any:
        return json.loads(self.out)["transactions"]


T1 = {
    "transactional_id": "t1",
    "producer_id": 7,
    "epoch": 3,
    "state": "Ongoing",
    "partitions": [{"topic": "a", "partition": 0}],
    "age_ms": 5_000,
    "coordinator": 1,
    "timeout_ms": 60_000,
}


def test_list(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, cluster, "list", "--json")
    assert told.exit_code == EXIT_DONE
    first, second = told.transactions
    assert first == T1
    assert (second["transactional_id"], second["age_ms"], second["partitions"]) == ("t2", None, [])
    lines = [line.split() for line in Told(capsys, cluster, "list").out.splitlines()]
    assert lines == [
        ["id", "producer", "epoch", "state", "coordinator", "partitions", "age-s"],
        ["t1", "7", "3", "Ongoing", "1", "1", "5.0"],
        ["t2", "8", "0", "CompleteAbort", "2", "-", "-"],
    ]


def test_filters_are_the_coordinators(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    filters = ("--state", "ongoing,empty", "--producer-id", "7", "--duration", "PT2S", "--pattern", "t.*")
    assert Told(capsys, cluster, "list", *filters).exit_code == EXIT_DONE
    asked = cluster.asked(ListTransactionsRequest)
    assert len(asked) == 2, "each broker"
    for one in asked:
        assert (one.state_filters, one.producer_id_filters) == (["Ongoing", "Empty"], [7])
        assert (one.duration_filter, one.transactional_id_pattern) == (2_000, "t.*")


def test_a_broker_that_is_away_leaves_the_list_undecided(
    cluster: Coordinators, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "COORDINATOR_TIMEOUT_S", 0.05)
    cluster.script = lambda broker_id, request: (
        ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if broker_id == 2 and isinstance(request, ListTransactionsRequest)
        else None
    )
    told = Told(capsys, cluster, "list", "--json")
    assert told.exit_code == EXIT_UNDECIDED
    assert [one["transactional_id"] for one in told.transactions] == ["t1"]
    assert "COORDINATOR_LOAD_IN_PROGRESS" in told.err


def test_a_pattern_that_is_none_is_wrong_usage(
    cluster: Coordinators, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.script = lambda broker_id, request: (
        ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        if isinstance(request, ListTransactionsRequest)
        else None
    )
    told = Told(capsys, cluster, "list", "--pattern", "(")
    assert (told.exit_code, told.out) == (EXIT_USAGE, "")
    assert "--pattern is an expression of RE2, not '('" in told.err


def test_describe(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    assert Told(capsys, cluster, "describe", "t1", "--json").transactions == [T1]
    assert Told(capsys, cluster, "describe", "t1").out.splitlines()[-1].split() == ["a", "0"]
    assert [broker for broker, one in cluster.requests if isinstance(one, DescribeTransactionsRequest)] == [
        1,
        1,
    ]
    told = Told(capsys, cluster, "describe", "nobody")
    assert (told.exit_code, told.out) == (EXIT_FAILED, "")
    assert "there is no transactional id nobody" in told.err


def test_describe_producers(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, cluster, "describe-producers", "a", "--json")
    assert told.exit_code == EXIT_DONE
    first, second = json.loads(told.out)["partitions"]
    assert (first["topic"], first["partition"], second["producers"]) == ("a", 0, [])
    assert first["producers"] == [
        {
            "producer_id": 7,
            "epoch": 3,
            "coordinator_epoch": -1,
            "last_sequence": 9,
            "last_timestamp": cluster.last_ms,
            "transaction_start_offset": 40,
        }
    ]
    row = Told(capsys, cluster, "describe-producers", "a:0").out.splitlines()[-1].split()
    assert row == ["a", "0", "7", "3", "-", "9", "60.0", "40"]
    for what, sentence in (("a:5", "topic a has no partition 5"), ("b", "topic b: ")):
        told = Told(capsys, cluster, "describe-producers", what)
        assert told.exit_code == EXIT_FAILED
        assert sentence in told.err
    told = Told(capsys, cluster, "describe-producers", "a", "--broker-id", "1", "--json")
    assert len(json.loads(told.out)["partitions"]) == 1, "broker 1 has a replica of one"


def test_find_hanging(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, cluster, "find-hanging", "--max-transaction-timeout", "0", "--json")
    assert (told.exit_code, told.transactions) == (EXIT_DONE, []), "its coordinator has a-0 in the open one"
    cluster.open_in = {A0, A1}
    told = Told(capsys, cluster, "find-hanging", "--max-transaction-timeout", "0", "--json")
    assert told.transactions == [
        {
            "transactional_id": "t1",
            "producer_id": 7,
            "epoch": 3,
            "state": "Ongoing",
            "partitions": [{"topic": "a", "partition": 1}],
            "age_ms": 60_000,
            "start_offset": 40,
            "coordinator_epoch": -1,
        }
    ]
    told = Told(capsys, cluster, "find-hanging")
    assert (told.exit_code, told.out, told.err) == (EXIT_DONE, "", "no transaction hangs"), "15 minutes"
    cluster.last_ms = NOW_MS - 15 * 60_000 - 1
    lines = Told(capsys, cluster, "find-hanging", "--topic", "a", "--partition", "1").out.splitlines()
    assert lines[1].split() == ["a", "1", "40", "7", "3", "t1", "900.0"]
    assert Told(capsys, cluster, "find-hanging", "--partition", "1").exit_code == EXIT_USAGE


def test_nothing_hangs_while_a_coordinator_does_not_tell(
    cluster: Coordinators, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "COORDINATOR_TIMEOUT_S", 0.05)
    cluster.open_in = {A1}
    cluster.script = lambda broker_id, request: (
        ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(request, ListTransactionsRequest)
        else None
    )
    told = Told(capsys, cluster, "find-hanging", "--max-transaction-timeout", "0")
    assert (told.exit_code, told.out) == (EXIT_UNDECIDED, "")
    assert "it cannot be told which transactions hang" in told.err


def test_a_partition_that_cannot_be_asked_is_named(
    cluster: Coordinators, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.topics["a"].partitions[1].leader = -1
    cluster.open_in = set()
    told = Told(capsys, cluster, "find-hanging", "--json")
    assert (told.exit_code, told.transactions) == (EXIT_FAILED, [])
    assert "a-1: " in told.err
    assert "LEADER_NOT_AVAILABLE" in told.err


def test_abort_by_its_start(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.marker_codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    told = Told(
        capsys, cluster, "abort", "--topic", "a", "--partition", "0", "--start-offset", "40", "--json"
    )
    assert told.exit_code == EXIT_DONE
    assert told.transactions[0]["producer_id"] == 7
    asked = [(broker, one) for broker, one in cluster.requests if isinstance(one, WriteTxnMarkersRequest)]
    assert [broker for broker, _ in asked] == [1, 1], "the leader, asked again"
    marker = asked[1][1].markers[0]
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, False)
    assert (marker.coordinator_epoch, marker.transaction_version) == (0, 0), "as Kafka's tool"


def test_abort_by_its_producer(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("abort", "--topic", "a", "--partition", "1")
    which = ("--producer-id", "7", "--producer-epoch", "0", "--coordinator-epoch", "5")
    assert Told(capsys, cluster, *where, *which).exit_code == EXIT_DONE
    (asked,) = cluster.asked(WriteTxnMarkersRequest)
    assert (asked.markers[0].producer_epoch, asked.markers[0].coordinator_epoch) == (0, 5)
    for wrong in ((), which[:4], ("--start-offset", "1", *which), ("--start-offset", "0", *which[2:4])):
        assert Told(capsys, cluster, *where, *wrong).exit_code == EXIT_USAGE
    assert len(cluster.asked(WriteTxnMarkersRequest)) == 1


def test_abort_where_nothing_starts_or_it_is_refused(
    cluster: Coordinators, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("abort", "--topic", "a", "--partition")
    told = Told(capsys, cluster, *where, "0", "--start-offset", "41")
    assert told.exit_code == EXIT_FAILED
    assert "no open transaction starts at offset 41 of a-0; starts: 40" in told.err
    told = Told(capsys, cluster, *where, "9", "--start-offset", "41")
    assert (told.exit_code, "topic a has no partition 9" in told.err) == (EXIT_FAILED, True)
    for code, exit_code in (
        (ErrorCode.INVALID_PRODUCER_EPOCH, EXIT_FAILED),
        (ErrorCode.REQUEST_TIMED_OUT, EXIT_UNDECIDED),
    ):
        cluster.marker_codes = [code]
        told = Told(capsys, cluster, *where, "0", "--start-offset", "40")
        assert (told.exit_code, code.name in told.err) == (exit_code, True)


def test_fence(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    busy = iter([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR])

    def script(broker_id: int, request: Message) -> Message | None:
        if isinstance(request, InitProducerIdRequest) and (code := next(busy, None)):
            return InitProducerIdResponse(error_code=code)
        return None

    cluster.script = script
    told = Told(capsys, cluster, "fence", "t1", "--json")
    assert told.exit_code == EXIT_DONE
    assert json.loads(told.out) == {
        "transactional_ids": [{"transactional_id": "t1", "producer_id": 7, "epoch": 4}]
    }
    asked = cluster.asked(InitProducerIdRequest)
    assert len(asked) == 3
    assert {(one.transactional_id, one.producer_id, one.producer_epoch) for one in asked} == {("t1", -1, -1)}


def test_fencing_makes_no_id(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, cluster, "fence", "t1", "nobody")
    assert told.exit_code == EXIT_FAILED
    assert "there is no transactional id nobody" in told.err
    assert cluster.asked(InitProducerIdRequest) == []


def test_a_fence_that_is_refused(cluster: Coordinators, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.script = lambda broker_id, request: (
        InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if isinstance(request, InitProducerIdRequest)
        else None
    )
    told = Told(capsys, cluster, "fence", "t1")
    assert told.exit_code == EXIT_FAILED
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in told.err
