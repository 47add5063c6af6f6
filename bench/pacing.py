"""A producer of small records at an even pace, whose latencies show what else a broker is doing."""

from __future__ import annotations

import asyncio
from typing import Final

from bench.errors import BenchError
from bench.groups.link import Address, Link
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from partitions.records.builder import build_batch

PACE_S: Final = 0.005
_PRODUCE_VERSION: Final = 11


async def pace(address: Address, topic: str, partition: int) -> list[tuple[float, float]]:
    """Produces to one partition until it is cancelled; (when it was sent, in loop time, milliseconds) of each."""
    loop, found = asyncio.get_running_loop(), list[tuple[float, float]]()
    batch = build_batch([(0, None, b"x" * 100, ())])
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))]
    )
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
    link = await Link.open(address)
    try:
        while True:
            sent_s = loop.time()
            answer = await link.send(request, _PRODUCE_VERSION)
            code = answer.responses[0].partition_responses[0].error_code
            if code != ErrorCode.NONE:
                raise BenchError(f"a produce was answered with {ErrorCode(code).name}")
            found.append((sent_s, (loop.time() - sent_s) * 1000))
            await asyncio.sleep(PACE_S)
    except asyncio.CancelledError:
        return found
    finally:
        await link.close()
