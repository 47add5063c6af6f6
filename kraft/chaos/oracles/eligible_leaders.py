"""The judge of KIP-966 in every committed record: which replicas stay eligible for leadership, and which are elected.

Judges eligible-leaders: the ELR after each change of a partition is exactly the rules' result from the state
before. Judges, for unclean elections, leader-completeness: one is right only where the topic allows it, or if it
takes the last known leader while ISR and ELR are empty. The rules are spelled out here a second time: a judge does
not ask the code that it judges. Pure; `metadata` owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles import events
from kraft.chaos.oracles.topic_rules import topic_config
from kraft.chaos.verdict import Verdicts
from partitions.log.config import LogConfig
from quorum.metadata.delta import changed_partition
from quorum.metadata.image import MetadataImage, PartitionImage
from quorum.metadata.records import (
    RECOVERED,
    Config,
    FeatureLevel,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    UnregisterBroker,
)

ELR_FEATURE = "eligible.leader.replicas.version"
MIN_ISR = "min.insync.replicas"


def _may_lead(before: PartitionImage, after: PartitionImage) -> bool:
    """Whether the leader was in the ISR or the ELR, or came into the ISR with this very change.

    That is the last replica that a reassignment waits for, if the leader is being removed: the leader's own
    AlterPartition takes the replica in, and the controller takes the leader out.
    """
    if after.leader in (*before.isr, *before.elr):
        return True
    has_ended = before.is_reassigning and not after.is_reassigning
    has_left = before.has_leader and before.leader not in after.replicas
    return has_ended and has_left and after.leader_recovery_state == RECOVERED


class EligibleLeaders:
    """Follows one entry after the other; `where` names a partition for people."""

    def __init__(self, verdicts: Verdicts, where: Callable[[TopicKey], str], defaults: LogConfig) -> None:
        self._verdicts = verdicts
        self._where = where
        self._defaults = defaults
        self._unclean: dict[tuple[TopicKey, int], int] = {}
        """The leaders elected uncleanly, by leader epoch."""

    def is_unclean(self, key: TopicKey, leader_epoch: int) -> bool:
        """Whether the leader of this epoch was elected although it was neither in the ISR nor in the ELR."""
        return (key, leader_epoch) in self._unclean

    def was_unclean_after(self, key: TopicKey, leader_epoch: int) -> bool:
        """Whether the leader of some later epoch was elected so."""
        return any(known == key and epoch > leader_epoch for known, epoch in self._unclean)

    def unclean_leaders(self, key: TopicKey, low: int, high: int) -> list[tuple[int, int]]:
        """The unclean epochs from `low` to below `high`, in order, and their leaders."""
        return [
            (epoch, self._unclean[key, epoch]) for epoch in range(low, high) if (key, epoch) in self._unclean
        ]

    def allows_unclean(self, image: MetadataImage, key: TopicKey) -> bool:
        """Whether the topic asks for an unclean election rather than no leader."""
        value = topic_config(image, key, "unclean.leader.election.enable")
        return (
            self._defaults.unclean_leader_election_enable
            if value is None
            else value.strip().lower() == "true"
        )

    def follow(self, base: MetadataImage, entries: Sequence[Sequence[Record]], image: MetadataImage) -> None:
        """Takes entries of records that were committed one after the other, from `base` to `image`."""
        states: dict[TopicKey, PartitionImage] = {}
        settled = not any(isinstance(record, Config | FeatureLevel) for entry in entries for record in entry)
        for entry in entries:
            reborn = frozenset(_who_lost_its_place(base, entry))
            for record in entry:
                if isinstance(record, Partition):
                    states[record.topic_id, record.partition] = _created(record)
                elif isinstance(record, PartitionChange):
                    key = (record.topic_id, record.partition)
                    before = states.get(key) or base.partition(*key)
                    if before is not None:
                        after = states[key] = changed_partition(before, record)
                        self._judge(image, key, before, after, reborn, settled=settled)
            if reborn and _has_elr(base) and _has_elr(image):
                self._judge_restarts(image, states, reborn)

    def _judge(
        self,
        image: MetadataImage,
        key: TopicKey,
        before: PartitionImage,
        after: PartitionImage,
        reborn: frozenset[int],
        *,
        settled: bool,
    ) -> None:
        happened, where = self._verdicts.happened, self._where(key)
        unclean = after.leader >= 0 and not _may_lead(before, after)
        if unclean:
            self._judge_unclean(image, key, before, after, reborn)
        elif after.leader in before.elr and after.leader not in before.isr:
            happened(events.ELR_ELECTION, f"{where}: leader {after.leader}")
        entered = [member for member in after.elr if member not in before.elr]
        if entered:
            happened(events.ELR_ENTERED, f"{where}: {entered}, ISR {after.isr}")
        if not settled:
            return  # the rules may have changed between these records
        expected: set[int] = set()
        if _has_elr(image) and not unclean and len(after.isr) < self._min_isr(image, key, after):
            expected = {*before.isr, *before.elr}.difference(after.isr, reborn) & set(after.replicas)
        # A copy that just went offline stays eligible only if it may be whole: `replication` judges that.
        went_offline = set(after.offline_replicas).difference(before.offline_replicas)
        if set(after.elr).difference(went_offline) != expected.difference(went_offline):
            self._verdicts.violated(
                "eligible-leaders",
                f"{where}: from ISR {before.isr}, ELR {before.elr} to ISR {after.isr} the ELR becomes {after.elr}"
                f" and should be {sorted(expected)}",
            )

    def _judge_unclean(
        self,
        image: MetadataImage,
        key: TopicKey,
        before: PartitionImage,
        after: PartitionImage,
        reborn: frozenset[int],
    ) -> None:
        self._unclean[key, after.leader_epoch] = after.leader
        self._verdicts.happened(events.UNCLEAN_ELECTION, f"{self._where(key)}: leader {after.leader}")
        nobody_left = {*before.isr, *before.elr} <= reborn
        if _has_elr(image) and nobody_left and before.last_known_elr == (after.leader,):
            self._verdicts.happened(events.LAST_KNOWN_LEADER, f"{self._where(key)}: {after.leader}")
        elif not self.allows_unclean(image, key):
            self._verdicts.violated(
                "leader-completeness",
                f"{self._where(key)}: an unclean election of {after.leader}, which the topic does not allow; the"
                f" ISR was {before.isr}, the ELR {before.elr}, the last known leader {before.last_known_elr}",
            )

    def _judge_restarts(
        self, image: MetadataImage, states: dict[TopicKey, PartitionImage], reborn: frozenset[int]
    ) -> None:
        for topic in image.topics.values():
            for number, partition in enumerate(topic.partitions):
                key = (topic.topic_id, number)
                state = states.get(key, partition)
                members = reborn.intersection((*state.isr, *state.elr))
                if members:
                    self._verdicts.violated(
                        "eligible-leaders",
                        f"{self._where(key)}: {sorted(members)} left for good or stopped uncleanly, and the ISR is"
                        f" {state.isr}, the ELR {state.elr}",
                    )

    def _min_isr(self, image: MetadataImage, key: TopicKey, partition: PartitionImage) -> int:
        value = topic_config(image, key, MIN_ISR)
        wanted = self._defaults.min_insync_replicas if value is None else int(value)
        return min(wanted, len(partition.replicas))


def _has_elr(image: MetadataImage) -> bool:
    return image.features.get(ELR_FEATURE, 0) > 0


def _who_lost_its_place(base: MetadataImage, records: Sequence[Record]) -> list[int]:
    """Brokers that register anew in this entry, without having stopped cleanly under their last registration,
    and those that leave for good.
    """
    found = []
    for record in records:
        if isinstance(record, RegisterBroker):
            known = base.brokers.get(record.broker_id)
            if known is None or record.previous_broker_epoch != known.epoch:
                found.append(record.broker_id)
        elif isinstance(record, UnregisterBroker):
            found.append(record.broker_id)
    return found


def _created(record: Partition) -> PartitionImage:
    return PartitionImage(
        record.replicas, record.isr, record.leader, record.leader_epoch, record.partition_epoch
    )
