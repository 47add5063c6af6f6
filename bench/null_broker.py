"""A broker that does nothing: the bare asyncio protocol that the real one is measured against.

    python -m bench.null_broker PORT TOPIC PARTITIONS [RECORDS]

It parses just enough of each request to answer it. Produce: every batch is acknowledged and dropped.
Fetch: every partition is served from one batch set made at the start, in memory. No log, no checks.
"""

from __future__ import annotations

import asyncio
import struct
import sys

from bench.workers import RECORD_BYTES
from kraft.protocol.api import SUPPORTED, ApiKey
from kraft.protocol.api_versions import ApiVersionRange, ApiVersionsResponse
from kraft.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kraft.protocol.headers import decode_request_header, encode_response_header
from kraft.protocol.messages import decode_request, encode_response
from kraft.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kraft.protocol.schema import Message
from kraft.protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kraft.protocol.schemas.producers import InitProducerIdResponse
from partitions.records.builder import build_batch

CHUNK_BATCHES = 8
BATCH_RECORDS = 1_000
TOPIC_ID = bytes(15) + b"\1"
RECEIVE_BYTES = 1 << 20


class Null:
    """What the null broker knows: its port, one topic, and the records it serves."""

    def __init__(self, port: int, topic: str, partitions: int, records: int) -> None:
        self.port, self.topic, self.partitions = port, topic, partitions
        self.end_offset = records // partitions
        batch = build_batch([(0, None, b"x" * RECORD_BYTES, ())] * BATCH_RECORDS)
        self._body = batch[8:]
        self.batch_bytes = len(batch)

    def answer(self, api_key: int, version: int, body: memoryview) -> Message | None:
        """The response to one request, or None for acks=0."""
        request = decode_request(ApiKey(api_key), version, body)
        return getattr(self, f"_{ApiKey(api_key).name.lower()}")(request)

    def _api_versions(self, _request) -> Message:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionRange(api_key=key, min_version=versions.start, max_version=versions.stop - 1)
                for key, versions in SUPPORTED.items()
            ]
        )

    def _metadata(self, _request) -> Message:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="null",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name=self.topic,
                    topic_id=TOPIC_ID,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
                        )
                        for number in range(self.partitions)
                    ],
                )
            ],
        )

    def _init_producer_id(self, _request) -> Message:
        return InitProducerIdResponse(producer_id=1, producer_epoch=0)

    def _produce(self, request) -> Message | None:
        if request.acks == 0:
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=data.index) for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _list_offsets(self, request) -> Message:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=wanted.partition_index,
                            offset=0 if wanted.timestamp == EARLIEST_TIMESTAMP else self.end_offset,
                            leader_epoch=0,
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch(self, request) -> Message:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(
                            partition_index=wanted.partition,
                            high_watermark=self.end_offset,
                            last_stable_offset=self.end_offset,
                            log_start_offset=0,
                            records=self._records(wanted.fetch_offset, wanted.partition_max_bytes),
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _records(self, offset: int, max_bytes: int) -> bytes:
        base = offset - offset % BATCH_RECORDS
        batches = min(max(1, max_bytes // self.batch_bytes), -(-(self.end_offset - base) // BATCH_RECORDS))
        return b"".join(
            part
            for number in range(batches)
            for part in (struct.pack(">q", base + number * BATCH_RECORDS), self._body)
        )


class NullProtocol(asyncio.Protocol):
    """One connection: frames in, answers out, at once."""

    def __init__(self, null: Null) -> None:
        self._null = null
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 4

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        view = memoryview(self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks))
        position = 0
        while len(view) - position >= 4:
            end = position + 4 + int.from_bytes(view[position : position + 4], "big")
            if end > len(view):
                break
            self._handle(view[position + 4 : end])
            position = end
        rest = bytes(view[position:])
        self._chunks, self._have = ([rest] if rest else []), len(rest)
        self._need = 4 + int.from_bytes(rest[:4], "big") if len(rest) >= 4 else 4

    def _handle(self, frame: memoryview) -> None:
        header, position = decode_request_header(frame)
        message = self._null.answer(header.api_key, header.api_version, frame[position:])
        if message is None:
            return
        segments, size = encode_response(message, header.api_version)
        start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        length = (len(start) + size).to_bytes(4, "big")
        self._transport.writelines([length + start, *segments])  # type: ignore[attr-defined]


async def main(port: int, topic: str, partitions: int, records: int) -> None:
    null = Null(port, topic, partitions, records)
    server = await asyncio.get_running_loop().create_server(lambda: NullProtocol(null), "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    arguments = sys.argv[1:]
    uvloop.run(main(int(arguments[0]), arguments[1], int(arguments[2]), int((arguments[3:] or ["0"])[0])))
