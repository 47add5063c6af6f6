"""The one excuse for a lost record: every replica that could still have it lost it to an injected fault.

It is computed record batch by record batch. `damage` compares a replica's shadow with its disk after a power loss,
a wipe or bit rot. `reopen` does so when a log is opened, and tells the faults' losses from those that the product
made by itself. acks=-1 promises replication, not fsync, hence the excuse; "every replica" is every member of ISR
and ELR (KIP-966). A topic with flush.messages=1 promises the fsync, too: there no power loss is an excuse. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraft.chaos.oracles.scan import chain
from kraft.chaos.oracles.shadow_log import BIT_ROT, POWER_LOSS, Batch, ShadowLog


def damage(log: ShadowLog, on_disk: Iterable[Batch], kind: str, *, is_running: bool) -> int:
    """Takes a fault of `kind` that struck the disk, which now holds the sound batches `on_disk`.

    If the process still runs, its unreadable batches stay in its log, as lost. If it is gone, no batch behind the
    first lost one comes back, since recovery cuts there. A rotten batch takes itself alone, running or not:
    recovery may cut only a seemingly torn tail (see `reopen`). Returns how many batches were lost.
    """
    sound = set(on_disk)
    sound.update(batch for batch in log.lost if log.lost[batch] == BIT_ROT and kind != BIT_ROT)
    first = next((number for number, batch in enumerate(log.batches) if batch not in sound), None)
    log.uncertain = True
    if first is None:
        return 0
    offset = log.batches[first].base
    cut_from = _end_of_what_is_there(log, first)
    if log.damaged_from is None or cut_from < log.damaged_from:
        log.damaged_from, log.damaged_kind = cut_from, kind
    if is_running or kind == BIT_ROT:
        lost = [batch for batch in log.batches[first:] if batch not in sound]
    else:
        lost = log.cut(offset)
    fresh = [batch for batch in lost if batch not in log.lost]
    log.lost.update(dict.fromkeys(fresh, kind))
    return len(fresh)


def _end_of_what_is_there(log: ShadowLog, number: int) -> int:
    """The end of a log that is cut at batch `number`. A hole that compaction left in front of it goes, too, if it lies
    in the same segment, since it has no bytes to end with.
    """
    while number and log.batches[number - 1] in log.absent:
        number -= 1
    return log.batches[number].base


def _has_another_epoch(found: Batch, batch: Batch) -> bool:
    """Whether a bit of the leader epoch flipped, which no checksum covers."""
    return found.epoch != batch.epoch and found._replace(epoch=batch.epoch) == batch


def reopen(
    log: ShadowLog, on_disk: Sequence[Batch], start: int, end: int, recovery_point: int = 0
) -> list[Batch]:
    """Takes a log that was opened and claims to hold `start` to `end`; `on_disk` are the sound batches of its files.

    The shadow becomes the log's real content. Returns the batches that the product gave up without an injected fault:
    everything below the `recovery_point` of the former process was durable, and a rotten batch excuses no other.
    """
    before = log.batches
    excused_from = log.damaged_from
    if excused_from is not None and log.damaged_kind == BIT_ROT:
        excused_from = max(excused_from, recovery_point)
    found = chain(on_disk, start, end)
    # A batch that rotted inside a log is still in it: its reader will notice.
    by_base = {batch.base: batch for batch in found}
    rotten = [
        batch
        for batch in before
        if log.lost.get(batch) == BIT_ROT
        and start < batch.next <= end
        and (batch.base not in by_base or _has_another_epoch(by_base[batch.base], batch))
    ]
    bases = {batch.base for batch in rotten}
    found = [batch for batch in found if batch.base not in bases]
    there = set(found)
    log.replace(sorted([*found, *rotten]), start, end)
    given_up = []
    for batch in before:
        if batch in there or batch.next <= start or batch in log.lost:
            continue
        if excused_from is not None and batch.base >= excused_from:
            log.lost[batch] = log.damaged_kind
        else:
            given_up.append(batch)
    for batch in found:
        log.lost.pop(batch, None)
    log.damaged_from, log.uncertain = None, False
    return given_up


def is_excused(
    batch: Batch, members: Sequence[int], replicas: Mapping[int, ShadowLog], *, is_flushed: bool = False
) -> bool:
    """Whether every member (of ISR and ELR) lost this very batch to an injected fault; `is_flushed`: of a topic with
    flush.messages=1."""
    kinds = [replicas[member].lost.get(batch) if member in replicas else None for member in members]
    return bool(kinds) and not any(kind is None or (is_flushed and kind == POWER_LOSS) for kind in kinds)
