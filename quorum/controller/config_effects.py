"""The effects of changed configs on partitions: new unclean leaders, and ELRs that must be given up.

Guarantees: effective values are those after all changes of the request, for every resource it names. Once a lowered
min.insync.replicas lets a partition's ISR suffice, its high watermark moves without the eligible leader replicas; so
the partition has none by the time that brokers act on the new value (KIP-966). A partition without a leader gets one
as soon as unclean election is allowed. Costs O(partitions of the changed topics); a cluster-wide change costs
O(partitions without a leader, or with an ELR). `configuration_control` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from quorum.controller.decision import ALL_BROKERS, ClusterView, Unit
from quorum.controller.replication_control import elect_unclean
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import PartitionId
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, PartitionChange

ConfigKey: TypeAlias = tuple[str, str]
"""A resource's type and name."""


class Effects(NamedTuple):
    """Units to propose ahead of the config records, and behind them."""

    before: list[Unit]
    after: list[Unit]


class _TopicChange(NamedTuple):
    """Effective values of one topic."""

    min_isr: int
    """After the change."""
    unclean: tuple[bool, bool]
    """Before and after the change."""


def consequences(view: ClusterView, changed: Mapping[ConfigKey, Unit]) -> Effects:
    """The effects of these config records, by the resource that they change; all are valid."""
    with_elr: dict[PartitionId, None] = {}
    leaderless: dict[PartitionId, None] = {}
    for kind, name in changed:
        if kind == TOPIC_RESOURCE:
            topic = view.image.topic(name)
            assert topic is not None
            keys = dict.fromkeys((topic.topic_id, number) for number in range(len(topic.partitions)))
            with_elr.update(keys)
            leaderless.update(keys)
        elif (kind, name) == (BROKER_RESOURCE, ALL_BROKERS):
            with_elr.update(dict.fromkeys(view.index.with_elr()))
            leaderless.update(dict.fromkeys(view.index.leaderless()))
        # No config that the controller reads can be set on a single broker, or on a group.
    if not leaderless and not with_elr:
        return Effects([], [])
    change = _Changes(view, _afterwards(view, changed.values()))
    return Effects(
        list(_given_up(view, change, sorted(with_elr))), list(_elected(change, sorted(leaderless)))
    )


def _afterwards(view: ClusterView, changes: Iterable[Unit]) -> ClusterView:
    """The view with the changed configs, and the partitions as they are: its index holds."""
    offset, epoch = view.image.offset + 1, view.image.epoch
    delta = MetadataDelta(view.image)
    for unit in changes:
        for record in unit.records:
            delta.apply(record, offset, epoch)
    return replace(view, image=delta.finish(offset, epoch))


class _Changes:
    """Effective values by topic, each computed once."""

    def __init__(self, before: ClusterView, after: ClusterView) -> None:
        self._before = before
        self.after = after
        self._known: dict[bytes, _TopicChange] = {}

    def of(self, topic_id: bytes) -> _TopicChange:
        """How the topic's effective values change."""
        known = self._known.get(topic_id)
        if known is None:
            known = self._known[topic_id] = _TopicChange(
                self.after.min_insync_replicas(topic_id),
                (self._before.unclean_allowed(topic_id), self.after.unclean_allowed(topic_id)),
            )
        return known


def _given_up(view: ClusterView, change: _Changes, keys: Iterable[PartitionId]) -> Iterator[Unit]:
    """Gives up the ELRs of partitions whose ISR suffices under the new min.insync.replicas."""
    for topic_id, number in keys:
        partition = view.image.topics[topic_id].partitions[number]
        if not partition.elr and not partition.last_known_elr:
            continue
        if len(partition.isr) >= min(change.of(topic_id).min_isr, len(partition.replicas)):
            yield Unit(PartitionChange(topic_id, number, elr=(), last_known_elr=()))


def _elected(change: _Changes, keys: Iterable[PartitionId]) -> Iterator[Unit]:
    """Unclean leaders for partitions without one, of topics that newly allow them."""
    for key in keys:
        partition = change.after.image.topics[key[0]].partitions[key[1]]
        if not partition.has_leader and change.of(key[0]).unclean == (False, True):
            record = elect_unclean(change.after, key)
            if record is not None:
                yield Unit(record)
