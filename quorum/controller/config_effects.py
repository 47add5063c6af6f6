"""What a change of configs does to partitions: leaders that may now be unclean, ELRs that now say too much.

Guarantees: a partition whose ISR suffices under a lowered min.insync.replicas has no eligible leader
replicas by the time brokers act on the new value: from then on its high watermark moves without them
(KIP-966). A partition without a leader gets one as soon as unclean election is allowed. Costs O(partitions
of the topic), for a cluster-wide change O(partitions without a leader, or with an ELR). Called by
`configuration_control`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from quorum.controller.decision import ALL_BROKERS, ClusterView, Unit
from quorum.controller.replication_control import elect_unclean
from quorum.metadata.delta import PartitionKey
from quorum.metadata.records import TOPIC_RESOURCE, PartitionChange


class Effects(NamedTuple):
    """Units to propose ahead of the config records, and behind them."""

    before: list[Unit]
    after: list[Unit]


class _TopicChange(NamedTuple):
    """The effective values of one topic, before and after."""

    min_isr: tuple[int, int]
    unclean: tuple[bool, bool]


def consequences(view: ClusterView, kind: str, name: str, configs: Mapping[str, str]) -> Effects:
    """The effects of giving a resource these configs, all valid."""
    change = _Changes(view, kind, configs)
    if kind == TOPIC_RESOURCE:
        topic = view.image.topic(name)
        assert topic is not None
        keys = [(topic.topic_id, number) for number in range(len(topic.partitions))]
        return Effects(list(_given_up(view, change, keys)), list(_elected(view, change, keys)))
    if name != ALL_BROKERS:
        return Effects([], [])  # nothing that the controller goes by can be set on a single broker
    return Effects(
        list(_given_up(view, change, view.index.with_elr())),
        list(_elected(view, change, view.index.leaderless())),
    )


class _Changes:
    """Effective values by topic, each computed once."""

    def __init__(self, view: ClusterView, kind: str, configs: Mapping[str, str]) -> None:
        self._view = view
        self._kind = kind
        self._configs = configs
        self._known: dict[bytes, _TopicChange] = {}

    def of(self, topic_id: bytes) -> _TopicChange:
        """How the topic's effective values change."""
        known = self._known.get(topic_id)
        if known is None:
            view, schema = self._view, self._view.topic_configs
            own = view.image.config(TOPIC_RESOURCE, view.image.topics[topic_id].name)
            cluster = view.cluster_configs
            after = (self._configs, cluster) if self._kind == TOPIC_RESOURCE else (own, self._configs)
            known = self._known[topic_id] = _TopicChange(
                (schema.min_insync_replicas(own, cluster), schema.min_insync_replicas(*after)),
                (
                    schema.unclean_leader_election_enable(own, cluster),
                    schema.unclean_leader_election_enable(*after),
                ),
            )
        return known


def _given_up(view: ClusterView, change: _Changes, keys: Iterable[PartitionKey]) -> Iterator[Unit]:
    """ELRs of partitions whose ISR is enough under a lower min.insync.replicas."""
    for topic_id, number in keys:
        partition = view.image.topics[topic_id].partitions[number]
        before, after = change.of(topic_id).min_isr
        suffices = len(partition.isr) >= min(after, len(partition.replicas))
        if after < before and suffices and (partition.elr or partition.last_known_elr):
            yield Unit(PartitionChange(topic_id, number, elr=(), last_known_elr=()))


def _elected(view: ClusterView, change: _Changes, keys: Iterable[PartitionKey]) -> Iterator[Unit]:
    """Unclean leaders for partitions without one, of topics for which that was not allowed before."""
    for key in keys:
        partition = view.image.topics[key[0]].partitions[key[1]]
        if not partition.has_leader and change.of(key[0]).unclean == (False, True):
            record = elect_unclean(view, key)
            if record is not None:
                yield Unit(record)
