"""Offset commits: one partition a request, pipelined over one connection, replicated three times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from bench.brokers import cluster
from bench.errors import BenchError
from bench.groups.link import Link, coordinator_of, is_passing
from bench.groups.rebalance import NODES, addresses
from bench.machine import cpu_seconds
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

PARTITIONS = 10
IN_FLIGHT = 500
GROUP = "commits"
COMMIT_VERSION, FETCH_VERSION = 9, 8
FIRST_TRIES_S = 20.0


class Commits(NamedTuple):
    commits: int
    seconds: float
    brokers_cpu_us: float
    """Of all brokers, of each commit."""

    @property
    def per_s(self) -> float:
        return self.commits / self.seconds


def commits(directory: Path, count: int) -> Commits:
    """Commits of a group without members. Raises BenchError."""
    with cluster(directory / "commits", NODES) as brokers, brokers.topic(PARTITIONS, NODES) as topic:
        return asyncio.run(_measure(brokers.pids(), addresses(brokers), topic, count))


async def _measure(pids: list[int], brokers: list[tuple[str, int]], topic: str, count: int) -> Commits:
    link = await Link.open(await coordinator_of(GROUP, brokers))
    loop = asyncio.get_running_loop()
    try:
        await first_commit(link, GROUP, topic)
        began_s, before_s = loop.time(), cpu_seconds(pids)
        room = asyncio.Semaphore(IN_FLIGHT)
        failed: list[str] = []

        def on_answer(done: asyncio.Future[Any]) -> None:
            room.release()
            if done.exception() is not None:
                failed.append(str(done.exception()))
            elif (code := done.result().topics[0].partitions[0].error_code) != ErrorCode.NONE:
                failed.append(ErrorCode(code).name)

        for number in range(count):
            await room.acquire()
            request = commit_of(GROUP, topic, [number % PARTITIONS], number)
            link.send(request, COMMIT_VERSION).add_done_callback(on_answer)
        for _ in range(IN_FLIGHT):
            await room.acquire()
        seconds, spent_s = loop.time() - began_s, cpu_seconds(pids) - before_s
        if failed:
            raise BenchError(f"{len(failed)} commits failed: {failed[0]}")
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)])
        answer = await link.send(asked, FETCH_VERSION)
        stored = sorted(one.committed_offset for one in answer.groups[0].topics[0].partitions)
        if stored != list(range(count - PARTITIONS, count)):
            raise BenchError(f"the last commits should be there, and there are {stored}")
    finally:
        await link.close()
    return Commits(count, seconds, spent_s / count * 1e6)


def commit_of(group: str, topic: str, partitions: list[int], offset: int) -> OffsetCommitRequest:
    """Somebody who is no member commits one offset for these partitions."""
    parts = [OffsetCommitRequestPartition(one, offset, committed_metadata="") for one in partitions]
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)])


async def first_commit(link: Link, group: str, topic: str) -> None:
    """Commits once the coordinator has loaded its shard. Raises BenchError."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + FIRST_TRIES_S
    while loop.time() < deadline_s:
        answer = await link.send(commit_of(group, topic, [0], 0), COMMIT_VERSION)
        code = answer.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            return
        if not is_passing(code):
            raise BenchError(f"a commit was answered with {ErrorCode(code).name}")
        await asyncio.sleep(0.05)
    raise BenchError(f"the coordinator took no commit within {FIRST_TRIES_S:g} s")
