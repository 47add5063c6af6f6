"""A small Kafka client for simulated hosts: metadata, idempotent production, reading everything back.

It keeps the rules that a correct client keeps: sequence numbers without gaps, retries in order and
under the same sequence, retries only of what may be retried. Whatever a broker answers that a correct
client must never see is a `Surprise`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kraft.network.client import BrokerConnection, ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraft.protocol.schemas.producers import InitProducerIdRequest, InitProducerIdResponse
from kraft.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from partitions.records.batch import decode_records, iter_batches, verify_crc
from partitions.records.builder import build_batch

METADATA_VERSION, CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, INIT_PRODUCER_ID_VERSION = 12, 7, 6, 4
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 12, 12, 9
REQUEST_TIMEOUT_S = 2.0
ACKS_TIMEOUT_MS = 1_500
BACKOFF_S = (0.02, 0.1)
WINDOW_BATCHES = 4
"""In flight for one partition; brokers remember five."""
FETCH_MAX_BYTES = 64 * 1024

Answer = TypeVar("Answer", bound=Message)


class Surprise(AssertionError):
    """A broker answered what a correct client must never be told."""


class Client:
    """Connections to a cluster, and who leads what. Lives on one event loop."""

    def __init__(
        self, bootstrap: Mapping[int, tuple[str, int]], rng: random.Random, now_ms: Callable[[], int]
    ) -> None:
        """`now_ms` gives the timestamps of what is produced."""
        self.rng = rng
        self.now_ms = now_ms
        self.leaders: dict[tuple[str, int], int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._addresses = dict(bootstrap)
        self._connections: dict[int, BrokerConnection] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def back_off(self) -> None:
        await asyncio.sleep(self.rng.uniform(*BACKOFF_S))

    async def call(self, broker: int, message: Message, version: int, answers: type[Answer]) -> Answer:
        """One request to one broker. Raises ConnectionLostError."""
        connection = await self._connection(broker)
        try:
            answer = await connection.request(message, version, timeout_s=REQUEST_TIMEOUT_S)
        except ConnectionLostError:
            if self._connections.get(broker) is connection:
                del self._connections[broker]
            raise
        assert isinstance(answer, answers)
        return answer

    async def call_any(self, message: Message, version: int, answers: type[Answer]) -> Answer:
        """The same to brokers drawn at random, until one answers."""
        while True:
            try:
                return await self.call(self.rng.choice(list(self._addresses)), message, version, answers)
            except ConnectionLostError:
                await self.back_off()

    async def _connection(self, broker: int) -> BrokerConnection:
        async with self._opening.setdefault(broker, asyncio.Lock()):
            connection = self._connections.get(broker)
            if connection is None or connection.closed:
                host, port = self._addresses[broker]
                connection = await BrokerConnection.connect(host, port, client_id="story", timeout_s=1.0)
                self._connections[broker] = connection
            return connection

    # -- metadata

    async def refresh(self, topic: str) -> None:
        """Asks some broker who leads the topic's partitions.

        A broker that was cut off may tell an old story: an older leader epoch is ignored (KIP-320).
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await self.call_any(request, METADATA_VERSION, MetadataResponse)
        for known in answer.topics:
            for partition in known.partitions:
                key = (topic, partition.partition_index)
                if partition.leader_epoch < self._epochs.get(key, -1):
                    continue
                self._epochs[key] = partition.leader_epoch
                if partition.leader_id < 0:
                    self.leaders.pop(key, None)
                else:
                    self.leaders[key] = partition.leader_id

    async def leader(self, topic: str, partition: int) -> int:
        """The partition's leader, as far as known; waits while there is none."""
        while (topic, partition) not in self.leaders:
            await self.refresh(topic)
            if (topic, partition) not in self.leaders:
                await self.back_off()
        return self.leaders[topic, partition]

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Returns when the topic exists. Raises Surprise."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(REQUEST_TIMEOUT_S * 1000))
        while True:
            answer = await self.call_any(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
            code = ErrorCode(answer.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            # Right after the start there may be fewer live brokers than replicas wanted.
            if not code.retriable and code not in (
                ErrorCode.INVALID_REPLICATION_FACTOR,
                ErrorCode.BROKER_NOT_AVAILABLE,
            ):
                raise Surprise(
                    f"CreateTopics was answered with {code.name}: {answer.topics[0].error_message}"
                )
            await self.back_off()

    async def delete_topic(self, topic: str) -> None:
        """Returns when the topic is gone. Raises Surprise."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic)], timeout_ms=int(REQUEST_TIMEOUT_S * 1000)
        )
        while True:
            answer = await self.call_any(request, DELETE_TOPICS_VERSION, DeleteTopicsResponse)
            code = ErrorCode(answer.responses[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return
            if not code.retriable and code is not ErrorCode.BROKER_NOT_AVAILABLE:
                raise Surprise(f"DeleteTopics was answered with {code.name}")
            await self.back_off()

    async def new_producer_id(self) -> int:
        while True:
            answer = await self.call_any(
                InitProducerIdRequest(), INIT_PRODUCER_ID_VERSION, InitProducerIdResponse
            )
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                return answer.producer_id
            if not code.retriable:
                raise Surprise(f"InitProducerId was answered with {code.name}")
            await self.back_off()


@dataclass
class Batch:
    """Some records of one partition under one sequence."""

    values: Sequence[bytes]
    base_sequence: int
    records: bytes
    attempts: int = 0


@dataclass
class Ledger:
    """What became of what was produced."""

    acknowledged: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    """By partition: offset → value."""
    sent: int = 0
    requests: int = 0
    retries: int = 0
    duplicates: int = 0
    longest_wait_s: float = 0.0
    """The longest time from a batch's first attempt to its acknowledgement."""

    @property
    def acknowledged_total(self) -> int:
        return sum(map(len, self.acknowledged.values()))


class PartitionProducer:
    """The idempotent producer of one partition: several batches in flight, acknowledged in order."""

    def __init__(self, client: Client, topic: str, partition: int, producer_id: int, ledger: Ledger) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._producer_id = producer_id
        self._ledger = ledger
        self._acknowledged = ledger.acknowledged.setdefault((topic, partition), {})
        self._next_sequence = 0
        self._window: list[Batch] = []
        self._expected_offset = 0

    async def run(self, is_over: Callable[[], bool], pause_s: float) -> None:
        """Produces about every `pause_s` until `is_over()`; returns when everything is acknowledged."""
        rng = self._client.rng
        while not is_over():
            # A log that does not know a producer takes any sequence: the first batch must not be overtaken.
            most = WINDOW_BATCHES if self._acknowledged else 1
            while len(self._window) < rng.randint(1, most):
                self._window.append(self._new_batch(rng.randint(1, 4)))
            await self._send_window()
            await asyncio.sleep(rng.uniform(0, 2 * pause_s))

    def _new_batch(self, records: int) -> Batch:
        first = self._next_sequence
        padding = b"." * self._client.rng.choice((0, 0, 10, 100, 3_000))
        values = [f"{self._topic}-{self._partition}:{first + n}".encode() + padding for n in range(records)]
        self._next_sequence += records
        self._ledger.sent += records
        timestamp = self._client.now_ms()
        encoded = build_batch(
            [(timestamp, None, value, ()) for value in values],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=first,
        )
        return Batch(values, first, encoded)

    async def _send_window(self) -> None:
        """Sends all that is not acknowledged, until it is; in order, again and again."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while self._window:
            leader = await self._client.leader(self._topic, self._partition)
            self._ledger.requests += len(self._window)
            answers = await asyncio.gather(*(self._send(leader, batch) for batch in self._window))
            failed = False
            for answer in answers:
                code, offset = answer
                if not failed and code is ErrorCode.NONE:
                    self._acknowledge(self._window.pop(0), offset)
                elif not failed:
                    failed = True
                    self._judge(code)
            self._ledger.longest_wait_s = max(self._ledger.longest_wait_s, loop.time() - began_s)
            if failed:
                self._ledger.retries += len(self._window)
                self._client.leaders.pop((self._topic, self._partition), None)
                await self._client.back_off()

    def _judge(self, code: ErrorCode) -> None:
        """The first batch in line failed: its error must be one that can pass."""
        if not code.retriable:
            raise Surprise(
                f"the oldest batch of {self._topic}-{self._partition} (sequence"
                f" {self._window[0].base_sequence}) was answered with {code.name}"
            )

    def _acknowledge(self, batch: Batch, offset: int) -> None:
        if offset < self._expected_offset:
            raise Surprise(f"offset {offset} of {self._topic}-{self._partition} was given away before")
        self._expected_offset = offset + len(batch.values)
        for number, value in enumerate(batch.values):
            self._acknowledged[offset + number] = value

    async def _send(self, leader: int, batch: Batch) -> tuple[ErrorCode, int]:
        batch.attempts += 1
        data = PartitionProduceData(index=self._partition, records=batch.records)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=ACKS_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )
        try:
            response = await self._client.call(leader, request, PRODUCE_VERSION, ProduceResponse)
        except ConnectionLostError:
            return ErrorCode.NETWORK_EXCEPTION, -1
        answer = response.responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset


@dataclass
class PartitionReader:
    """A consumer of one partition, from its start on."""

    client: Client
    topic: str
    partition: int
    read: list[tuple[int, bytes]] = field(default_factory=list)
    """(offset, value) of what was read, in the log's order."""
    next_offset: int = 0
    high_watermark: int = -1

    async def follow(self) -> None:
        """Reads on for ever, by long polls."""
        while True:
            await self._fetch(max_wait_ms=500)

    async def read_to_end(self) -> None:
        """Reads to the high watermark that the leader has then."""
        while await self._fetch(max_wait_ms=0) and self.next_offset < self.high_watermark:
            pass

    async def _fetch(self, max_wait_ms: int) -> bool:
        """One Fetch that succeeded."""
        key = (self.topic, self.partition)
        wanted = FetchPartition(
            partition=self.partition, fetch_offset=self.next_offset, partition_max_bytes=FETCH_MAX_BYTES
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        while True:
            leader = await self.client.leader(*key)
            try:
                response = await self.client.call(leader, request, FETCH_VERSION, FetchResponse)
            except ConnectionLostError:
                self.client.leaders.pop(key, None)
                await self.client.back_off()
                continue
            data = response.responses[0].partitions[0]
            code = ErrorCode(data.error_code)
            if code is ErrorCode.NONE:
                self._take(data)
                return True
            # A new leader may not know yet how far the one before had committed: its end looks too low.
            if not code.retriable and code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise Surprise(f"Fetch of {key} at {self.next_offset} was answered with {code.name}")
            self.client.leaders.pop(key, None)
            await self.client.back_off()
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and await self._start_offset() > self.next_offset:
                self.next_offset = wanted.fetch_offset = await self._start_offset()

    async def _start_offset(self) -> int:
        """Where the log starts by now; -1 if nobody says."""
        wanted = ListOffsetsPartition(partition_index=self.partition, timestamp=EARLIEST_TIMESTAMP)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=self.topic, partitions=[wanted])])
        leader = await self.client.leader(self.topic, self.partition)
        try:
            response = await self.client.call(leader, request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        except ConnectionLostError:
            return -1
        return response.topics[0].partitions[0].offset

    def _take(self, data: PartitionData) -> None:
        records = data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        self.high_watermark = data.high_watermark
        for position, header in iter_batches(records):
            verify_crc(records, position, header)
            for record in decode_records(records, position, header, max_decompressed_bytes=1 << 20):
                if record.offset >= self.next_offset:
                    self.read.append((record.offset, record.value or b""))
            self.next_offset = max(self.next_offset, header.next_offset)
