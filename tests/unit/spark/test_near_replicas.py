"""Reading from the replica in the job's rack: the leader names it, and serves whatever it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kraft.protocol import ErrorCode, Message
from kraft.protocol.fetch import FetchRequest
from kraft.spark.client import ClusterClient
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import DataLossError, OptionError
from kraft.spark.near_replicas import AVOIDED_S, NearReplicas
from kraft.spark.options import parse_bootstrap, parse_options
from kraft.spark.slice_reader import PartitionSlice, SliceReader
from partitions.topic_partition import TopicPartition
from tests.support.fake_broker import FakeCluster, FakePartition
from tests.unit.spark.conftest import Waiting

BATCHES, PER_BATCH = 20, 5
LEADER, NEAR, OTHER = 1, 2, 3
MAX_AGE_S = 30.0


@pytest.fixture
def partition(cluster: FakeCluster) -> FakePartition:
    made = cluster.create_topic("orders", leaders=(LEADER,)).partitions[0]
    for batch in range(BATCHES):
        made.append([(0, None, b"%d" % (batch * PER_BATCH + index), ()) for index in range(PER_BATCH)])
    made.near = {"here": NEAR}
    return made


Read = Callable[..., Iterator[int]]


@pytest.fixture
def read(cluster: FakeCluster, partition: FakePartition, waiting: Waiting) -> Iterator[Read]:
    """The whole partition, about two batches a fetch."""
    clients = []

    def values(rack: str = "here") -> Iterator[int]:
        client = ClusterClient(
            parse_bootstrap(cluster.bootstrap),
            client_id="test",
            policy=waiting.policy(),
            rack=rack,
            metadata_max_age_s=MAX_AGE_S,
        )
        clients.append(client)
        part = PartitionSlice("orders", cluster.topics["orders"].topic_id, 0, 0, partition.end, 0)
        reader = SliceReader(client, part, columns=("value",), loss=LossPolicy(), fetch_max_bytes=250)
        for batch in reader.batches():
            yield from (int(value) for value in batch["value"].to_pylist())

    yield values
    for client in clients:
        client.close()


def served(cluster: FakeCluster) -> list[tuple[int, str]]:
    """Who was asked for records, and for which rack."""
    return [
        (broker, request.rack_id) for broker, request in cluster.requests if isinstance(request, FetchRequest)
    ]


EVERYTHING = list(range(BATCHES * PER_BATCH))


def test_all_but_the_first_question_goes_to_the_replica_nearby(cluster: FakeCluster, read: Read) -> None:
    assert list(read()) == EVERYTHING
    asked = served(cluster)
    assert asked[0] == (LEADER, "here")
    assert len(asked) > 5
    assert {broker for broker, _ in asked[1:]} == {NEAR}


@pytest.mark.parametrize("rack", ["", "elsewhere"])
def test_without_a_replica_nearby_the_leader_is_read(cluster: FakeCluster, read: Read, rack: str) -> None:
    assert list(read(rack)) == EVERYTHING
    assert set(served(cluster)) == {(LEADER, rack)}


def test_the_leader_is_asked_again_when_what_it_said_is_old(
    cluster: FakeCluster, partition: FakePartition, read: Read, waiting: Waiting
) -> None:
    values = read()
    assert next(values) == 0
    partition.near = {"here": OTHER}  # NEAR is no replica any more, and would refuse
    waiting.now += MAX_AGE_S
    assert list(values) == EVERYTHING[1:]
    brokers = [broker for broker, _ in served(cluster)]
    assert brokers[:4] == [LEADER, NEAR, LEADER, OTHER]
    assert set(brokers[4:]) == {OTHER}


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_what_the_replica_refuses_the_leader_serves(
    cluster: FakeCluster, read: Read, waiting: Waiting, error: ErrorCode
) -> None:
    def hook(broker_id: int, request: Message) -> ErrorCode | None:
        return error if broker_id == NEAR and isinstance(request, FetchRequest) else None

    cluster.hook = hook
    assert list(read()) == EVERYTHING
    assert served(cluster)[:3] == [(LEADER, "here"), (NEAR, "here"), (LEADER, "")]
    assert waiting.now == 0


@pytest.mark.parametrize("its_end", [0, 48, 50])
def test_a_replica_that_lags_is_left_at_its_end(
    cluster: FakeCluster, partition: FakePartition, read: Read, waiting: Waiting, its_end: int
) -> None:
    partition.follower_ends = {NEAR: its_end}
    assert list(read()) == EVERYTHING
    assert {broker for broker, _ in served(cluster)} == {LEADER, NEAR}
    assert waiting.now == 0


def test_a_replica_that_is_gone_is_not_asked_for_again_at_once(
    cluster: FakeCluster, read: Read, waiting: Waiting
) -> None:
    values = read()
    found = [next(values) for _ in range(3)]
    cluster.stop(NEAR)
    found += [next(values) for _ in range(40)]
    asked = served(cluster)
    assert set(asked[2:]) == {(LEADER, "")}
    cluster.start(NEAR)
    waiting.now += AVOIDED_S
    assert found + list(values) == EVERYTHING
    assert served(cluster)[len(asked) + 1 :][-1][0] == NEAR


def test_a_new_leader_that_the_replica_does_not_follow_yet(
    cluster: FakeCluster, partition: FakePartition, read: Read
) -> None:
    values = read()
    found = [next(values)]
    partition.move(OTHER)
    assert found + list(values) == EVERYTHING
    assert served(cluster)[-1][0] == NEAR


def test_that_records_are_gone_only_the_leader_says(
    cluster: FakeCluster, partition: FakePartition, read: Read
) -> None:
    values = read()
    next(values)
    partition.log_start_offset = 90
    with pytest.raises(DataLossError, match="up to 90 were deleted"):
        list(values)
    assert served(cluster)[-1] == (LEADER, "")


def test_one_broker_that_is_away_says_nothing_of_the_others() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    near = NearReplicas("rack", 60.0)
    near.named(here, 2, 0.0)
    near.named(there, 3, 0.0)
    near.unreachable(2, 1.0)
    assert (near.replica_of(here, 1.0), near.replica_of(there, 1.0)) == (None, 3)
    assert near.rack_to_tell(1.0 + AVOIDED_S - 0.1) == ""
    assert near.rack_to_tell(1.0 + AVOIDED_S) == "rack"
    assert near.replica_of(there, 60.0) is None


def test_options() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    options = parse_options({**given, "kafka.client.rack": " use1-az1 ", "kafka.metadata.max.age.ms": "1000"})
    assert (options.rack, options.metadata_max_age_ms) == ("use1-az1", 1000)
    assert parse_options(given).rack == ""
    with pytest.raises(OptionError, match=r"metadata\.max\.age\.ms must be a whole number"):
        parse_options({**given, "kafka.metadata.max.age.ms": "5m"})
