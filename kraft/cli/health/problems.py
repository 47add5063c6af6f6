"""What is wrong with a cluster, from what it told: a list of (kind, sentence). Pure.

The worst comes first: partitions that nobody can use, those that refuse acks=all, then what is behind it or will be,
and last the partitions that work with fewer replicas than they should have. A replica that a reassignment is still
adding is not missing yet, as in Kafka's metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraft.cli.quorum.view import QuorumView, silent_voters
from kraft.cli.shared.documents import bytes_text, ids_text

FULL_RATIO: Final = 0.05
"""A disk with less room than this part of it is nearly full."""


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


class DirectorySeen(NamedTuple):
    broker: int
    path: str
    error: str | None
    total_bytes: int
    """-1 where the disk does not tell."""
    usable_bytes: int


@dataclass(frozen=True)
class ClusterSeen:
    """What the cluster told at one moment."""

    cluster_id: str
    brokers: Sequence[int]
    """Registered."""
    live: Sequence[int]
    """Not fenced."""
    silent: Sequence[int]
    """Live, and yet they do not answer."""
    quorum: QuorumView | None
    """None: no controller answers."""
    partitions: Sequence[PartitionSeen] = ()
    directories: Sequence[DirectorySeen] = field(default=())


def problems(seen: ClusterSeen) -> list[Problem]:
    """Empty when the cluster is healthy."""
    return [
        *_unusable(seen.partitions),
        *_of_nodes(seen),
        *_of_quorum(seen.quorum),
        *_of_disks(seen),
        *_under_replicated(seen.partitions),
    ]


def problem_lines(found: Sequence[Problem], each_max: int) -> Iterator[str]:
    """For people: `each_max` sentences of each kind, and how many more there are."""
    counts = Counter(problem.kind for problem in found)
    shown = Counter[str]()
    for problem in found:
        shown[problem.kind] += 1
        if shown[problem.kind] <= each_max:
            yield problem.what
        if shown[problem.kind] == counts[problem.kind] > each_max:
            yield f"… and {counts[problem.kind] - each_max} more: {problem.kind}"


def _unusable(partitions: Sequence[PartitionSeen]) -> Iterator[Problem]:
    for one in partitions:
        if one.leader < 0:
            yield Problem("partition-offline", f"{one} has no leader; its replicas: {ids_text(one.replicas)}")
    for one in partitions:
        needed = min(one.min_isr, len(one.replicas))
        if one.leader >= 0 and len(one.isr) < needed:
            yield Problem(
                "under-min-isr",
                f"{one} refuses acks=all: {len(one.isr)} of {needed} replicas that it needs are in sync"
                f" ({ids_text(one.isr)})",
            )


def _under_replicated(partitions: Sequence[PartitionSeen]) -> Iterator[Problem]:
    for one in partitions:
        missing = [broker for broker in one.replicas if broker not in one.isr]
        if one.leader >= 0 and len(one.isr) < len(one.replicas) - one.adding:
            yield Problem("under-replicated", f"{one} lacks in its ISR: {ids_text(missing)}")


def _of_nodes(seen: ClusterSeen) -> Iterator[Problem]:
    for broker in sorted(set(seen.brokers) - set(seen.live)):
        yield Problem("broker-fenced", f"broker {broker} is registered and fenced: it is down or cut off")
    for broker in sorted(seen.silent):
        yield Problem("broker-silent", f"broker {broker} is not fenced, and does not answer")


def _of_quorum(quorum: QuorumView | None) -> Iterator[Problem]:
    if quorum is None or quorum.leader_id < 0:
        yield Problem("no-controller", "no controller is active: no leader is elected, no topic created")
        return
    for node_id, _ in silent_voters(quorum.replication()):
        yield Problem("voter-silent", f"voter {node_id} is not heard of by the quorum's leader")


def _of_disks(seen: ClusterSeen) -> Iterator[Problem]:
    for one in seen.directories:
        where = f"broker {one.broker}, {one.path}"
        if one.error is not None:
            yield Problem("directory-failed", f"{where}: it cannot be used ({one.error})")
        elif 0 <= one.usable_bytes < FULL_RATIO * one.total_bytes:
            yield Problem(
                "directory-full",
                f"{where}: {100 * one.usable_bytes // one.total_bytes} % of {bytes_text(one.total_bytes)} are left",
            )
