"""What the checkers say of the histories of a real run, and which losses its faults excuse: by the metadata journal,
without which nothing is excused. Called by `kraft.chaos.real.run` when the nodes have stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from kraft.chaos.checker import Excuses, Report, check_groups, check_history, check_transactions
from kraft.chaos.experiments.document import Experiment
from kraft.chaos.experiments.evidence import (
    Anomaly,
    CommandEnd,
    FaultEvidence,
    FinalRead,
    Journal,
    PartitionName,
    ReplicaComparison,
)
from kraft.chaos.group_history import GroupAction, LogPlace
from kraft.chaos.history import History, Operation, OperationStatus, TopicKey, Value
from kraft.chaos.real.coordinators import UnreadableLogError, changes_of, commit_places, oldest_epoch
from kraft.chaos.real.journal import DiskLoss, has_change, is_explained
from kraft.chaos.real.workload.consumers import FINAL_MEMBER
from kraft.chaos.real.workload.recorder import Recorder
from kraft.chaos.transaction_history import TransactionEnd
from quorum.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE

JOURNAL_SLACK_S: Final = 1.0
DISK_LOSSES: Final = frozenset(("wipe", "bit-rot", "truncate"))
UNCLEAN: Final = "unclean.leader.election.enable"
OPERATIONS_SHOWN: Final = 5


@dataclass
class Findings:
    """What was learnt when the workload was over."""

    commands: tuple[CommandEnd, ...] = ()
    final_reads: tuple[FinalRead, ...] | None = None
    replicas: tuple[ReplicaComparison, ...] | None = None
    resent: set[tuple[PartitionName, int]] = field(default_factory=set)
    """Where a client's own second copy of a record stands."""
    journal: Journal | None = None
    data_dirs: Mapping[int, Path] = field(default_factory=dict)
    """Of the stopped nodes."""


@dataclass(frozen=True)
class Judged:
    """What all checkers say together."""

    anomalies: tuple[Anomaly, ...]
    excused: tuple[str, ...]
    undecided: str
    """Why the histories prove nothing; "" if they do."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What groups and transactions gave to judge."""


def judge_histories(
    experiment: Experiment, recorder: Recorder, faults: tuple[FaultEvidence, ...], found: Findings
) -> Judged:
    """Judges what clients wrote and read, what transactions did, and what groups were told."""
    excuse = _Excuse(experiment, recorder, faults, found)
    report = check_history(recorder.history, is_excused=excuse.takes)
    anomalies = list(_anomalies(report, recorder.history))
    excused = list(report.excused)
    undecided = [_undecided(report, experiment)]
    if recorder.transactions.transactions:
        judged = check_transactions(recorder.transactions, excuse.of_transactions())
        anomalies += [Anomaly(one.oracle, one.text) for one in judged.anomalies]
        excused += judged.excused
    for group in sorted({one.group for one in experiment.workload if one.group}):
        undecided.append(_unjudged(group, recorder))
    if recorder.groups.operations:
        told, reasons = _judge_groups(recorder, faults, found, excuse)
        anomalies += told.anomalies
        excused += told.excused
        undecided += reasons
    counts = {**_group_counts(recorder), **_transaction_counts(recorder)}
    return Judged(
        tuple(anomalies), tuple(excused), "; ".join(reason for reason in undecided if reason), counts
    )


class _Excuse:
    """Whether faults of disks, or an unclean election that the topic allows, took a record from everybody who had it
    (without a journal: never), or a copy is its client's own."""

    def __init__(
        self, experiment: Experiment, recorder: Recorder, faults: Iterable[FaultEvidence], found: Findings
    ) -> None:
        self._recorder = recorder
        self._found = found
        self._losses = [
            DiskLoss(fault.began_s, node, fault.partitions if fault.name != "wipe" else ())
            for fault in faults
            if fault.name in DISK_LOSSES and fault.began_s is not None
            for node in fault.nodes
        ]
        self._allowing = {
            topic.name
            for topic in experiment.cluster.topics
            if {**experiment.cluster.settings, **topic.configs}.get(UNCLEAN, "false") == "true"
        }
        self._names = {
            recorder.key(topic, number): (topic, number)
            for topic, count in recorder.partitions.items()
            for number in range(count)
        }
        self._sends: dict[tuple[TopicKey, Value], Operation] = {
            (one.key, value): one
            for one in recorder.history.operations
            if one.key is not None
            for value in one.values
        }
        self.is_cut = cache(self._is_cut)
        self.is_group_forgotten = cache(self._is_group_forgotten)
        self._is_forgotten = cache(self._is_id_forgotten)

    def takes(self, key: TopicKey, offset: int, value: Value) -> bool:
        """Of one record."""
        send, journal = self._sends.get((key, value)), self._found.journal
        if send is None or journal is None:
            return False
        is_over = send.status is OperationStatus.OK
        if (self._names[key], offset) in self._found.resent:
            until_s = send.completed_s if is_over else float("inf")
            return has_change(journal, send.invoked_s - JOURNAL_SLACK_S, until_s + JOURNAL_SLACK_S)
        return self._is_explained(key, send.completed_s if is_over else send.invoked_s)

    def of_transactions(self) -> Excuses:
        return Excuses(self.takes, self.is_cut, self._is_forgotten, self.is_group_forgotten)

    def _is_explained(self, key: TopicKey, at_s: float) -> bool:
        journal, name = self._found.journal, self._names[key]
        assert journal is not None, "the caller has looked"
        allowed = name[0] in self._allowing
        return is_explained(journal, self._losses, name, at_s, unclean_is_allowed=allowed)

    def _is_cut(self, key: TopicKey) -> bool:
        """Whether the partition lost records, and may."""
        times = {send.completed_s for (at, _), send in self._sends.items() if at == key}
        return self._found.journal is not None and any(self._is_explained(key, at_s) for at_s in times)

    def _is_group_forgotten(self, group: str) -> bool:
        history, asked_s = self._recorder.groups, self._recorder.asked_s
        times = {asked_s[one.asked] for one in history.commits.values() if one.sender.group == group}
        return self._are_gone(CONSUMER_OFFSETS, group, times)

    def _is_id_forgotten(self, transactional_id: str) -> bool:
        known = self._recorder.transactions.transactions
        times = {one.begun_s for one in known if one.transactional_id == transactional_id}
        return self._are_gone(TRANSACTION_STATE, transactional_id, times)

    def _are_gone(self, topic: str, key: str, times: Collection[float]) -> bool:
        """Whether what a coordinator wrote at one of these times was lost, and may be."""
        if self._found.journal is None:
            return False
        changes = changes_of(self._found.journal, topic, key)
        if not changes:
            return False
        journal, name = Journal(tuple(changes)), (topic, changes[0].partition)
        return any(is_explained(journal, self._losses, name, at_s) for at_s in times)


def _transaction_counts(recorder: Recorder) -> dict[str, int]:
    ends = Counter(one.end for one in recorder.transactions.transactions)
    names = {"committed": TransactionEnd.COMMITTED, "aborted": TransactionEnd.ABORTED}
    return {f"transactions_{name}": ends[end] for name, end in names.items()} if ends else {}


# -- groups


def _group_counts(recorder: Recorder) -> dict[str, int]:
    done = Counter(one.action for one in recorder.groups.operations if one.status is OperationStatus.OK)
    names = {
        "assignments": GroupAction.ASSIGNED,
        "commits": GroupAction.COMMIT,
        "offsets_told": GroupAction.FETCH,
    }
    return {name: done[action] for name, action in names.items()} if done else {}


def _unjudged(group: str, recorder: Recorder) -> str:
    """Why the history of a group proves nothing; "" if it does."""
    own = [one for one in recorder.groups.operations if one.sender.group == group]
    done = [one for one in own if one.status is OperationStatus.OK]
    if not any(one.action is GroupAction.ASSIGNED for one in done):
        return f"no member of group {group} was assigned anything"
    if not any(one.action is GroupAction.COMMIT for one in done):
        return f"no commit of group {group} was acknowledged"
    if not any(one.sender.member_id == FINAL_MEMBER for one in done):
        return f"nobody told at the end what group {group} has committed"
    return ""


def _judge_groups(
    recorder: Recorder, faults: tuple[FaultEvidence, ...], found: Findings, excuse: _Excuse
) -> tuple[Judged, list[str]]:
    """The verdict on all groups, and why one could not be judged."""
    history, journal = recorder.groups, found.journal
    if journal is None:
        return Judged((), (), ""), ["without a metadata journal nobody knows who coordinated the groups"]
    places: dict[str, LogPlace] = {}
    reasons = []
    for group in sorted({one.sender.group for one in history.operations}):
        changes = changes_of(journal, CONSUMER_OFFSETS, group)
        last = next((one for one in reversed(changes) if one.leader in found.data_dirs), None)
        if last is None:
            reasons.append(f"nobody knows who coordinated group {group} at the end")
            continue
        try:
            folder = found.data_dirs[last.leader] / f"{CONSUMER_OFFSETS}-{last.partition}"
            places.update(commit_places(folder))
        except UnreadableLogError as error:
            reasons.append(f"the commits of group {group} cannot be read: {error}")
            continue
        for one in history.operations:
            if one.sender.group == group:
                asked_s = recorder.asked_s[one.asked]
                one.epoch = oldest_epoch(changes, faults, asked_s, JOURNAL_SLACK_S)
    if reasons:
        return Judged((), (), ""), reasons
    report = check_groups(history, places, is_excused=excuse.is_group_forgotten)
    anomalies = tuple(Anomaly(one.oracle, one.text) for one in report.anomalies)
    return Judged(anomalies, tuple(report.excused), ""), []


# -- records


def copies_of(recorder: Recorder) -> dict[PartitionName, dict[Value, list[int]]]:
    """The offsets of the values that the final read found at more than one."""
    found: dict[PartitionName, dict[Value, list[int]]] = {}
    for one in recorder.history.operations:
        if one.final and one.key is not None:
            values = found.setdefault((one.topic, one.key[1]), {})
            for offset, value in one.records:
                values.setdefault(value, []).append(offset)
    doubled = {
        name: {value: offsets for value, offsets in values.items() if len(offsets) > 1}
        for name, values in found.items()
    }
    return {name: values for name, values in doubled.items() if values}


def _anomalies(report: Report, history: History) -> Iterator[Anomaly]:
    for one in report.anomalies:
        shown = [history.operations[index] for index in one.operations[:OPERATIONS_SHOWN]]
        at_s = min((operation.invoked_s for operation in shown), default=None)
        yield Anomaly(one.oracle, one.text, tuple(map(_told, shown)), at_s)


def _told(one: Operation) -> str:
    """An operation in words."""
    where = f"{one.topic}-{one.key[1]}" if one.key else one.topic
    what = (
        ", ".join(value.decode(errors="replace") for value in one.values[:2]) or f"{len(one.records)} records"
    )
    end = (
        f"{one.status.value} at {one.completed_s:.3f} s"
        if one.status is not OperationStatus.PENDING
        else "without an end"
    )
    offset = f", offset {one.base_offset}" if one.base_offset >= 0 else ""
    told = f"{one.process}: {one.kind.value} {where} {what} at {one.invoked_s:.3f} s: {end}{offset}"
    return f"{told} {one.error}".rstrip()


def _undecided(report: Report, experiment: Experiment) -> str:
    """Why the history proves nothing. One without acks=all, by the file's own wish, has nothing that is judged."""
    promises_nothing = not any(
        one.kind in ("idempotent-producer", "transactional-producer", "command")
        or (one.kind == "producer" and one.acks == -1)
        for one in experiment.workload
    )
    return "" if promises_nothing and report.counts.get("records read") else report.undecided
