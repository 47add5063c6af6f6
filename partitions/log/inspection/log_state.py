"""What is carried from batch to batch and from segment to segment while a partition is checked.

Guarantees: memory grows with producers and leader epochs, not with batches. `EpochRun`s are what the
epoch checkpoint is compared with; `snapshot_difference` compares a producer snapshot with the batches
below it. Used by `segment_check` and `partition_check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from partitions.log.inspection.findings import Finding
from partitions.log.producers.producer_state import ProducerEntry, ProducerState
from partitions.records.header import NO_LEADER_EPOCH, BatchHeader

EVERYTHING: Final = 2**63 - 1
_RUNS_MAX: Final = 100_000
_SUSPECTS_MAX: Final = 1000


class Expected(NamedTuple):
    """What the data directory says about a partition."""

    durable_to: int = EVERYTHING
    """Below this offset everything was on disk once: what is not sound there is damage, and never a torn
    write. Everything was if the broker ended properly, and counts so if nothing is known."""
    was_closed: bool = False
    """The broker ended properly: the last segment is as complete as the others."""
    recovery_point: int | None = None
    """The log reaches at least to here."""
    closed_at: int | None = None
    """The broker ended properly, and the log here; None where nothing says so."""
    high_watermark: int | None = None
    log_start_offset: int | None = None
    has_holes: bool = False
    """The partition was compacted: offsets may be missing anywhere."""


@dataclass
class EpochRun:
    """Neighbouring batches of one leader epoch."""

    epoch: int
    first_offset: int
    last_offset: int
    path: str
    position: int
    """Of the first of the batches."""
    batches: int = 1


@dataclass
class LogState:
    """Where the walk through a partition's batches is."""

    next_offset: int | None = None
    """The offset that comes next; None where damage hides it."""
    end_offset: int = 0
    """Behind the highest batch so far."""
    is_cleaned: bool = False
    """Batches with fewer records than offsets are the cleaner's work, and so may holes be."""
    has_damage: bool = False
    producers: ProducerState = field(default_factory=ProducerState)
    epoch_runs: list[EpochRun] = field(default_factory=list)
    suspects: list[Finding] = field(default_factory=list)
    """Damage, unless the log turns out to be compacted."""
    suspects_left_out: int = 0

    def suspect(self, path: str, position: int, reason: str) -> None:
        if len(self.suspects) < _SUSPECTS_MAX:
            self.suspects.append(Finding(path, position, reason))
        else:
            self.suspects_left_out += 1

    def add_epoch(self, path: str, position: int, header: BatchHeader) -> None:
        """Takes note of the leader epoch of the next batch."""
        epoch = header.partition_leader_epoch
        if epoch == NO_LEADER_EPOCH:
            return
        runs = self.epoch_runs
        if runs and runs[-1].epoch == epoch:
            runs[-1].last_offset = header.last_offset
            runs[-1].batches += 1
        elif len(runs) < _RUNS_MAX:
            runs.append(EpochRun(epoch, header.base_offset, header.last_offset, path, position))


def snapshot_difference(
    stored: Mapping[int, ProducerEntry], replayed: Mapping[int, ProducerEntry], first_offset: int, offset: int
) -> str | None:
    """How a snapshot at `offset` contradicts the batches from `first_offset` up to there; None if it does
    not. A producer may be missing in it (it expired), or here (its batches were deleted)."""
    for producer_id in sorted(stored):
        entry = stored[producer_id]
        last = entry.batches[-1] if entry.batches else None
        if last is not None and last.last_offset >= offset:
            return f"it says that producer {producer_id} wrote offset {last.last_offset}, and it ends at {offset}"
        known = replayed.get(producer_id)
        if known is None:
            if last is not None and last.last_offset >= first_offset:
                return f"it says that producer {producer_id} wrote offset {last.last_offset}, and no batch says so"
            continue
        newest = known.batches[-1] if known.batches else None
        if entry.epoch != known.epoch or (
            last is not None
            and newest is not None
            and (last.last_sequence, last.last_offset) != (newest.last_sequence, newest.last_offset)
        ):
            return (
                f"it says that producer {producer_id} ended with epoch {entry.epoch}, sequence"
                f" {_sequence(entry)} at offset {_offset(entry)}; by the batches it is epoch {known.epoch},"
                f" sequence {_sequence(known)} at offset {_offset(known)}"
            )
    return None


def _sequence(entry: ProducerEntry) -> int | None:
    return entry.batches[-1].last_sequence if entry.batches else None


def _offset(entry: ProducerEntry) -> int | None:
    return entry.batches[-1].last_offset if entry.batches else None
