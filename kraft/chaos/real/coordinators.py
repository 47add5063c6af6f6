"""What the coordinators' own log tells of a real run's groups, read from a stopped node: where each commit stands, and
which leader epoch may have answered a question. With it `check_groups` judges members on librdkafka as it does those of
the simulator. Called by `kraft.chaos.real.judging`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.evidence import FaultEvidence, Journal, MetadataChange
from kraft.chaos.group_history import NO_EPOCH, LogPlace
from kraft.coordinator.groups.offset_records import KEY_TYPES, decode_value
from kraft.coordinator.groups.partitioning import group_partition
from kraft.coordinator.record_schema import type_of_key
from kraft.protocol.errors import ProtocolError
from kraft.runtime.read_only_disk import ReadOnlyDisk
from partitions.log.inspection.batches import RecordsNotReadError, SegmentReader, StoredBatch
from partitions.records.batch import CorruptBatchError

LEARNS_S: Final = 5.0
"""So long after its election a new leader's predecessor may go on answering, if nothing hurts it; and after a fault's
end, if something did: then it has learnt."""


class UnreadableLogError(Exception):
    """The log of commits cannot be read whole; the text says why."""


def changes_of(journal: Journal, topic: str, key: str) -> list[MetadataChange]:
    """The changes of an internal topic's partition that keeps a group or a transactional id, in order."""
    own = [one for one in journal.internal or () if one.topic == topic]
    partitions = 1 + max((one.partition for one in own), default=0)
    return [one for one in own if one.partition == group_partition(key, partitions)]


def commit_places(folder: Path) -> dict[str, LogPlace]:
    """Where commits stand in a replica of a partition of `__consumer_offsets`, by their texts. Raises
    UnreadableLogError, also where commits were taken away: then nobody can say what a group should have been told."""
    places: dict[str, LogPlace] = {}
    known_ids: dict[bytes, bytes] = {}
    next_offset = 0
    try:
        for path in sorted(folder.glob("*.log")):
            with closing(ReadOnlyDisk().open(str(path))) as file:
                reader = SegmentReader(file)
                for batch in reader.batches():
                    if not isinstance(batch, StoredBatch):
                        raise UnreadableLogError(f"{path}, byte {batch.position}: {batch.reason}")
                    if batch.header.base_offset != next_offset:
                        raise UnreadableLogError(f"{folder} lacks what was at offset {next_offset}")
                    next_offset = batch.header.next_offset
                    if batch.header.is_control:
                        continue
                    for record in reader.records(batch):
                        key, value = bytes(record.key or b""), record.value
                        if value is not None and type_of_key(key) in KEY_TYPES:
                            tag = decode_value(bytes(value), known_ids).metadata
                            places[tag] = LogPlace(record.offset, batch.header.partition_leader_epoch)
    except (OSError, ProtocolError, CorruptBatchError, RecordsNotReadError) as error:
        raise UnreadableLogError(f"{folder}: {error}") from error
    return places


def oldest_epoch(
    changes: Sequence[MetadataChange], faults: Iterable[FaultEvidence], asked_s: float, slack_s: float
) -> int:
    """The oldest leader epoch whose coordinator may have answered a question: one that was deposed answers from what it
    has until it learns of it, which a fault may keep it from. `NO_EPOCH`: there was none yet."""
    struck = list(faults)
    eras: dict[int, MetadataChange] = {}
    for one in changes:
        if one.leader >= 0:
            eras.setdefault(one.leader_epoch, one)
    epochs = sorted(eras)
    possible = []
    for number, epoch in enumerate(epochs):
        until_s = eras[epochs[number + 1]].at_s if number + 1 < len(epochs) else float("inf")
        has_begun = eras[epoch].at_s <= asked_s + slack_s
        if has_begun and asked_s <= _learnt_s(eras[epoch].leader, until_s, struck):
            possible.append(epoch)
    return min(possible, default=NO_EPOCH)


def _learnt_s(leader: int, deposed_s: float, faults: Iterable[FaultEvidence]) -> float:
    """When a leader that was deposed knew it, at the latest."""
    learnt_s = deposed_s + LEARNS_S
    for fault in sorted(faults, key=lambda one: one.began_s or 0.0):
        if leader in fault.nodes and fault.began_s is not None and fault.began_s <= learnt_s:
            ended_s = float("inf") if fault.ended_s is None else fault.ended_s
            learnt_s = max(learnt_s, ended_s + LEARNS_S)
    return learnt_s
