"""A large shard: how long its loading takes, and how much later a produce on the same broker is meanwhile."""

from __future__ import annotations

import asyncio
import re
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.groups.commits import COMMIT_VERSION, commit_of, first_commit
from bench.groups.link import Address, Link, coordinator_of
from bench.groups.rebalance import NODES, addresses
from bench.pacing import paced, split
from kraft.local_cluster.cluster import deadline
from kraft.protocol.errors import ErrorCode

PARTITIONS = 100
"""Of the topic whose offsets are committed: a request commits all of them."""
ROUNDS = 10
"""How often each key is written."""
IN_FLIGHT = 20
SETTINGS = {"offsets.topic.num.partitions": "1", "log.cleaner.enable": "false"}
BEFORE_S = 3.0
AFTER_S = 0.5
LOAD_S = 120.0
PRODUCE_TO = "beside"
"""A topic with a partition on each node."""


class Loading(NamedTuple):
    """Of one shard."""

    commits: int
    keys: int
    load_s: float
    records: int
    """That the new coordinator read."""
    usual_ms: float
    """Median of a produce before."""
    slowest_before_ms: float
    slowest_ms: float
    """While the shard was loading, and until half a second after."""


def loading(directory: Path, commits: int) -> Loading:
    """Raises BenchError."""
    with (
        cluster(directory / "loading", NODES, SETTINGS) as brokers,
        brokers.topic(PARTITIONS, 1) as topic,
        brokers.topic(NODES, NODES, name=PRODUCE_TO, leaders=brokers.node_ids),
    ):
        return asyncio.run(_measure(brokers, topic, commits))


async def _measure(brokers: Cluster, topic: str, commits: int) -> Loading:
    loop, places = asyncio.get_running_loop(), addresses(brokers)
    first = await coordinator_of("first", places)
    await _fill(first, topic, commits)
    old = brokers.node_ids[places.index(first)]
    number = brokers.node_ids.index(await loop.run_in_executor(None, _next_leader, brokers))
    pacing = await paced(places[number], PRODUCE_TO, number)
    try:
        await asyncio.sleep(BEFORE_S)
        stopped_s = loop.time()
        stopping = loop.run_in_executor(None, brokers.local.stop_node, old)
        records, load_s = await loop.run_in_executor(None, _loaded, brokers, brokers.node_ids[number])
        await stopping
        await asyncio.sleep(AFTER_S)  # what the new coordinator does at first counts, too
    finally:
        pacing.cancel()
    before, during = split(await pacing, stopped_s)
    await loop.run_in_executor(None, brokers.local.start_node, old)
    return Loading(
        commits, commits // ROUNDS, load_s, records, statistics.median(before), max(before), max(during)
    )


async def _fill(coordinator: Address, topic: str, commits: int) -> None:
    """Writes every key `ROUNDS` times."""
    groups = commits // (PARTITIONS * ROUNDS)
    link = await Link.open(coordinator)
    try:
        await first_commit(link, "group-0", topic)
        waiting: list[asyncio.Future[Any]] = []
        for number in range(groups * ROUNDS):
            request = commit_of(f"group-{number % groups}", topic, list(range(PARTITIONS)), number // groups)
            waiting.append(link.send(request, COMMIT_VERSION))
            if len(waiting) >= IN_FLIGHT:
                _require_committed(await waiting.pop(0))
        for future in waiting:
            _require_committed(await future)
    finally:
        await link.close()


def _require_committed(answer: Any) -> None:
    for one in answer.topics[0].partitions:
        if one.error_code != ErrorCode.NONE:
            raise BenchError(f"a commit was answered with {ErrorCode(one.error_code).name}")


def _next_leader(brokers: Cluster) -> int:
    """Who leads __consumer_offsets-0 when its leader stops: the next of its replicas."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    return int(
        admin.list_topics("__consumer_offsets", 10).topics["__consumer_offsets"].partitions[0].replicas[1]
    )


def _loaded(brokers: Cluster, node_id: int) -> tuple[int, float]:
    """What the node's log tells of the loading: records and seconds. Raises BenchError."""
    path = brokers.local.node_dir(node_id) / "server.log"
    for _ in deadline(LOAD_S):
        for line in path.read_text(errors="replace").splitlines():
            if "shard is loaded" in line and "__consumer_offsets-0" in line:
                fields = dict(re.findall(r"(\w+)=(\d+)", line))
                return int(fields["records"]), int(fields["ms"]) / 1000
    raise BenchError(f"node {node_id} did not load the shard within {LOAD_S:g} s")
