"""The model of __consumer_offsets: what coordinators appended, in their order, and what of it is committed.

Oracles:

- fenced-commit: in the log's order no commit follows a generation (KIP-848: a member epoch) that its sender is not in.
  The log decides, not time: a member that was fenced may commit until the record that fences it is written, and a
  coordinator that was deposed appends what never counts;
- told-uncommitted: what a client is told, that its commit was accepted or what was committed, is below the high
  watermark, in the history that stands.

An append at an offset says that whatever was there was cut. One in an older leader epoch than the newest comes from a
deposed coordinator, and changes nothing. Where the partition lost committed records with an excuse, or a deposed
coordinator's records took the place, both are silent. Pure; `probes_groups` feeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kraft.chaos.group_history import GroupOperation, GroupProtocol, LogPlace
from kraft.chaos.verdict import Verdicts

FENCED_COMMIT, TOLD_UNCOMMITTED = "fenced-commit", "told-uncommitted"
COMMITS_JUDGED = "commit of a member written"
GENERATION_BEGUN = "group rebalance completed"
EPOCH_REACHED = "group member epoch reached"
LOADED_ON = "group log continued by another coordinator"
COUNTERS = COMMITS_JUDGED, GENERATION_BEGUN, EPOCH_REACHED, LOADED_ON


class Generation(NamedTuple):
    """A classic group's record: its members agreed on this generation."""

    group: str
    number: int
    members: frozenset[str]


class MemberEpoch(NamedTuple):
    """The epoch of a member of KIP-848; None: it is no member any more."""

    group: str
    member_id: str
    epoch: int | None


class Commit(NamedTuple):
    """An offset; its text is the workload's, which names the commit."""

    tag: str


Entry: TypeAlias = Generation | MemberEpoch | Commit
Committed: TypeAlias = Callable[[int], int]
"""The high watermark that a leader of the partition reached."""


@dataclass
class _PartitionLog:
    epoch: int = -1
    entries: list[tuple[LogPlace, Entry]] = field(default_factory=list)
    generations: dict[str, Generation] = field(default_factory=dict)
    epochs: dict[tuple[str, str], int] = field(default_factory=dict)

    def cut(self, offset: int) -> list[Entry]:
        """Takes away what lies at the offset and behind it, and returns it."""
        kept = len(self.entries)
        while kept and self.entries[kept - 1][0].offset >= offset:
            kept -= 1
        gone = [entry for _, entry in self.entries[kept:]]
        if gone:
            del self.entries[kept:]
            self.generations.clear()
            self.epochs.clear()
            for _, entry in self.entries:
                self.take(entry)
        return gone

    def take(self, entry: Entry) -> None:
        if isinstance(entry, Generation):
            self.generations[entry.group] = entry
        elif isinstance(entry, MemberEpoch):
            if entry.epoch is None:
                self.epochs.pop((entry.group, entry.member_id), None)
            else:
                self.epochs[entry.group, entry.member_id] = entry.epoch


class GroupLog:
    """All partitions of the internal topic."""

    def __init__(
        self,
        verdicts: Verdicts,
        commits: Mapping[str, GroupOperation],
        high_watermark: Committed,
        is_excused: Callable[[int], bool],
    ) -> None:
        """`commits`: by text, those that members have begun. `is_excused`: whether the partition lost committed
        records, and may."""
        self._verdicts = verdicts
        self._commits = commits
        self._high_watermark = high_watermark
        self._is_excused = is_excused
        self._partitions: dict[int, _PartitionLog] = {}
        self.places: dict[str, LogPlace] = {}
        """Of the commits that stand, by their texts."""
        verdicts.declare(COUNTERS)

    def appended(self, number: int, epoch: int, base_offset: int, entries: list[Entry | None]) -> None:
        """Takes what the coordinator of that leader epoch appended, record by record; None: something else."""
        partition = self._partitions.setdefault(number, _PartitionLog())
        if epoch < partition.epoch:
            return
        if 0 <= partition.epoch < epoch:
            self._verdicts.happened(LOADED_ON, f"partition {number}, epoch {epoch}")
        partition.epoch = epoch
        for gone in partition.cut(base_offset):
            if isinstance(gone, Commit):
                self.places.pop(gone.tag, None)
        for offset, entry in enumerate(entries, base_offset):
            if entry is None:
                continue
            if isinstance(entry, Commit):
                self._judge(number, partition, entry, offset)
                self.places[entry.tag] = LogPlace(offset, epoch)
            elif isinstance(entry, Generation):
                self._verdicts.happened(GENERATION_BEGUN, f"{entry.group}: {entry.number}")
            elif entry.epoch is not None:
                self._verdicts.happened(EPOCH_REACHED, f"{entry.group}: {entry.member_id} {entry.epoch}")
            partition.entries.append((LogPlace(offset, epoch), entry))
            partition.take(entry)

    def told(self, number: int, tag: str, what: str) -> None:
        """A client was told of that commit."""
        place = self.places.get(tag)
        high_watermark = self._high_watermark(number)
        if (place is not None and place.offset < high_watermark) or self._is_excused(number):
            return
        where = "is not in the log" if place is None else f"lies at offset {place.offset}"
        self._verdicts.violated(
            TOLD_UNCOMMITTED,
            f"partition {number} of __consumer_offsets: a client was told {what}, commit {tag}, which {where};"
            f" committed is what lies below {high_watermark}",
        )

    def _judge(self, number: int, partition: _PartitionLog, commit: Commit, offset: int) -> None:
        operation = self._commits.get(commit.tag)
        if operation is None or operation.sender.generation < 0 or self._is_excused(number):
            return
        self._verdicts.coverage[COMMITS_JUDGED] += 1
        group, protocol, member_id, generation = operation.sender
        if protocol is GroupProtocol.CLASSIC:
            now = partition.generations.get(group)
            if now is not None and now.number == generation and member_id in now.members:
                return
            told = "no generation" if now is None else f"generation {now.number} of {sorted(now.members)}"
        else:
            epoch = partition.epochs.get((group, member_id))
            if epoch == generation:
                return
            told = "no such member" if epoch is None else f"the member in epoch {epoch}"
        self._verdicts.violated(
            FENCED_COMMIT,
            f"group {group}: commit {commit.tag} of {member_id} in generation {generation} was written at offset"
            f" {offset}, where the log has {told}",
        )
