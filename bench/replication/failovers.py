"""The time without writes to a partition when its leader is killed, and when it is stopped in order.

A gap has three shares. Detection lasts until the dead broker's session ends at the active controller (if that was
killed, too, another one is elected first and gives every broker a whole session). Election lasts until the new
leader reports that it leads. Client lasts until the first record sent after the kill is acknowledged.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

from bench.brokers import Cluster, cluster
from bench.failover import TOPIC, kill_leader, stop_leader
from bench.replication.node_logs import LEADS, SESSION_ENDED, first_s
from bench.replication.throughput import NODES
from bench.workers import quantile


class Gap(NamedTuple):
    """One kill, in seconds."""

    led_quorum: bool
    """Whether the killed node was the active controller, too."""
    gap_s: float
    detection_s: float
    election_s: float
    client_s: float


class Failovers(NamedTuple):
    """All kills, and the slowest write around each controlled stop."""

    gaps: list[Gap]
    stops_ms: list[float]

    @property
    def kill_p50_s(self) -> float:
        return quantile([gap.gap_s for gap in self.gaps], 0.5)

    @property
    def kill_p99_s(self) -> float:
        return quantile([gap.gap_s for gap in self.gaps], 0.99)

    @property
    def stop_ms(self) -> float:
        return max(self.stops_ms)

    def document(self) -> dict[str, Any]:
        """As JSON values; the shares are medians."""
        shares = ("detection_s", "election_s", "client_s")
        return {
            "p50_s": self.kill_p50_s,
            "p99_s": self.kill_p99_s,
            "shares": {name: statistics.median(getattr(gap, name) for gap in self.gaps) for name in shares},
            "kills": [gap._asdict() for gap in self.gaps],
            "stops_ms": self.stops_ms,
        }


def failovers(directory: Path, kills: int, stops: int) -> Failovers:
    """Kills leaders in turn, every other one the active controller, then stops some. Raises BenchError."""
    with cluster(directory / "failover", NODES) as brokers:
        gaps = [_kill(brokers, number) for number in range(kills)]
        stops_ms = [1000 * stop_leader(brokers, brokers.node_ids[number % NODES]) for number in range(stops)]
    return Failovers(gaps, stops_ms)


def _kill(brokers: Cluster, number: int) -> Gap:
    controller = brokers.controller()
    others = [node_id for node_id in brokers.node_ids if node_id != controller]
    victim = controller if number % 2 else others[number // 2 % len(others)]
    survivors = [node_id for node_id in brokers.node_ids if node_id != victim]
    kill = kill_leader(brokers, victim)
    ended_s = first_s(brokers, survivors, f"{SESSION_ENDED} broker_id={victim}", kill.killed_s)
    led_s = first_s(brokers, survivors, f"{LEADS}{TOPIC}-0 ", kill.killed_s)
    return Gap(
        led_quorum=victim == controller,
        gap_s=kill.gap_s,
        detection_s=ended_s - kill.killed_s,
        election_s=led_s - ended_s,
        client_s=kill.killed_s + kill.gap_s - led_s,
    )
