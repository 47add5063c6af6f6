"""What a metadata image says of its topics and brokers, kept up as it changes: rows of numbers, and what is wrong.

A topic that has not changed is not looked at again, and nothing is done while nobody asks. What a large change costs is
done in steps. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraft import cluster_problems as problems
from kraft.cluster_problems import PartitionSeen, Problem
from quorum.metadata.image import EMPTY, MetadataImage, PartitionImage, TopicImage
from quorum.steps import Steps

PARTITIONS_PER_STEP: Final = 500
TOPICS_PER_STEP: Final = 250
NAMED_MAX: Final = 25
"""Partitions with a problem of one kind that are named; the others are counted."""
OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED, NOT_PREFERRED, REASSIGNING = STATES = (
    "offline",
    "under_min_isr",
    "under_replicated",
    "not_preferred",
    "reassigning",
)
PROBLEMS: Final = {
    OFFLINE: (problems.OFFLINE, problems.unusable),
    UNDER_MIN_ISR: (problems.UNDER_MIN_ISR, problems.unusable),
    UNDER_REPLICATED: (problems.UNDER_REPLICATED, problems.under_replicated),
}
"""The states that are problems, the worst first: their kind, and what says it in a sentence."""
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(slots=True)
class BrokerShare:
    """A broker's part of some partitions."""

    leads: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    preferred: int = 0
    """Partitions of which it is the first replica."""

    def add(self, other: BrokerShare) -> None:
        self.leads += other.leads
        self.replicas += other.replicas
        self.out_of_sync += other.out_of_sync
        self.preferred += other.preferred


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """One topic, as one image has it."""

    topic: TopicImage
    min_isr: int
    states: Mapping[str, int]
    """How many partitions are in a state."""
    replication_factor: int
    """The largest."""
    shares: Mapping[int, BrokerShare]
    troubled: Mapping[str, Sequence[int]]
    """The partitions in a state of `PROBLEMS`."""


@dataclass(slots=True)
class Structure:
    """One image, seen."""

    image: MetadataImage = EMPTY
    topics: dict[str, TopicSeen] = field(default_factory=dict)
    """By name, in the order of names."""
    totals: Counter[str] = field(default_factory=Counter)
    """`partitions`, and how many are in each state."""
    shares: dict[int, BrokerShare] = field(default_factory=dict)


def partition_states(state: PartitionImage, min_isr: int) -> list[str]:
    """The states that a partition is in, of `STATES`."""
    found = []
    if not state.has_leader:
        found.append(OFFLINE)
    elif len(state.isr) < min(min_isr, len(state.replicas)):
        found.append(UNDER_MIN_ISR)
    if state.has_leader and len(state.isr) < len(state.replicas) - len(state.adding_replicas):
        found.append(UNDER_REPLICATED)
    if state.has_leader and state.leader != state.replicas[0]:
        found.append(NOT_PREFERRED)
    if state.is_reassigning:
        found.append(REASSIGNING)
    return found


def _topic_seen(topic: TopicImage, min_isr: int) -> Steps[TopicSeen]:
    states: Counter[str] = Counter()
    shares: dict[int, BrokerShare] = {}
    troubled: dict[str, list[int]] = {}
    for number, state in enumerate(topic.partitions):
        found = partition_states(state, min_isr)
        states.update(found)
        for one in found:
            if one in PROBLEMS:
                troubled.setdefault(one, []).append(number)
        for broker_id in state.replicas:
            share = shares.setdefault(broker_id, BrokerShare())
            share.replicas += 1
            share.leads += broker_id == state.leader
            share.out_of_sync += broker_id not in state.isr
        shares[state.replicas[0]].preferred += 1
        if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
            yield
    factor = max((len(state.replicas) for state in topic.partitions), default=0)
    return TopicSeen(topic, min_isr, states, factor, shares, troubled)


def seen(before: Structure, image: MetadataImage, min_isr_of: Callable[[str], int]) -> Steps[Structure]:
    """The structure of an image; what `before` knows already is taken over. `min_isr_of` a topic of the image."""
    if image is before.image:
        return before
    now = Structure(image)
    work = 0
    for name in sorted(image.topic_ids):
        topic = image.topics[image.topic_ids[name]]
        known, min_isr = before.topics.get(name), min_isr_of(name)
        if known is None or known.topic is not topic or known.min_isr != min_isr:
            known = yield from _topic_seen(topic, min_isr)
            work += len(topic.partitions) * TOPICS_PER_STEP // PARTITIONS_PER_STEP
        now.topics[name] = known
        now.totals.update(known.states)
        now.totals["partitions"] += len(topic.partitions)
        for broker_id, share in known.shares.items():
            now.shares.setdefault(broker_id, BrokerShare()).add(share)
        work += 1
        if work >= TOPICS_PER_STEP:
            work = 0
            yield
    return now


def partition_problems(
    structure: Structure, may_see: Callable[[str], bool]
) -> tuple[Mapping[str, list[tuple[Problem, str, int]]], Counter[str]]:
    """By state of `PROBLEMS`, the first `NAMED_MAX` with topic and partition, and by kind how many there are: of the
    topics that `may_see` lets through. Costs a step for each topic with a problem, not for each partition."""
    named: dict[str, list[tuple[Problem, str, int]]] = {state: [] for state in PROBLEMS}
    counts: Counter[str] = Counter()
    for name, topic in structure.topics.items():
        if not topic.troubled or not may_see(name):
            continue
        for state, numbers in topic.troubled.items():
            kind, problem_of = PROBLEMS[state]
            counts[kind] += len(numbers)
            for number in numbers[: NAMED_MAX - len(named[state])]:
                problem = problem_of(_partition_seen(name, number, topic))
                if problem is not None:
                    named[state].append((problem, name, number))
    return named, counts


def _partition_seen(name: str, number: int, topic: TopicSeen) -> PartitionSeen:
    state = topic.topic.partitions[number]
    adding = len(state.adding_replicas)
    return PartitionSeen(name, number, state.leader, state.isr, state.replicas, adding, topic.min_isr)


def state_counts(topic: TopicSeen) -> Iterator[tuple[str, int]]:
    return ((state, topic.states.get(state, 0)) for state in STATES)
