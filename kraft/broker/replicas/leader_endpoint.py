"""The fetcher's view of one leader broker, over the Fetch and ListOffsets APIs.

Each lane of the fetcher has a connection of its own, since a connection answers in order and a long
poll must not hold up the other lane; so have offset queries. Connections are opened on first use,
closed on any failure, and opened again by the next call. (Implements `fetcher.leader_endpoint`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fetcher.leader_endpoint import (
    INITIAL_EPOCH,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderOffsets,
    OffsetsQuery,
    PartitionKey,
)
from kraft.broker.peer_security import PLAIN_PEERS, PeerSecurity
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.protocol import fetch as wire
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quorum.metadata.records import Listener

FETCH_VERSION = 16
LIST_OFFSETS_VERSION = 9
OFFSETS_LANE = -1
CLIENT_ID = "replica-fetcher"


class RemoteLeader:
    """One leader broker. `address` gives its endpoint now, None while it has none."""

    def __init__(
        self,
        leader_id: int,
        broker_id: int,
        *,
        broker_epoch: Callable[[], int],
        address: Callable[[], Listener | None],
        request_timeout_s: float,
        security: PeerSecurity = PLAIN_PEERS,
    ) -> None:
        self._leader_id = leader_id
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._address = address
        self._timeout_s = request_timeout_s
        self._security = security
        self._connections: dict[int, PeerConnection] = {}
        """By lane."""
        self._session_keys: dict[tuple[bytes, int], PartitionKey] = {}
        """What is in the fetch session: its answers name what requests do not name any more."""

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """One Fetch. Raises LeaderUnavailable."""
        keys = self._keys(request)
        topics: list[wire.FetchTopic] = []
        # Consecutive partitions of a topic share an entry; the order that the fetcher chose is kept.
        for asked in request.partitions:
            keys[asked.topic_id, asked.key[1]] = asked.key
            if not topics or topics[-1].topic_id != asked.topic_id:
                topics.append(wire.FetchTopic(topic=asked.key[0], topic_id=asked.topic_id, partitions=[]))
            topics[-1].partitions.append(_wanted(asked))
        body = wire.FetchRequest(
            replica_id=self._broker_id,
            replica_epoch=self._broker_epoch(),
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=topics,
            forgotten_topics_data=_forgotten(request),
        )
        timeout_s = self._timeout_s + request.max_wait_ms / 1000
        answer = await self._call(request.lane, body, FETCH_VERSION, timeout_s)
        if answer.error_code:
            return FetchResponse((), _error_name(answer.error_code))
        return FetchResponse(
            [
                _fetched(keys[topic.topic_id, data.partition_index], data)
                for topic in answer.responses
                for data in topic.partitions
                if (topic.topic_id, data.partition_index) in keys
            ],
            session_id=answer.session_id,
        )

    def _keys(self, request: FetchRequest) -> dict[tuple[bytes, int], PartitionKey]:
        """Names by topic id and number, but for what the request names: those that its session holds."""
        if request.session_epoch < INITIAL_EPOCH:
            return {}
        if request.is_full:
            self._session_keys = {}
        for (_, number), topic_id in request.forgotten:
            self._session_keys.pop((topic_id, number), None)
        return self._session_keys

    async def log_offsets(self, queries: Sequence[OffsetsQuery]) -> Mapping[PartitionKey, LeaderOffsets]:
        """The bounds of the leader's logs, as a replica sees them. Raises LeaderUnavailable."""
        ends = await self._list_offsets(queries, LATEST_TIMESTAMP)
        starts = await self._list_offsets(queries, EARLIEST_TIMESTAMP)
        offsets = {}
        for query in queries:
            start, end = starts.get(query.key), ends.get(query.key)
            if start is None or end is None:
                offsets[query.key] = LeaderOffsets(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)
                continue
            code = start[1] or end[1]
            offsets[query.key] = (
                LeaderOffsets(error=_error_name(code)) if code else LeaderOffsets(start[0], end[0])
            )
        return offsets

    async def _list_offsets(
        self, queries: Sequence[OffsetsQuery], timestamp: int
    ) -> dict[PartitionKey, tuple[int, int]]:
        """(offset, error code) of each partition."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for query in queries:
            topics.setdefault(query.key[0], []).append(
                ListOffsetsPartition(
                    partition_index=query.key[1],
                    current_leader_epoch=query.current_leader_epoch,
                    timestamp=timestamp,
                )
            )
        body = ListOffsetsRequest(
            replica_id=self._broker_id,
            topics=[
                ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()
            ],
        )
        answer = await self._call(OFFSETS_LANE, body, LIST_OFFSETS_VERSION, self._timeout_s)
        return {
            (topic.name, partition.partition_index): (partition.offset, partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }

    async def _call(self, lane: int, body: Message, version: int, timeout_s: float) -> Any:
        connection = self._connections.get(lane)
        if connection is None:
            connection = self._connections[lane] = PeerConnection(
                self._leader_id, self._address, client_id=CLIENT_ID, security=self._security
            )
        return await connection.request(body, version, timeout_s=timeout_s)

    async def close(self) -> None:
        """Closes all connections."""
        for connection in self._connections.values():
            connection.close()


def _error_name(code: int) -> str:
    """Kafka's name of an error; a leader of a newer release may know some that this broker does not."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR.name


def _wanted(asked: FetchPartition) -> wire.FetchPartition:
    return wire.FetchPartition(
        partition=asked.key[1],
        current_leader_epoch=asked.current_leader_epoch,
        fetch_offset=asked.fetch_offset,
        last_fetched_epoch=asked.last_fetched_epoch,
        log_start_offset=asked.log_start_offset,
        partition_max_bytes=asked.max_bytes,
    )


def _forgotten(request: FetchRequest) -> list[wire.ForgottenTopic]:
    topics: dict[bytes, wire.ForgottenTopic] = {}
    for (name, number), topic_id in request.forgotten:
        topic = topics.setdefault(topic_id, wire.ForgottenTopic(name, topic_id, []))
        topic.partitions.append(number)
    return list(topics.values())


def _fetched(key: PartitionKey, data: wire.PartitionData) -> FetchedPartition:
    diverging = data.diverging_epoch
    records = data.records
    assert records is None or isinstance(records, memoryview), "decoded records are a view"
    return FetchedPartition(
        key,
        _error_name(data.error_code) if data.error_code else None,
        data.high_watermark,
        data.log_start_offset,
        None if diverging is None else (diverging.epoch, diverging.end_offset),
        b"" if records is None else records,
    )
