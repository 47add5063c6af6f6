"""A small blocking Kafka client: who leads, which offsets there are, one fetch.

Requests carry the leader epoch that the client knows (KIP-320). Knowledge of a partition never goes back to an older
epoch, so a deposed leader is not believed. The client fetches stale metadata anew from another broker each time. With
a rack, records come from the replica that the leader names (`near_replicas.py`). Every wait is bounded (`retry.py`),
most of all the first: until a broker has answered, the address may be wrong. A broker that throttles is left alone for
the time that it asks for (KIP-219). One connection a broker; not for several threads. The planners in the driver and
the slice reader in the executors call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Timer
from types import TracebackType
from typing import NamedTuple, TypeVar

from kraft.protocol import ErrorCode, Message, ProtocolError
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kraft.protocol.primitives import ZERO_UUID
from kraft.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kraft.protocol.schemas.offsets import (
    CONSUMER_REPLICA_ID,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraft.spark.connection import BlockingConnection, BrokerAddress
from kraft.spark.errors import (
    ClusterUnavailableError,
    ConnectorError,
    RequestFailedError,
    TopicChangedError,
    UnknownTopicError,
    UnsupportedBrokerError,
)
from kraft.spark.near_replicas import NearReplicas
from kraft.spark.retry import Attempts, RetryPolicy
from kraft.spark.security import Security
from partitions.topic_partition import TopicPartition

NO_LEADER = -1
FETCH_MAX_WAIT_MS = 500
FETCH_MIN_BYTES = 1
_READ_COMMITTED = 1
_MIN_TIMEOUT_S = 0.05
DEFAULT_METADATA_MAX_AGE_S = 300.0
"""Kafka's default of metadata.max.age.ms."""

R = TypeVar("R", bound=Message)


class PartitionLeader(NamedTuple):
    """A partition's leader (NO_LEADER: none) and the epoch since which it is."""

    broker_id: int
    epoch: int


class TopicMetadata(NamedTuple):
    """A topic as a broker described it."""

    name: str
    topic_id: bytes
    is_internal: bool
    leaders: Mapping[int, PartitionLeader]
    """By partition, ascending."""


class LeaderOffset(NamedTuple):
    """An offset, and the epoch of the leader that named it; `timestamp` in ms where one was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


class TransientError(Exception):
    """An attempt failed in a way that a leader change or a restart explains; `error` says it to people.

    The client has already marked its knowledge of the partition as stale.
    """

    def __init__(self, error: ConnectorError) -> None:
        super().__init__(str(error))
        self.error = error


class ClusterClient:
    """Connects when it first needs to. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        bootstrap: Sequence[BrokerAddress],
        *,
        client_id: str,
        policy: RetryPolicy,
        read_committed: bool = False,
        security: Security = Security(),  # noqa: B008  # immutable
        rack: str = "",
        metadata_max_age_s: float = DEFAULT_METADATA_MAX_AGE_S,
    ) -> None:
        self.policy = policy
        self._near = NearReplicas(rack, metadata_max_age_s)
        self.cluster_id: str | None = None
        """As the last broker that was asked for topics named it."""
        self._tls = security.context()
        self._credentials = security.credentials
        self._isolation_level = _READ_COMMITTED if read_committed else 0
        self._answered = False
        """Whether any broker ever did."""
        self._muted: dict[BrokerAddress, float] = {}
        """Until when brokers that throttle are left alone, by the policy's clock."""
        self._bootstrap = tuple(bootstrap)
        self._client_id = client_id
        self._brokers: dict[int, BrokerAddress] = {}
        self._connections: dict[BrokerAddress, BlockingConnection] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._stale: set[TopicPartition] = set()
        self._next_asked = 0

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- metadata

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicMetadata]:
        """The topics of these names, or all of them (None). Waits for brokers, and for topics to be known.

        Raises UnknownTopicError for a topic that does not exist, ClusterUnavailableError if no
        broker answers within the policy's budget.
        """
        wanted = None if names is None else sorted(set(names))
        with self._said_to_be_trying():
            attempts = Attempts(self.policy)
            while True:
                try:
                    return self._ask_for_topics(wanted, within_s=self._left_for_first_answer(attempts))
                except TransientError as failure:
                    attempts.wait_or_raise(failure.error, within_s=self._left_for_first_answer(attempts))

    @contextmanager
    def _said_to_be_trying(self) -> Iterator[None]:
        """Tells the user when no broker has answered for `notice_s`."""
        if self._answered:
            yield
            return
        addresses = ", ".join(map(str, self._bootstrap))
        sentence = (
            f"Still trying to reach {addresses} (kafka.bootstrap.servers);"
            f" giving up after {self.policy.first_answer_s:g} s."
        )
        timer = Timer(self.policy.notice_s, self._tell, [sentence])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _tell(self, sentence: str) -> None:
        if not self._answered:
            self.policy.warn(sentence)

    def _left_for_first_answer(self, attempts: Attempts) -> float | None:
        return None if self._answered else self.policy.first_answer_s - attempts.lasted_s()

    def refresh(self, topic: str) -> TopicMetadata:
        """One attempt to learn a topic's state. Raises TransientError, RequestFailedError."""
        return self._ask_for_topics([topic])[topic]

    def leader(self, partition: TopicPartition) -> PartitionLeader:
        """The leader, asked for anew if what is known is stale. Raises TransientError if there is none."""
        metadata = self._topics.get(partition.topic)
        if metadata is None or partition in self._stale:
            metadata = self.refresh(partition.topic)
        leader = metadata.leaders.get(partition.partition)
        if leader is None:
            sentence = f"Topic {partition.topic} has no partition {partition.partition}."
            raise self._failed(partition, UnknownTopicError(sentence))
        if leader.broker_id == NO_LEADER or leader.broker_id not in self._brokers:
            raise self._failed(
                partition, ClusterUnavailableError(f"{partition} has no leader: are its brokers running?")
            )
        return leader

    def _ask_for_topics(
        self, names: list[str] | None, *, within_s: float | None = None
    ) -> dict[str, TopicMetadata]:
        response = self._ask_any_broker(
            MetadataRequest(
                topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=False,
            ),
            within_s,
        )
        self._brokers.update(
            {broker.node_id: BrokerAddress(broker.host, broker.port) for broker in response.brokers}
        )
        self.cluster_id = response.cluster_id
        found: dict[str, TopicMetadata] = {}
        for topic in response.topics:
            if topic.error_code:
                raise _topic_error(topic)
            if topic.name is not None:
                found[topic.name] = self._learn(topic.name, topic)
        missing = [name for name in names or () if name not in found]
        if missing:
            raise TransientError(UnknownTopicError(f"Topic {missing[0]} does not exist."))
        return found

    def _learn(self, name: str, topic: MetadataResponseTopic) -> TopicMetadata:
        """Takes a topic's state over, but for partitions of which a later epoch is known."""
        if topic.topic_id == ZERO_UUID:
            raise UnsupportedBrokerError(
                f"Topic {name} has no topic id, so that it cannot be told from one created anew."
                " Use brokers of Kafka 3.1 or later."
            )
        known = self._topics.get(name)
        leaders = {}
        for state in sorted(topic.partitions, key=lambda state: state.partition_index):
            leader = PartitionLeader(state.leader_id, state.leader_epoch)
            before = None
            if known is not None and known.topic_id == topic.topic_id:
                before = known.leaders.get(state.partition_index)
            if before is not None and before.epoch > leader.epoch:
                leader = before
            else:
                self._stale.discard(TopicPartition(name, state.partition_index))
            leaders[state.partition_index] = leader
        self._topics[name] = TopicMetadata(name, topic.topic_id, topic.is_internal, leaders)
        return self._topics[name]

    def _ask_any_broker(self, request: MetadataRequest, within_s: float | None) -> MetadataResponse:
        """Asks one broker after the other, another one first each time; takes about half of `within_s`."""
        addresses = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        reasons = []
        share_s = None if within_s is None else within_s / 2 / len(addresses)
        self._next_asked += 1
        for index in range(len(addresses)):
            address = addresses[(self._next_asked + index) % len(addresses)]
            try:
                return self._call(address, request, MetadataResponse, timeout_s=share_s)
            except (OSError, ProtocolError) as error:
                reasons.append(f"{address}: {error}")
        raise TransientError(
            ClusterUnavailableError(
                f"No broker answers ({'; '.join(reasons)})."
                " Check kafka.bootstrap.servers and that the cluster is running."
            )
        )

    # ---- offsets

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, LeaderOffset]:
        """The offset for a timestamp (ms; or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP of
        `kraft.protocol.schemas.offsets`) of each partition.

        LATEST is the high watermark, or for read_committed the last stable offset. For a time after the
        last record the offset is -1. Rides out leader changes; raises ClusterUnavailableError when a
        partition stays without an answer for the policy's budget, RequestFailedError.
        """
        answers: dict[TopicPartition, LeaderOffset] = {}
        attempts = Attempts(self.policy)
        while len(answers) < len(wanted):
            before = len(answers)
            failure: TransientError | None = None
            groups: dict[int, dict[TopicPartition, PartitionLeader]] = {}
            for partition in sorted(wanted.keys() - answers.keys()):
                try:
                    leader = self.leader(partition)
                except TransientError as error:
                    failure = error
                    continue
                groups.setdefault(leader.broker_id, {})[partition] = leader
            for broker_id, group in groups.items():
                failure = self._list_from(broker_id, group, wanted, answers) or failure
            if len(answers) > before:
                attempts.progressed()
            if failure is not None:
                attempts.wait_or_raise(failure.error)
        return answers

    def _list_from(
        self,
        broker_id: int,
        group: Mapping[TopicPartition, PartitionLeader],
        wanted: Mapping[TopicPartition, int],
        answers: dict[TopicPartition, LeaderOffset],
    ) -> TransientError | None:
        """Asks one leader for all of its partitions; returns the last failure."""
        topics: dict[str, ListOffsetsTopic] = {}
        for partition, leader in group.items():
            entry = ListOffsetsPartition(partition.partition, leader.epoch, wanted[partition])
            topics.setdefault(partition.topic, ListOffsetsTopic(partition.topic)).partitions.append(entry)
        request = ListOffsetsRequest(
            isolation_level=self._isolation_level,
            topics=list(topics.values()),
            timeout_ms=int(self.policy.request_timeout_s * 1000),
        )
        try:
            response = self._call(self._brokers[broker_id], request, ListOffsetsResponse)
        except (OSError, ProtocolError) as error:
            return self._unreachable(broker_id, list(group), error)
        found: dict[TopicPartition, ListOffsetsPartitionResponse] = {
            TopicPartition(topic.name, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        failure = None
        for partition, leader in group.items():
            answer = found.get(partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode.of(answer.error_code)
            if answer is not None and code is ErrorCode.NONE:
                # The broker has checked the epoch sent to it, so that is its own.
                answers[partition] = LeaderOffset(answer.offset, answer.timestamp, leader.epoch)
            else:
                failure = self._refused(partition, "list offsets", code)
        return failure

    def end_of_epoch(self, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch` in the leader's log, and the offset where it ends (KIP-320).

        (-1, -1): the leader knows none. Rides out leader changes as `list_offsets` does.
        """
        attempts = Attempts(self.policy)
        while True:
            try:
                answer = self._ask_end_of_epoch(partition, epoch)
                return answer.leader_epoch, answer.end_offset
            except TransientError as failure:
                attempts.wait_or_raise(failure.error)

    def _ask_end_of_epoch(self, partition: TopicPartition, epoch: int) -> EpochEndOffset:
        leader = self.leader(partition)
        entry = OffsetForLeaderPartition(partition.partition, leader.epoch, epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID, topics=[OffsetForLeaderTopic(partition.topic, [entry])]
        )
        try:
            response = self._call(self._brokers[leader.broker_id], request, OffsetForLeaderEpochResponse)
        except (OSError, ProtocolError) as error:
            raise self._unreachable(leader.broker_id, [partition], error) from error
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        for topic in response.topics:
            for answer in topic.partitions:
                if (topic.topic, answer.partition) == partition:
                    code = ErrorCode.of(answer.error_code)
                    if code is ErrorCode.NONE:
                        return answer
        raise self._refused(partition, "tell where an epoch ends", code)

    # ---- fetch

    def fetch(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        *,
        offset: int,
        last_fetched_epoch: int,
        max_bytes: int,
    ) -> PartitionData:
        """One attempt to read from `offset` on: from the leader, or the replica in our rack that it names.

        `last_fetched_epoch` is the leader epoch of the batch before `offset` (-1: not known). The
        answer has the code NONE or OFFSET_OUT_OF_RANGE and may lack records; what it says is gone, its
        leader said. Raises TransientError, RequestFailedError.
        """
        leader = self.leader(partition)
        if self._topics[partition.topic].topic_id != topic_id:
            raise self._failed(
                partition,
                TopicChangedError(
                    f"Topic {partition.topic} was deleted and created anew after this read was planned."
                ),
            )
        entry = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=FETCH_MAX_WAIT_MS,
            min_bytes=FETCH_MIN_BYTES,
            max_bytes=max_bytes,
            isolation_level=self._isolation_level,
            topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[entry])],
        )
        replica = self._near.replica_of(partition, self.policy.clock())
        if replica is None:
            request.rack_id = self._near.rack_to_tell(self.policy.clock())
            data = self._fetch_from_leader(leader.broker_id, partition, request)
            if data.preferred_read_replica < 0:
                return data
            replica = data.preferred_read_replica
            self._near.named(partition, replica, self.policy.clock())
        near = self._fetch_nearby(replica, partition, request)
        if near is not None:
            return near
        request.rack_id = ""
        return self._fetch_from_leader(leader.broker_id, partition, request)

    def _fetch_from_leader(
        self, broker_id: int, partition: TopicPartition, request: FetchRequest
    ) -> PartitionData:
        try:
            response = self._call(self._brokers[broker_id], request, FetchResponse)
        except (OSError, ProtocolError) as error:
            raise self._unreachable(broker_id, [partition], error) from error
        data = _only_partition(response, request)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if data is None else ErrorCode.of(data.error_code)
        if response.error_code:
            code = ErrorCode.of(response.error_code)
        if data is None or code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise self._refused(partition, "fetch", code)
        return data

    def _fetch_nearby(
        self, broker_id: int, partition: TopicPartition, request: FetchRequest
    ) -> PartitionData | None:
        """What the replica has; None if that is not simply records, which is for the leader to judge."""
        address = self._brokers.get(broker_id)
        if address is None:  # not in what was last heard of the cluster
            self._near.failed(partition)
            return None
        try:
            response = self._call(address, request, FetchResponse)
        except (OSError, ProtocolError):
            self._near.unreachable(broker_id, self.policy.clock())
            return None
        data = _only_partition(response, request)
        if (
            data is None
            or response.error_code
            or data.error_code
            or data.diverging_epoch is not None
            or data.log_start_offset > request.topics[0].partitions[0].fetch_offset
            or not data.records
        ):
            self._near.failed(partition)
            return None
        return data

    def polls(
        self, wanted: Mapping[TopicPartition, tuple[bytes, int]], max_wait_ms: int
    ) -> dict[int, FetchRequest]:
        """By broker, a fetch that waits until one of these partitions (topic id, offset) has more.

        Partitions without a leader, or of another topic by now, are left out.
        """
        requests: dict[int, FetchRequest] = {}
        topics: dict[tuple[int, bytes], FetchTopic] = {}
        for partition, (topic_id, offset) in wanted.items():
            metadata = self._topics.get(partition.topic)
            leader = None if metadata is None else metadata.leaders.get(partition.partition)
            if (
                metadata is None
                or leader is None
                or metadata.topic_id != topic_id
                or partition in self._stale
            ):
                continue
            request = requests.setdefault(
                leader.broker_id,
                FetchRequest(
                    max_wait_ms=max_wait_ms,
                    min_bytes=FETCH_MIN_BYTES,
                    max_bytes=1,
                    isolation_level=self._isolation_level,
                ),
            )
            key = leader.broker_id, topic_id
            if key not in topics:
                topics[key] = FetchTopic(topic=partition.topic, topic_id=topic_id)
                request.topics.append(topics[key])
            topics[key].partitions.append(
                FetchPartition(partition.partition, leader.epoch, offset, partition_max_bytes=1)
            )
        requests.pop(NO_LEADER, None)
        return requests

    def connect(self, broker_id: int) -> BlockingConnection:
        """A connection of its own, which the caller closes. Raises OSError, ProtocolError."""
        return self._connect(self._brokers[broker_id], None)

    def suspect(self, partition: TopicPartition) -> None:
        """Before the next request about the partition, its leader is asked for anew."""
        self._stale.add(partition)

    def call(self, address: BrokerAddress | None, request: Message, answer: type[R]) -> R:
        """One exchange with this broker, or with any that is known. Raises TransientError."""
        addresses = [*self._brokers.values(), *self._bootstrap] if address is None else [address]
        self._next_asked += 1
        chosen = addresses[self._next_asked % len(addresses)]
        try:
            return self._call(chosen, request, answer)
        except (OSError, ProtocolError) as error:
            raise TransientError(
                ClusterUnavailableError(f"Broker {chosen} does not answer ({error}).")
            ) from error

    # ---- connections and failures

    def _call(
        self, address: BrokerAddress, request: Message, answer: type[R], *, timeout_s: float | None = None
    ) -> R:
        """One exchange on the kept connection, or on a new one. A failure closes the connection.

        `timeout_s` bounds every wait for a broker of which nothing is known yet.
        """
        self._wait_while_muted(address)
        connection = self._connections.get(address)
        try:
            if connection is None:
                connection = self._connections[address] = self._connect(address, timeout_s)
            response = connection.call(request, answer)
        except (OSError, ProtocolError, ConnectorError):
            self._connections.pop(address, None)
            if connection is not None:
                connection.close()
            raise
        if not self._answered:
            self._answered = True
            connection.set_timeout(self.policy.request_timeout_s)
        throttled_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttled_ms > 0:
            self._muted[address] = self.policy.clock() + throttled_ms / 1000
        return response

    def _connect(self, address: BrokerAddress, timeout_s: float | None) -> BlockingConnection:
        policy = self.policy
        limit_s = policy.request_timeout_s if timeout_s is None else max(timeout_s, _MIN_TIMEOUT_S)
        return BlockingConnection(
            address,
            client_id=self._client_id,
            connect_timeout_s=min(policy.connect_timeout_s, limit_s),
            request_timeout_s=min(policy.request_timeout_s, limit_s),
            tls=self._tls,
            credentials=self._credentials,
            clock=policy.clock,
        )

    def _wait_while_muted(self, address: BrokerAddress) -> None:
        left_s = self._muted.pop(address, 0.0) - self.policy.clock()
        if left_s > 0:
            self.policy.sleep(min(left_s, self.policy.budget_s))

    def _failed(self, partition: TopicPartition, error: ConnectorError) -> TransientError:
        self.suspect(partition)
        return TransientError(error)

    def _unreachable(
        self, broker_id: int, partitions: Sequence[TopicPartition], error: Exception
    ) -> TransientError:
        self._stale.update(partitions)
        return TransientError(
            ClusterUnavailableError(
                f"Broker {broker_id} at {self._brokers[broker_id]}, the leader of"
                f" {', '.join(map(str, partitions))}, does not answer ({error})."
            )
        )

    def _refused(self, partition: TopicPartition, what: str, code: ErrorCode) -> TransientError:
        """The error of an answer. Raises RequestFailedError where trying again does not help."""
        sentence = f"The leader of {partition} refused to {what}: {code.name}. {code.message}"
        if not code.retriable:
            raise RequestFailedError(sentence)
        return self._failed(partition, ClusterUnavailableError(sentence))


def _only_partition(response: FetchResponse, request: FetchRequest) -> PartitionData | None:
    """The answer about the one partition that was asked for."""
    (asked,) = request.topics
    for topic in response.responses:
        for data in topic.partitions:
            if topic.topic_id == asked.topic_id and data.partition_index == asked.partitions[0].partition:
                return data
    return None


def _topic_error(topic: MetadataResponseTopic) -> Exception:
    code = ErrorCode.of(topic.error_code)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return TransientError(UnknownTopicError(f"Topic {topic.name} does not exist."))
    sentence = f"Topic {topic.name} cannot be read: {code.name}. {code.message}"
    if code.retriable:
        return TransientError(ClusterUnavailableError(sentence))
    return RequestFailedError(sentence)
