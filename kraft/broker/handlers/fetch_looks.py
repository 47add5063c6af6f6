"""Looks at partitions for a fetch: what each of them has to give now.

Guarantees: consumers see what is below the high watermark or the last stable offset, followers all; a
follower's first look tells the leader how far the follower is, later ones tell nothing; limits hold, but for
the first batch. `handlers.fetch` makes one `Looks` a request, and answers with what was seen. Reads give
ranges of files, which leave without passing through Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kraft.broker.authorization import Judge
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.api import ResourceType
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    PartitionData,
)
from partitions.errors import PartitionError
from partitions.fetch_session import FetchSession, Found, SessionPartition, Topic, WantedPartition
from partitions.log.errors import LogError
from partitions.partition import FollowerFetch, Partition
from partitions.reads import FetchRead
from partitions.replica_selector import NO_PREFERRED_REPLICA
from partitions.topic_partition import TopicPartition
from quorum.metadata.acls import CLUSTER_NAME

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_RACKS: Final = 11
"""From which on consumers may read from followers (KIP-392)."""
READ_COMMITTED: Final = 1
"""The isolation level; a reader that sends 0 gets records of open and aborted transactions too."""
RESPONSE_MAX_BYTES: Final = 55 * 1024 * 1024
"""As Kafka's fetch.max.bytes of the broker."""


class Seen(NamedTuple):
    """One partition as a look found it."""

    topic: Topic
    """As the request names it."""
    key: TopicPartition | None
    """None for a topic id that this broker does not know."""
    data: PartitionData
    found: Found
    partition: SessionPartition | None
    """None in a request without a session."""


class Looks:
    """The looks of one request. After each, `size_bytes` and `failed` say what it came to."""

    def __init__(
        self, services: BrokerServices, request: Request[FetchRequest], session: FetchSession | None
    ) -> None:
        """`session`: what is pending in it is looked at; without one, what the request names."""
        self._services = services
        self._replicas = services.replicas
        self._body = request.body
        self._by_id = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._session = session
        self._listener_name = request.session.listener_name
        self._may_read_at_follower = request.version >= FIRST_VERSION_WITH_RACKS
        self._read_committed = request.body.isolation_level == READ_COMMITTED
        self._judge = services.judge(request)
        self._named: dict[TopicPartition, WantedPartition] = {}
        self._request = request
        self.now_ms = 0
        """Monotonic, as of the present look."""
        self.is_follower = request.body.replica_id >= 0
        self.size_bytes = 0
        self.held_back: set[TopicPartition] = set()
        """What a throttle keeps from this follower for now."""
        self.failed = False
        """Whether there was an error or a divergence, which nobody waits upon."""

    def look(self, *, first: bool) -> list[Seen]:
        """Reads all partitions, in order, up to the request's limit."""
        left_bytes = min(self._body.max_bytes, RESPONSE_MAX_BYTES)
        if self._services.quotas.is_limiting and not self.is_follower:
            of_quota = self._services.quotas.fetch_max_bytes(self._request)
            left_bytes = left_bytes if of_quota is None else min(left_bytes, of_quota)
        self.size_bytes, self.failed = 0, False
        self.now_ms = self._replicas.monotonic_ms()
        session = self._session
        if first and session is not None and session.failing:
            session.retry_failing()
            self.failed = bool(session.failing)  # those whose turn it is not yet
        all_seen: list[Seen] = []
        for topic, key, wanted, partition in self._wanted():
            seen = self._look_at(topic, key, wanted, partition, left_bytes, first)
            found = seen.found
            left_bytes -= found.size_bytes
            self.size_bytes += found.size_bytes
            self.failed = self.failed or found.is_exceptional
            all_seen.append(seen)
        return all_seen

    def available_bytes(self, key: TopicPartition, partition: SessionPartition | None) -> int | None:
        """What one partition has for this request now, after its first look; None: news that no byte waits for.

        `partition`: the session's; without a session, what is waited for has been looked at.
        """
        wanted = self._named[key] if partition is None else partition.wanted
        self.now_ms = self._replicas.monotonic_ms()
        try:
            answer = self._read(key, wanted, wanted.partition_max_bytes, None, min_one_batch=True)
        except (PartitionError, LogError):
            return None
        return None if answer.has_answer_without_records else answer.size_bytes

    def _wanted(
        self,
    ) -> Iterator[tuple[Topic, TopicPartition | None, WantedPartition, SessionPartition | None]]:
        """What is looked at; a topic's name is asked for now, since topics come and go."""
        topic_name = self._services.metadata.topic_name
        if self._session is None:
            for topic in self._body.topics:
                name = topic_name(topic.topic_id) if self._by_id else topic.topic
                for wanted in topic.partitions:
                    key = None if name is None else TopicPartition(name, wanted.partition)
                    yield topic.topic_id if self._by_id else topic.topic, key, wanted, None
            return
        watch = self._replicas.fetch_purgatory.sessions.watch
        for partition in tuple(self._session.pending):
            asked = partition.topic
            name = topic_name(asked) if isinstance(asked, bytes) else asked
            key = None
            if name is not None:
                key = partition.topic_partition  # an id has the same name for ever
                if key is None:
                    key = TopicPartition(name, partition.wanted.partition)
                    watch(partition, key)
            yield asked, key, partition.wanted, partition

    def _look_at(
        self,
        topic: Topic,
        key: TopicPartition | None,
        wanted: WantedPartition,
        partition: SessionPartition | None,
        left_bytes: int,
        first: bool,
    ) -> Seen:
        if key is None:
            return _failed(topic, key, wanted, ErrorCode.UNKNOWN_TOPIC_ID, partition)
        if partition is None:
            self._named[key] = wanted
        if self._judge is not None and not self._may_read(self._judge, key.topic):
            return _failed(topic, key, wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition)
        max_bytes = wanted.partition_max_bytes
        if max_bytes > left_bytes:
            max_bytes = left_bytes
        try:
            answer = self._read(
                key, wanted, max(0, max_bytes), partition, min_one_batch=self.size_bytes == 0, first=first
            )
        except (PartitionError, LogError) as error:
            return _failed(topic, key, wanted, ErrorCode[error.code], partition)
        if partition is not None and first:
            partition.count(succeeded=answer.diverging_epoch is None)
        return Seen(topic, key, _data(wanted, answer), self._found(wanted, answer, first), partition)

    def _read(
        self,
        key: TopicPartition,
        wanted: WantedPartition,
        max_bytes: int,
        partition: SessionPartition | None,
        *,
        min_one_batch: bool,
        first: bool = False,
    ) -> FetchRead:
        replica = self._replicas.partition(key)
        if not self.is_follower:
            nearer = self._nearer(replica, wanted)
            if nearer >= 0:
                return replica.send_to_replica(nearer, current_leader_epoch=wanted.current_leader_epoch)
            return replica.read_for_consumer(
                wanted.fetch_offset,
                max_bytes=max_bytes,
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
                min_one_batch=min_one_batch,
                read_committed=self._read_committed,
                at_follower=self._may_read_at_follower,
            )
        body = self._body
        if self._services.throttles.holds_back_sending(replica, body.replica_id, self.now_ms):
            self.held_back.add(key)
            max_bytes, min_one_batch = 0, False
        fetch = FollowerFetch(
            body.replica_id,
            body.replica_epoch,
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
            partition,
        )
        if first:
            return replica.fetch_as_follower(
                fetch, max_bytes=max_bytes, now_ms=self.now_ms, min_one_batch=min_one_batch
            )
        return replica.read_for_follower(fetch, max_bytes=max_bytes, min_one_batch=min_one_batch)

    def _may_read(self, judge: Judge, topic: str) -> bool:
        """Asked at each look: what was allowed may be so no longer when the wait is over."""
        if self.is_follower:
            return not judge.refusal(ResourceType.CLUSTER, CLUSTER_NAME)
        return not judge.refusal(ResourceType.TOPIC, topic)

    def _nearer(self, replica: Partition, wanted: WantedPartition) -> int:
        """The broker that this consumer should read from, if it says where it is; else -1."""
        if not self._body.rack_id:
            return NO_PREFERRED_REPLICA
        return self._services.read_replicas.preferred(
            replica,
            rack=self._body.rack_id,
            listener_name=self._listener_name,
            fetch_offset=wanted.fetch_offset,
            now_ms=self.now_ms,
        )

    def _found(self, wanted: WantedPartition, answer: FetchRead, first: bool) -> Found:
        if self.is_follower:
            end_offset = answer.log_end_offset
        else:
            end_offset = answer.last_stable_offset if self._read_committed else answer.high_watermark
        is_exceptional = answer.has_answer_without_records
        return Found(
            answer.size_bytes,
            answer.high_watermark,
            answer.log_start_offset,
            first and not is_exceptional and wanted.fetch_offset >= end_offset,
            is_exceptional,
        )


def _failed(
    topic: Topic,
    key: TopicPartition | None,
    wanted: WantedPartition,
    code: ErrorCode,
    partition: SessionPartition | None,
) -> Seen:
    """A partition with an error; in a session it no longer counts as fetched."""
    if partition is not None:
        partition.count(succeeded=False)
    data = PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
    )
    found = Found(0, -1, -1, is_drained=False, is_exceptional=True, is_error=True)
    return Seen(topic, key, data, found, partition)


def _data(wanted: WantedPartition, answer: FetchRead) -> PartitionData:
    records, diverging = answer.records, answer.diverging_epoch
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        diverging_epoch=None if diverging is None else EpochEndOffset(diverging.epoch, diverging.end_offset),
        preferred_read_replica=answer.preferred_read_replica,
        aborted_transactions=_aborted(answer),
        records=b"" if records is None else records.slices,
    )


def _aborted(answer: FetchRead) -> list[AbortedTransaction] | None:
    """What the reader has to skip; null for one that reads everything."""
    aborted = answer.aborted_transactions
    if aborted is None:
        return None
    return [AbortedTransaction(known.producer_id, known.first_offset) for known in aborted]
