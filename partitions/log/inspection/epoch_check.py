"""Whether the leader epochs of the batches agree with each other and with the epoch checkpoint (KIP-101).

Guarantees: an epoch lies outside the CRC of its batch, so this is what finds damage to one. Epochs never
go back from batch to batch, and the checkpoint names where each begins, which is not beyond the log's end.
Pure; called by `partition_check` at the end of a walk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from partitions.log.inspection.entries import PlacedEpoch
from partitions.log.inspection.findings import Finding
from partitions.log.inspection.log_state import EpochRun


def take_out_stray_runs(runs: list[EpochRun]) -> list[Finding]:
    """Removes the runs that break the order, the shorter one where either of two may be wrong."""
    findings = []
    number = 0
    while number + 1 < len(runs):
        before, after = runs[number], runs[number + 1]
        if before.epoch < after.epoch:
            number += 1
            continue
        if before.epoch == after.epoch:  # a stray one lay between
            before.last_offset = after.last_offset
            before.batches += after.batches
            del runs[number + 1]
            continue
        stray = number if _fits_without(runs, number, before, after) else number + 1
        run = runs.pop(stray)
        other = after if run is before else before
        findings.append(
            Finding(
                run.path,
                run.position,
                f"the batch at offset {run.first_offset} has leader epoch {run.epoch}, which cannot be"
                f" {'before' if other is after else 'behind'} epoch {other.epoch} at offset {other.first_offset}",
            )
        )
        number = max(number - 1, 0)
    return findings


def _fits_without(runs: Sequence[EpochRun], number: int, before: EpochRun, after: EpochRun) -> bool:
    """Whether the first of two runs that contradict each other is the wrong one."""
    without_first = number == 0 or runs[number - 1].epoch <= after.epoch
    without_second = number + 2 == len(runs) or before.epoch <= runs[number + 2].epoch
    if without_first == without_second:
        return before.batches < after.batches
    return without_first


def compare_with_checkpoint(
    runs: Sequence[EpochRun], path: str, entries: Sequence[PlacedEpoch], durable_to: int
) -> list[Finding]:
    """What of the runs below `durable_to` the checkpoint at `path` does not say so.

    Beyond, the checkpoint may lag behind: a follower writes it when it flushes.
    """
    findings = []
    starts = [placed.entry.start_offset for placed in entries]
    for run in runs:
        if run.first_offset >= durable_to:
            break
        last_offset = min(run.last_offset, durable_to - 1)
        at_first = bisect_right(starts, run.first_offset) - 1
        at_last = bisect_right(starts, last_offset) - 1
        if at_first >= 0 and at_first == at_last and entries[at_first].entry.epoch == run.epoch:
            continue
        wrong = next((n for n in (at_first, at_last) if n >= 0 and entries[n].entry.epoch != run.epoch), None)
        said = "nothing" if wrong is None else f"epoch {entries[wrong].entry.epoch}"
        batches = f"offsets {run.first_offset} to {last_offset}"
        if run.batches == 1:  # rather this one than the checkpoint, though nobody can know
            findings.append(
                Finding(
                    run.path,
                    run.position,
                    f"the batch of {batches} has leader epoch {run.epoch}, and {path} says {said}",
                )
            )
        else:
            findings.append(
                Finding(
                    path,
                    entries[max(at_last if wrong is None else wrong, 0)].at if entries else 0,
                    f"it says {said} for {batches}, whose {run.batches} batches from byte {run.position} of"
                    f" {run.path} on have leader epoch {run.epoch}",
                )
            )
    return findings


def entries_beyond(path: str, entries: Sequence[PlacedEpoch], end_offset: int) -> list[Finding]:
    """The entries of epochs that would begin behind the log's end. One that begins at the end is of a leader
    that has not written yet."""
    return [
        Finding(
            path,
            placed.at,
            f"it says that epoch {placed.entry.epoch} begins at offset {placed.entry.start_offset}, and the"
            f" log ends at {end_offset}",
        )
        for placed in entries
        if placed.entry.start_offset > end_offset
    ]
