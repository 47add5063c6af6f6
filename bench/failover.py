"""How long a killed leader stops writes: from SIGKILL to the first acknowledged record sent after it.

An idempotent producer with acks=all sends a record every few milliseconds to a partition with three
replicas; the node that leads it is killed, once one that is not the quorum's leader, once one that
is, and started again. Timers are those that `kraft cluster` sets.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from bench.brokers import Cluster
from bench.errors import BenchError

INTERVAL_S = 0.005
WARM_UP_RECORDS = 50
GIVE_UP_S = 20.0
METADATA_TIMEOUT_S = 5.0
TOPIC = "failover"


class _Writer:
    """Sends records one after the other and notes when which was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        self._producer.list_topics(TOPIC, METADATA_TIMEOUT_S)
        self.sent = 0
        self.acknowledged_s: dict[int, float] = {}
        self.failures: list[str] = []

    def step(self) -> None:
        """Sends one record and waits a little for answers."""
        number = self.sent

        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                self.acknowledged_s[number] = time.monotonic()
            else:
                self.failures.append(str(error))

        self.sent += 1
        self._producer.produce(TOPIC, b"x" * 100, on_delivery=delivered)
        self._producer.poll(INTERVAL_S)

    def leader(self) -> int:
        partitions = self._producer.list_topics(TOPIC, METADATA_TIMEOUT_S).topics[TOPIC].partitions
        return int(partitions[0].leader)

    def finish(self) -> None:
        self._producer.flush(METADATA_TIMEOUT_S)


def failover_s(brokers: Cluster) -> dict[str, float]:
    """Seconds without an acknowledged write, by what the killed leader was besides. Raises BenchError."""
    controller = int(brokers.local.status()["controller_id"])
    victims = {
        "broker": next(node_id for node_id in brokers.node_ids if node_id != controller),
        "controller": controller,
    }
    return {role: _kill_leader(brokers, victim) for role, victim in victims.items()}


def _kill_leader(brokers: Cluster, victim: int) -> float:
    with brokers.topic(1, len(brokers.node_ids), name=TOPIC, leaders=[victim]):
        writer = _Writer(brokers.bootstrap)
        started_s = time.monotonic()
        while len(writer.acknowledged_s) < WARM_UP_RECORDS:
            writer.step()
            _give_up_after(started_s, writer, "before the kill")
        if writer.leader() != victim:
            raise BenchError(f"node {victim} should lead the partition, but node {writer.leader()} does")
        pid = brokers.local.pid(victim)
        if pid is None:
            raise BenchError(f"node {victim} is not running")
        os.kill(pid, signal.SIGKILL)
        killed_s = time.monotonic()
        first = writer.sent
        while first not in writer.acknowledged_s:
            writer.step()
            _give_up_after(killed_s, writer, "after the kill")
        gap_s = min(at for number, at in writer.acknowledged_s.items() if number >= first) - killed_s
        writer.finish()
        brokers.local.start_node(victim)
        return gap_s


def _give_up_after(since_s: float, writer: _Writer, when: str) -> None:
    if time.monotonic() - since_s > GIVE_UP_S:
        raise BenchError(
            f"no acknowledged write within {GIVE_UP_S:g} s {when}; failures: {writer.failures[:1]}"
        )
