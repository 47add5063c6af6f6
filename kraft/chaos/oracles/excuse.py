"""The one excuse for a lost record: every replica that could still have it lost it to an injected fault.

Computed record batch by record batch. `damage` compares a replica's shadow with what its disk really
holds after a power loss, a wipe or bit rot; `reopen` does so when a log is opened, and tells what the
faults took from what the product gave up by itself. acks=-1 promises replication, not fsync, hence the
excuse; "every replica" is every member of ISR and ELR (KIP-966). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraft.chaos.oracles.scan import chain
from kraft.chaos.oracles.shadow_log import Batch, ShadowLog


def damage(log: ShadowLog, on_disk: Iterable[Batch], kind: str, *, is_running: bool) -> int:
    """An injected fault of `kind` struck the disk, which holds the sound batches `on_disk` now.

    What a process that still runs wrote and cannot read any more stays in its log, as lost; of one that is
    gone nothing behind the first lost batch comes back, since recovery cuts there. Returns how many
    batches were lost.
    """
    sound = set(on_disk)
    first = next((number for number, batch in enumerate(log.batches) if batch not in sound), None)
    log.uncertain = True
    if first is None:
        return 0
    offset = log.batches[first].base
    if log.damaged_from is None or offset < log.damaged_from:
        log.damaged_from, log.damaged_kind = offset, kind
    if is_running:
        lost = [batch for batch in log.batches[first:] if batch not in sound]
    else:
        lost = log.cut(offset)
    fresh = [batch for batch in lost if batch not in log.lost]
    log.lost.update(dict.fromkeys(fresh, kind))
    return len(fresh)


def reopen(log: ShadowLog, on_disk: Sequence[Batch], start: int, end: int) -> list[Batch]:
    """A log was opened and claims to hold `start` to `end`; `on_disk` are the sound batches of its files.

    The shadow becomes what is there. Returns what the product gave up without an injected fault.
    """
    before = log.batches
    log.replace(chain(on_disk, start, end), start, end)
    there = set(log.batches)
    given_up = []
    for batch in before:
        if batch in there or batch.next <= start or batch in log.lost:
            continue
        if log.damaged_from is not None and batch.base >= log.damaged_from:
            log.lost[batch] = log.damaged_kind
        else:
            given_up.append(batch)
    for batch in log.batches:
        log.lost.pop(batch, None)
    log.damaged_from, log.uncertain = None, False
    return given_up


def is_excused(batch: Batch, members: Sequence[int], replicas: Mapping[int, ShadowLog]) -> bool:
    """Whether every member (of ISR and ELR) lost this very batch to an injected fault."""
    return bool(members) and all(member in replicas and batch in replicas[member].lost for member in members)
