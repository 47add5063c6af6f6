"""What is compared when a run is over: the replicas' files, read as `kraft log verify` reads them, of stopped nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.evidence import LogLine, PartitionName, ReplicaComparison
from kraft.chaos.history import Value
from kraft.runtime.read_only_disk import ReadOnlyDisk
from partitions.log.inspection.batches import SegmentReader, StoredBatch

LEVELS_SHOWN: Final = frozenset(("WARNING", "ERROR", "CRITICAL"))
TEXTS_SHOWN: Final = ("quorum leader", "leads ", "broker state", "ISR", "election")
LOG_LINES_MAX: Final = 400
LOG_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True)
class _Copy:
    """A replica's batches below an offset, by what identifies them."""

    batches: tuple[tuple[int, ...], ...]
    """(base offset, next offset, leader epoch, CRC, bytes, producer id, producer epoch) of each."""
    damage: str = ""

    @property
    def start(self) -> int:
        return self.batches[0][0] if self.batches else 0

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0

    def producer_at(self, offset: int) -> tuple[int, int] | None:
        """Who wrote there: producer id and epoch. None: nobody, or no idempotent producer."""
        written = next((one for one in self.batches if one[0] <= offset < one[1]), None)
        return None if written is None or written[5] < 0 else (written[5], written[6])


def compare(
    data_dirs: Mapping[int, Path],
    replicas: Mapping[PartitionName, tuple[int, ...]],
    ranges: Mapping[PartitionName, tuple[int, int]],
    expiring: Collection[str] = (),
) -> tuple[ReplicaComparison, ...]:
    """The copies of partitions on these nodes' disks, batch by batch, within each partition's range: from its log
    start to its end. Segments may begin anywhere. Replicas of `expiring` topics delete at times of their own, so that
    they are compared from where all of them begin."""
    return tuple(
        _compared(name, nodes, ranges.get(name), data_dirs, may_expire=name[0] in expiring)
        for name, nodes in sorted(replicas.items())
    )


def _compared(
    name: PartitionName,
    nodes: tuple[int, ...],
    within: tuple[int, int] | None,
    data_dirs: Mapping[int, Path],
    *,
    may_expire: bool,
) -> ReplicaComparison:
    if within is None:
        return ReplicaComparison(*name, nodes, (), -1, None, "nobody knows how far it is committed")
    log_start, end = within
    folder = f"{name[0]}-{name[1]}"
    copies = {node: _copy(data_dirs[node] / folder, end) for node in nodes if node in data_dirs}
    damaged = {node: copy.damage for node, copy in copies.items() if copy.damage}
    caught_up = {node: copy for node, copy in copies.items() if copy.end >= end and node not in damaged}
    behind = [node for node in nodes if node not in caught_up and node not in damaged]
    start = max([log_start, *(copy.start for copy in caught_up.values() if may_expire)])
    contents = {
        node: tuple(one for one in copy.batches if one[1] > start) for node, copy in caught_up.items()
    }
    first = next(iter(contents), None)
    differing = [
        node for node, batches in contents.items() if first is not None and batches != contents[first]
    ]
    told = [f"node {node}: {text}" for node, text in damaged.items()]
    told += [
        f"node {node} has {folder} up to {copies[node].end} of {end}" for node in behind if node in copies
    ]
    told += [
        f"node {node} and node {first} differ in {folder} from offset {_differs_at(contents[node], contents[first])} on"
        for node in differing
        if first is not None
    ]
    equal = None if first is None else not differing
    return ReplicaComparison(*name, nodes, tuple(contents), end, equal, "; ".join(told))


def resent(
    data_dirs: Mapping[int, Path],
    replicas: Mapping[PartitionName, tuple[int, ...]],
    copies: Mapping[PartitionName, Mapping[Value, Sequence[int]]],
) -> set[tuple[PartitionName, int]]:
    """Where a record stands again because its client sent it anew under a newer producer epoch. `copies`: the offsets
    of each value that stands at more than one.

    What a producer epoch sends twice is the broker's to refuse. librdkafka bumps its epoch for all partitions when one
    has skipped a sequence, and then sends anew what it had no answer for: a broker takes that for new, as Kafka's does.
    """
    found: set[tuple[PartitionName, int]] = set()
    for name, values in copies.items():
        end = 1 + max(map(max, values.values()))
        folders = [data_dirs[node] / f"{name[0]}-{name[1]}" for node in replicas.get(name, ())]
        longest = max((_copy(folder, end) for folder in folders), key=lambda one: one.end, default=_Copy(()))
        for offsets in values.values():
            writers = [longest.producer_at(offset) for offset in sorted(offsets)]
            found |= {
                (name, offset)
                for offset, writer in zip(sorted(offsets)[1:], writers[1:], strict=True)
                if writer and writers[0] and writer[0] == writers[0][0] and writer[1] > writers[0][1]
            }
    return found


def _differs_at(one: tuple[tuple[int, ...], ...], other: tuple[tuple[int, ...], ...]) -> int:
    pairs = zip_longest(one, other)
    differing = ((left, right) for left, right in pairs if left != right)
    return next((min(batch[0] for batch in pair if batch is not None) for pair in differing), -1)


def _copy(folder: Path, end: int) -> _Copy:
    """A replica's batches that begin below `end`. No checksum covers a base offset: one that does not fit those around
    it is damage."""
    batches: list[tuple[int, ...]] = []
    next_offset, disk = 0, ReadOnlyDisk()
    for path in sorted(folder.glob("*.log")):
        try:
            with closing(disk.open(str(path))) as file:
                for one in SegmentReader(file).batches():
                    if not isinstance(one, StoredBatch):
                        return _Copy(
                            tuple(batches), f"{folder.name}/{path.name}, byte {one.position}: {one.reason}"
                        )
                    header = one.header
                    if header.base_offset < next_offset:
                        return _Copy(
                            tuple(batches),
                            f"{folder.name}/{path.name}, byte {one.position}: offset {header.base_offset} is behind"
                            f" {next_offset}",
                        )
                    next_offset = header.next_offset
                    if header.base_offset >= end:
                        continue
                    batches.append(
                        (
                            header.base_offset,
                            header.next_offset,
                            header.partition_leader_epoch,
                            header.crc,
                            header.size_bytes,
                            header.producer_id,
                            header.producer_epoch,
                        )
                    )
        except OSError as error:
            return _Copy(tuple(batches), f"{folder.name}/{path.name} cannot be read: {error.strerror}")
    return _Copy(tuple(batches))


# -- logs


def log_lines(texts: Mapping[int, str], unix_began_s: float, until_s: float) -> tuple[LogLine, ...]:
    """The lines of nodes' logs that a person wants to see, in order of time, the first `LOG_LINES_MAX`."""
    lines = sorted(_lines(texts, unix_began_s), key=lambda line: line.at_s)
    inside = [line for line in lines if -1.0 <= line.at_s <= until_s]
    grave = [line for line in inside if line.level in LEVELS_SHOWN][: LOG_LINES_MAX // 2]
    others = [line for line in inside if line.level not in LEVELS_SHOWN][: LOG_LINES_MAX - len(grave)]
    return tuple(sorted([*grave, *others], key=lambda line: line.at_s))


def _lines(texts: Mapping[int, str], unix_began_s: float) -> Iterator[LogLine]:
    for node, text in texts.items():
        for line in text[-LOG_BYTES_MAX:].splitlines():
            parts = line.split(maxsplit=3)
            if len(parts) < 4:
                continue
            try:
                at = datetime.strptime(f"{parts[0]} {parts[1]}", "%Y-%m-%d %H:%M:%S.%f").astimezone()
            except ValueError:
                continue  # a line of a stack
            if parts[2] in LEVELS_SHOWN or any(word in parts[3] for word in TEXTS_SHOWN):
                yield LogLine(at.timestamp() - unix_began_s, f"node {node}", parts[2].lower(), parts[3])


def defects(texts: Iterable[tuple[int, str]]) -> list[str]:
    """Stacks that nodes printed: a node that meets what it was not made for says so."""
    return [
        f"node {node} reports a defect: {text[text.index('Traceback (most') :][:2000]}"
        for node, text in texts
        if "Traceback (most" in text
    ]
