"""What can be wrong with a cluster, one (kind, sentence) each: what `kraft cluster health` and the console tell. Pure.

A replica that a reassignment is still adding is not missing yet, as in Kafka's metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

FULL_RATIO: Final = 0.05
"""A disk with less room than this part of it is nearly full."""
OFFLINE: Final = "partition-offline"
UNDER_MIN_ISR: Final = "under-min-isr"
UNDER_REPLICATED: Final = "under-replicated"


class Problem(NamedTuple):
    """`kind` is for programs, `what` for people."""

    kind: str
    what: str


class PartitionSeen(NamedTuple):
    topic: str
    partition: int
    leader: int
    """-1: nobody leads."""
    isr: Sequence[int]
    replicas: Sequence[int]
    adding: int
    """How many of the replicas are still to come."""
    min_isr: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def needed(self) -> int:
        """How many replicas acks=all needs."""
        return min(self.min_isr, len(self.replicas))


class DirectorySeen(NamedTuple):
    broker: int
    path: str
    error: str | None
    total_bytes: int
    """-1 where the disk does not tell."""
    usable_bytes: int


def unusable(one: PartitionSeen) -> Problem | None:
    """That nobody can use a partition, or that it refuses acks=all."""
    if one.leader < 0:
        return Problem(OFFLINE, f"{one} has no leader; its replicas: {ids_text(one.replicas)}")
    if len(one.isr) < one.needed:
        return Problem(
            UNDER_MIN_ISR,
            f"{one} refuses acks=all: {len(one.isr)} of {one.needed} replicas that it needs are in sync"
            f" ({ids_text(one.isr)})",
        )
    return None


def under_replicated(one: PartitionSeen) -> Problem | None:
    """That a partition works with fewer replicas than it should have."""
    if one.leader < 0 or len(one.isr) >= len(one.replicas) - one.adding:
        return None
    missing = [broker for broker in one.replicas if broker not in one.isr]
    return Problem(UNDER_REPLICATED, f"{one} lacks in its ISR: {ids_text(missing)}")


def fenced(broker: int) -> Problem:
    return Problem("broker-fenced", f"broker {broker} is registered and fenced: it is down or cut off")


def silent(broker: int) -> Problem:
    return Problem("broker-silent", f"broker {broker} is not fenced, and does not answer")


def no_controller() -> Problem:
    return Problem("no-controller", "no controller is active: no leader is elected, no topic created")


def voter_silent(node_id: int) -> Problem:
    return Problem("voter-silent", f"voter {node_id} is not heard of by the quorum's leader")


def voter_lagging(node_id: int, lag: int) -> Problem:
    """`lag` in entries of the metadata log."""
    return Problem("voter-lagging", f"voter {node_id} is {lag:,} entries of the metadata log behind")


def group_still(group_id: str, lag: int, for_s: int) -> Problem:
    """`lag` in records."""
    return Problem(
        "group-stands-still",
        f"group {group_id} has committed nothing for {for_s} s and is {lag:,} records behind",
    )


def of_directories(directories: Iterable[DirectorySeen]) -> Iterator[Problem]:
    """Those that failed or are nearly full."""
    for one in directories:
        where = f"broker {one.broker}, {one.path}"
        if one.error is not None:
            yield Problem("directory-failed", f"{where}: it cannot be used ({one.error})")
        elif 0 <= one.usable_bytes < FULL_RATIO * one.total_bytes:
            yield Problem(
                "directory-full",
                f"{where}: {100 * one.usable_bytes // one.total_bytes} % of {bytes_text(one.total_bytes)} are left",
            )


def ids_text(brokers: Iterable[int]) -> str:
    """Ids of brokers, separated by commas."""
    return ",".join(map(str, brokers))


def bytes_text(size_bytes: int) -> str:
    """A size as people read it, in one word: 512B, 1.5KiB, 20.0GiB."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size_bytes}B" if unit == "B" else f"{size:.1f}{unit}"
