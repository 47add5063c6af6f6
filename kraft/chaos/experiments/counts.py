"""The counts of a run, by the names under which promises, verdicts and the JSON have them. Pure.

    acked, acked_acks1, acked_acks0   records that were acknowledged; `acked` are those of acks=all
    lost, lost_acks1, lost_acks0      of these, records that the final phase did not find; only `lost` is judged
    doubled, doubled_plain            records at more than one offset; only idempotent producers' are judged
    doubled_acks1, doubled_acks0      of doubled_plain
    refused, unknown                  records of sends that failed, and of sends whose outcome nobody knows
    read                              records that clients read before the final phase
    excused                           findings that the injected faults explain
    elections, unclean_elections      new leaders, by the metadata journal
    controllers                       controllers that became active after the first
    unavailable_ms                    the longest wait for an acknowledgement (`measures`)
    assignments, commits, offsets_told    of groups (real nodes): answers that were judged
    transactions_committed, transactions_aborted   as their clients were told (real nodes)
    connections, connections_unanswered   of a storm: those on which a broker answered, and the others
    backlog_bytes, backlog_read_bytes     what was written before the workload for a slow consumer, and what it read
    memory_mb                         the most memory that a node's process had, looked at now and then (real nodes)

Each count of records is there for every topic besides: "lost_acks1(orders)". A count of losses exists only where the
final phase read the partition, so that a run without reads counts none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from kraft.chaos.experiments.evidence import Journal
from kraft.chaos.history import History, Operation, OperationKind, OperationStatus, TopicKey, Value

SUFFIX: Final = {-1: "", 0: "_acks0", 1: "_acks1"}


def counts_of(history: History) -> dict[str, int]:
    """The counts of a finished history."""
    counts: Counter[str] = Counter(
        dict.fromkeys(("acked", "lost", "doubled", "refused", "unknown", "read"), 0)
    )
    final, found = _found(history)
    for one in history.operations:
        for name, number in _counted(one, history, final, found):
            counts[name] += number
            counts[f"{name}({one.topic})"] += number
    return dict(counts)


def counts_of_journal(journal: Journal) -> dict[str, int]:
    """Elections after the first leader of each partition."""
    counts: Counter[str] = Counter(elections=0, unclean_elections=0)
    leaders: dict[tuple[str, int], tuple[int, int]] = {}
    for change in journal.partitions:
        name, state = (change.topic, change.partition), (change.leader, change.leader_epoch)
        before = leaders.get(name)
        if change.leader < 0 or state == before:
            continue
        leaders[name] = state
        if before is not None:
            for suffix in ("", f"({change.topic})"):
                counts[f"elections{suffix}"] += 1
                counts[f"unclean_elections{suffix}"] += change.unclean
    counts["controllers"] = max(0, len(journal.controllers) - 1)
    return dict(counts)


def _found(history: History) -> tuple[set[TopicKey], Mapping[TopicKey, Mapping[Value, set[int]]]]:
    """The partitions that the final phase read, and where anybody found each value there."""
    final: set[TopicKey] = set()
    found: dict[TopicKey, dict[Value, set[int]]] = {}
    for one in history.operations:
        if one.kind is OperationKind.POLL and one.final and one.key and one.status is OperationStatus.OK:
            final.add(one.key)
            values = found.setdefault(one.key, {})
            for offset, value in one.records:
                values.setdefault(value, set()).add(offset)
    return final - history.unavailable, found


def _counted(
    one: Operation,
    history: History,
    final: set[TopicKey],
    found: Mapping[TopicKey, Mapping[Value, set[int]]],
) -> Iterator[tuple[str, int]]:
    if one.key is None:
        return
    if one.kind is OperationKind.POLL:
        if not one.final:
            yield "read", len(one.records)
        return
    if one.kind is not OperationKind.SEND:
        return
    where = found.get(one.key, {})
    doubled = sum(len(where.get(value, ())) > 1 for value in one.values)
    doubles = {"doubled"} if one.idempotent else {"doubled_plain", f"doubled{SUFFIX[one.acks] or '_plain'}"}
    if one.status is OperationStatus.OK:
        yield f"acked{SUFFIX[one.acks]}", len(one.values)
        if one.key in final and one.topic not in history.compacted:
            yield f"lost{SUFFIX[one.acks]}", _lost(one, history.log_starts.get(one.key, 0), where)
        yield from ((name, doubled) for name in doubles)
    elif one.status is OperationStatus.FAIL:
        yield "refused", len(one.values)
    else:
        yield "unknown", len(one.values)
        yield from ((name, doubled) for name in doubles)


def _lost(send: Operation, log_start: int, where: Mapping[Value, set[int]]) -> int:
    """Records of an acknowledged send that are nowhere, unless retention may have taken them."""
    lost = 0
    for number, value in enumerate(send.values):
        if value in where:
            continue
        offset = send.base_offset + number if send.base_offset >= 0 else -1
        lost += offset >= log_start or (offset < 0 and log_start == 0)
    return lost
