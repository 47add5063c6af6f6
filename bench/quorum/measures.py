"""The measures of the quorum, one coroutine each; every one starts a quorum of its own in a new folder."""

from __future__ import annotations

import asyncio
import math
import os
import statistics
import time
import tracemalloc
from pathlib import Path
from typing import NamedTuple

from bench.errors import BenchError
from bench.quorum.operator import Operator, operator
from bench.quorum.voters import Voters, voters
from kraft.local_cluster.spec import FAST_TIMERS
from quorum.metadata.image import MetadataImage

BROKERS = (1, 2, 3)
TOPIC = "bench"
WARM_UP = 50
BATCH_PARTITIONS = 1_000
"""Partitions of one topic: one proposal of some 60 KB."""
IN_FLIGHT = 8
ATTEMPT_S = 0.1
"""How long one attempt waits for a voter that is gone, while the quorum is being replaced."""
SNAPSHOT_EVERY_BYTES = 200_000
"""So small that several snapshots are written while the partitions are created."""


class Latencies(NamedTuple):
    """Latencies of sequential commits of one small proposal each, in milliseconds."""

    p50_ms: float
    p99_ms: float


class Scale(NamedTuple):
    """The costs of many partitions; times in seconds."""

    partitions: int
    create_s: float
    move_s: float
    moved: int
    """Leaderships that the fenced broker had."""
    bytes_per_partition: float
    slowest_heartbeat_s: float
    heartbeats_missed: int
    restart_s: float
    snapshots_kept: int


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def fsync_ms(directory: Path, times: int = 200) -> float:
    """The median of appending 300 bytes to a file here and making them durable, as a journal does."""
    spent: list[float] = []
    path = directory / "fsync"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(times):
            began_s = time.perf_counter()
            os.write(descriptor, bytes(300))
            os.fdatasync(descriptor)
            spent.append((time.perf_counter() - began_s) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(spent)


async def commit_latencies(directory: Path, commits: int, *, synced: bool) -> Latencies:
    """Small proposals one after the other, from a broker's connection to its answer."""
    with voters(directory, synced=synced) as quorum:
        async with operator(quorum) as client:
            await client.play_brokers(BROKERS)
            await client.create_topic(TOPIC, 1, 3)
            spent: list[float] = []
            for number in range(WARM_UP + commits):
                began_s = time.perf_counter()
                await client.change_topic(TOPIC, 60_000 + number)
                spent.append((time.perf_counter() - began_s) * 1000)
    spent = spent[WARM_UP:]
    return Latencies(statistics.median(spent), percentile(spent, 0.99))


async def records_per_s(directory: Path, records: int) -> float:
    """Records committed with fsync, a thousand in a proposal, several proposals on their way."""
    topics = [f"{TOPIC}-{number}" for number in range(math.ceil(records / (BATCH_PARTITIONS + 1)))]
    with voters(directory) as quorum:
        async with operator(quorum) as client:
            await client.play_brokers(BROKERS)
            waiting = iter(topics)

            async def create() -> None:
                for name in waiting:
                    await client.create_topic(name, BATCH_PARTITIONS, 3)

            began_s = time.perf_counter()
            await asyncio.gather(*(create() for _ in range(IN_FLIGHT)))
            spent_s = time.perf_counter() - began_s
    return len(topics) * (BATCH_PARTITIONS + 1) / spent_s


async def failovers_s(directory: Path, kills: int, *, fast: bool) -> list[float]:
    """Each time from SIGKILL of the active controller to the first change that another one has committed."""
    settings = {key: value for key, value in FAST_TIMERS.items() if key.startswith("controller.")}
    gaps: list[float] = []
    with voters(directory, settings if fast else {}) as quorum:
        async with operator(quorum) as client:
            await client.play_brokers(BROKERS)
            await client.create_topic(TOPIC, 1, 3)
            for number in range(kills):
                await client.change_topic(TOPIC, 60_000 + 2 * number)
                victim = client.leader
                quorum.kill(victim)
                began_s = time.perf_counter()
                await client.change_topic(TOPIC, 60_001 + 2 * number, attempt_timeout_s=ATTEMPT_S)
                gaps.append(time.perf_counter() - began_s)
                offset = (await client.image()).offset
                quorum.start(victim)
                for voter in quorum.addresses:
                    await asyncio.to_thread(quorum.await_offset, voter, offset)
    return gaps


async def scale(directory: Path, partitions: int) -> Scale:
    """Many partitions on the controllers alone: brokers are played."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_EVERY_BYTES)}
    with voters(directory, settings) as quorum:
        async with operator(quorum) as client:
            await client.play_brokers((*BROKERS, 4))
            began_s = time.perf_counter()
            await _create(client, partitions)
            create_s = time.perf_counter() - began_s
            before = await client.image()
            began_s = time.perf_counter()
            await client.fence(4)
            move_s = time.perf_counter() - began_s
            after = await client.image()
            follower = next(voter for voter in quorum.addresses if voter != client.leader)
            restart_s = await asyncio.to_thread(_restart, quorum, follower, after.offset)
            return Scale(
                partitions=partitions,
                create_s=create_s,
                move_s=move_s,
                moved=_moved(before, after),
                bytes_per_partition=_bytes_per_partition(after.encode(), partitions),
                slowest_heartbeat_s=client.slowest_heartbeat_s,
                heartbeats_missed=len(client.fenced),
                restart_s=restart_s,
                snapshots_kept=await asyncio.to_thread(_files, directory, "*.checkpoint"),
            )


async def _create(client: Operator, partitions: int) -> None:
    sizes = [BATCH_PARTITIONS] * (partitions // BATCH_PARTITIONS)
    if partitions % BATCH_PARTITIONS:
        sizes.append(partitions % BATCH_PARTITIONS)
    await asyncio.gather(
        *(client.create_topic(f"{TOPIC}-{number}", size, 3) for number, size in enumerate(sizes))
    )


def _restart(quorum: Voters, voter: int, offset: int) -> float:
    quorum.kill(voter)
    began_s = time.perf_counter()
    quorum.start(voter)
    quorum.await_offset(voter, offset)
    return time.perf_counter() - began_s


def _files(directory: Path, pattern: str) -> int:
    return sum(1 for _ in directory.rglob(pattern))


def _moved(before: MetadataImage, after: MetadataImage) -> int:
    """Partitions that broker 4 led before; raises BenchError if it leads any, or one has no leader."""
    led = 0
    for topic_id, topic in before.topics.items():
        for old, new in zip(topic.partitions, after.topics[topic_id].partitions, strict=True):
            led += old.leader == 4
            if new.leader == 4 or not new.has_leader:
                raise BenchError(f"a partition of {topic.name} has leader {new.leader} after the fencing")
    return led


def _bytes_per_partition(image: bytes, partitions: int) -> float:
    """The memory of a decoded image, by the interpreter's own count."""
    tracemalloc.start()
    try:
        decoded = MetadataImage.decode(image)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if sum(len(topic.partitions) for topic in decoded.topics.values()) != partitions:
        raise BenchError("the image does not hold the partitions that were created")
    return taken / partitions
