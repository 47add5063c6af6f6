"""Kafka's protocol byte by byte over a blocking socket, for requests that no client library would send."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Mapping
from typing import Any

from kraft.protocol.api import ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.headers import decode_response_header
from kraft.protocol.messages import decode_response, encode_request_frame
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.api_versions import ApiVersionsRequest
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kraft.protocol.schemas.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from partitions.records.builder import build_batch

TIMEOUT_S = 40.0
PRODUCE_VERSION = 11
FETCH_VERSION = 12
METADATA_VERSION = 12
NOW_MS = 1_700_000_000_000


class RawConnection:
    """One connection to one node."""

    def __init__(self, address: tuple[str, int], source: str = "") -> None:
        """`source`: the address to come from, where it is not any."""
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S, source_address=(source, 0))
        self.client_id = "raw"
        self._correlation_id = 100

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        """Bytes behind their right length."""
        self.send(struct.pack(">i", len(body)) + body)

    def send_request(self, message: Message, version: int) -> int:
        """A request; returns its correlation id."""
        self._correlation_id += 1
        self.send(
            encode_request_frame(
                message, version, correlation_id=self._correlation_id, client_id=self.client_id
            )
        )
        return self._correlation_id

    def receive_frame(self) -> bytes:
        """The next frame without its length. Raises ConnectionError when the broker has closed."""
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return data

    def receive(self, api_key: ApiKey, version: int, correlation_id: int) -> Any:
        """The answer to the oldest request that was not answered yet."""
        frame = self.receive_frame()
        answered, position = decode_response_header(api_key, version, frame)
        assert answered == correlation_id, "answers come in the order of the requests"
        return decode_response(api_key, version, frame, position)

    def call(self, message: Message, version: int) -> Any:
        """A request and its answer."""
        return self.receive(message.API_KEY, version, self.send_request(message, version))

    def has_answer(self) -> bool:
        """Whether bytes lie ready to be read."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def was_closed(self) -> bool:
        """Whether the broker closes this connection, without an answer; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        acks: int = -1,
        partition: int = 0,
        version: int = PRODUCE_VERSION,
        transactional_id: str | None = None,
    ) -> Any:
        """Sends one record set as it is; returns the partition's answer."""
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        request = ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[data]
        )
        return self.call(request, version).responses[0].partition_responses[0]

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The partition's ISR, as this node knows it; another may know a newer one."""
        return list(self._state(topic, partition).isr_nodes)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The partition's leader, as this node knows it."""
        return int(self._state(topic, partition).leader_id)

    def _state(self, topic: str, partition: int) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = self.call(request, METADATA_VERSION)
        return next(p for p in answer.topics[0].partitions if p.partition_index == partition)


def batch(*values: bytes, **fields: Any) -> bytes:
    """A record batch of values without keys; the fields are those of `build_batch`."""
    return build_batch([(NOW_MS, None, value, ()) for value in values], **fields)


def forged(whole: bytes, patches: Mapping[int, tuple[str, int]]) -> bytes:
    """A batch with other header fields: position → (struct format, value). The CRC is left as it was."""
    changed = bytearray(whole)
    for position, (layout, value) in patches.items():
        struct.pack_into(layout, changed, position, value)
    return bytes(changed)


def sealed(whole: bytes) -> bytes:
    """The batch with the CRC that belongs to its bytes."""
    import crc32c

    return forged(whole, {17: (">I", crc32c.crc32c(whole[21:]))})


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


def assert_works(connection: RawConnection, topic: str) -> None:
    """The connection's node answers and appends."""
    assert connection.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    assert connection.produce(topic, batch(b"bystander")).error_code == ErrorCode.NONE
