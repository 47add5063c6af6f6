"""The metadata journal of a run: what became of partitions, from the stopped nodes' own files, each entry at the time
at which the first of them wrote it; and which losses the faults explain by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.evidence import ControllerChange, Journal, MetadataChange, PartitionName
from kraft.chaos.experiments.targets import INTERNAL_TOPICS
from kraft.runtime.read_only_disk import ReadOnlyDisk
from quorum.metadata.records import NO_LEADER, Partition, PartitionChange, Record, Topic
from quorum.raft.inspection import (
    DamageError,
    FolderChangedError,
    MetadataFolder,
    NoMetadataError,
    StoredEntry,
)
from quorum.raft.metadata_replay import MetadataReplay

MS_PER_S: Final = 1000.0


def read_journal(
    data_dirs: Iterable[Path],
    topics: Collection[str],
    controllers: Mapping[int, int],
    unix_began_s: float,
    wrong_clocks: Collection[Path] = (),
) -> Journal | None:
    """What became of these topics, by the longest journal of stopped nodes. `controllers`: who was seen active, by
    epoch. `wrong_clocks`: of those nodes whose word about times is not taken. None: no node has a journal that reaches
    back to its cluster's first entry, or no node had a right clock."""
    best: list[StoredEntry] = []
    written_ms: dict[tuple[int, int], int] = {}
    for data in data_dirs:
        try:
            entries = list(MetadataFolder(ReadOnlyDisk(), str(data)).entries(1))
        except (NoMetadataError, DamageError, FolderChangedError, OSError):
            continue  # another node's is as good
        for entry in entries:
            place = entry.offset, entry.epoch
            if data in wrong_clocks:
                continue
            written_ms[place] = min(entry.timestamp_ms, written_ms.get(place, entry.timestamp_ms))
        if entries and entries[0].offset == 1 and len(entries) > len(best):
            best = entries
    if not written_ms:
        return None
    timed = [
        one._replace(timestamp_ms=written_ms.get((one.offset, one.epoch), one.timestamp_ms)) for one in best
    ]
    return _Reader(topics, unix_began_s).read(timed, controllers) if timed else None


class _Reader:
    """Plays entries, and notes each partition's state after each change of it."""

    def __init__(self, topics: Collection[str], unix_began_s: float) -> None:
        self._topics = topics
        self._began_s = unix_began_s
        self._names: dict[bytes, str] = {}
        self._states: dict[tuple[bytes, int], MetadataChange] = {}
        self._changes: list[MetadataChange] = []
        self._internal: list[MetadataChange] = []

    def read(self, entries: Sequence[StoredEntry], controllers: Mapping[int, int]) -> Journal:
        replay, ruled = MetadataReplay(), dict[int, ControllerChange]()
        for entry in entries:
            played = replay.play(entry)
            at_s = entry.timestamp_ms / MS_PER_S - self._began_s
            if entry.epoch in controllers and entry.epoch not in ruled:
                ruled[entry.epoch] = ControllerChange(at_s, controllers[entry.epoch], entry.epoch)
            if played.rejection is None:
                for record in played.records:
                    self._take(record, at_s, entry.offset)
        return Journal(tuple(self._changes), tuple(ruled.values()), tuple(self._internal))

    def _take(self, record: Record, at_s: float, offset: int) -> None:
        if isinstance(record, Topic):
            self._names[record.topic_id] = record.name
        elif isinstance(record, Partition):
            name = self._names.get(record.topic_id, "")
            if name not in self._topics and name not in INTERNAL_TOPICS.values():
                return
            self._note(
                record,
                MetadataChange(
                    at_s,
                    offset,
                    name,
                    record.partition,
                    record.leader,
                    record.leader_epoch,
                    record.isr,
                    record.elr,
                ),
            )
        elif isinstance(record, PartitionChange):
            known = self._states.get((record.topic_id, record.partition))
            if known is not None:
                self._note(record, _changed(known, record, at_s, offset))

    def _note(self, record: Partition | PartitionChange, change: MetadataChange) -> None:
        self._states[record.topic_id, record.partition] = change
        (self._changes if change.topic in self._topics else self._internal).append(change)


def _changed(known: MetadataChange, record: PartitionChange, at_s: float, offset: int) -> MetadataChange:
    return replace(
        known,
        at_s=at_s,
        offset=offset,
        leader=known.leader if record.leader is None else record.leader,
        leader_epoch=known.leader_epoch + (record.leader is not None),
        isr=known.isr if record.isr is None else record.isr,
        elr=known.elr if record.elr is None else record.elr,
        unclean=record.unclean_leader_epoch is not None and record.leader not in (None, NO_LEADER),
    )


def has_change(journal: Journal, from_s: float, until_s: float) -> bool:
    """Whether a partition got another leader or another ISR in this time, its first ones aside: without that no broker
    has a reason to make a producer number its records anew."""
    known: set[PartitionName] = set()
    for one in journal.partitions:
        name = one.topic, one.partition
        if name in known and from_s <= one.at_s <= until_s:
            return True
        known.add(name)
    return False


@dataclass(frozen=True)
class DiskLoss:
    """A fault that took records from a node's disk."""

    at_s: float
    node: int
    partitions: tuple[PartitionName, ...] = ()
    """Empty: all that the disk had."""


def is_explained(
    journal: Journal,
    losses: Sequence[DiskLoss],
    partition: PartitionName,
    acknowledged_s: float,
    *,
    unclean_is_allowed: bool = False,
) -> bool:
    """Whether every member of ISR and ELR lost a record that was committed at `acknowledged_s`, by these faults.

    Who is in the ISR then has the record, and who joins them later gets it, while any of them has it; a loss takes it
    from one, and an unclean election, where the topic allows it, from all but the new leader.
    """
    events: list[tuple[float, MetadataChange | DiskLoss]] = [
        (one.at_s, one) for one in journal.partitions if (one.topic, one.partition) == partition
    ]
    events += [(one.at_s, one) for one in losses if not one.partitions or partition in one.partitions]
    members: set[int] = set()
    having: set[int] = set()
    for at_s, event in sorted(events, key=lambda event: event[0]):
        if isinstance(event, MetadataChange):
            had, known = members & having, bool(members)
            members = {*event.isr, *event.elr}
            if at_s <= acknowledged_s or not known:
                having = set(members)
            elif event.unclean and unclean_is_allowed:
                having &= {event.leader}
            elif had:
                having |= members
        elif at_s > acknowledged_s:
            having.discard(event.node)
        if at_s > acknowledged_s and members and not members & having:
            return True
    return False
