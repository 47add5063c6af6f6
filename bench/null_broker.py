"""The null broker: a bare asyncio protocol without work, against which the real one is measured.

    python -m bench.null_broker PORT TOPIC PARTITIONS [--records N [--batch-records N]] [--keep]

It parses just enough of each request to answer it; nothing is checked and nothing reaches a disk. Produce: every
batch is acknowledged and dropped, or with `--keep` kept so that it can be fetched (for latencies). Fetch: with
`--records` every partition is served from one run of batches in memory, as large as a client makes them, or of
`--batch-records` records each. It prints `ready`, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import uvloop

from bench.workers import RECORD_BYTES
from kraft.protocol.api import SUPPORTED, ApiKey
from kraft.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kraft.protocol.headers import decode_request_header, encode_response_header
from kraft.protocol.messages import decode_request, encode_response
from kraft.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kraft.protocol.schema import Message
from kraft.protocol.schemas.api_versions import ApiVersion, ApiVersionsResponse
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
from partitions.disk import Buffer
from partitions.records.batch import parse_header
from partitions.records.builder import build_batch

BATCH_RECORDS = 9_000
"""About the records of a client's batch of a megabyte."""
TOPIC_ID = bytes(15) + b"\1"


class MemoryLog:
    """Batches of `batch_records` records, one after the other from offset 0 on, or the kept ones."""

    def __init__(self, records: int, batch_records: int = BATCH_RECORDS) -> None:
        batches = -(-records // batch_records)
        batch = build_batch([(0, None, b"x" * RECORD_BYTES, ())] * batch_records) if batches else b""
        self._batch_records = batch_records
        self._batch_bytes = len(batch)
        data = bytearray(batch * batches)
        for number in range(batches):
            struct.pack_into(">q", data, number * len(batch), number * batch_records)
        self._data = memoryview(data)
        self.end_offset = batches * batch_records
        self._last_offsets: list[int] = []
        self._kept: list[bytes] = []

    def keep(self, batch: Buffer) -> None:
        """Appends one batch."""
        self._kept.append(struct.pack(">q", self.end_offset) + bytes(batch)[8:])
        self.end_offset += parse_header(batch).record_count
        self._last_offsets.append(self.end_offset - 1)

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from the one that holds `offset` on."""
        if self._kept:
            return b"".join(self._kept[bisect_left(self._last_offsets, offset) :])
        if not self._data:
            return b""
        position = offset // self._batch_records * self._batch_bytes
        size = max(1, max_bytes // self._batch_bytes) * self._batch_bytes
        return self._data[position : position + size]


class Null:
    """The null broker's state: its port, one topic, and the records that it serves."""

    def __init__(
        self,
        port: int,
        topic: str,
        partitions: int,
        records: int,
        *,
        batch_records: int = BATCH_RECORDS,
        keep: bool,
    ) -> None:
        self.port, self.topic, self.partitions = port, topic, partitions
        self._keep = keep
        shared = MemoryLog(records // partitions, batch_records)
        self.logs = [MemoryLog(0) if keep else shared for _ in range(partitions)]
        self.on_kept: dict[int, Callable[[], None]] = {}
        """Fetches that wait for a batch."""
        self.answers: dict[ApiKey, Callable[[Any], Message | None]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.PRODUCE: self._produce,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.FETCH: self._fetch,
        }

    def _api_versions(self, _request: Any) -> Message:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=SUPPORTED[key].start, max_version=SUPPORTED[key].stop - 1)
                for key in self.answers
            ]
        )

    def _metadata(self, _request: Any) -> Message:
        partitions = [
            MetadataResponsePartition(
                partition_index=number, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            for number in range(self.partitions)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="null",
            controller_id=1,
            topics=[MetadataResponseTopic(name=self.topic, topic_id=TOPIC_ID, partitions=partitions)],
        )

    def _produce(self, request: Any) -> Message | None:
        topics = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                if self._keep:
                    self.logs[data.index].keep(data.records)
                answers.append(PartitionProduceResponse(index=data.index))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        for wake in list(self.on_kept.values()):
            wake()
        return None if request.acks == 0 else ProduceResponse(responses=topics)

    def _list_offsets(self, request: Any) -> Message:
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                end = self.logs[wanted.partition_index].end_offset
                offset = 0 if wanted.timestamp == EARLIEST_TIMESTAMP else end
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index, offset=offset, leader_epoch=0
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, request: Any) -> Message:
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                log = self.logs[wanted.partition]
                answers.append(
                    PartitionData(
                        partition_index=wanted.partition,
                        high_watermark=log.end_offset,
                        last_stable_offset=log.end_offset,
                        log_start_offset=0,
                        records=log.read(wanted.fetch_offset, wanted.partition_max_bytes),
                    )
                )
            topics.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
            )
        return FetchResponse(responses=topics)


class NullProtocol(asyncio.Protocol):
    """One connection: frames in, answers out, at once; a fetch that finds nothing waits."""

    def __init__(self, null: Null) -> None:
        self._null = null
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 4
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()

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
        request: Any = decode_request(header.api_key, header.api_version, frame[position:])

        def answer(*, may_wait: bool = False) -> None:
            message = self._null.answers[header.api_key](request)
            if message is None:
                return
            if may_wait and isinstance(message, FetchResponse) and not _has_records(message):
                self._wait(answer, request.max_wait_ms / 1000)
                return
            segments, size = encode_response(message, header.api_version)
            start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
            self._transport.writelines([(len(start) + size).to_bytes(4, "big") + start, *segments])

        answer(may_wait=True)

    def _wait(self, answer: Callable[[], None], timeout_s: float) -> None:
        def wake() -> None:
            self._stop_waiting()
            answer()

        self._stop_waiting()
        self._waiting = asyncio.get_running_loop().call_later(timeout_s, wake)
        self._null.on_kept[id(self)] = wake

    def _stop_waiting(self) -> None:
        self._null.on_kept.pop(id(self), None)
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def _has_records(message: FetchResponse) -> bool:
    return any(len(data.records or b"") for topic in message.responses for data in topic.partitions)


async def serve(null: Null) -> None:
    """Listens until standard input ends, which it does with the harness."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: NullProtocol(null), "127.0.0.1", null.port)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    print("ready", flush=True)
    await ended.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="The null broker.")
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--batch-records", type=int, default=BATCH_RECORDS)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    null = Null(
        given.port,
        given.topic,
        given.partitions,
        given.records,
        batch_records=given.batch_records,
        keep=given.keep,
    )
    uvloop.run(serve(null))


if __name__ == "__main__":
    main()
