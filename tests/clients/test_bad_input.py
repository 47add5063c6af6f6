"""Requests that are wrong: Kafka's error code, or the end of that one connection, and of nothing else.

Every test runs beside a bystander, a connection that was there before and has to work afterwards, and
none may leave a traceback in a node's log.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraft.protocol.api import SUPPORTED, ApiKey
from kraft.protocol.api_versions import ApiVersionsRequest
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kraft.protocol.schemas.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kraft.protocol.schemas.producers import InitProducerIdRequest
from kraft.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from tests.support.node_processes import NodeProcesses
from tests.support.raw_client import RawConnection, batch, forged, sealed

BASE_OFFSET, LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, COUNT = 0, 8, 12, 16, 17, 21, 23, 57
"""Where the fields of a record batch are."""
METADATA_VERSION, FETCH_VERSION = 12, 12
REQUEST_MAX_BYTES = 100 * 1024 * 1024


@pytest.fixture(scope="module")
def topic(cluster: NodeProcesses) -> str:
    """A topic with one record."""
    name = cluster.create_topic("bad-input", min_insync_replicas="2", max_message_bytes="20000")
    with RawConnection(cluster.address(cluster.leader(name))) as connection:
        assert connection.produce(name, batch(b"good")).error_code == ErrorCode.NONE
    return name


@pytest.fixture
def leader(cluster: NodeProcesses, topic: str) -> tuple[str, int]:
    """The address of the topic's leader."""
    return cluster.address(cluster.leader(topic))


@pytest.fixture(autouse=True)
def bystander(cluster: NodeProcesses, topic: str, leader: tuple[str, int]) -> Iterator[None]:
    """Another connection works throughout, every node lives, and no log tells of a defect."""
    pids = {node_id: cluster.local.pid(node_id) for node_id in cluster.node_ids}
    written = {node_id: len(cluster.log_text(node_id)) for node_id in cluster.node_ids}
    with RawConnection(leader) as connection:
        assert_works(connection, topic)
        yield
        assert_works(connection, topic)
    assert {node_id: cluster.local.pid(node_id) for node_id in cluster.node_ids} == pids
    for node_id, length in written.items():
        new = cluster.log_text(node_id)[length:]
        assert "Traceback" not in new, new


def assert_works(connection: RawConnection, topic: str) -> None:
    assert connection.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    assert connection.produce(topic, batch(b"bystander")).error_code == ErrorCode.NONE


@pytest.fixture
def connection(leader: tuple[str, int]) -> Iterator[RawConnection]:
    with RawConnection(leader) as made:
        yield made


# -- frames and headers

HEADER = struct.Struct(">hhih")
"""API key, version, correlation id, and the length of the client id, -1 for none."""


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 7, REQUEST_MAX_BYTES + 1, 2**31 - 1])
def test_an_impossible_length_closes_the_connection(length: int, connection: RawConnection) -> None:
    connection.send(struct.pack(">i", length) + bytes(16))
    assert connection.was_closed()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + bytes(200), b"\x00" * 64]
)
def test_another_protocol_closes_the_connection(data: bytes, connection: RawConnection) -> None:
    connection.send(data)
    assert connection.was_closed()


@pytest.mark.parametrize("api_key", [-1, 4, 999, 32767])
def test_an_unknown_api_closes_the_connection(api_key: int, connection: RawConnection) -> None:
    connection.send_frame(HEADER.pack(api_key, 0, 1, -1))
    assert connection.was_closed()


@pytest.mark.parametrize(
    "api_key", [key for key in SUPPORTED if key != ApiKey.API_VERSIONS], ids=lambda key: key.name
)
def test_an_unknown_version_closes_the_connection(api_key: ApiKey, connection: RawConnection) -> None:
    connection.send_frame(HEADER.pack(api_key, SUPPORTED[api_key].stop, 1, -1) + bytes(32))
    assert connection.was_closed()


@pytest.mark.parametrize("version", [SUPPORTED[ApiKey.API_VERSIONS].stop, 99, 32767])
def test_api_versions_above_the_maximum(version: int, connection: RawConnection) -> None:
    """KIP-511: error 35, in version 0, with what can be asked; and the client goes on with that."""
    connection.send_frame(HEADER.pack(ApiKey.API_VERSIONS, version, 77, -1) + b"\x00\x05kcat\x031.9\x00")
    frame = connection.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code, count) == (77, 35, len(SUPPORTED))
    assert len(frame) == 10 + 6 * count, "an answer of version 0 has nothing behind its array"
    offered = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", frame[10:])}
    assert offered[18] == (0, SUPPORTED[ApiKey.API_VERSIONS].stop - 1)
    assert connection.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-", "späti", "a b"])
def test_api_versions_of_a_client_with_a_wrong_name(name: str, connection: RawConnection) -> None:
    answer = connection.call(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("api_key", list(SUPPORTED), ids=lambda key: key.name)
@pytest.mark.parametrize("filler", [b"", b"\xff" * 40, b"\x7f" * 40], ids=["short", "ff", "7f"])
def test_a_malformed_body_closes_the_connection(
    api_key: ApiKey, filler: bytes, connection: RawConnection
) -> None:
    """Cut off, or with lengths of billions: no answer, and no memory for what never comes."""
    version = SUPPORTED[api_key].stop - 1
    connection.send_frame(HEADER.pack(api_key, version, 5, -1) + b"\x00" + filler)
    if filler == b"\xff" * 40 and api_key == ApiKey.DESCRIBE_CLUSTER:
        return  # any byte is a boolean
    assert connection.was_closed()


def test_a_client_id_longer_than_its_frame(connection: RawConnection) -> None:
    connection.send_frame(HEADER.pack(ApiKey.METADATA, METADATA_VERSION, 1, 30_000) + b"short")
    assert connection.was_closed()


def test_half_a_frame_holds_up_nobody(connection: RawConnection, topic: str, leader: tuple[str, int]) -> None:
    """A client that never finishes its request costs a connection, not more."""
    connection.send(struct.pack(">i", REQUEST_MAX_BYTES) + bytes(1000))
    with RawConnection(leader) as other:
        assert_works(other, topic)


def test_what_came_before_a_bad_frame_is_answered(connection: RawConnection) -> None:
    sent = connection.send_request(ApiVersionsRequest(), 0)
    connection.send(struct.pack(">i", -5))
    assert connection.receive(ApiKey.API_VERSIONS, 0, sent).error_code == ErrorCode.NONE
    assert connection.was_closed()


def test_a_slow_fetch_holds_up_only_its_own_connection(
    connection: RawConnection, topic: str, leader: tuple[str, int], cluster: NodeProcesses
) -> None:
    quiet = cluster.create_topic("quiet")
    address = cluster.address(cluster.leader(quiet))
    with RawConnection(address) as slow, RawConnection(address) as other:
        fetch = slow.send_request(fetch_request(quiet, 0, max_wait_ms=15_000), FETCH_VERSION)
        behind = slow.send_request(ApiVersionsRequest(), 0)
        assert other.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        assert not slow.has_answer()
        assert other.produce(quiet, batch(b"awaited")).error_code == ErrorCode.NONE
        answer = slow.receive(ApiKey.FETCH, FETCH_VERSION, fetch).responses[0].partitions[0]
        assert b"awaited" in bytes(answer.records)
        assert slow.receive(ApiKey.API_VERSIONS, 0, behind).error_code == ErrorCode.NONE


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


def test_transactions_are_refused(connection: RawConnection) -> None:
    """They are not advertised; a client that tries all the same is told, not left waiting."""
    request = InitProducerIdRequest(
        transactional_id="tx", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )
    assert connection.call(request, 4).error_code == ErrorCode.UNSUPPORTED_VERSION


# -- helpers


def fetch_request(
    topic: str, offset: int, *, max_wait_ms: int = 0, partition: int = 0, epoch: int = -1
) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetched(
    connection: RawConnection, topic: str, offset: int, *, partition: int = 0, epoch: int = -1
) -> Any:
    request = fetch_request(topic, offset, partition=partition, epoch=epoch)
    return connection.call(request, FETCH_VERSION).responses[0].partitions[0]


def end_offset(connection: RawConnection, topic: str) -> int:
    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = connection.call(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 6)
    return int(answer.topics[0].partitions[0].offset)
