"""What `flush.messages=1` costs: acks=all, three replicas on one disk, every record flushed before it counts.

`python -m bench.flush`. Producers speak the raw protocol, each over a connection of its own, and send the next record
when the one before is acknowledged; all write to one partition. In the same run a bare write of as many bytes and an
fsync, again and again, tell what the disk takes, and a producer to a topic without flushes what the rest takes. The
leader flushes while its followers fetch, and these flush before they fetch again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.brokers import cluster
from bench.errors import BenchError
from bench.groups.link import Link
from bench.groups.rebalance import addresses
from bench.limits import Limit
from bench.parts import Measured, Part, end_on_sigterm, parser_of, run_parts, whole_numbers
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from partitions.records.builder import build_batch

NODES: Final = 3
VERSION: Final = 9
TIMEOUT_MS: Final = 30_000
VALUE: Final = b"x" * 100
PRODUCERS: Final = 64
WARM_UP_S: Final = 1.0
MAX_P50_RATIO: Final = 4.0
MIN_RATE_RATIO: Final = 8.0


class Written(NamedTuple):
    records_per_s: float
    p50_ms: float
    p99_ms: float


def flushed(directory: Path, given: argparse.Namespace) -> Measured:
    """The figures, and their limits. Raises BenchError."""
    batch = bytes(build_batch([(int(time.time() * 1000), None, VALUE, ())]))
    with cluster(directory / "flush", NODES) as brokers:
        leaders, address = [brokers.node_ids[0]], addresses(brokers)[0]
        with brokers.topic(1, NODES, leaders=leaders) as topic:
            unflushed = asyncio.run(_produce(address, topic, batch, 1, given.seconds))
        with brokers.topic(1, NODES, leaders=leaders, configs={"flush.messages": "1"}) as topic:
            bare = _bare(directory / "bare", len(batch), given.seconds)
            one = asyncio.run(_produce(address, topic, batch, 1, given.seconds))
            many = asyncio.run(_produce(address, topic, batch, PRODUCERS, given.seconds))
    written = {"bare": bare, "unflushed": unflushed, "one": one, "many": many}
    figures = {name: figure._asdict() for name, figure in written.items()} | {"load": os.getloadavg()}
    return figures, [
        Limit(
            "one producer: p50 / a bare write and fsync", one.p50_ms / bare.p50_ms, MAX_P50_RATIO, "", False
        ),
        Limit(
            f"{PRODUCERS} producers: rate / that of one",
            many.records_per_s / one.records_per_s,
            MIN_RATE_RATIO,
            "",
            True,
        ),
    ]


def _bare(path: Path, size_bytes: int, seconds: float) -> Written:
    data, took_s = bytes(size_bytes), []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        end_s = time.monotonic() + seconds
        while (began_s := time.monotonic()) < end_s:
            os.write(descriptor, data)
            os.fsync(descriptor)
            took_s.append(time.monotonic() - began_s)
    finally:
        os.close(descriptor)
    return _written(took_s, seconds)


async def _produce(
    address: tuple[str, int], topic: str, batch: bytes, producers: int, seconds: float
) -> Written:
    links = [await Link.open(address) for _ in range(producers)]
    try:
        await asyncio.gather(*(_send(link, topic, batch, WARM_UP_S) for link in links))
        began_s = time.monotonic()
        took_s = await asyncio.gather(*(_send(link, topic, batch, seconds) for link in links))
        return _written([one for each in took_s for one in each], time.monotonic() - began_s)
    finally:
        for link in links:
            await link.close()


async def _send(link: Link, topic: str, batch: bytes, seconds: float) -> list[float]:
    """Sends one record after the other; how long each took. Raises BenchError."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)
    took_s: list[float] = []
    end_s = time.monotonic() + seconds
    while (began_s := time.monotonic()) < end_s:
        answer = await link.send(request, VERSION)
        took_s.append(time.monotonic() - began_s)
        if code := answer.responses[0].partition_responses[0].error_code:
            raise BenchError(f"a record was refused: {ErrorCode(code).name}")
    return took_s


def _written(took_s: Sequence[float], seconds: float) -> Written:
    if len(took_s) < 100:
        raise BenchError(f"only {len(took_s)} writes in {seconds:g} s: too few to tell anything")
    percentiles = statistics.quantiles(took_s, n=100)
    return Written(len(took_s) / seconds, percentiles[49] * 1000, percentiles[98] * 1000)


PARTS: Final[Mapping[str, Part]] = {"flush": flushed}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.flush", "What flush.messages=1 costs with acks=all and three replicas.", PARTS)
    parser.add_argument("--seconds", type=int, default=10, help="of each measure (default %(default)s)")
    given = parser.parse_args(arguments)
    whole_numbers(parser, given, ("seconds",))
    return run_parts(PARTS, given)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
