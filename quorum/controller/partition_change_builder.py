"""The builder of every change of a partition: from the targets for one partition to its record.

Every part of the controller that changes partitions builds its records here, so that every member of ISR and ELR has
every committed record: the high watermark stands still while the ISR is below min.insync.replicas or any replica
outside it is eligible.

Guarantees (KIP-966):
- a replica that leaves an ISR below min.insync.replicas stays eligible for leadership. The ELR is given up once the
  ISR is large enough, and loses a broker that stopped uncleanly. The last leader is remembered while the ISR is empty;
- an offline replica is in no ISR and leads nothing. A damaged one is not eligible either, unless no other replica is
  left; one that returns may be empty, and begins a leader epoch;
- an unclean leader is the whole ISR, and its record says RECOVERING (KIP-704);
- a reassignment ends when its whole target is in the ISR (KIP-455);
- at level 0 of `eligible.leader.replicas.version` there is no ELR, and the last member stays in the ISR instead,
  offline or not.

The model is Kafka's class of this name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from quorum.controller.decision import ClusterView
from quorum.controller.election import Acceptable, Elected, Election, elect
from quorum.controller.reassignment import Reassignment, is_complete
from quorum.metadata.features import elr_enabled
from quorum.metadata.image import PartitionId, PartitionImage
from quorum.metadata.records import NO_LEADER, RECOVERING, PartitionChange

Replicas = tuple[int, ...]


class TopicSettings(NamedTuple):
    """The builder's settings, the same for all partitions of a topic."""

    min_insync_replicas: int
    elr_enabled: bool
    election: Election = Election.ONLINE

    @classmethod
    def of(cls, view: ClusterView, topic_id: bytes) -> TopicSettings:
        """The settings as the cluster's configs and features have them."""
        return cls(
            view.min_insync_replicas(topic_id),
            elr_enabled(view.image.features),
            Election.UNCLEAN if view.unclean_allowed(topic_id) else Election.ONLINE,
        )


class PartitionChangeBuilder:
    """Callers set targets on the attributes, which begin with the partition's values, and call `build` once."""

    __slots__ = (
        "_acceptable",
        "_is_renewed",
        "_key",
        "_partition",
        "damaged_replicas",
        "election",
        "elr_enabled",
        "min_insync_replicas",
        "target_adding",
        "target_elr",
        "target_isr",
        "target_leader_recovery_state",
        "target_offline",
        "target_removing",
        "target_replicas",
        "unclean_shutdown_replicas",
    )

    def __init__(
        self,
        key: PartitionId,
        partition: PartitionImage,
        acceptable: Acceptable,
        settings: TopicSettings,
    ) -> None:
        self._key = key
        self._partition = partition
        self._acceptable = acceptable
        self._is_renewed = False
        self.min_insync_replicas, self.elr_enabled, self.election = settings
        self.target_isr: Replicas = partition.isr
        self.target_elr: Replicas = partition.elr
        self.target_replicas: Replicas = partition.replicas
        self.target_removing: Replicas = partition.removing_replicas
        self.target_adding: Replicas = partition.adding_replicas
        self.target_leader_recovery_state = partition.leader_recovery_state
        self.unclean_shutdown_replicas: Collection[int] = ()
        """Brokers whose logs may lack records that they once had; they end in neither ISR nor ELR."""
        self.target_offline: Replicas = partition.offline_replicas
        self.damaged_replicas: Collection[int] = ()
        """Offline replicas whose records cannot be trusted; they stay eligible only if no other replica is."""

    @classmethod
    def of(
        cls,
        view: ClusterView,
        key: PartitionId,
        partition: PartitionImage | None = None,
        acceptable: Acceptable | None = None,
    ) -> PartitionChangeBuilder:
        """A builder with the cluster's settings, for the partition of the image unless another is given."""
        topic_id, number = key
        return cls(
            key,
            view.image.topics[topic_id].partitions[number] if partition is None else partition,
            view.is_active if acceptable is None else acceptable,
            TopicSettings.of(view, topic_id),
        )

    def without(self, leaving: Collection[int]) -> PartitionChangeBuilder:
        """Takes brokers out of the target ISR."""
        if leaving:
            self.target_isr = tuple([broker_id for broker_id in self.target_isr if broker_id not in leaving])
        return self

    def offline(self, broker_id: int) -> PartitionChangeBuilder:
        """Marks a replica as one whose log cannot be served."""
        self.target_offline = (*_without(self.target_offline, broker_id), broker_id)
        return self

    def online(self, broker_id: int) -> PartitionChangeBuilder:
        """Takes the offline mark away, for a new registration of the broker."""
        self.target_offline = _without(self.target_offline, broker_id)
        return self

    def renewed(self, broker_id: int) -> PartitionChangeBuilder:
        """Takes the offline mark away within the registration that set it: the log may be another one, and empty."""
        self._is_renewed = self._is_renewed or broker_id in self.target_offline
        return self.online(broker_id)

    def build(self) -> PartitionChange | None:
        """The record; None if nothing changes."""
        self.without(self.target_offline)
        self._complete_reassignment()
        self._populate_target_elr()
        before = self._partition
        elected = elect(
            before,
            self.election,
            self._may_lead,
            replicas=self.target_replicas,
            isr=self.target_isr,
            elr=self.target_elr,
        )
        if elected.leader != NO_LEADER and elected.leader not in self.target_isr:
            self.target_isr = (elected.leader,)
            self.target_elr = () if elected.unclean else _without(self.target_elr, elected.leader)
            self._complete_reassignment()  # the leader alone may be the whole target
            if self._isr_suffices():
                self.target_elr = ()
        offline = self.target_offline
        if offline:
            offline = tuple(replica for replica in self.target_replicas if replica in offline)
        leader = self._new_leader(elected.leader)
        record = PartitionChange(
            topic_id=self._key[0],
            partition=self._key[1],
            isr=_changed(before.isr, self.target_isr),
            leader=leader,
            leader_recovery_state=self._new_leader_recovery_state(elected),
            replicas=_changed(before.replicas, self.target_replicas),
            removing_replicas=_changed(before.removing_replicas, self.target_removing),
            adding_replicas=_changed(before.adding_replicas, self.target_adding),
            elr=_changed(before.elr, self.target_elr),
            last_known_elr=_changed(before.last_known_elr, self._last_known_elr(elected.leader)),
            offline_replicas=_changed(before.offline_replicas, offline),
            unclean_leader_epoch=before.leader_epoch + (leader is not None) if elected.unclean else None,
        )
        return None if record == PartitionChange(*self._key) else record

    # Steps

    def _may_lead(self, broker_id: int) -> bool:
        return broker_id not in self.target_offline and self._acceptable(broker_id)

    def _complete_reassignment(self) -> None:
        """Once the whole target is in the ISR, replicas and ISR become the target."""
        if not self.target_adding and not self.target_removing:
            return
        reassignment = Reassignment(self.target_replicas, self.target_adding, self.target_removing)
        if is_complete(reassignment, self.target_isr):
            self.target_replicas = self.target_isr = reassignment.target
            self.target_removing = self.target_adding = ()

    def _populate_target_elr(self) -> None:
        before = self._partition
        gone = self.unclean_shutdown_replicas
        if not self.elr_enabled:
            self.target_elr = ()
            if not self.target_isr:
                self.target_isr = (self._last_member(),)
            return
        self.without(gone)
        if self._isr_suffices():
            self.target_elr = ()
            return
        candidates = {*self.target_elr, *before.isr}.difference(self.target_isr, gone)
        trusted = candidates.difference(self.damaged_replicas)
        if self.target_isr or trusted:
            candidates = trusted
        self.target_elr = tuple(replica for replica in self.target_replicas if replica in candidates)

    def _isr_suffices(self) -> bool:
        """Whether the ISR is large enough for the high watermark to move: replicas outside it are not eligible then."""
        return len(self.target_isr) >= min(self.min_insync_replicas, len(self.target_replicas))

    def _last_member(self) -> int:
        """The last member of the ISR, which stays there without an ELR: the leader, if there was one.

        It is an offline replica only if all members are offline: it may never come back.
        """
        before = self._partition
        for candidates in (before.isr, before.elr, before.last_known_elr):
            remaining = [replica for replica in self.target_replicas if replica in candidates]
            remaining = [replica for replica in remaining if replica not in self.target_offline] or remaining
            if remaining:
                last_leaders = (before.leader, *before.last_known_elr)
                return next((leader for leader in last_leaders if leader in remaining), remaining[0])
        return self.target_replicas[0]

    def _new_leader(self, leader: int) -> int | None:
        """The record's leader, perhaps the same one, where a new epoch is needed.

        Replicas that are taken away stop because of the new epoch. If a replica was renewed, the new epoch voids the
        leader's knowledge of its former log, and fences that log's fetches which are still under way.
        """
        is_shrunk = not set(self._partition.replicas) <= set(self.target_replicas)
        is_outdated = self._is_renewed and self._partition.leader != NO_LEADER
        return leader if is_shrunk or is_outdated or leader != self._partition.leader else None

    def _new_leader_recovery_state(self, elected: Elected) -> int | None:
        """The record's recovery state: an unclean election always says RECOVERING, by which controllers log and
        count it."""
        if elected.unclean:
            return RECOVERING
        target = self.target_leader_recovery_state
        return None if target == self._partition.leader_recovery_state else target

    def _last_known_elr(self, leader: int) -> Replicas:
        before = self._partition
        if leader != NO_LEADER or not self.elr_enabled:
            return ()
        if before.isr and not self.target_isr:
            return (self._last_member(),)  # the last leader, or without the ELR the member kept in the ISR
        return before.last_known_elr


def _changed(before: Replicas, after: Replicas) -> Replicas | None:
    return None if before == after else after


def _without(replicas: Replicas, removed: int) -> Replicas:
    return tuple(replica for replica in replicas if replica != removed)
