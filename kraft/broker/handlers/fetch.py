"""Fetch (1): for consumers up to the high watermark or the last stable offset, for followers up to the end.

Reads give ranges of files, which leave without passing through Python. A fetch that finds less than
its minimum waits in purgatory, then reads once more. Sessions (KIP-227) are not kept: session id 0
tells the client to name all partitions every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from kraft.broker.handlers.produce import leader_hint
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.response import Deferred
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.partition import FollowerFetch, Partition
from partitions.reads import FetchRead
from partitions.topic_partition import TopicPartition

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_HINTS = 12
FIRST_VERSION_WITH_ENDPOINTS = 16
CONSUMER = -1
READ_COMMITTED = 1
"""The isolation level; a reader that sends 0 gets records of open and aborted transactions too."""
MAX_WAIT_MAX_MS = 60_000
RESPONSE_MAX_BYTES = 55 * 1024 * 1024
"""As Kafka's fetch.max.bytes of the broker."""
NO_SESSION = 0
FINAL_EPOCH = -1


def handle_fetch(
    services: BrokerServices, request: Request[FetchRequest]
) -> FetchResponse | Deferred[None, FetchResponse]:
    """Answers Fetch."""
    body = request.body
    if body.session_id != NO_SESSION and body.session_epoch != FINAL_EPOCH:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    fetch = _Fetch(services, request)
    response, size_bytes, failed = fetch.read(first=True)
    max_wait_ms = min(body.max_wait_ms, MAX_WAIT_MAX_MS)
    if failed or size_bytes >= body.min_bytes or max_wait_ms <= 0 or not body.topics:
        fetch.count(size_bytes)
        return response
    return Deferred(fetch.wait(max_wait_ms / 1000), fetch.answer)


class _Fetch:
    """One fetch request while it is being answered."""

    def __init__(self, services: BrokerServices, request: Request[FetchRequest]) -> None:
        self._services = services
        self._request = request
        self._body = request.body
        self._is_follower = request.body.replica_id >= 0
        self._read_committed = request.body.isolation_level == READ_COMMITTED
        self._wanted: dict[TopicPartition, FetchPartition] = {}
        self._found: dict[TopicPartition, int] = {}  # bytes, in the first read

    def wait(self, timeout_s: float) -> asyncio.Future[None]:
        """Waits, from this moment on, for the minimum of bytes, an error, or the time to pass."""
        return self._services.replicas.fetch_purgatory.wait(
            self._found,
            max(1, self._body.min_bytes),
            timeout_s,
            self._available_bytes,
            is_follower=self._is_follower,
        )

    def answer(self, _: None) -> FetchResponse:
        """Reads again when the wait is over."""
        response, size_bytes, _failed = self.read(first=False)
        self.count(size_bytes)
        return response

    def _available_bytes(self, key: TopicPartition) -> int | None:
        """What one partition has for this fetch now; None when it has an error or a divergence."""
        wanted = self._wanted[key]
        try:
            answer = self._read_partition(key, wanted, wanted.partition_max_bytes, first=False)
        except (PartitionError, LogError):
            return None
        return None if answer.diverging_epoch is not None else answer.size_bytes

    def count(self, size_bytes: int) -> None:
        """Adds to the metrics what leaves."""
        self._services.replicas.metrics.on_fetched(size_bytes, is_follower=self._is_follower)

    def read(self, *, first: bool) -> tuple[FetchResponse, int, bool]:
        """Reads all partitions. Returns the answer, its records' size in bytes, and whether it has errors."""
        left_bytes = min(self._body.max_bytes, RESPONSE_MAX_BYTES)
        total_bytes, failed = 0, False
        topics, endpoints = [], dict[int, NodeEndpoint]()
        for topic, name in self._topics():
            partitions = []
            for wanted in topic.partitions:
                data, size_bytes = self._answer(name, wanted, left_bytes, total_bytes == 0, first)
                failed = failed or bool(data.error_code) or data.diverging_epoch is not None
                if data.error_code and name is not None:
                    self._add_hint(data, TopicPartition(name, wanted.partition), endpoints)
                left_bytes -= size_bytes
                total_bytes += size_bytes
                partitions.append(data)
            topics.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
            )
        response = FetchResponse(responses=topics)
        if endpoints and self._request.version >= FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = list(endpoints.values())
        return response, total_bytes, failed

    def _topics(self) -> Iterator[tuple[FetchTopic, str | None]]:
        by_id = self._request.version >= FIRST_VERSION_WITH_TOPIC_IDS
        for topic in self._body.topics:
            yield topic, self._services.metadata.topic_name(topic.topic_id) if by_id else topic.topic

    def _answer(
        self, name: str | None, wanted: FetchPartition, left_bytes: int, is_first_data: bool, first: bool
    ) -> tuple[PartitionData, int]:
        if name is None:
            return _error(wanted, ErrorCode.UNKNOWN_TOPIC_ID), 0
        key = TopicPartition(name, wanted.partition)
        self._wanted[key] = wanted
        max_bytes = max(0, min(wanted.partition_max_bytes, left_bytes))
        try:
            answer = self._read_partition(key, wanted, max_bytes, first=first, min_one_batch=is_first_data)
        except (PartitionError, LogError) as error:
            return _error(wanted, ErrorCode[error.code]), 0
        if first:
            self._found[key] = answer.size_bytes
        records = answer.records
        diverging = answer.diverging_epoch
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=answer.high_watermark,
            last_stable_offset=answer.last_stable_offset,
            log_start_offset=answer.log_start_offset,
            diverging_epoch=None
            if diverging is None
            else EpochEndOffset(diverging.epoch, diverging.end_offset),
            aborted_transactions=_aborted(answer),
            records=b"" if records is None else records.slices,
        ), answer.size_bytes

    def _read_partition(
        self,
        key: TopicPartition,
        wanted: FetchPartition,
        max_bytes: int,
        *,
        first: bool,
        min_one_batch: bool = True,
    ) -> FetchRead:
        """Reads one partition; a follower's first read also tells the leader how far the follower is."""
        replicas = self._services.replicas
        partition: Partition = replicas.partition(key)
        if not self._is_follower:
            return partition.read_for_consumer(
                wanted.fetch_offset,
                max_bytes=max_bytes,
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
                min_one_batch=min_one_batch,
                read_committed=self._read_committed,
            )
        fetch = FollowerFetch(
            self._body.replica_id,
            self._body.replica_epoch,
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
        )
        if first:
            return partition.fetch_as_follower(
                fetch, max_bytes=max_bytes, now_ms=replicas.monotonic_ms(), min_one_batch=min_one_batch
            )
        return partition.read_for_follower(fetch, max_bytes=max_bytes, min_one_batch=min_one_batch)

    def _add_hint(self, data: PartitionData, key: TopicPartition, endpoints: dict[int, NodeEndpoint]) -> None:
        """Adds who leads now to the answer of a former leader (KIP-951)."""
        if self._request.version >= FIRST_VERSION_WITH_HINTS and data.error_code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        ):
            data.current_leader = leader_hint(self._services, key, self._request.listener_name, endpoints)


def _aborted(answer: FetchRead) -> list[AbortedTransaction] | None:
    """What the reader has to skip; null for one that reads everything."""
    aborted = answer.aborted_transactions
    if aborted is None:
        return None
    return [AbortedTransaction(known.producer_id, known.first_offset) for known in aborted]


def _error(wanted: FetchPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
    )
