"""The partitions of each broker (led, preferred, in sync, eligible, offline), kept up to date change by change.

Guarantees: a decision about one broker (fence it, unfence it, does it still lead?) costs O(partitions of that broker),
however many the cluster has. A topic name's collision is found in O(1). Every listing is sorted, so that behaviour
does not depend on the order of past events. The index mirrors the speculative image of the active controller. While
another one is active it goes over to committed images in steps (`ClusterIndex.follow`), and before this one becomes
active again to the newest, at the cost of what differs.
"""

from __future__ import annotations

from typing import Final

from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage, PartitionId, PartitionImage, TopicImage
from quorum.steps import Steps, finished

PARTITIONS_PER_STEP: Final = 500
TOPICS_PER_STEP: Final = 2_000
_Keys = dict[PartitionId, None]
_CLUSTER = -1
"""Stands for a broker in an index of the whole cluster."""


def collision_key(topic: str) -> str:
    """Topics with equal keys collide: '.' and '_' are the same character in metric names."""
    return topic.replace(".", "_")


class ClusterIndex:
    """Partitions by broker, and topic names by collision key, of one image."""

    def __init__(self, image: MetadataImage = EMPTY) -> None:
        self._image = EMPTY
        self._left: Steps[None] | None = None
        self._led: dict[int, _Keys] = {}
        self._in_sync: dict[int, _Keys] = {}
        self._eligible: dict[int, _Keys] = {}
        self._offline: dict[int, _Keys] = {}
        self._leaderless: dict[int, _Keys] = {}
        self._all_leaderless: dict[int, _Keys] = {}
        self._preferred: dict[int, int] = {}
        self._imbalanced: dict[int, _Keys] = {}
        self._reassigning: dict[int, _Keys] = {}
        self._with_elr: dict[int, _Keys] = {}
        self._names: dict[str, dict[str, None]] = {}
        finished(self.follow(image))

    def follow(self, image: MetadataImage) -> Steps[None]:
        """Goes over to any other image, in steps: O(topics, and partitions that differ). What it tells is of no use
        until the last one. Steps that an earlier call has left are done first, at once."""
        if self._left is not None:
            finished(self._left)
        self._left = self._followed(image)
        return self._left

    def _followed(self, image: MetadataImage) -> Steps[None]:
        before = self._image
        for topic_id in before.topics.keys() - image.topics.keys():
            self._forget(topic_id, before.topics[topic_id])
        work = 0
        for topic_id, topic in image.topics.items():
            known = before.topics.get(topic_id)
            if known is None:
                self._names.setdefault(collision_key(topic.name), {})[topic.name] = None
            else:  # what was speculative may have had more of them
                for number in range(len(topic.partitions), len(known.partitions)):
                    self._remove((topic_id, number), known.partitions[number])
            for number, partition in enumerate(() if topic is known else topic.partitions):
                old = None if known is None or number >= len(known.partitions) else known.partitions[number]
                work += 1
                if old != partition:  # an image that was speculative has other objects than the committed one
                    if old is not None:
                        self._remove((topic_id, number), old)
                    self._add((topic_id, number), partition)
                    work += TOPICS_PER_STEP // PARTITIONS_PER_STEP
                if work >= TOPICS_PER_STEP:
                    work = 0
                    yield
            work += 1
            if work >= TOPICS_PER_STEP:
                work = 0
                yield
        self._image, self._left = image, None

    def led_by(self, broker_id: int) -> int:
        """How many partitions the broker leads."""
        return len(self._led.get(broker_id, ()))

    def in_sync_on(self, broker_id: int) -> list[PartitionId]:
        """The partitions with the broker in their ISR, ascending; those it leads are among them."""
        return sorted(self._in_sync.get(broker_id, ()))

    def eligible_on(self, broker_id: int) -> list[PartitionId]:
        """The partitions with the broker in their ELR, ascending."""
        return sorted(self._eligible.get(broker_id, ()))

    def offline_on(self, broker_id: int) -> list[PartitionId]:
        """The partitions whose replica on the broker is offline, ascending."""
        return sorted(self._offline.get(broker_id, ()))

    def leaderless_on(self, broker_id: int) -> list[PartitionId]:
        """The partitions without a leader that have a replica on the broker, ascending."""
        return sorted(self._leaderless.get(broker_id, ()))

    def has_leaderless_on(self, broker_id: int) -> bool:
        """Whether `leaderless_on` lists any."""
        return bool(self._leaderless.get(broker_id))

    def leaderless(self) -> list[PartitionId]:
        """All partitions without a leader, ascending."""
        return sorted(self._all_leaderless.get(_CLUSTER, ()))

    def preferred_on(self, broker_id: int) -> int:
        """How many partitions have the broker as their preferred leader: as their first replica."""
        return self._preferred.get(broker_id, 0)

    def imbalanced_brokers(self) -> list[int]:
        """The brokers that are preferred leaders of partitions that others lead, ascending."""
        return sorted(self._imbalanced)

    def imbalance_on(self, broker_id: int) -> int:
        """How many partitions that prefer the broker are led by another one."""
        return len(self._imbalanced.get(broker_id, ()))

    def imbalanced_on(self, broker_id: int) -> list[PartitionId]:
        """The partitions that prefer the broker and are led by another one, ascending."""
        return sorted(self._imbalanced.get(broker_id, ()))

    def reassigning(self) -> list[PartitionId]:
        """The partitions with a reassignment under way, ascending."""
        return sorted(self._reassigning.get(_CLUSTER, ()))

    def with_elr(self) -> list[PartitionId]:
        """The partitions that have eligible leader replicas beside their ISR, or had some, ascending."""
        return sorted(self._with_elr.get(_CLUSTER, ()))

    def colliding_name(self, topic: str) -> str | None:
        """An existing topic whose name differs from `topic` only in '.' and '_', or None."""
        for name in sorted(self._names.get(collision_key(topic), ())):
            if name != topic:
                return name
        return None

    def update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follows a finished delta to the image it made. O(what changed)."""
        for topic_id, topic in delta.deleted_topics.items():
            self._forget(topic_id, topic)
        for topic_id in delta.created_topics:
            name = image.topics[topic_id].name
            self._names.setdefault(collision_key(name), {})[name] = None
        for key, before in delta.changed_partitions.items():
            if before is not None:
                self._remove(key, before)
            self._add(key, image.topics[key[0]].partitions[key[1]])
        self._image = image

    def _forget(self, topic_id: bytes, topic: TopicImage) -> None:
        names = self._names[collision_key(topic.name)]
        del names[topic.name]
        if not names:
            del self._names[collision_key(topic.name)]
        for number, partition in enumerate(topic.partitions):
            self._remove((topic_id, number), partition)

    def _add(self, key: PartitionId, partition: PartitionImage) -> None:
        for index, broker_id in self._places(partition):
            keys = index.get(broker_id)
            if keys is None:
                keys = index[broker_id] = {}
            keys[key] = None
        preferred = partition.replicas[0]
        self._preferred[preferred] = self._preferred.get(preferred, 0) + 1

    def _remove(self, key: PartitionId, partition: PartitionImage) -> None:
        for index, broker_id in self._places(partition):
            keys = index[broker_id]
            del keys[key]
            if not keys:
                del index[broker_id]
        preferred = partition.replicas[0]
        self._preferred[preferred] -= 1
        if not self._preferred[preferred]:
            del self._preferred[preferred]

    def _places(self, partition: PartitionImage) -> list[tuple[dict[int, _Keys], int]]:
        """The indexes that a partition in this state is in, each with the broker that it is there under."""
        # A list, and no look where there is nothing, as in most partitions: all of them go through here when a
        # controller begins, on the loop.
        places = [(self._in_sync, broker_id) for broker_id in partition.isr]
        if partition.elr or partition.last_known_elr:
            places += [(self._eligible, broker_id) for broker_id in partition.elr]
            places.append((self._with_elr, _CLUSTER))
        if partition.offline_replicas:
            places += [(self._offline, broker_id) for broker_id in partition.offline_replicas]
        if partition.is_reassigning:
            places.append((self._reassigning, _CLUSTER))
        if not partition.has_leader:
            places.append((self._all_leaderless, _CLUSTER))
            places += [(self._leaderless, broker_id) for broker_id in partition.replicas]
            return places
        places.append((self._led, partition.leader))
        if partition.leader != partition.replicas[0]:
            places.append((self._imbalanced, partition.replicas[0]))
        return places
