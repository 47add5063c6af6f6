"""What is wrong with a cluster, from what it told: a list of (kind, sentence). Pure.

The worst comes first: partitions that nobody can use, those that refuse acks=all, then what is behind it or will be,
and last the partitions that work with fewer replicas than they should have (`kraft.cluster_problems`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kraft.cli.quorum.view import QuorumView, silent_voters
from kraft.cluster_problems import (
    DirectorySeen,
    PartitionSeen,
    Problem,
    fenced,
    no_controller,
    of_directories,
    silent,
    under_replicated,
    unusable,
    voter_silent,
)


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
    of_partitions = [found for one in seen.partitions if (found := unusable(one)) is not None]
    return [
        *sorted(
            of_partitions, key=lambda one: one.kind
        ),  # without a leader before those that refuse acks=all
        *(fenced(broker) for broker in sorted(set(seen.brokers) - set(seen.live))),
        *(silent(broker) for broker in sorted(seen.silent)),
        *_of_quorum(seen.quorum),
        *of_directories(seen.directories),
        *(found for one in seen.partitions if (found := under_replicated(one)) is not None),
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


def _of_quorum(quorum: QuorumView | None) -> Iterator[Problem]:
    if quorum is None or quorum.leader_id < 0:
        yield no_controller()
        return
    for node_id, _ in silent_voters(quorum.replication()):
        yield voter_silent(node_id)
