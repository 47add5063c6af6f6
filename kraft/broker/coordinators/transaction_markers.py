"""Sending the markers that end transactions: the IO of `kraft.coordinator.transactions.markers`.

The transaction coordinator owns one. Effects of its shards come by `perform`; all of one turn of the loop share
requests. What another broker leads is asked of it with WriteTxnMarkers, one request at a time; what this broker leads
is written in place. Nothing on the way of a commit waits for a timer: only what failed is tried again after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Final

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.coordinators.marker_writes import Codes, MarkerWrite
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.broker.vital_task import start_vital_task
from kraft.coordinator.transactions.markers import GONE, NOBODY, Acknowledged, Batch, MarkerQueues
from kraft.coordinator.transactions.requests import SendMarkers
from kraft.coordinator.transactions.transaction import by_topic
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition

VERSION: Final = 2
CLIENT_ID: Final = "transaction-markers"
WRITE_TIMEOUT_S: Final = 30.0
"""For the replicas of the partitions that this broker leads."""
REQUEST_TIMEOUT_S: Final = 35.0
"""For another broker's answer, which gives its own replicas 30 s. A broker that is frozen loses its leaderships before:
then its markers go to the new leaders at once."""
IN_FLIGHT_HERE: Final = 64
"""Writes in place that may wait for their replicas at once: slow followers of one partition hold up no later marker."""

WriteHere = Callable[[Sequence[MarkerWrite], float], Awaitable[list[Codes]]]
Tell = Callable[[Acknowledged], None]
"""Tells a shard, in that leader epoch, what was written."""


class MarkerSender:
    """All markers that the transaction coordinators of one broker have written."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        write_here: WriteHere,
        peer: Callable[[int], PeerConnection],
        loop: asyncio.AbstractEventLoop,
        halt: Halt,
        tell: Tell,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._write_here = write_here
        self._peer = peer
        self._loop = loop
        self._halt = halt
        self._tell = tell
        self.queues = MarkerQueues(
            self._leader_of, lambda broker: IN_FLIGHT_HERE if broker == broker_id else 1
        )
        self._peers: dict[int, PeerConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_due = False
        self._timer: asyncio.Handle | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Markers that are not acknowledged are sent by whoever leads their shards next."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self._peers.values():
            peer.close()

    # -- what happens

    def perform(self, number: int, leader_epoch: int, what: SendMarkers) -> None:
        """A shard's effect."""
        self.queues.add(number, leader_epoch, what)
        self._soon()

    def on_topics(self, names: Set[str]) -> None:
        """The metadata of these topics changed."""
        self.queues.on_topics(names)
        self._soon()

    def end_leadership(self, number: int) -> None:
        """This broker does not lead that shard any more."""
        self.queues.end_leadership(number)

    # -- sending

    def _soon(self) -> None:
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Tells shards what was written, and sends what can be sent."""
        self._is_due = False
        if self._is_closed:
            return
        self.queues.on_time(self._now_ms())
        for acknowledged in self.queues.take_acknowledged():
            self._tell(acknowledged)
        while ready := self.queues.ready():
            for broker_id in ready:
                work = self._send(self.queues.take(broker_id))
                task = start_vital_task(work, CLIENT_ID, self._halt)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (next_ms := self.queues.next_ms) is not None:
            self._timer = self._loop.call_at(next_ms / 1000 + 0.001, self._soon)

    async def _send(self, batch: Batch) -> None:
        codes: list[Codes] | None
        if batch.broker_id == self._broker_id:
            writes = [MarkerWrite(one.marker, one.partitions) for one in batch.markers]
            codes = await self._write_here(writes, WRITE_TIMEOUT_S)
        else:
            codes = await self._ask(batch)
        if codes is None:
            self.queues.fail(batch, self._now_ms())
        else:
            self.queues.answer(batch, codes, self._now_ms())
        self._soon()

    async def _ask(self, batch: Batch) -> list[Codes] | None:
        """What another broker says; None if it did not answer."""
        peer = self._peers.get(batch.broker_id)
        if peer is None:
            peer = self._peers[batch.broker_id] = self._peer(batch.broker_id)
        try:
            response = await peer.request(request_for(batch), VERSION, timeout_s=REQUEST_TIMEOUT_S)
        except LeaderUnavailable:
            return None
        return read_answer(response, batch)

    def _leader_of(self, key: TopicPartition) -> int:
        topic = self._metadata.image.topic(key.topic)
        if topic is None or key.partition >= len(topic.partitions):
            return GONE
        state = topic.partitions[key.partition]
        return state.leader if state.has_leader else NOBODY

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def request_for(batch: Batch) -> WriteTxnMarkersRequest:
    """A batch for another broker, markers in their order."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=one.marker.producer.producer_id,
                producer_epoch=one.marker.producer.epoch,
                transaction_result=one.marker.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                    for name, numbers in by_topic(one.partitions)
                ],
                coordinator_epoch=one.marker.coordinator_epoch,
                transaction_version=one.marker.transaction_version,
            )
            for one in batch.markers
        ]
    )


def read_answer(response: WriteTxnMarkersResponse, batch: Batch) -> list[Codes]:
    """What an answer says of each marker. Markers are told apart by their producer ids, of which those of one broker's
    shards have one each at a time; an error that this version does not know is retried as one of the server."""
    told: dict[int, Mapping[TopicPartition, ErrorCode]] = {
        result.producer_id: {
            TopicPartition(topic.name, one.partition_index): _known(one.error_code)
            for topic in result.topics
            for one in topic.partitions
        }
        for result in response.markers
    }
    return [dict(told.get(one.marker.producer.producer_id, {})) for one in batch.markers]


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
