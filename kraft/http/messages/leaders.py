"""The partitions of one topic, read from their leaders, as a consumer without a group reads them.

Made for one request of a browser, and closed with it. Every leader, this broker too, is asked over the inter-broker
listener, with the credentials that brokers have between each other: whether the browser's user may read has been
decided before. Guarantees: a leader has one request at a time, with a deadline; an answer is about `FETCH_MAX_BYTES`
divided by the leaders asked, or one batch; what a leader refuses, or does not answer, is a sentence on each of its
partitions, and concerns no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.protocol import fetch as wire
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from partitions.disk import Buffer
from quorum.metadata.image import TopicImage

T = TypeVar("T")

CLIENT_ID: Final = "kraft-console"
LIST_OFFSETS_VERSION: Final = 9
FETCH_VERSION: Final = 16
FETCH_MAX_BYTES: Final = 2 * 1024 * 1024
FETCH_LEAST_BYTES: Final = 128 * 1024
RESPONSE_MAX_BYTES: Final = 64 * 1024 * 1024
"""The broker sends a larger batch whole; beyond this the connection is given up."""
REQUEST_TIMEOUT_S: Final = 5.0
READ_COMMITTED: Final = 1
_MEANINGS: Final[Mapping[int, str]] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "its leader is changing",
    ErrorCode.FENCED_LEADER_EPOCH: "its leader is changing",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "its leader is changing",
    ErrorCode.OFFSET_NOT_AVAILABLE: "its new leader does not know yet what is committed",
    ErrorCode.UNKNOWN_TOPIC_ID: "its leader does not know the topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "its leader does not know the topic",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "brokers may not READ the topic from each other: list their principal in"
    " super.users, or allow it READ",
    ErrorCode.KAFKA_STORAGE_ERROR: "its leader cannot read its log",
}


class Bounds(NamedTuple):
    """Where a partition's readable records begin and end (the last stable offset, for read_committed)."""

    log_start_offset: int
    end_offset: int


class Fetched(NamedTuple):
    """A leader's answer for one partition."""

    data: Buffer
    aborted: Sequence[wire.AbortedTransaction]
    end_offset: int
    """As in `Bounds`."""
    log_start_offset: int


class OutOfRange(NamedTuple):
    """The offset asked for is not in the log, or not any more."""


class Trouble(NamedTuple):
    """Why there is no answer."""

    sentence: str


class TopicReads:
    """All on the event loop. `peer(broker_id, client_id, max_response_bytes)` makes a connection."""

    def __init__(
        self,
        topic: TopicImage,
        metadata: MetadataCache,
        peer: Callable[[int, str, int], PeerConnection],
        *,
        read_committed: bool,
    ) -> None:
        self.topic = topic
        self._metadata = metadata
        self._peer = peer
        self._read_committed = read_committed
        self._connections: dict[int, PeerConnection] = {}

    @property
    def is_gone(self) -> bool:
        """Whether the topic was deleted, also if there is another one of its name."""
        return self.topic.topic_id not in self._metadata.image.topics

    @property
    def partition_count(self) -> int:
        """How many it has now; they only become more."""
        newest = self._metadata.image.topics.get(self.topic.topic_id, self.topic)
        return len(newest.partitions)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def bounds(self, partitions: Iterable[int]) -> Mapping[int, Bounds | Trouble]:
        """Where each begins and ends now."""
        wanted = list(partitions)
        starts = await self.offsets(dict.fromkeys(wanted, EARLIEST_TIMESTAMP))
        ends = await self.offsets(dict.fromkeys(wanted, LATEST_TIMESTAMP))
        found: dict[int, Bounds | Trouble] = {}
        for number in wanted:
            start, end = starts[number], ends[number]
            if isinstance(start, Trouble) or isinstance(end, Trouble):
                found[number] = start if isinstance(start, Trouble) else end  # type: ignore[assignment]
            else:
                found[number] = Bounds(start, end)
        return found

    async def offsets(self, times: Mapping[int, int]) -> Mapping[int, int | Trouble]:
        """The first offset of that time (ms) or later by partition, -1: none; or for one of Kafka's special times."""

        async def ask(connection: PeerConnection, epochs: Mapping[int, int]) -> dict[int, int | Trouble]:
            rows = [ListOffsetsPartition(number, epoch, times[number]) for number, epoch in epochs.items()]
            body = ListOffsetsRequest(
                isolation_level=READ_COMMITTED if self._read_committed else 0,
                topics=[ListOffsetsTopic(self.topic.name, rows)],
            )
            answer = await connection.request(body, LIST_OFFSETS_VERSION, timeout_s=REQUEST_TIMEOUT_S)
            return {
                row.partition_index: _trouble(row.error_code) if row.error_code else row.offset
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self._of_leaders(times, ask)

    async def fetch(
        self, positions: Mapping[int, int], max_wait_ms: int = 0
    ) -> Mapping[int, Fetched | OutOfRange | Trouble]:
        """Whole batches from these offsets on; the first partitions are served first."""
        leaders = {self._leader(number)[0] for number in positions}
        max_bytes = max(FETCH_MAX_BYTES // max(len(leaders), 1), FETCH_LEAST_BYTES)

        async def ask(
            connection: PeerConnection, epochs: Mapping[int, int]
        ) -> dict[int, Fetched | OutOfRange | Trouble]:
            rows = [
                wire.FetchPartition(number, epoch, positions[number], partition_max_bytes=max_bytes)
                for number, epoch in epochs.items()
            ]
            body = wire.FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1 if max_wait_ms else 0,
                max_bytes=max_bytes,
                isolation_level=READ_COMMITTED if self._read_committed else 0,
                topics=[wire.FetchTopic(topic_id=self.topic.topic_id, partitions=rows)],
            )
            timeout_s = REQUEST_TIMEOUT_S + max_wait_ms / 1000
            answer = await connection.request(body, FETCH_VERSION, timeout_s=timeout_s)
            if answer.error_code:
                return dict.fromkeys(epochs, _trouble(answer.error_code))
            return {
                row.partition_index: self._fetched(row) for one in answer.responses for row in one.partitions
            }

        return await self._of_leaders(positions, ask)

    def _fetched(self, row: Any) -> Fetched | OutOfRange | Trouble:
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return OutOfRange()
        if row.error_code:
            return _trouble(row.error_code)
        end = row.last_stable_offset if self._read_committed else row.high_watermark
        return Fetched(row.records or b"", row.aborted_transactions or (), end, row.log_start_offset)

    def _leader(self, number: int) -> tuple[int, int]:
        """Its leader and the leader's epoch, by this node's metadata; -1: none."""
        topic = self._metadata.image.topics.get(self.topic.topic_id)
        if topic is None or number >= len(topic.partitions):
            return -1, -1
        state = topic.partitions[number]
        return (state.leader if state.has_leader else -1), state.leader_epoch

    async def _of_leaders(
        self,
        partitions: Iterable[int],
        ask: Callable[[PeerConnection, Mapping[int, int]], Awaitable[Mapping[int, T | Trouble]]],
    ) -> dict[int, T | Trouble]:
        """What all leaders say, asked at the same time; each partition has an entry."""
        epochs: dict[int, dict[int, int]] = {}
        for number in partitions:
            leader, epoch = self._leader(number)
            epochs.setdefault(leader, {})[number] = epoch
        nobody = epochs.pop(-1, {})
        found: dict[int, T | Trouble] = dict.fromkeys(
            nobody, Trouble("the topic was deleted" if self.is_gone else "it has no leader now")
        )

        async def of(leader: int, wanted: Mapping[int, int]) -> None:
            connection = self._connections.get(leader)
            if connection is None:
                connection = self._peer(leader, CLIENT_ID, RESPONSE_MAX_BYTES)
                self._connections[leader] = connection
            try:
                answers = await ask(connection, wanted)
            except LeaderUnavailable as error:
                answers = dict.fromkeys(wanted, Trouble(f"its leader does not answer: {error}"))
            unsaid = Trouble(f"broker {leader} leads it and said nothing about it")
            found.update((number, answers.get(number, unsaid)) for number in wanted)

        async with asyncio.TaskGroup() as asking:
            for leader, wanted in epochs.items():
                asking.create_task(of(leader, wanted))
        return found


def _trouble(code: int) -> Trouble:
    try:
        error = ErrorCode(code)
    except ValueError:
        return Trouble(f"its leader answers with error {code}, which this broker does not know")
    meaning = _MEANINGS.get(error)
    return Trouble(f"{meaning} ({error.name})" if meaning else f"its leader answers {error.name}")
