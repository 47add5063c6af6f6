"""A coordinator killed -9: until all members of its groups heartbeat and commit again, in the same generation."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.groups.link import coordinator_of
from bench.groups.members import KINDS, Groups
from bench.groups.rebalance import NODES, PARTITIONS, addresses
from bench.replication.node_logs import LEADS, first_s

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
"""One partition: one coordinator for the groups of both protocols."""
OFFSETS_PARTITION = "__consumer_offsets-0"


class Failover(NamedTuple):
    """Of one protocol, in seconds."""

    members: int
    election_s: float
    """From the kill until another broker leads."""
    after_election_s: float
    """From then until the last member has heartbeat and committed."""


def failover(directory: Path, members: int) -> dict[str, Failover]:
    """By protocol. Raises BenchError, also where a generation changed."""
    with (
        cluster(directory / "failover", NODES, SETTINGS) as brokers,
        brokers.topic(PARTITIONS, NODES) as topic,
    ):
        found = asyncio.run(_measure(brokers, topic, members))
        for node_id in brokers.node_ids:
            if brokers.local.pid(node_id) is None:
                brokers.local.start_node(node_id)
    return found


async def _measure(brokers: Cluster, topic: str, members: int) -> dict[str, Failover]:
    loop, places = asyncio.get_running_loop(), addresses(brokers)
    async with Groups(topic, PARTITIONS, places) as running:
        started = {kind: await running.start_group(kind, kind, members) for kind in KINDS}
        everyone = [one for group in started.values() for one in group]
        for member in everyone:
            member.commits = True
        await running.wait(lambda: all(one.committed_s > 0 for one in everyone))
        before = [(one.generation, one.joins) for one in everyone]
        victim = brokers.node_ids[places.index(await coordinator_of("classic", places))]
        killed_s, killed_loop_s = time.time(), loop.time()
        brokers.local.kill(victim)
        for member in everyone:
            member.committed_s = -1.0
        await running.wait(lambda: all(one.committed_s > 0 for one in everyone))
        others = [node_id for node_id in brokers.node_ids if node_id != victim]
        text = f"{LEADS}{OFFSETS_PARTITION} "
        elected_s = await loop.run_in_executor(None, first_s, brokers, others, text, killed_s)
        if [(one.generation, one.joins) for one in everyone] != before:
            raise BenchError("members joined anew, or their generation changed")
    return {
        kind: Failover(
            len(group),
            elected_s - killed_s,
            max(member.committed_s for member in group) - killed_loop_s - (elected_s - killed_s),
        )
        for kind, group in started.items()
    }
