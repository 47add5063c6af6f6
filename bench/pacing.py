"""A producer of small records at an even pace, whose latencies show what else a broker is doing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bench.errors import BenchError
from bench.groups.link import Address, Link
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from partitions.records.builder import build_batch

PACE_S: Final = 0.005
_PRODUCE_VERSION: Final = 11
Latencies = list[tuple[float, float]]
"""When each record was sent, in loop time, and the milliseconds until it was answered."""


async def paced(address: Address, topic: str, partition: int) -> asyncio.Task[Latencies]:
    """A producer to one partition, which has had answers and goes on until it is cancelled. Then the task's result has
    at least one record from before, and the one that still waited, with the time that it had waited. Raises
    BenchError, as the task does.
    """
    loop, found = asyncio.get_running_loop(), Latencies()
    data = TopicProduceData(
        name=topic,
        partition_data=[
            PartitionProduceData(index=partition, records=bytes(build_batch([(0, None, b"x" * 100, ())])))
        ],
    )
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
    try:
        link = await Link.open(address)
    except OSError as error:
        raise BenchError(f"the producer at an even pace found no broker: {error}") from error
    try:
        await _produce(link, request)  # what a first record costs is no latency
        sent_s = loop.time()
        await _produce(link, request)
        found.append((sent_s, (loop.time() - sent_s) * 1000))
    except BaseException:
        await link.close()
        raise
    return asyncio.create_task(_go_on(link, request, found))


async def _go_on(link: Link, request: ProduceRequest, found: Latencies) -> Latencies:
    loop = asyncio.get_running_loop()
    sent_s: float | None = None
    try:
        while True:
            await asyncio.sleep(PACE_S)
            sent_s = loop.time()
            await _produce(link, request)
            found.append((sent_s, (loop.time() - sent_s) * 1000))
            sent_s = None
    except asyncio.CancelledError:
        if sent_s is not None:
            found.append((sent_s, (loop.time() - sent_s) * 1000))
        return found
    finally:
        await link.close()


async def _produce(link: Link, request: ProduceRequest) -> None:
    try:
        answer = await link.send(request, _PRODUCE_VERSION)
    except OSError as error:
        raise BenchError(f"the producer at an even pace got no answer: {error}") from error
    code = answer.responses[0].partition_responses[0].error_code
    if code != ErrorCode.NONE:
        raise BenchError(f"a produce was answered with {ErrorCode(code).name}")


def split(latencies: Sequence[tuple[float, float]], since_s: float) -> tuple[list[float], list[float]]:
    """The milliseconds of what was answered before an instant, and of what was on its way then or sent later."""
    before = [ms for sent_s, ms in latencies if sent_s + ms / 1000 < since_s]
    return before, [ms for sent_s, ms in latencies if sent_s + ms / 1000 >= since_s]
