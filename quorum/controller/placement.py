"""The placement of replicas: the brokers that hold a new partition, the preferred leader first.

Guarantees: replicas of a partition are distinct. Leaders go round all unfenced brokers (round all racks, if every
broker has a rack), from a random start, reshuffled after each full round, so that neighbours differ. The first replica
is on an unfenced broker; within a rack unfenced brokers come before fenced ones. Replicas are spread over all racks
before a rack is used twice. The model is Kafka's striped placer (KIP-36). `replication_control` calls it for new topics
and new partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from typing import Any, NamedTuple, Protocol

from quorum.errors import ControllerError


class Randomness(Protocol):
    """The part of `random.Random` that the controller draws from."""

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, x: MutableSequence[Any], /) -> None: ...

    def randbytes(self, n: int, /) -> bytes: ...


class UsableBroker(NamedTuple):
    """A registered broker that is not shutting down."""

    broker_id: int
    rack: str | None
    fenced: bool


class _Rack:
    """The brokers of one rack in shuffled order."""

    def __init__(self) -> None:
        self.unfenced: list[int] = []
        self.fenced: list[int] = []

    def pick(self, shift: int, picked: int) -> int | None:
        """The broker to use after `picked` others of this rack; the order starts `shift` places on."""
        if picked < len(self.unfenced):
            return self.unfenced[(shift + picked) % len(self.unfenced)]
        picked -= len(self.unfenced)
        if picked < len(self.fenced):
            return self.fenced[(shift + picked) % len(self.fenced)]
        return None


def place(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, rng: Randomness
) -> list[tuple[int, ...]]:
    """Replicas for `partitions` new partitions.

    Raises ControllerError INVALID_REPLICATION_FACTOR when there are too few brokers, or none unfenced.
    """
    usable = sorted(brokers)
    _check_reachable(usable, replication_factor)
    racks = _group(usable)
    turns = sum(len(rack.unfenced) for rack in racks)
    start = rng.randrange(len(racks))
    placed = []
    for number in range(partitions):
        turn = number % turns
        if turn == 0:
            _shuffle(racks, rng)
        placed.append(_place_one(racks, start + turn, turn // len(racks), replication_factor))
    return placed


def _check_reachable(usable: list[UsableBroker], replication_factor: int) -> None:
    problem = None
    if not any(not broker.fenced for broker in usable):
        problem = "All brokers are currently fenced or shutting down; wait until one has started."
    elif replication_factor > len(usable):
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered."
        )
    if problem is not None:
        raise ControllerError(
            "INVALID_REPLICATION_FACTOR",
            f"Unable to replicate the partition {replication_factor} time(s): {problem}",
        )


def _group(usable: list[UsableBroker]) -> list[_Rack]:
    """Racks by ascending name; one common rack unless every broker has its own name for it."""
    rack_aware = all(broker.rack is not None for broker in usable)
    racks: dict[str, _Rack] = {}
    for broker in usable:
        rack = racks.setdefault(broker.rack or "" if rack_aware else "", _Rack())
        (rack.fenced if broker.fenced else rack.unfenced).append(broker.broker_id)
    return [racks[name] for name in sorted(racks)]


def _shuffle(racks: list[_Rack], rng: Randomness) -> None:
    rng.shuffle(racks)
    for rack in racks:
        rng.shuffle(rack.unfenced)
        rng.shuffle(rack.fenced)


def _place_one(racks: list[_Rack], start: int, shift: int, replication_factor: int) -> tuple[int, ...]:
    """One partition: the leader from the first rack at or after `start` with an unfenced broker, then
    one replica from each rack in turn, beginning at `start`.

    A rack `distance` places after the start begins `distance` further on in its own order: followers
    of one broker's partitions are then spread over all brokers of the other racks.
    """
    count = len(racks)
    picked = [0] * count
    leader_rack = next(
        (start + distance) % count for distance in range(count) if racks[(start + distance) % count].unfenced
    )
    replicas: list[int] = []
    skip_leader_rack = True
    step = 0
    while len(replicas) < replication_factor:
        if not replicas:
            position, distance = leader_rack, (leader_rack - start) % count
        else:
            position, distance = (start + step) % count, step % count
            step += 1
            if position == leader_rack and skip_leader_rack:
                skip_leader_rack = False
                continue
        broker_id = racks[position].pick(shift + distance, picked[position])
        if broker_id is not None:
            picked[position] += 1
            replicas.append(broker_id)
    return tuple(replicas)
