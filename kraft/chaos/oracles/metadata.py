"""The committed metadata of the quorum, as first seen, and the invariants that must always hold in it.

Judges:
- metadata-agreement: one offset has one entry and one image, on every controller and broker;
- epochs-grow; one-leader-per-epoch, as decided (`replication` judges real leaders);
- fenced-not-in-isr;
- offline-not-in-isr: a broker that cannot serve its log leads nothing, and is in no ISR except as its last member;
- leader-elected: a partition has a leader whenever a member of its ISR, or of its ELR if that is empty, may lead.

`eligible_leaders` judges elections and ELRs. Other oracles ask this one for the committed state (ISRs, brokers'
epochs), the newest that any voter's Raft lane handed out. Pure: `probes_quorum` feeds it with the results of lanes
and loaders (KIP-631, 841, 903).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles import events
from kraft.chaos.oracles.eligible_leaders import EligibleLeaders
from kraft.chaos.oracles.topic_rules import TopicRules
from kraft.chaos.verdict import Verdicts
from partitions.log.config import LogConfig
from quorum.metadata.image import EMPTY, MetadataImage, PartitionImage
from quorum.metadata.records import (
    BrokerChange,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)


class Entry(NamedTuple):
    """One committed entry of the metadata log."""

    offset: int
    epoch: int
    encoded_records: bytes
    records: Sequence[Record] = ()
    """The decoded records, where the source has them."""
    rejection: str | None = None


OnPartitionChange = Callable[[TopicKey, PartitionImage | None, PartitionImage], None]
"""Is called with a partition's state before and after."""


class CommittedMetadata:
    """The newest committed metadata, and every entry that led to it."""

    def __init__(self, verdicts: Verdicts, defaults: LogConfig) -> None:
        self._verdicts = verdicts
        self.elections = EligibleLeaders(verdicts, self.name, defaults)
        self.rules = TopicRules(lambda: self.image, defaults)
        self._entries: dict[int, tuple[int, bytes]] = {}
        self._images: dict[int, bytes] = {}
        self._leaders: dict[tuple[TopicKey, int], int] = {}
        self._was_offline: set[tuple[TopicKey, int]] = set()
        self.image: MetadataImage = EMPTY
        self.on_partition: OnPartitionChange = lambda key, before, after: None
        self.on_topic_gone: Callable[[bytes], None] = lambda topic_id: None

    # -- questions

    @property
    def offset(self) -> int:
        """The offset of the newest committed entry."""
        return self.image.offset

    def partition(self, key: TopicKey) -> PartitionImage | None:
        """The newest committed state of a partition; None if its topic is gone or not there yet."""
        return self.image.partition(*key)

    def broker_epoch(self, broker_id: int) -> int | None:
        """The epoch of a broker's newest committed registration."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def allows_unclean(self, key: TopicKey) -> bool:
        """Whether the topic asks for an unclean election rather than no leader."""
        return self.elections.allows_unclean(self.image, key)

    def leader_in(self, key: TopicKey, leader_epoch: int) -> int | None:
        """The leader that the quorum elected in this epoch; None if that was never seen."""
        return self._leaders.get((key, leader_epoch))

    def entry_epoch(self, offset: int) -> int | None:
        """The Raft term of the committed entry at `offset`; None if it was not seen."""
        entry = self._entries.get(offset)
        return None if entry is None else entry[0]

    @property
    def offsets(self) -> range:
        """All offsets that may hold a committed entry."""
        return range(min(self._entries, default=0), self.image.offset + 1)

    # -- fed

    def committed(self, node: int, entries: Sequence[Entry], image: MetadataImage) -> None:
        """Takes `entries` that a voter applied (none: it took a snapshot), and its `image` now."""
        touched: dict[TopicKey, None] = {}
        brokers: dict[int, None] = {}
        known = self.image.offset
        skipped = image.offset > known and (not entries or entries[0].offset > known + 1)
        fresh: list[Sequence[Record]] = []
        for entry in entries:
            if entry.offset in self._entries:
                self._compare_entry(f"node {node}", entry)
                continue
            self._entries[entry.offset] = (entry.epoch, entry.encoded_records)
            if entry.offset > known:
                if entry.rejection is not None:
                    self._verdicts.happened(events.PROPOSAL_REFUSED, entry.rejection)
                fresh.append(entry.records)
                for record in entry.records:
                    self._note(record, touched, brokers)
        self._compare_image(f"node {node}", image)
        if image.offset > known:
            if skipped:
                touched.update(dict.fromkeys(_keys(image)))
                brokers.update(dict.fromkeys(image.brokers))
            before, self.image = self.image, image
            if not skipped:
                self.elections.follow(before, fresh, image)
            self._adopt(before, image, touched, brokers)

    def applied(self, broker: int, entries: Sequence[Entry], image: MetadataImage) -> None:
        """Takes `entries` that a broker got from a controller (none: a whole image), and the `image` it published."""
        for entry in entries:
            if entry.offset in self._entries:
                self._compare_entry(f"broker {broker}", entry)
            else:
                self._verdicts.violated(
                    "metadata-agreement",
                    f"broker {broker} applied an entry at offset {entry.offset} that no controller committed",
                )
        self._compare_image(f"broker {broker}", image)

    def went_back(self, broker: int, before: int, after: int) -> None:
        """Judges a broker whose published metadata went back from offset `before`."""
        self._verdicts.violated(
            "epochs-grow", f"the metadata of broker {broker} went back from offset {before} to {after}"
        )

    # -- agreement

    def _compare_entry(self, who: str, entry: Entry) -> None:
        first = self._entries[entry.offset]
        if first != (entry.epoch, entry.encoded_records):
            self._verdicts.violated(
                "metadata-agreement",
                f"at offset {entry.offset} {who} applied an entry of epoch {entry.epoch} that is not the one of"
                f" epoch {first[0]} that was committed there first",
            )

    def _compare_image(self, who: str, image: MetadataImage) -> None:
        if image.offset >= 0:
            self.compare_state(who, image.offset, image.encode())

    def compare_state(self, who: str, offset: int, encoded: bytes) -> None:
        """Compares the canonical bytes of `who`'s image at `offset` with those of the others."""
        digest = hashlib.blake2b(encoded, digest_size=16).digest()
        if self._images.setdefault(offset, digest) != digest:
            self._verdicts.violated(
                "metadata-agreement",
                f"the image of {who} at offset {offset} is not the one that others have there",
            )

    # -- changes

    def _note(self, record: Record, touched: dict[TopicKey, None], brokers: dict[int, None]) -> None:
        """Counts a newly committed record, and notes the partitions and brokers that it touches."""
        happened = self._verdicts.happened
        if isinstance(record, PartitionChange | Partition):
            touched[record.topic_id, record.partition] = None
        elif isinstance(record, RegisterBroker):
            brokers[record.broker_id] = None
            happened(events.BROKER_REGISTERED, str(record.broker_id))
        elif isinstance(record, UnregisterBroker):
            brokers[record.broker_id] = None
        elif isinstance(record, BrokerChange):
            brokers[record.broker_id] = None
            if record.fenced is not None:
                name = events.BROKER_FENCED if record.fenced else events.BROKER_UNFENCED
                happened(name, str(record.broker_id))
            if record.in_controlled_shutdown:
                happened(events.BROKER_SHUTDOWN, str(record.broker_id))
        elif isinstance(record, Topic):
            happened(events.TOPIC_CREATED, record.name)
        elif isinstance(record, RemoveTopic):
            happened(events.TOPIC_DELETED)

    def _adopt(
        self,
        before: MetadataImage,
        image: MetadataImage,
        touched: dict[TopicKey, None],
        brokers: dict[int, None],
    ) -> None:
        if before.topics is not image.topics:
            for topic_id in before.topics:
                if topic_id not in image.topics:
                    self.on_topic_gone(topic_id)
        for key in touched:
            after = image.partition(*key)
            if after is not None:
                self._judge_change(key, before.partition(*key), after)
        self._judge_brokers(before, image, brokers)
        for key in _keys(image) if brokers else touched:
            self._judge_members(key)
        for key in touched:
            after = image.partition(*key)
            if after is not None:
                self.on_partition(key, before.partition(*key), after)

    def _judge_brokers(self, before: MetadataImage, image: MetadataImage, brokers: dict[int, None]) -> None:
        for broker_id in brokers:
            old, new = before.brokers.get(broker_id), image.brokers.get(broker_id)
            if old is not None and new is not None and new.epoch < old.epoch:
                self._verdicts.violated(
                    "epochs-grow",
                    f"the epoch of broker {broker_id} went back from {old.epoch} to {new.epoch}"
                    f" at offset {image.offset}",
                )

    def _judge_change(self, key: TopicKey, old: PartitionImage | None, new: PartitionImage) -> None:
        """Judges that epochs only grow, and that a leader changes only with its epoch."""
        self._count(key, old, new)
        where = f"{self.name(key)} at metadata offset {self.image.offset}"
        went_back = old is not None and (
            new.leader_epoch < old.leader_epoch or new.partition_epoch <= old.partition_epoch
        )
        if old is not None and old != new and went_back:
            self._verdicts.violated(
                "epochs-grow",
                f"{where}: from epochs {old.leader_epoch}.{old.partition_epoch}"
                f" to {new.leader_epoch}.{new.partition_epoch}",
            )
        if new.leader >= 0:
            first = self._leaders.setdefault((key, new.leader_epoch), new.leader)
            if first != new.leader:
                self._verdicts.violated(
                    "one-leader-per-epoch",
                    f"{where}: the quorum made {new.leader} leader in epoch {new.leader_epoch}, before it was {first}",
                )

    def _count(self, key: TopicKey, old: PartitionImage | None, new: PartitionImage) -> None:
        happened = self._verdicts.happened
        if old is None:
            return
        text = (
            f"{self.name(key)} {new.leader_epoch}.{new.partition_epoch}: leader {new.leader}, ISR {new.isr}"
        )
        if old.leader_epoch != new.leader_epoch:
            happened(events.LEADER_ELECTION if new.leader >= 0 else events.NO_LEADER, text)
        for broker_id in new.offline_replicas:
            if broker_id not in old.offline_replicas:
                happened(events.REPLICA_OFFLINE, f"{text}: {broker_id}")
                self._was_offline.add((key, broker_id))
        for broker_id in new.isr:
            if (key, broker_id) in self._was_offline and broker_id not in new.offline_replicas:
                happened(events.REPLICA_REPAIRED, f"{text}: {broker_id}")
                self._was_offline.discard((key, broker_id))
        if old.isr and not new.isr:
            happened(events.NOBODY_IN_SYNC, text)
        if len(new.isr) < len(old.isr):
            happened(events.ISR_SHRINK, text)
        elif len(new.isr) > len(old.isr):
            happened(events.ISR_EXPAND, text)

    def _judge_members(self, key: TopicKey) -> None:
        """Judges that no fenced or stopping broker leads or is in an ISR, and that some replica leads if any may."""
        image = self.image
        partition = image.partition(*key)
        if partition is None:
            return
        where = f"{self.name(key)} at metadata offset {image.offset}"
        if partition.leader >= 0 and _is_inactive(image, partition.leader):
            self._verdicts.violated(
                "fenced-not-in-isr", f"{where}: its leader {partition.leader} is fenced or shutting down"
            )
        offline = set(partition.offline_replicas)
        waits_alone = partition.leader < 0 and len(partition.isr) == 1 and not partition.elr
        if partition.leader in offline or (offline.intersection(partition.isr) and not waits_alone):
            self._verdicts.violated(
                "offline-not-in-isr",
                f"{where}: {sorted(offline)} are offline, the leader is {partition.leader}, the ISR {partition.isr}",
            )
        if partition.leader < 0:
            may_lead = [
                member
                for member in heirs_of(partition)
                if not _is_inactive(image, member) and member not in offline
            ]
            if may_lead:
                self._verdicts.violated(
                    "leader-elected",
                    f"{where}: it has no leader, and {may_lead} could lead; its ISR is {partition.isr}, its ELR"
                    f" {partition.elr}, the last known leader {partition.last_known_elr}",
                )
        fenced = [member for member in partition.isr if _is_inactive(image, member)]
        if fenced:
            self._verdicts.violated(
                "fenced-not-in-isr",
                f"{where}: of the ISR {partition.isr}, {fenced} are fenced or shutting down",
            )

    def name(self, key: TopicKey) -> str:
        """A partition's name for people."""
        topic = self.image.topics.get(key[0])
        return f"{topic.name if topic else key[0].hex()}-{key[1]}"


def heirs_of(partition: PartitionImage) -> tuple[int, ...]:
    """The brokers that may lead without leave for unclean elections (KIP-966): the members of ISR and ELR; if both are
    empty, the last known leader, if known."""
    if partition.isr or partition.elr:
        return (*partition.isr, *partition.elr)
    known = partition.last_known_elr
    return known if len(known) == 1 and known[0] in partition.replicas else ()


def _is_inactive(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is None or not broker.is_active


def _keys(image: MetadataImage) -> list[TopicKey]:
    return [(topic.topic_id, n) for topic in image.topics.values() for n in range(len(topic.partitions))]
