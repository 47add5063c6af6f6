"""A cluster of threaded brokers that serves batches from memory, for readers: no log, no replication.

`FakeCluster` listens on one loopback port a broker and answers ApiVersions, Metadata, ListOffsets,
OffsetForLeaderEpoch, Fetch, InitProducerId and Produce by Kafka's rules (leader, leader epoch, topic id, offset range).
Tests move leaders, stop brokers, cut logs, and script errors; `requests` tells what was asked. With `sasl` connections
must say who they are before anything else, and are closed when a session has ended (`sasl_server.py`).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from kraft.protocol import (
    SUPPORTED,
    ApiKey,
    ErrorCode,
    Message,
    decode_request,
    decode_request_header,
    encode_response_frame,
)
from kraft.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kraft.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kraft.protocol.schemas.api_versions import (
    UNSUPPORTED_VERSION_ANSWER_VERSION,
    ApiVersion,
    ApiVersionsResponse,
)
from kraft.protocol.schemas.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kraft.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kraft.protocol.schemas.offsets import EpochEndOffset as EpochEnd
from kraft.protocol.schemas.producers import InitProducerIdRequest, InitProducerIdResponse
from kraft.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from partitions.records.batch import parse_header, stamp
from partitions.records.builder import RecordTuple, build_batch
from tests.support.sasl_server import Refused, SaslStage, SaslUsers

_OF_AUTHENTICATION = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
Hook = Callable[[int, Message], ErrorCode | None]
"""Broker id and request; an error makes every partition of the answer fail with it."""


@dataclass
class FakePartition:
    """One partition; `batches` are in the order of offsets."""

    leader: int
    leader_epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    log_start_offset: int = 0
    high_watermark: int | None = None
    """None: the log end offset."""
    last_stable_offset: int | None = None
    """None: the high watermark."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer id, first offset and offset of the marker of each aborted transaction."""
    near: dict[str, int] = field(default_factory=dict)
    """By rack the follower that the leader sends readers to."""
    follower_ends: dict[int, int] = field(default_factory=dict)
    """What a follower has, where it lags."""

    @property
    def log_end_offset(self) -> int:
        return parse_header(self.batches[-1]).next_offset if self.batches else self.log_start_offset

    @property
    def end(self) -> int:
        return self.log_end_offset if self.high_watermark is None else self.high_watermark

    def readable_end(self, isolation_level: int) -> int:
        stable = self.last_stable_offset
        return self.end if stable is None or not isolation_level else min(stable, self.end)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one in the log, and where it ends."""
        headers = [parse_header(batch) for batch in self.batches]
        known = [header for header in headers if header.partition_leader_epoch <= epoch]
        return (known[-1].partition_leader_epoch, known[-1].next_offset) if known else (-1, -1)

    def append(self, records: Sequence[RecordTuple], *, gap: int = 0, **batch: Any) -> int:
        """Adds a batch `gap` offsets after the end; returns its base offset."""
        base_offset = self.log_end_offset + gap
        batch.setdefault("leader_epoch", self.leader_epoch)
        self.batches.append(build_batch(records, base_offset=base_offset, **batch))
        return base_offset

    def move(self, leader: int) -> None:
        """An election."""
        self.leader, self.leader_epoch = leader, self.leader_epoch + 1

    def truncate(self, offset: int) -> None:
        """Drops the batches from `offset` on."""
        self.batches = [batch for batch in self.batches if parse_header(batch).next_offset <= offset]


@dataclass
class FakeTopic:
    topic_id: bytes
    partitions: list[FakePartition]
    is_internal: bool = False
    configs: dict[str, str] = field(default_factory=dict)


class FakeCluster:
    """Use it as a context manager. Brokers have the ids 1, 2, …"""

    def __init__(self, brokers: int = 1, *, sasl: SaslUsers | None = None) -> None:
        self.sasl = sasl
        self.topics: dict[str, FakeTopic] = {}
        self.requests: list[tuple[int, Message]] = []
        self.hook: Hook = lambda broker_id, request: None
        self.api_versions = {
            int(key): (versions[0], versions[-1])
            for key, versions in SUPPORTED.items()
            if sasl is not None or key not in _OF_AUTHENTICATION
        }
        self.metadata_of: dict[int, dict[str, FakeTopic]] = {}
        """What single brokers believe, where it is not the truth."""
        self.lock = threading.RLock()
        self._topics_made = 0
        self._ports: dict[int, int] = {}
        self._running: dict[int, _Listener] = {}
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for broker_id in list(self._running):
            self.stop(broker_id)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self, broker_id: int) -> None:
        """Starts a broker, again on the port that it had."""
        listener = _Listener(self, broker_id, self._ports.get(broker_id, 0))
        self._ports[broker_id] = listener.port
        self._running[broker_id] = listener

    def stop(self, broker_id: int) -> None:
        """Closes its connections and its port. Returns when its threads have ended."""
        self._running.pop(broker_id).close()

    def create_topic(
        self, name: str, *, leaders: Sequence[int] = (1,), is_internal: bool = False
    ) -> FakeTopic:
        """A topic with one empty partition a leader; replaces one of the same name."""
        self._topics_made += 1
        partitions = [FakePartition(leader) for leader in leaders]
        self.topics[name] = FakeTopic(self._topics_made.to_bytes(16, "big"), partitions, is_internal)
        return self.topics[name]

    def asked(self, kind: type[Message]) -> list[Any]:
        """The requests of one class so far."""
        return [request for _, request in self.requests if isinstance(request, kind)]

    def answer(self, broker_id: int, request: Message) -> Message:
        with self.lock:
            self.requests.append((broker_id, request))
            error = self.hook(broker_id, request)
            if isinstance(request, MetadataRequest):
                return self._metadata(broker_id, request, error)
            if isinstance(request, ListOffsetsRequest):
                return self._list_offsets(broker_id, request, error)
            if isinstance(request, OffsetForLeaderEpochRequest):
                return self._ends_of_epochs(broker_id, request, error)
            if isinstance(request, FetchRequest):
                return self._fetch(broker_id, request, error)
            if isinstance(request, ProduceRequest):
                return self._produce(broker_id, request, error)
            if isinstance(request, InitProducerIdRequest):
                return InitProducerIdResponse(error_code=error or 0, producer_id=len(self.requests))
            if isinstance(request, DescribeConfigsRequest):
                return self._configs(request, error)
        return self.versions_offered(ErrorCode.NONE)

    def versions_offered(self, error: ErrorCode) -> ApiVersionsResponse:
        offered = [ApiVersion(key, *versions) for key, versions in self.api_versions.items()]
        return ApiVersionsResponse(error_code=error, api_keys=offered)

    def _produce(self, broker_id: int, request: ProduceRequest, error: ErrorCode | None) -> ProduceResponse:
        """Takes one batch a partition, as producers send; tells nobody of doubles."""
        responses = []
        for asked in request.topic_data:
            answers = []
            for data in asked.partition_data:
                partition = self.topics[asked.name].partitions[data.index]
                code = error or _leader_error(partition, broker_id, -1)
                answers.append(PartitionProduceResponse(data.index, code, partition.log_end_offset))
                if code is ErrorCode.NONE and data.records is not None:
                    batch = bytearray(data.records)
                    stamp(batch, 0, base_offset=partition.log_end_offset, leader_epoch=partition.leader_epoch)
                    partition.batches.append(bytes(batch))
            responses.append(TopicProduceResponse(asked.name, answers))
        return ProduceResponse(responses)

    def _metadata(
        self, broker_id: int, request: MetadataRequest, error: ErrorCode | None
    ) -> MetadataResponse:
        topics = self.metadata_of.get(broker_id, self.topics)
        names = list(topics) if request.topics is None else [str(topic.name) for topic in request.topics]
        answers = []
        for name in names:
            topic = topics.get(name)
            if topic is None or error is not None:
                code = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answers.append(MetadataResponseTopic(error_code=code, name=name))
                continue
            partitions = [
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=[partition.leader],
                    isr_nodes=[partition.leader],
                )
                for index, partition in enumerate(topic.partitions)
            ]
            answers.append(
                MetadataResponseTopic(
                    name=name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions
                )
            )
        brokers = [
            MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
            for node_id, port in self._ports.items()
            if node_id in self._running
        ]
        return MetadataResponse(brokers=brokers, cluster_id="fake", controller_id=1, topics=answers)

    def _list_offsets(
        self, broker_id: int, request: ListOffsetsRequest, error: ErrorCode | None
    ) -> ListOffsetsResponse:
        topics = []
        for asked in request.topics:
            answers = []
            for entry in asked.partitions:
                partitions = self.topics[asked.name].partitions
                if entry.partition_index >= len(partitions):  # the topic was made anew with fewer
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    answers.append(ListOffsetsPartitionResponse(entry.partition_index, error_code=code))
                    continue
                partition = partitions[entry.partition_index]
                code = error or _leader_error(partition, broker_id, entry.current_leader_epoch)
                answer = ListOffsetsPartitionResponse(partition_index=entry.partition_index, error_code=code)
                if code is ErrorCode.NONE:
                    answer.leader_epoch = partition.leader_epoch
                    answer.offset, answer.timestamp = _offset_for(
                        partition, entry.timestamp, request.isolation_level
                    )
                answers.append(answer)
            topics.append(ListOffsetsTopicResponse(name=asked.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _ends_of_epochs(
        self, broker_id: int, request: OffsetForLeaderEpochRequest, error: ErrorCode | None
    ) -> OffsetForLeaderEpochResponse:
        topics = []
        for asked in request.topics:
            answers = []
            for entry in asked.partitions:
                partition = self.topics[asked.topic].partitions[entry.partition]
                code = error or _leader_error(partition, broker_id, entry.current_leader_epoch)
                answer = EpochEnd(error_code=code, partition=entry.partition)
                if code is ErrorCode.NONE:
                    answer.leader_epoch, answer.end_offset = partition.end_of_epoch(entry.leader_epoch)
                answers.append(answer)
            topics.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _configs(self, request: DescribeConfigsRequest, error: ErrorCode | None) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_code=error or ErrorCode.NONE,
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(name, value)
                        for name, value in self.topics[asked.resource_name].configs.items()
                    ],
                )
                for asked in request.resources
            ]
        )

    def _fetch(self, broker_id: int, request: FetchRequest, error: ErrorCode | None) -> FetchResponse:
        responses = []
        by_id = {topic.topic_id: topic for topic in self.topics.values()}
        for asked in request.topics:
            topic = by_id.get(asked.topic_id)
            answers = []
            for entry in asked.partitions:
                data = PartitionData(partition_index=entry.partition, records=b"")
                if error is not None or topic is None:
                    data.error_code = error or ErrorCode.UNKNOWN_TOPIC_ID
                else:
                    _read(topic.partitions[entry.partition], broker_id, entry, data, request)
                answers.append(data)
            responses.append(FetchableTopicResponse(topic_id=asked.topic_id, partitions=answers))
        return FetchResponse(responses=responses)


def _leader_error(partition: FakePartition, broker_id: int, epoch: int) -> ErrorCode:
    if -1 < epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > partition.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if partition.leader == broker_id else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _offset_for(partition: FakePartition, timestamp: int, isolation_level: int) -> tuple[int, int]:
    """By batches' largest timestamps: good enough for tests."""
    if timestamp == LATEST_TIMESTAMP:
        return partition.readable_end(isolation_level), -1
    if timestamp == EARLIEST_TIMESTAMP:
        return partition.log_start_offset, -1
    for batch in partition.batches:
        header = parse_header(batch)
        if header.max_timestamp >= timestamp:
            return header.base_offset, header.max_timestamp
    return -1, -1


def _read(
    partition: FakePartition, broker_id: int, entry: Any, data: PartitionData, request: FetchRequest
) -> None:
    isolation_level = request.isolation_level
    is_follower = broker_id in partition.near.values() and broker_id != partition.leader
    serving = partition.leader if is_follower else broker_id
    data.error_code = _leader_error(partition, serving, entry.current_leader_epoch)
    if data.error_code:
        return
    data.high_watermark = partition.end
    data.last_stable_offset = partition.readable_end(1)
    data.log_start_offset = partition.log_start_offset
    near = partition.near.get(request.rack_id, partition.leader)
    if not is_follower and near != partition.leader:
        data.preferred_read_replica = near
        return
    end = partition.readable_end(isolation_level)
    if is_follower and broker_id in partition.follower_ends:
        end = min(end, partition.follower_ends[broker_id])
        if entry.fetch_offset > end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return
    if entry.last_fetched_epoch >= 0:
        epoch, end_of_epoch = partition.end_of_epoch(entry.last_fetched_epoch)
        end_of_epoch = max(end_of_epoch, 0)
        if epoch < entry.last_fetched_epoch or end_of_epoch < entry.fetch_offset:
            data.diverging_epoch = EpochEndOffset(epoch, end_of_epoch)
            return
    if not partition.log_start_offset <= entry.fetch_offset <= partition.log_end_offset:
        data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return
    records = bytearray()
    for batch in partition.batches:
        header = parse_header(batch)
        if header.next_offset <= entry.fetch_offset or header.next_offset > end:
            continue
        if records and len(records) + len(batch) > entry.partition_max_bytes:
            records += batch[: entry.partition_max_bytes - len(records)]  # torn, as Kafka's may be
            break
        records += batch
    data.records = bytes(records)
    if isolation_level:
        data.aborted_transactions = [
            AbortedTransaction(producer_id, first)
            for producer_id, first, marker in partition.aborted
            if marker >= entry.fetch_offset
        ]


class _Listener:
    """One broker: an accepting thread, and one for each connection."""

    def __init__(self, cluster: FakeCluster, broker_id: int, port: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._threads[0].join()
        self._socket.close()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # its peer was faster
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        users = self._cluster.sasl
        stage = None if users is None else SaslStage(users, len(self._connections))
        with connection, connection.makefile("rb") as stream:
            try:
                while len(head := stream.read(4)) == 4:
                    frame = stream.read(int.from_bytes(head, "big"))
                    api_key, version, correlation_id, position = _header(frame)
                    if api_key == ApiKey.API_VERSIONS and version > self._cluster.api_versions[api_key][1]:
                        refusal = self._cluster.versions_offered(ErrorCode.UNSUPPORTED_VERSION)
                        self._send(connection, refusal, UNSUPPORTED_VERSION_ANSWER_VERSION, correlation_id)
                        continue
                    request = decode_request(api_key, version, frame, position)
                    if api_key != ApiKey.API_VERSIONS:
                        low, high = self._cluster.api_versions[api_key]
                        assert low <= version <= high, "a client must keep to the versions offered"
                    response = None if stage is None else _authenticated(stage, users, request)
                    if response is None:
                        if stage is not None and api_key != ApiKey.API_VERSIONS and not stage.is_open():
                            return
                        response = self._cluster.answer(self._broker_id, request)
                    self._send(connection, response, version, correlation_id)
            except OSError:
                return  # stopped, or the client left

    def _send(self, connection: socket.socket, response: Message, version: int, correlation_id: int) -> None:
        parts, _ = encode_response_frame(response, version, correlation_id=correlation_id)
        connection.sendall(b"".join(parts))  # type: ignore[arg-type]  # no file slices here


def _header(frame: bytes) -> tuple[ApiKey, int, int, int]:
    """API, version, correlation id, and where the body starts."""
    header, position = decode_request_header(frame)
    return header.api_key, header.api_version, header.correlation_id, position


def _authenticated(stage: SaslStage, users: SaslUsers | None, request: Message) -> Message | None:
    """The answer to a step of authentication; None for other requests."""
    assert users is not None
    if isinstance(request, SaslHandshakeRequest):
        code = ErrorCode.NONE if stage.begin(request.mechanism) else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(users.handshake_error or code, list(users.mechanisms))
    if isinstance(request, SaslAuthenticateRequest):
        try:
            token = stage.answer(bytes(request.auth_bytes))
        except Refused:
            return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, users.reason)
        return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=users.lifetime_ms)
    return None
