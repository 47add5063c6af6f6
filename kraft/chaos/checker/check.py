"""The entry of the history checker: every oracle judges every partition, and the judged evidence is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kraft.chaos.checker.contents import ContentsJudge
from kraft.chaos.checker.evidence import Evidence, gather, is_ok
from kraft.chaos.checker.losses import LossJudge
from kraft.chaos.checker.order import OrderJudge
from kraft.chaos.checker.report import Findings, IsExcused, Report, never
from kraft.chaos.history import History, OperationStatus, TopicKey, Value

PARTITIONS_NAMED_MAX = 3
"""Partitions that a reason for an unknown verdict names at most."""
ACKS_NAMES = {-1: "all", 0: "0", 1: "1"}


def check_history(history: History, *, is_excused: IsExcused = never) -> Report:
    """Judges a finished history; pending operations count as unknown.

    `is_excused(key, offset, value)` is asked only about records that would be an anomaly. Raises
    MalformedHistoryError.
    """
    evidence = gather(history)
    findings = Findings()
    ask = _asked_once(is_excused)
    counts: Counter[str] = Counter()
    unread: list[str] = []
    for key, partition in evidence.partitions.items():
        counts["values doubled by plain producers"] += ContentsJudge(
            partition, evidence.namesakes.get(key, []), findings, ask
        ).judge()
        losses = LossJudge(partition, findings, ask)
        losses.judge()
        counts["records demanded"] += losses.demanded
        if losses.undecided:
            unread.append(losses.undecided)
        OrderJudge(partition, findings, ask).judge()
    counts.update(_counts(evidence))
    counts["findings excused"] = findings.excused_total
    return Report(
        anomalies=findings.anomalies,
        excused=findings.excused,
        undecided="; ".join(_reasons(counts, unread)),
        counts=dict(counts),
    )


def _asked_once(is_excused: IsExcused) -> IsExcused:
    answers: dict[tuple[TopicKey, int, Value], bool] = {}

    def ask(key: TopicKey, offset: int, value: Value) -> bool:
        question = (key, offset, value)
        if question not in answers:
            answers[question] = is_excused(key, offset, value)
        return answers[question]

    return ask


def _counts(evidence: Evidence) -> Counter[str]:
    """Counts of the evidence: sends by acks and outcome, polls, lost records that no promise covered."""
    counts: Counter[str] = Counter()
    for partition in evidence.partitions.values():
        counts["partitions that may be deleted"] += partition.may_be_deleted
        for batch in partition.batches:
            acks = ACKS_NAMES.get(batch.acks, str(batch.acks))
            for send in batch.attempts:
                status = "info" if send.status is OperationStatus.PENDING else send.status.value
                counts[f"sends acks={acks} {status}"] += 1
            counts["sends judged"] += bool(batch.claims)
            counts["idempotent sends judged"] += batch.is_idempotent and bool(batch.claims)
            if batch.acks != -1 and any(map(is_ok, batch.attempts)):
                counts[f"records acks={acks} never read"] += sum(
                    value not in partition.offset_of for value in batch.values
                )
        for poll in partition.polls:
            if is_ok(poll):
                counts["polls"] += 1
                counts["final polls"] += poll.final
                counts["records read"] += len(poll.records)
    return counts


def _reasons(counts: Mapping[str, int], unread: list[str]) -> list[str]:
    """Why there was no evidence, or not enough."""
    reasons = []
    if not counts.get("sends judged"):
        reasons.append("no send with acks=all was acknowledged")
    if not counts.get("records read"):
        reasons.append("no poll read a record")
    reasons += unread[:PARTITIONS_NAMED_MAX]
    if len(unread) > PARTITIONS_NAMED_MAX:
        reasons.append(f"and {len(unread) - PARTITIONS_NAMED_MAX} more partitions")
    if not reasons and not counts.get("records demanded"):
        reasons.append("of all that was acknowledged nothing had to be there at the end")
    return reasons
