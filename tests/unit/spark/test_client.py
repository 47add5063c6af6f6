"""The blocking client: finds leaders, follows them, and gives up with a reason."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest

from kraft.protocol import ApiKey, ErrorCode, Message
from kraft.protocol.schemas.metadata import MetadataRequest
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kraft.spark.client import ClusterClient
from kraft.spark.connection import BrokerAddress
from kraft.spark.errors import (
    ClusterUnavailableError,
    RequestFailedError,
    UnknownTopicError,
    UnsupportedBrokerError,
)
from kraft.spark.options import parse_bootstrap
from kraft.spark.retry import RetryPolicy
from partitions.topic_partition import TopicPartition
from tests.support.fake_broker import FakeCluster, FakePartition, FakeTopic
from tests.unit.spark.conftest import Connect, Waiting

ZERO = TopicPartition("orders", 0)


def test_offsets_come_from_each_leader_in_one_request(cluster: FakeCluster, connect: Connect) -> None:
    topic = cluster.create_topic("orders", leaders=(1, 2, 1))
    topic.partitions[0].append([(50, None, b"a", ()), (60, None, b"b", ())])
    topic.partitions[0].append([(90, None, b"c", ())])
    topic.partitions[1].log_start_offset = 7
    all_three = [TopicPartition("orders", index) for index in range(3)]
    client = connect()
    client.topics(["orders"])
    latest = client.list_offsets(dict.fromkeys(all_three, LATEST_TIMESTAMP))
    assert [latest[partition].offset for partition in all_three] == [3, 7, 0]
    assert len(cluster.asked(ListOffsetsRequest)) == 2
    assert client.list_offsets({all_three[1]: EARLIEST_TIMESTAMP})[all_three[1]].offset == 7
    found = client.list_offsets({ZERO: 70})[ZERO]
    assert (found.offset, found.timestamp) == (2, 90)
    assert client.list_offsets({ZERO: 91})[ZERO].offset == -1


def test_a_leader_change_is_followed(cluster: FakeCluster, connect: Connect) -> None:
    partition = cluster.create_topic("orders", leaders=(1,)).partitions[0]
    client = connect()
    client.topics(["orders"])
    partition.move(2)
    answer = client.list_offsets({ZERO: LATEST_TIMESTAMP})[ZERO]
    assert answer.leader_epoch == 1
    epochs = [
        request.topics[0].partitions[0].current_leader_epoch for request in cluster.asked(ListOffsetsRequest)
    ]
    assert epochs == [0, 1]


def test_a_new_partition_of_which_not_every_broker_has_heard(
    cluster: FakeCluster, connect: Connect, waiting: Waiting
) -> None:
    cluster.create_topic("orders")
    client = connect()
    client.topics(["orders"])
    one = TopicPartition("orders", 1)
    waiting.events.append((2.0, lambda: cluster.topics["orders"].partitions.append(FakePartition(leader=2))))
    assert client.list_offsets({one: LATEST_TIMESTAMP})[one].offset == 0
    with pytest.raises(UnknownTopicError, match="Topic orders has no partition 7"):
        client.list_offsets({TopicPartition("orders", 7): LATEST_TIMESTAMP})
    assert waiting.now < 10


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_errors_of_an_election_are_ridden_out(
    cluster: FakeCluster, connect: Connect, code: ErrorCode
) -> None:
    cluster.create_topic("orders")
    failures = iter([code] * 4)

    def hook(_: int, request: Message) -> ErrorCode | None:
        return next(failures, None) if isinstance(request, ListOffsetsRequest) else None

    cluster.hook = hook
    assert connect().list_offsets({ZERO: LATEST_TIMESTAMP})[ZERO].offset == 0
    assert next(failures, None) is None


def test_old_metadata_is_not_believed(cluster: FakeCluster, connect: Connect) -> None:
    """Two brokers that still name the old leader do not lead the client back to it."""
    topic = cluster.create_topic("orders", leaders=(1,))
    client = connect()
    topic.partitions[0].move(2)
    client.topics(["orders"])
    while client.leader(ZERO).epoch != 1:
        client.refresh("orders")
    stale = {"orders": FakeTopic(topic.topic_id, [FakePartition(leader=1)])}
    cluster.metadata_of = {1: stale, 2: stale, 3: stale}
    client.refresh("orders")
    assert client.leader(ZERO) == (2, 1)


def test_a_dead_leader_is_replaced_by_the_next(
    cluster: FakeCluster, connect: Connect, waiting: Waiting
) -> None:
    partition = cluster.create_topic("orders", leaders=(1,)).partitions[0]
    client = connect()
    client.list_offsets({ZERO: LATEST_TIMESTAMP})
    cluster.stop(1)
    waiting.events.append((9.0, lambda: partition.move(3)))
    assert client.list_offsets({ZERO: LATEST_TIMESTAMP})[ZERO].leader_epoch == 1
    assert 9 <= waiting.now < 12


def test_a_restarted_broker_is_connected_to_again(cluster: FakeCluster, connect: Connect) -> None:
    cluster.create_topic("orders", leaders=(1,))
    client = connect()
    client.list_offsets({ZERO: LATEST_TIMESTAMP})
    cluster.stop(1)
    cluster.start(1)
    assert client.list_offsets({ZERO: LATEST_TIMESTAMP})[ZERO].offset == 0


def test_a_partition_without_leader_fails_after_the_budget(
    cluster: FakeCluster, connect: Connect, waiting: Waiting
) -> None:
    cluster.create_topic("orders", leaders=(-1,))
    with pytest.raises(ClusterUnavailableError, match="orders-0 has no leader"):
        connect().list_offsets({ZERO: LATEST_TIMESTAMP})
    assert waiting.now == pytest.approx(60)


def test_no_broker_at_all(cluster: FakeCluster, connect: Connect, waiting: Waiting) -> None:
    client = connect()
    for broker_id in (1, 2, 3):
        cluster.stop(broker_id)
    with pytest.raises(
        ClusterUnavailableError, match=r"No broker answers .*refused.*kafka\.bootstrap\.servers"
    ):
        client.topics(["orders"])
    assert waiting.now == pytest.approx(14)


def test_once_a_broker_has_answered_all_may_be_away_for_longer(
    cluster: FakeCluster, connect: Connect, waiting: Waiting
) -> None:
    cluster.create_topic("orders")
    client = connect()
    client.topics(["orders"])
    for broker_id in (1, 2, 3):
        cluster.stop(broker_id)
    with pytest.raises(ClusterUnavailableError, match="No broker answers"):
        client.topics(["orders"])
    assert waiting.now == pytest.approx(60)


def test_a_silent_server_is_said_to_be_tried_and_then_given_up() -> None:
    """It accepts and never answers; the notice comes while the first attempt still waits."""
    said = threading.Event()
    sentences = []

    def warn(sentence: str) -> None:
        sentences.append(sentence)
        said.set()

    policy = RetryPolicy(first_answer_s=1.0, notice_s=0.01, warn=warn)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = ClusterClient([BrokerAddress("127.0.0.1", port)], client_id="test", policy=policy)
        with pytest.raises(ClusterUnavailableError, match=f"127.0.0.1:{port}: timed out"):
            client.topics(["orders"])
    assert said.wait(10)
    assert sentences == [
        f"Still trying to reach 127.0.0.1:{port} (kafka.bootstrap.servers); giving up after 1 s."
    ]


def test_a_server_that_answers_is_not_said_to_be_tried(cluster: FakeCluster) -> None:
    cluster.create_topic("orders")
    sentences: list[str] = []
    (address,) = parse_bootstrap(cluster.bootstrap.split(",")[0])
    with ClusterClient(
        [address], client_id="test", policy=RetryPolicy(notice_s=0.0, warn=sentences.append)
    ) as client:
        client.topics(["orders"])
        client.topics(["orders"])
    assert len(sentences) <= 1  # the first answer may be later than no time at all


def test_attempts_are_counted_where_the_user_says_so(cluster: FakeCluster, waiting: Waiting) -> None:
    cluster.create_topic("orders", leaders=(-1,))
    policy = replace(waiting.policy(), max_attempts=3, first_backoff_s=2.0, max_backoff_s=2.0)
    with ClusterClient(parse_bootstrap(cluster.bootstrap), client_id="test", policy=policy) as client:
        client.topics(["orders"])
        with pytest.raises(ClusterUnavailableError, match="orders-0 has no leader"):
            client.list_offsets({ZERO: LATEST_TIMESTAMP})
    assert waiting.now == pytest.approx(4)


def test_a_broker_that_throttles_is_left_alone(
    cluster: FakeCluster, connect: Connect, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("orders")
    answer = cluster.answer

    def throttled(broker_id: int, request: Message) -> Message:
        response = answer(broker_id, request)
        if isinstance(response, ListOffsetsResponse):
            response.throttle_time_ms = 2500
        return response

    monkeypatch.setattr(cluster, "answer", throttled)
    client = connect()
    client.list_offsets({ZERO: LATEST_TIMESTAMP})
    assert waiting.now == 0
    client.list_offsets({ZERO: LATEST_TIMESTAMP})
    assert waiting.now == pytest.approx(2.5)


def test_where_an_epoch_ends(cluster: FakeCluster, connect: Connect) -> None:
    partition = cluster.create_topic("orders", leaders=(1,)).partitions[0]
    client = connect()
    assert client.end_of_epoch(ZERO, 3) == (-1, -1)
    partition.append([(0, None, b"a", ())])
    partition.move(2)
    partition.append([(0, None, b"b", ())])
    assert client.end_of_epoch(ZERO, 0) == (0, 1)
    assert client.end_of_epoch(ZERO, 5) == (1, 2)


def test_read_committed_ends_at_the_last_stable_offset(cluster: FakeCluster) -> None:
    partition = cluster.create_topic("orders").partitions[0]
    partition.append([(0, None, b"a", ()), (0, None, b"b", ())])
    partition.last_stable_offset = 1
    for committed, end in ((False, 2), (True, 1)):
        with ClusterClient(
            parse_bootstrap(cluster.bootstrap),
            client_id="test",
            policy=RetryPolicy(),
            read_committed=committed,
        ) as client:
            assert client.list_offsets({ZERO: LATEST_TIMESTAMP})[ZERO].offset == end


def test_an_unknown_topic_fails_sooner(cluster: FakeCluster, connect: Connect, waiting: Waiting) -> None:
    with pytest.raises(UnknownTopicError, match="Topic orders does not exist"):
        connect().topics(["orders"])
    assert waiting.now == pytest.approx(5)
    assert all(not request.allow_auto_topic_creation for request in cluster.asked(MetadataRequest))


def test_a_topic_that_brokers_learn_of_late_is_waited_for(
    cluster: FakeCluster, connect: Connect, waiting: Waiting
) -> None:
    waiting.events.append((3.0, lambda: cluster.create_topic("orders") and None))
    assert list(connect().topics(["orders"])) == ["orders"]


def test_a_refusal_for_good_is_not_repeated(cluster: FakeCluster, connect: Connect) -> None:
    cluster.create_topic("orders")
    client = connect()
    client.topics(["orders"])
    cluster.hook = lambda _, request: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(RequestFailedError, match="TOPIC_AUTHORIZATION_FAILED"):
        client.list_offsets({ZERO: LATEST_TIMESTAMP})
    assert len(cluster.asked(ListOffsetsRequest)) == 1


def test_an_older_broker_is_spoken_to_in_its_versions(cluster: FakeCluster, connect: Connect) -> None:
    cluster.api_versions.update({ApiKey.METADATA: (0, 12), ApiKey.LIST_OFFSETS: (0, 7)})
    cluster.create_topic("orders")
    assert connect().list_offsets({ZERO: LATEST_TIMESTAMP})[ZERO].offset == 0


def test_a_broker_that_is_too_old_is_named(cluster: FakeCluster, connect: Connect) -> None:
    cluster.api_versions[ApiKey.METADATA] = (0, 9)
    with pytest.raises(UnsupportedBrokerError, match=r"METADATA in a version from 12 .* offers 0 to 9"):
        connect().topics(["orders"])


def test_a_port_that_is_not_a_brokers_is_an_error(waiting: Waiting) -> None:
    """An HTTP server's answer is no frame."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = ClusterClient(
            [BrokerAddress("127.0.0.1", server.getsockname()[1])],
            client_id="test",
            policy=RetryPolicy(clock=lambda: waiting.now, sleep=waiting.sleep, budget_s=0.1),
        )
        with client, pytest.raises(ClusterUnavailableError, match="is it a Kafka broker"):
            client.topics(None)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
