"""The time that writes wait when the leader is killed, and when it is stopped in order.

An idempotent producer with acks=all sends a record every few milliseconds to a partition with three replicas; the
node that leads it is killed or stopped, and started again. A kill counts from SIGKILL to the first acknowledgement
of a record sent after it, a stop counts the slowest write. Timers are those that `kraft cluster` sets.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench.brokers import Cluster
from bench.errors import BenchError

INTERVAL_S = 0.005
WARM_UP_RECORDS = 50
GIVE_UP_S = 60.0
METADATA_TIMEOUT_S = 30.0
TOPIC = "failover"


class Kill(NamedTuple):
    """`killed_s` by the wall clock, as in the nodes' logs; `gap_s` is the writes' wait."""

    killed_s: float
    gap_s: float


class _Writer:
    """Sends records one after the other and notes when each was sent and acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        self._producer.list_topics(TOPIC, METADATA_TIMEOUT_S)
        self.sent_s: list[float] = []
        self.acknowledged_s: dict[int, float] = {}
        self.failures: list[str] = []

    @property
    def sent(self) -> int:
        return len(self.sent_s)

    def step(self) -> None:
        """Sends one record and waits a little for answers."""
        number = self.sent

        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                self.acknowledged_s[number] = time.monotonic()
            else:
                self.failures.append(str(error))

        self.sent_s.append(time.monotonic())
        self._producer.produce(TOPIC, b"x" * 100, on_delivery=delivered)
        self._producer.poll(INTERVAL_S)

    def warm_up(self) -> None:
        """Raises BenchError if writes do not get through."""
        started_s, wanted = time.monotonic(), len(self.acknowledged_s) + WARM_UP_RECORDS
        while len(self.acknowledged_s) < wanted:
            self.step()
            self.give_up_after(started_s, "although no node is down")

    def leader(self) -> int:
        partitions = self._producer.list_topics(TOPIC, METADATA_TIMEOUT_S).topics[TOPIC].partitions
        return int(partitions[0].leader)

    def finish(self) -> None:
        self._producer.flush(METADATA_TIMEOUT_S)

    def give_up_after(self, since_s: float, when: str) -> None:
        if time.monotonic() - since_s > GIVE_UP_S:
            raise BenchError(
                f"no acknowledged write within {GIVE_UP_S:g} s {when}; failures: {self.failures[:1]}"
            )


def failover_s(brokers: Cluster) -> dict[str, float]:
    """Seconds without an acknowledged write, by the other roles of the killed leader. Raises BenchError."""
    controller = brokers.controller()
    victims = {
        "broker": next(node_id for node_id in brokers.node_ids if node_id != controller),
        "controller": controller,
    }
    return {role: kill_leader(brokers, victim).gap_s for role, victim in victims.items()}


def kill_leader(brokers: Cluster, victim: int) -> Kill:
    """Kills the node while it leads, and starts it again. Raises BenchError."""
    with _led_by(brokers, victim) as (writer, pid):
        os.kill(pid, signal.SIGKILL)
        killed_at_s, killed_s = time.time(), time.monotonic()
        first = writer.sent
        while first not in writer.acknowledged_s:
            writer.step()
            writer.give_up_after(killed_s, "after the kill")
        gap_s = min(at for number, at in writer.acknowledged_s.items() if number >= first) - killed_s
        writer.finish()
        brokers.local.start_node(victim)
    return Kill(killed_at_s, gap_s)


def stop_leader(brokers: Cluster, victim: int) -> float:
    """Has the node shut down in order while it leads, and starts it again.

    Returns the seconds that the slowest write took from the order to stop until others had taken over and
    the node was gone. Raises BenchError, also when a write failed.
    """
    with _led_by(brokers, victim) as (writer, pid):
        os.kill(pid, signal.SIGTERM)
        stopped_s, first = time.monotonic(), writer.sent
        while brokers.local.pid(victim) is not None:
            writer.step()
            writer.give_up_after(stopped_s, "and the node had not stopped")
        writer.warm_up()
        writer.finish()
        brokers.local.start_node(victim)
    if writer.failures or len(writer.acknowledged_s) < writer.sent:
        raise BenchError(
            f"{writer.sent - len(writer.acknowledged_s)} writes were not acknowledged while node {victim}"
            f" stopped in order; failures: {writer.failures[:1]}"
        )
    return max(writer.acknowledged_s[number] - writer.sent_s[number] for number in range(first, writer.sent))


@contextmanager
def _led_by(brokers: Cluster, victim: int) -> Iterator[tuple[_Writer, int]]:
    """A writer that gets through to a new topic led by the node, and the node's pid."""
    with brokers.topic(1, len(brokers.node_ids), name=TOPIC, leaders=[victim]):
        writer = _Writer(brokers.bootstrap)
        writer.warm_up()
        if writer.leader() != victim:
            raise BenchError(f"node {victim} should lead the partition, but node {writer.leader()} does")
        pid = brokers.local.pid(victim)
        if pid is None:
            raise BenchError(f"node {victim} is not running")
        yield writer, pid
