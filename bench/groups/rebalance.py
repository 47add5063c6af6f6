"""Many groups: how long a full rebalance of one lasts, and what the heartbeats of all cost the brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Cluster, cluster
from bench.groups.link import Address
from bench.groups.members import Groups
from bench.machine import cpu_seconds, settle

NODES = 3
PARTITIONS = 100
"""Of the topic that all groups read."""
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
IDLE_S = 5


class Rebalance(NamedTuple):
    """Of all groups of one protocol at once."""

    groups: int
    members: int
    """Of each group."""
    join_s: float
    """Until all groups had settled at first."""
    rebalances_s: list[float]
    """From a newcomer's first request until every member of its group is in the new generation, with its part."""
    heartbeats_percent: float
    """CPU of all brokers while nothing but heartbeats goes on, in percent of a core, less that of idle brokers."""
    idle_percent: float


def rebalance(directory: Path, kind: str, groups: int, members: int, repeats: int, watch_s: int) -> Rebalance:
    """`kind` is classic or consumer. Raises BenchError."""
    with (
        cluster(directory / kind, NODES, SETTINGS) as brokers,
        brokers.topic(PARTITIONS, NODES) as topic,
    ):
        return asyncio.run(_measure(brokers, topic, kind, groups, members, repeats, watch_s))


def addresses(brokers: Cluster) -> list[Address]:
    """Of the brokers' listeners."""
    pairs = (one.rpartition(":") for one in brokers.bootstrap.split(","))
    return [(host, int(port)) for host, _, port in pairs]


async def _measure(
    brokers: Cluster, topic: str, kind: str, groups: int, members: int, repeats: int, watch_s: int
) -> Rebalance:
    loop = asyncio.get_running_loop()
    async with Groups(topic, PARTITIONS, addresses(brokers)) as running:
        await running.start_group(kind, "first", 1)  # __consumer_offsets is there from now on
        await loop.run_in_executor(None, settle, brokers.pids())
        idle_percent = await _percent(brokers, IDLE_S)
        began_s = loop.time()
        started = await asyncio.gather(
            *(running.start_group(kind, f"group-{number}", members) for number in range(groups))
        )
        join_s = loop.time() - began_s
        await running.wait(lambda: all(one.beat_s > began_s for group in started for one in group))
        await loop.run_in_executor(None, settle, brokers.pids())
        percent = await _percent(brokers, watch_s)
        rebalances_s = []
        for group in started[:repeats]:
            generation, joined_s = max(one.generation for one in group), loop.time()
            group.append(running.start(kind, group[0].group))
            await running.wait(
                lambda group=group, old=generation: (
                    all(one.generation > old for one in group)
                    and len({one.generation for one in group}) == 1
                    and all(one.owned for one in group)
                )
            )
            rebalances_s.append(max(one.settled_s for one in group) - joined_s)
    return Rebalance(groups, members, join_s, rebalances_s, percent - idle_percent, idle_percent)


async def _percent(brokers: Cluster, seconds: float) -> float:
    loop, pids = asyncio.get_running_loop(), brokers.pids()
    began_s, before_s = loop.time(), cpu_seconds(pids)
    await asyncio.sleep(seconds)
    return 100 * (cpu_seconds(pids) - before_s) / (loop.time() - began_s)
