"""Server-side assignors: which member of a group is to read which partitions (KIP-848).

Pure and deterministic: the same members, subscriptions and assignments give the same answer, whatever their order.
`uniform` balances over all topics and lets members keep what they have; `range` gives each member a range of every
topic, the same range of topics with as many partitions, and keeps nothing for its own sake, as Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from kraft.coordinator.groups.context import TopicPartitions

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; no topic has none."""
NO_PARTITIONS: Final[frozenset[int]] = frozenset()
NOTHING: Final[Assignment] = MappingProxyType({})
MAX_ROUNDS: Final = 16
"""How often `uniform` goes over topics with different subscribers, to even out what the topics before left."""


class AssignorMember(NamedTuple):
    """What an assignor knows of a member."""

    member_id: str
    instance_id: str | None
    topics: tuple[TopicPartitions, ...]
    """Those that it is subscribed to and that exist, by name. Members with one subscription share the object."""
    current: Assignment
    """Its target so far."""


Assignor: TypeAlias = Callable[[Iterable[AssignorMember]], dict[str, Assignment]]
"""Gives every member an assignment, and every partition of a subscribed topic one owner."""


def range_assignor(members: Iterable[AssignorMember]) -> dict[str, Assignment]:
    """Ranges of each topic in the order of the members, static ones first. O(subscriptions + partitions)."""
    ordered = _in_order(members)
    subscribers: dict[bytes, int] = {}
    for member in ordered:
        for topic in member.topics:
            subscribers[topic.topic_id] = subscribers.get(topic.topic_id, 0) + 1
    served = dict.fromkeys(subscribers, 0)
    targets: dict[str, Assignment] = {}
    for member in ordered:
        target = {}
        for topic in member.topics:
            place = served[topic.topic_id]
            served[topic.topic_id] = place + 1
            quota, extras = divmod(topic.partitions, subscribers[topic.topic_id])
            start = place * quota + min(place, extras)
            end = start + quota + (place < extras)
            if start < end:
                target[topic.topic_id] = frozenset(range(start, end))
        targets[member.member_id] = target
    return targets


def uniform_assignor(members: Iterable[AssignorMember]) -> dict[str, Assignment]:
    """Balanced first, sticky second.

    Where all members have one subscription, they have the same number of partitions up to one, and no partition moves
    that balance does not need: O(members + partitions), and their order. Otherwise as balanced as a bounded number of
    rounds over the topics makes it.
    """
    ordered = _in_order(members)
    if not ordered:
        return {}
    topics = ordered[0].topics
    if all(member.topics is topics or member.topics == topics for member in ordered):
        return _uniform_over_one_subscription(ordered, topics)
    return _UniformOverSubscriptions(ordered).assign()


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform_assignor, "range": range_assignor}
"""By their names in `group.consumer.assignors`."""


def _in_order(members: Iterable[AssignorMember]) -> list[AssignorMember]:
    """Static members first, by instance id: one that comes back under a new member id keeps its place."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id))


def _uniform_over_one_subscription(
    members: Sequence[AssignorMember], topics: tuple[TopicPartitions, ...]
) -> dict[str, Assignment]:
    quota, extras = divmod(sum(topic.partitions for topic in topics), len(members))
    free = {topic.topic_id: set(range(topic.partitions)) for topic in topics}
    places = {topic.topic_id: place for place, topic in enumerate(topics)}
    kept: dict[str, list[tuple[bytes, int]]] = {}
    whole: dict[str, int] = {}
    """How much those have who lack nothing of what they had: who ends with as much is left as it is."""
    for member in members:  # what each has that exists, and that nobody before it has
        kept[member.member_id] = having = []
        for topic_id in sorted(member.current.keys() & free.keys(), key=places.__getitem__):
            for partition in sorted(member.current[topic_id]):
                if partition in free[topic_id]:
                    free[topic_id].discard(partition)
                    having.append((topic_id, partition))
        if len(having) == sum(map(len, member.current.values())):
            whole[member.member_id] = len(having)
    shares = dict.fromkeys(kept, quota)
    by_need = sorted(members, key=lambda member: len(kept[member.member_id]) <= quota)
    for member in by_need[:extras]:  # first those that would else give one up
        shares[member.member_id] += 1
    for member_id, having in kept.items():
        for topic_id, partition in having[shares[member_id] :]:
            free[topic_id].add(partition)
        del having[shares[member_id] :]
    pool = [(topic.topic_id, partition) for topic in topics for partition in sorted(free[topic.topic_id])]
    _deal(pool, kept, shares)
    return {
        member.member_id: member.current
        if whole.get(member.member_id) == len(kept[member.member_id])
        else _as_assignment(kept[member.member_id], member.current)
        for member in members
    }


def _deal(
    pool: Sequence[tuple[bytes, int]], hands: Mapping[str, list[tuple[bytes, int]]], shares: Mapping[str, int]
) -> None:
    """One partition after the other to the members that have not their share, in turn: topics are spread.

    The pool is what the members' shares lack, no more and no less.
    """
    waiting = [member_id for member_id, hand in hands.items() if len(hand) < shares[member_id]]
    items = iter(pool)
    while waiting:
        for member_id, item in zip(waiting, items, strict=False):
            hands[member_id].append(item)
        waiting = [member_id for member_id in waiting if len(hands[member_id]) < shares[member_id]]


def _as_assignment(partitions: Iterable[tuple[bytes, int]], current: Assignment) -> Assignment:
    """With the sets of the current one where they are the same."""
    by_topic: dict[bytes, set[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, set()).add(partition)
    target = {}
    for topic_id, owned in by_topic.items():
        known = current.get(topic_id, NO_PARTITIONS)
        target[topic_id] = known if known == owned else frozenset(owned)
    return target


class _UniformOverSubscriptions:
    """`uniform` where not every member may have every topic."""

    def __init__(self, members: Sequence[AssignorMember]) -> None:
        self._members = members
        self._load = [0] * len(members)
        self._topics: dict[bytes, TopicPartitions] = {}
        self._subscribers: dict[bytes, list[int]] = {}
        self._owned: dict[bytes, dict[int, list[int]]] = {}
        """Topic, place of the member, partitions."""
        for place, member in enumerate(members):
            for topic in member.topics:
                self._topics[topic.topic_id] = topic
                self._subscribers.setdefault(topic.topic_id, []).append(place)

    def assign(self) -> dict[str, Assignment]:
        in_order = sorted(
            self._topics.values(),
            key=lambda topic: (
                -topic.partitions / len(self._subscribers[topic.topic_id]),
                len(self._subscribers[topic.topic_id]),
                topic.name,
            ),
        )  # the topics with the fewest choices first
        unowned = {topic.topic_id: self._keep(topic) for topic in in_order}
        for topic in in_order:
            self._hand_out(topic.topic_id, unowned[topic.topic_id])
        for _ in range(MAX_ROUNDS):
            moved = [self._balance(topic.topic_id) for topic in in_order]
            if not any(moved):
                break
        hands: list[list[tuple[bytes, int]]] = [[] for _ in self._members]
        for topic_id, owners in self._owned.items():
            for place, partitions in owners.items():
                hands[place].extend((topic_id, partition) for partition in partitions)
        return {
            member.member_id: _as_assignment(hand, member.current)
            for member, hand in zip(self._members, hands, strict=True)
        }

    def _keep(self, topic: TopicPartitions) -> list[int]:
        """Lets the subscribers keep what they have of the topic; the rest."""
        free = set(range(topic.partitions))
        owned = self._owned[topic.topic_id] = {}
        for place in self._subscribers[topic.topic_id]:
            having = free & self._members[place].current.get(topic.topic_id, NO_PARTITIONS)
            if having:
                free -= having
                owned[place] = sorted(having)
                self._load[place] += len(having)
        return sorted(free)

    def _hand_out(self, topic_id: bytes, partitions: Iterable[int]) -> None:
        """Each to the subscriber with the fewest partitions."""
        owned = self._owned[topic_id]
        least = [(self._load[place], place) for place in self._subscribers[topic_id]]
        heapify(least)
        for partition in partitions:
            _, place = heappop(least)
            owned.setdefault(place, []).append(partition)
            self._load[place] += 1
            heappush(least, (self._load[place], place))

    def _balance(self, topic_id: bytes) -> bool:
        """Moves partitions of the topic from those with the most to those with the fewest; whether any moved."""
        owned, load = self._owned[topic_id], self._load
        least = [(load[place], place) for place in self._subscribers[topic_id]]
        most = [(-load[place], place) for place in owned]
        heapify(least)
        heapify(most)
        moved = False
        while most:
            donor_load, donor = most[0]
            taker_load, taker = least[0]
            if -donor_load != load[donor] or not owned[donor]:
                heappop(most)
            elif taker_load != load[taker]:
                heappop(least)
            elif load[donor] - load[taker] <= 1:
                break
            else:
                owned.setdefault(taker, []).append(owned[donor].pop())
                load[donor] -= 1
                load[taker] += 1
                moved = True
                for place in (donor, taker):
                    heappush(least, (load[place], place))
                    heappush(most, (-load[place], place))
        return moved
