"""Requests that are well formed and wrong: Kafka's error code, and nothing appended, moved or created."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kraft.protocol.schemas.producers import InitProducerIdRequest
from kraft.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from tests.support.node_processes import NodeProcesses
from tests.support.raw_client import (
    FETCH_VERSION,
    RawConnection,
    batch,
    end_offset,
    fetch_request,
    fetched,
    forged,
    sealed,
)

pytestmark = pytest.mark.usefixtures("bystander")

BASE_OFFSET, LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, COUNT = 0, 8, 12, 16, 17, 21, 23, 57
"""Where the fields of a record batch are."""
METADATA_VERSION = 12


# -- record batches

GOOD = batch(b"one", b"two", b"three")

BAD_BATCHES: dict[str, tuple[bytes, ErrorCode]] = {
    "one flipped bit": (forged(GOOD, {len(GOOD) - 1: ("B", GOOD[-1] ^ 1)}), ErrorCode.CORRUPT_MESSAGE),
    "another checksum": (forged(GOOD, {CRC: (">I", 12345)}), ErrorCode.CORRUPT_MESSAGE),
    "longer than its bytes": (forged(GOOD, {LENGTH: (">i", len(GOOD))}), ErrorCode.CORRUPT_MESSAGE),
    "a length of 2 GiB": (forged(GOOD, {LENGTH: (">i", 2**31 - 1)}), ErrorCode.MESSAGE_TOO_LARGE),
    "a negative length": (forged(GOOD, {LENGTH: (">i", -1)}), ErrorCode.CORRUPT_MESSAGE),
    "a length of 0": (forged(GOOD, {LENGTH: (">i", 0)}), ErrorCode.CORRUPT_MESSAGE),
    "shorter than its bytes": (forged(GOOD, {LENGTH: (">i", len(GOOD) - 13)}), ErrorCode.INVALID_RECORD),
    "cut off in its header": (GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
    "magic 3": (forged(GOOD, {MAGIC: ("b", 3)}), ErrorCode.CORRUPT_MESSAGE),
    "more records than it says": (sealed(forged(GOOD, {COUNT: (">i", 2)})), ErrorCode.INVALID_RECORD),
    "a billion records": (sealed(forged(GOOD, {COUNT: (">i", 10**9)})), ErrorCode.INVALID_RECORD),
    "no records": (
        sealed(forged(GOOD, {COUNT: (">i", 0), LAST_DELTA: (">i", -1)})),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "offsets that jump": (sealed(forged(GOOD, {LAST_DELTA: (">i", 2**30)})), ErrorCode.INVALID_RECORD),
    "a control batch of a client's": (batch(b"x", is_control=True), ErrorCode.INVALID_RECORD),
    "larger than max.message.bytes": (batch(b"x" * 20_000), ErrorCode.MESSAGE_TOO_LARGE),
    "two batches": (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_is_refused_whole(case: str, connection: RawConnection, topic: str) -> None:
    records, error = BAD_BATCHES[case]
    before = end_offset(connection, topic)
    assert ErrorCode(connection.produce(topic, records).error_code) is error
    assert end_offset(connection, topic) == before, "nothing was appended"
    assert connection.produce(topic, GOOD).base_offset == before, "and the connection goes on"


def test_a_batch_of_exactly_the_maximum(connection: RawConnection, topic: str) -> None:
    room = 20_000 - len(batch(b"x" * 10_000)) + 10_000
    assert len(batch(b"x" * room)) == 20_000
    assert connection.produce(topic, batch(b"x" * room)).error_code == ErrorCode.NONE
    assert connection.produce(topic, batch(b"x" * (room + 1))).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_an_empty_record_set(connection: RawConnection, topic: str) -> None:
    assert connection.produce(topic, None).error_code == ErrorCode.INVALID_RECORD
    assert connection.produce(topic, b"").error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", [0, 1, 2])
def test_record_formats_of_old(version: int, connection: RawConnection, topic: str) -> None:
    """Advertised for librdkafka's sake, refused partition by partition."""
    assert connection.produce(topic, GOOD, version=version).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist(acks: int, connection: RawConnection, topic: str) -> None:
    assert connection.produce(topic, GOOD, acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_what_fails_without_acknowledgement_closes_the_connection(
    connection: RawConnection, topic: str
) -> None:
    """The client has no other way to learn that it has to look for the leader."""
    with pytest.raises(ConnectionError):
        connection.produce(topic, BAD_BATCHES["another checksum"][0], acks=0)


# -- where to


def test_a_follower_does_not_append(cluster: NodeProcesses, topic: str) -> None:
    leader_id = cluster.leader(topic)
    for node_id in cluster.node_ids:
        if node_id != leader_id:
            with RawConnection(cluster.address(node_id)) as connection:
                answer = connection.produce(topic, GOOD)
                assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert answer.current_leader.leader_id == leader_id


def test_a_broker_without_a_replica_does_not_append(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("alone", replication_factor=1)
    leader_id = cluster.leader(topic)
    other = next(node_id for node_id in cluster.node_ids if node_id != leader_id)
    with RawConnection(cluster.address(other)) as connection:
        assert connection.produce(topic, GOOD).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_topics_and_partitions_that_are_not_there(connection: RawConnection, topic: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (1, -1, 2**31 - 1):
        assert connection.produce(topic, GOOD, partition=partition).error_code == unknown
        assert fetched(connection, topic, 0, partition=partition).error_code == unknown
    for name in ("no-such-topic", "", "x" * 300, "../../etc"):
        assert connection.produce(name, GOOD).error_code == unknown
        assert fetched(connection, name, 0).error_code == unknown
    by_id = FetchRequest(
        max_wait_ms=0,
        max_bytes=1000,
        topics=[FetchTopic(topic_id=uuid.uuid4().bytes, partitions=[FetchPartition()])],
    )
    assert connection.call(by_id, 13).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("offset", "epoch", "error"),
    [
        (10**9, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-(2**63), -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 10_000, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_offsets_and_epochs_that_are_not_there(
    offset: int, epoch: int, error: ErrorCode, connection: RawConnection, topic: str
) -> None:
    assert fetched(connection, topic, offset, epoch=epoch).error_code == error


def test_a_fetch_session_that_is_not_there(connection: RawConnection, topic: str) -> None:
    request = fetch_request(topic, 0)
    request.session_id, request.session_epoch = 4711, 3
    assert connection.call(request, FETCH_VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_forged_follower_moves_no_high_watermark(
    cluster: NodeProcesses, connection: RawConnection, topic: str
) -> None:
    """A client that claims to be a replica, without its registration's epoch, is refused (KIP-903)."""
    follower = next(node_id for node_id in cluster.node_ids if node_id != cluster.leader(topic))
    for replica_id in (follower, 77):
        request = fetch_request(topic, 0)
        request.replica_id = replica_id
        answer = connection.call(request, FETCH_VERSION).responses[0].partitions[0]
        assert answer.error_code != ErrorCode.NONE
        assert not answer.records


# -- topics

BAD_TOPICS: dict[str, tuple[CreatableTopic, ErrorCode]] = {
    "more replicas than brokers": (
        CreatableTopic(name="fine", num_partitions=1, replication_factor=4),
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ),
    "no replicas": (
        CreatableTopic(name="fine", num_partitions=1, replication_factor=0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ),
    "no partitions": (
        CreatableTopic(name="fine", num_partitions=0, replication_factor=1),
        ErrorCode.INVALID_PARTITIONS,
    ),
    **{
        f"the name {name[:9]!r}": (
            CreatableTopic(name=name, num_partitions=1, replication_factor=1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
        for name in ("", ".", "..", "a/b", "a\\b", "a b", "a\x00b", "ä", "x" * 250)
    },
}


@pytest.mark.parametrize("case", BAD_TOPICS)
def test_a_topic_that_cannot_be(case: str, connection: RawConnection) -> None:
    wanted, error = BAD_TOPICS[case]
    (result,) = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7).topics
    assert ErrorCode(result.error_code) is error
    assert result.error_message


def test_a_topic_named_twice(connection: RawConnection) -> None:
    wanted = CreatableTopic(name="twice", num_partitions=1, replication_factor=1)
    answer = connection.call(CreateTopicsRequest(topics=[wanted, wanted], timeout_ms=10_000), 7)
    assert {ErrorCode(topic.error_code) for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}


def test_asking_for_a_name_that_cannot_be(connection: RawConnection) -> None:
    """Auto creation is asked for, and refused."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a b/c")], allow_auto_topic_creation=True)
    (answer,) = connection.call(request, METADATA_VERSION).topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- idempotence


@pytest.fixture
def producer_id(connection: RawConnection) -> int:
    answer = connection.call(InitProducerIdRequest(producer_id=-1, producer_epoch=-1), 4)
    assert answer.error_code == ErrorCode.NONE
    return int(answer.producer_id)


@pytest.fixture
def send(connection: RawConnection, topic: str, producer_id: int) -> Callable[..., tuple[ErrorCode, int]]:
    """Produces records of the producer from a sequence number on; returns the error and the offset."""

    def send(sequence: int, count: int = 2, epoch: int = 0) -> tuple[ErrorCode, int]:
        records = batch(
            *[b"%d" % (sequence + number) for number in range(count)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        answer = connection.produce(topic, records)
        return ErrorCode(answer.error_code), answer.base_offset

    return send


Send = Callable[..., tuple[ErrorCode, int]]


def test_a_repeated_batch_is_acknowledged_where_it_is(
    send: Send, connection: RawConnection, topic: str
) -> None:
    first = [send(sequence) for sequence in range(0, 10, 2)]
    assert {error for error, _ in first} == {ErrorCode.NONE}
    end = end_offset(connection, topic)
    assert [send(sequence) for sequence in range(0, 10, 2)] == first, "the last five are remembered"
    assert end_offset(connection, topic) == end


def test_a_batch_older_than_the_window_is_out_of_order(send: Send) -> None:
    for sequence in range(0, 12, 2):
        assert send(sequence)[0] is ErrorCode.NONE
    assert send(0)[0] in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def test_a_gap_is_out_of_order(send: Send, connection: RawConnection, topic: str) -> None:
    assert send(0)[0] is ErrorCode.NONE
    end = end_offset(connection, topic)
    assert send(4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert end_offset(connection, topic) == end
    assert send(2) == (ErrorCode.NONE, end)


def test_epochs_of_a_producer(send: Send) -> None:
    assert send(0, epoch=1)[0] is ErrorCode.NONE
    assert send(2, epoch=0)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(2, epoch=2)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch begins at 0"
    assert send(0, epoch=2)[0] is ErrorCode.NONE


def test_a_transactional_id_is_answered_by_its_coordinator_alone(connection: RawConnection) -> None:
    """A client that asked nobody for its coordinator is sent to look for it, unless it is the one by chance."""
    request = InitProducerIdRequest(
        transactional_id="nobody looked for it",
        transaction_timeout_ms=1000,
        producer_id=-1,
        producer_epoch=-1,
    )
    with_empty_id = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    assert connection.call(with_empty_id, 4).error_code == ErrorCode.INVALID_REQUEST
    answer = connection.call(request, 4)
    assert answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)
    assert (answer.producer_id >= 0) == (answer.error_code == ErrorCode.NONE)
