"""Whom a fault strikes: a role that an experiment file names, resolved when the fault strikes.

    leader of orders-0 · follower of orders-0 (in the ISR) · replica 2 of orders-0 · controller
    coordinator of group g · coordinator of transaction x · node 2 · nodes 1, 2 · random node · all nodes
    node of step 1 (whom the method's first step struck)

`resolve` needs a view of the metadata at that instant, which both worlds can give. Pure: the random one is drawn from
a stream that is passed in.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kraft.chaos.experiments.evidence import Journal, MetadataChange, PartitionName
from kraft.coordinator.groups.partitioning import group_partition
from quorum.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE

Role = Literal[
    "leader", "follower", "replica", "controller", "group", "transaction", "nodes", "random", "all", "step"
]
NO_LEADER: Final = -1
GRAMMAR: Final = (
    "leader of T-P, follower of T-P, replica N of T-P, controller, coordinator of group G,"
    " coordinator of transaction X, node N, nodes N, M, random node, all nodes, node of step N"
)


class TargetError(ValueError):
    """A text that names no target; the message says what would."""


class NobodyThereError(Exception):
    """Nobody has the role now: the partition has no leader, the group no coordinator. The message says so."""


@dataclass(frozen=True)
class Target:
    """A role."""

    text: str
    """As the file has it."""
    role: Role
    partition: PartitionName | None = None
    name: str = ""
    """Of a coordinator: the group or the transactional id."""
    numbers: tuple[int, ...] = ()
    """Node ids, the place among a partition's replicas (from 1), or the step (from 1)."""


@dataclass(frozen=True)
class PartitionView:
    """Who has a partition, by the newest metadata."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    leader_epoch: int = -1


@dataclass(frozen=True)
class MetadataView:
    """What is known of the cluster at one instant."""

    nodes: tuple[int, ...]
    """All of the cluster."""
    running: frozenset[int]
    controller: int | None
    partitions: Mapping[PartitionName, PartitionView]
    groups: Mapping[str, int] = field(default_factory=dict)
    """By group: the node of its coordinator."""
    transactions: Mapping[str, int] = field(default_factory=dict)
    """By transactional id: the node of its coordinator."""


@dataclass(frozen=True)
class Struck:
    """A target that was found."""

    nodes: tuple[int, ...]
    partitions: tuple[PartitionName, ...]
    """By which the fault's effect is judged: the role's own, else those that the nodes lead."""


INTERNAL_TOPICS: Final[Mapping[Role, str]] = {"group": CONSUMER_OFFSETS, "transaction": TRANSACTION_STATE}
"""By role: the topic whose partition's leader has it."""
_PARTITION = r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)"
_FORMS: Final[Sequence[tuple[Role, re.Pattern[str]]]] = (
    ("leader", re.compile(rf"leader of {_PARTITION}")),
    ("follower", re.compile(rf"follower of {_PARTITION}")),
    ("replica", re.compile(rf"replica (?P<numbers>\d+) of {_PARTITION}")),
    ("controller", re.compile(r"(?:the )?(?:active )?controller")),
    ("group", re.compile(r"coordinator of group (?P<name>\S+)")),
    ("transaction", re.compile(r"coordinator of transaction (?P<name>\S+)")),
    ("nodes", re.compile(r"nodes? (?P<numbers>\d+(?: ?, ?\d+)*)")),
    ("random", re.compile(r"(?:a )?random node")),
    ("all", re.compile(r"all nodes")),
    ("step", re.compile(r"node of step (?P<numbers>\d+)")),
)


def parse_target(text: str) -> Target:
    """Raises TargetError."""
    for role, form in _FORMS:
        if matched := form.fullmatch(text.strip()):
            parts = matched.groupdict()
            return Target(
                text.strip(),
                role,
                (parts["topic"], int(parts["partition"])) if parts.get("topic") else None,
                parts.get("name") or "",
                tuple(int(number) for number in (parts.get("numbers") or "").split(",") if number),
            )
    raise TargetError(f"{text!r} names no target: it is one of {GRAMMAR}")


def resolve(
    target: Target, view: MetadataView, rng: random.Random, earlier: Mapping[int, Sequence[int]]
) -> Struck:
    """Who has the role now. `earlier`: by step (from 1), the nodes that it struck. Raises NobodyThereError."""
    nodes = _nodes(target, view, rng, earlier)
    if target.partition is not None:
        return Struck(nodes, (target.partition,))
    led = {name for name, partition in view.partitions.items() if partition.leader in nodes}
    return Struck(nodes, tuple(sorted(led)))


def _nodes(
    target: Target, view: MetadataView, rng: random.Random, earlier: Mapping[int, Sequence[int]]
) -> tuple[int, ...]:
    if target.role == "controller":
        return _only(view.controller, "there is no active controller")
    if target.role == "group":
        return _only(view.groups.get(target.name), f"nobody coordinates group {target.name}")
    if target.role == "transaction":
        return _only(view.transactions.get(target.name), f"nobody coordinates transactional id {target.name}")
    if target.role == "random":
        running = sorted(view.running)
        return _only(rng.choice(running) if running else None, "no node runs")
    if target.role == "step":
        struck = tuple(earlier.get(target.numbers[0], ()))
        if not struck:
            raise NobodyThereError(f"step {target.numbers[0]} has struck nobody yet")
        return struck
    if target.role in ("nodes", "all"):
        return target.numbers or view.nodes
    return _replicas(target, view)


def _replicas(target: Target, view: MetadataView) -> tuple[int, ...]:
    """The leader, an ISR follower or the n-th replica of a partition."""
    assert target.partition is not None, "the grammar gives these roles a partition"
    label = f"{target.partition[0]}-{target.partition[1]}"
    known = view.partitions.get(target.partition)
    if known is None:
        raise NobodyThereError(f"there is no partition {label}")
    if target.role == "leader":
        return _only(None if known.leader == NO_LEADER else known.leader, f"{label} has no leader")
    if target.role == "follower":
        followers = [node for node in known.replicas if node in known.isr and node != known.leader]
        return _only(followers[0] if followers else None, f"{label} has no follower in its ISR")
    place = target.numbers[0]
    found = known.replicas[place - 1] if 0 < place <= len(known.replicas) else None
    return _only(found, f"{label} has no replica {place}")


def _only(node: int | None, otherwise: str) -> tuple[int, ...]:
    if node is None:
        raise NobodyThereError(otherwise)
    return (node,)


def check_by_journal(
    target: Target, nodes: Sequence[int], at_s: float, journal: Journal, slack_s: float
) -> str:
    """What the metadata log says against the choice, made at `at_s`; "" if nothing.

    A role may have passed on while the view was read: any holder within `slack_s` before or after is right.
    """
    if target.role == "controller":
        held = _holders([(one.at_s, {one.node}) for one in journal.controllers], at_s, slack_s)
        what = "the active controller"
    elif target.role in ("leader", "follower") and target.partition is not None:
        changes = [one for one in journal.partitions if (one.topic, one.partition) == target.partition]
        if target.role == "leader":
            states = [(one.at_s, {one.leader}) for one in changes]
        else:
            states = [(one.at_s, set(one.isr) - {one.leader}) for one in changes]
        held, what = _holders(states, at_s, slack_s), f"a {target.text}"
    elif target.role in INTERNAL_TOPICS and journal.internal is not None:
        changes = _of_coordinator(target, journal.internal)
        held, what = _holders([(one.at_s, {one.leader}) for one in changes], at_s, slack_s), target.text
    else:
        return ""
    if not held:
        return f"the metadata journal does not know {what} at {at_s:.3f} s"
    if not held.intersection(nodes):
        known = ", ".join(map(str, sorted(held)))
        return f"node {', '.join(map(str, nodes))} was not {what} at {at_s:.3f} s: node {known} was"
    return ""


def _of_coordinator(target: Target, internal: Sequence[MetadataChange]) -> list[MetadataChange]:
    """The changes of the partition that keeps a group or a transactional id."""
    own = [one for one in internal if one.topic == INTERNAL_TOPICS[target.role]]
    partitions = 1 + max((one.partition for one in own), default=0)
    return [one for one in own if one.partition == group_partition(target.name, partitions)]


def _holders(states: Sequence[tuple[float, set[int]]], at_s: float, slack_s: float) -> set[int]:
    """All who held a role at some time within the slack."""
    held: set[int] = set()
    for number, (since_s, who) in enumerate(states):
        until_s = states[number + 1][0] if number + 1 < len(states) else float("inf")
        if since_s <= at_s + slack_s and until_s >= at_s - slack_s:
            held |= who
    return held
