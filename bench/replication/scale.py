"""Ten thousand partitions on three brokers, from end to end: created, a broker killed, all restarted.

The measure is the client's view: each single partition acknowledges a record with acks=all, and every replica is in
its ISR. A killed broker's time counts from the end of its session, which the active controller writes to its log:
the time before is the configured session timeout. It is Kafka's here, not the short one of a development cluster:
four busy processes on two cores may each be silent for a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.replication.many import EveryPartition, Topics, await_folders, await_in_sync, create
from bench.replication.node_logs import LEADS, SESSION_ENDED, first_s, times_s
from bench.replication.throughput import NODES
from kraft.user_error import UserError

TIMEOUT_S = 120.0
"""Timeout of each single wait; the error names the missing result."""
TIMERS = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}
CLEAN_MARK = ".kafka_cleanshutdown"


class Scale(NamedTuple):
    """Times in seconds."""

    partitions: int
    answered_s: float
    """Until CreateTopics was answered."""
    made_s: float
    """Until every replica had its folder."""
    create_s: float
    """Until every partition had acknowledged a record from its whole ISR."""
    rewrite_s: float
    """A record to each partition in normal operation: the client's own time."""
    session_s: float
    """From SIGKILL to the end of the broker's session."""
    writable_s: float
    """From there until every partition had acknowledged a record that was sent after the kill."""
    led_s: float
    """From there until the last new leader had reported that it leads."""
    rejoin_s: float
    """From the killed node's start until it was in every ISR."""
    stop_s: float
    ready_s: float
    """From the start of all nodes until all brokers were unfenced."""
    restart_s: float
    """From the order to stop until every partition had its whole ISR and had acknowledged a record."""


def scale(directory: Path, partitions: int) -> Scale:
    """Runs all of it, once. Raises BenchError."""
    with cluster(directory / "scale", NODES, TIMERS) as brokers:
        began_s = time.monotonic()
        topics = create(brokers, partitions, NODES, TIMEOUT_S)
        answered_s = time.monotonic() - began_s
        await_folders(brokers, partitions * NODES, TIMEOUT_S)
        made_s = time.monotonic() - began_s
        client = EveryPartition(brokers.bootstrap, topics, TIMEOUT_S)
        client.write()
        await_in_sync(brokers, topics, TIMEOUT_S)
        create_s = time.monotonic() - began_s
        began_s = time.monotonic()
        client.write()
        rewrite_s = time.monotonic() - began_s
        session_s, writable_s, led_s = _kill(brokers, client)
        rejoin_s = _rejoin(brokers, topics)
        stop_s, ready_s, restart_s = _restart(brokers, topics)
    return Scale(
        partitions,
        answered_s,
        made_s,
        create_s,
        rewrite_s,
        session_s,
        writable_s,
        led_s,
        rejoin_s,
        stop_s,
        ready_s,
        restart_s,
    )


def _kill(brokers: Cluster, client: EveryPartition) -> tuple[float, float, float]:
    """Kills the last node that is not the quorum's leader, and writes to everything at once."""
    controller = brokers.controller()
    victim = next(node_id for node_id in reversed(brokers.node_ids) if node_id != controller)
    survivors = [node_id for node_id in brokers.node_ids if node_id != victim]
    killed_s = time.time()
    brokers.local.kill(victim)
    acknowledged = client.write()
    ended_s = first_s(brokers, survivors, f"{SESSION_ENDED} broker_id={victim}", since_s=killed_s)
    led_s = max(times_s(brokers, survivors, LEADS, since_s=ended_s), default=ended_s)
    return ended_s - killed_s, acknowledged[-1] - ended_s, led_s - ended_s


def _rejoin(brokers: Cluster, topics: Topics) -> float:
    away = next(node_id for node_id in brokers.node_ids if brokers.local.pid(node_id) is None)
    began_s = time.monotonic()
    _started(lambda: brokers.local.start_node(away))
    await_in_sync(brokers, topics, TIMEOUT_S)
    return time.monotonic() - began_s


def _started(start: Callable[[], None]) -> None:
    """Raises BenchError with the reasons of a node that is not ready in time."""
    try:
        start()
    except UserError as error:
        raise BenchError(f"with all these partitions the nodes did not start: {error}") from error


def _restart(brokers: Cluster, topics: Topics) -> tuple[float, float, float]:
    """Stops all nodes at once, in order, and starts them."""
    began_s = time.monotonic()
    brokers.local.stop_all()
    for node_id in brokers.node_ids:
        if not (brokers.local.node_dir(node_id) / "data" / CLEAN_MARK).exists():
            raise BenchError(f"node {node_id} did not stop cleanly:\n{brokers.local.log_tail(node_id)}")
    stop_s = time.monotonic() - began_s
    _started(brokers.local.start_all)
    ready_s = time.monotonic() - began_s - stop_s
    EveryPartition(brokers.bootstrap, topics, TIMEOUT_S).write()
    await_in_sync(brokers, topics, TIMEOUT_S)
    return stop_s, ready_s, time.monotonic() - began_s
