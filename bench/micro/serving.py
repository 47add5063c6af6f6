"""Fetches of 1 MB served from the page cache: a broker's process against a bare `os.sendfile` loop.

The same reader takes the same bytes from both over one connection. From the broker it asks for one batch of 1 MB at a
time, with a few requests under way; the bare loop sends without being asked.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.machine import cpu_seconds
from bench.micro.logs import batch_of_bytes
from bench.processes import Child
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.headers import decode_response_header
from kraft.protocol.messages import decode_response, encode_request_frame
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BATCH_BYTES = 1_000_000
BATCHES = 256
ROUNDS = 7
FETCH_VERSION = 12
PRODUCE_VERSION = 11
MAX_BYTES = 1024 * 1024
RESPONSE_TIMEOUT_S = 30.0
TOPIC = "bench"


class Serving(NamedTuple):
    """Medians of rounds that take turns."""

    mb_per_s: float
    bare_mb_per_s: float
    ratio: float
    """Of the rates, broker to bare loop, round by round."""
    cpu_s_per_gb: float
    """Of the broker's process."""
    bare_cpu_s_per_gb: float


class _Round(NamedTuple):
    mb_per_s: float
    cpu_s_per_gb: float


def serving(directory: Path, *, batches: int = BATCHES, rounds: int = ROUNDS) -> Serving:
    """Starts a node, fills a topic, and has it read. Raises BenchError."""
    with ExitStack() as ended:
        brokers = ended.enter_context(cluster(directory / "serving", 1))
        ended.enter_context(brokers.topic(1, 1, name=TOPIC))
        _fill(brokers, batches)
        data = next((directory / "serving").rglob(f"{TOPIC}-0/*.log"))
        bare = ended.enter_context(Child("bench.micro.bare_server", [data, BATCH_BYTES, batches]))
        bare_port = int(bare.read_line(RESPONSE_TIMEOUT_S))
        requests = directory / "requests"
        requests.write_bytes(b"".join(_fetch(offset) for offset in range(batches)))
        port = int(brokers.bootstrap.rpartition(":")[2])
        pairs = []
        for _ in range(rounds):
            served = _read(port, batches, requests, brokers.pids())
            pairs.append((served, _read(bare_port, batches, None, [bare.pid])))
    broker = [pair[0] for pair in pairs]
    loop = [pair[1] for pair in pairs]
    return Serving(
        mb_per_s=statistics.median(one.mb_per_s for one in broker),
        bare_mb_per_s=statistics.median(one.mb_per_s for one in loop),
        ratio=statistics.median(real.mb_per_s / null.mb_per_s for real, null in pairs),
        cpu_s_per_gb=statistics.median(one.cpu_s_per_gb for one in broker),
        bare_cpu_s_per_gb=statistics.median(one.cpu_s_per_gb for one in loop),
    )


def _read(port: int, frames: int, requests: Path | None, pids: Sequence[int]) -> _Round:
    with Child("bench.micro.reader", [port, frames, requests or "-"]) as reader:
        reader.await_ready()
        before_s = cpu_seconds(pids)
        reader.go()
        report = reader.result()
        spent_s = cpu_seconds(pids) - before_s
    if report["bytes"] < frames * (BATCH_BYTES - 1000):
        raise BenchError(f"only {report['bytes']:.0f} bytes came in {frames} answers")
    return _Round(report["bytes"] / report["elapsed_s"] / 1e6, spent_s / (report["bytes"] / 1e9))


def _fetch(offset: int) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
    )
    return bytes(encode_request_frame(request, FETCH_VERSION, correlation_id=offset, client_id="bench"))


def _fill(brokers: Cluster, batches: int) -> None:
    """One batch, which is one record, at each offset."""
    from bench.micro.reader import Frames

    records = batch_of_bytes(BATCH_BYTES)
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=TOPIC, partition_data=[partition])
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic])
    frame = encode_request_frame(request, PRODUCE_VERSION, correlation_id=1, client_id="bench")
    with Frames(int(brokers.bootstrap.rpartition(":")[2])) as frames:
        for _ in range(batches):
            frames.send(frame)
            answer = frames.receive()
            _, position = decode_response_header(ProduceRequest.API_KEY, PRODUCE_VERSION, answer)
            response = decode_response(ProduceRequest.API_KEY, PRODUCE_VERSION, answer, position)
            code = response.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
            if code != ErrorCode.NONE:
                raise BenchError(f"the broker refused a batch: {code}")
