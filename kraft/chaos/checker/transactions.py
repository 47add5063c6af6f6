"""The judge of transactions: what readers of committed records saw, held against what transactional clients did.

Oracles:

- aborted-read (Jepsen's G1a): a reader of committed records saw a record of a transaction that cannot have been
  committed: it was aborted, or its client never asked to commit it;
- precommitted-read: it saw the record before the commit was asked;
- torn-transaction: the final phase found some of a transaction's records, and others not;
- lost-transaction: a commit was acknowledged, and the final phase found nothing of it;
- skipped-commit: a reader passed an offset where the final phase found a committed record, and did not get it;
- vanished-commit: a reader got a record that the final phase did not find;
- doubled-commit: the final phase found a record twice;
- write-cycle (G0): transactions of one id follow one another, and one wrote before the other in one partition and
  behind it in another. Transactions of different ids may interleave, in Kafka as here;
- read-cycle (G1c): the same with reads: a transaction depends on its own outcome through what others read of it;
- doubled-output, missing-output: of each record that processors committed to have read there is one output;
- aborted-offset, precommitted-offset: who asks for stable offsets is told none of a transaction that was aborted, or
  whose commit was not asked yet.

Losses are excused as for acks=all: record by record, or where the partition lost committed records with an excuse,
since markers are records, too; and where the coordinator's own partition did. Pure, about linear in the history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kraft.chaos.checker.report import Anomaly, Findings, IsExcused, never, shown
from kraft.chaos.history import TopicKey, Value
from kraft.chaos.transaction_history import (
    CommittedPoll,
    Source,
    Transaction,
    TransactionEnd,
    TransactionHistory,
    Write,
)

ABORTED_READ, PRECOMMITTED_READ = "aborted-read", "precommitted-read"
TORN, LOST = "torn-transaction", "lost-transaction"
SKIPPED, VANISHED, DOUBLED = "skipped-commit", "vanished-commit", "doubled-commit"
WRITE_CYCLE, READ_CYCLE = "write-cycle", "read-cycle"
DOUBLED_OUTPUT, MISSING_OUTPUT = "doubled-output", "missing-output"
ABORTED_OFFSET, PRECOMMITTED_OFFSET = "aborted-offset", "precommitted-offset"


class TransactionReport(NamedTuple):
    """The verdict on the transactions of a run."""

    anomalies: list[Anomaly]
    excused: list[str]
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Excuses:
    """What injected faults explain."""

    is_gone: IsExcused = never
    """The loss of one record."""
    is_cut: Callable[[TopicKey], bool] = lambda key: False
    """That a partition lost committed records, markers perhaps."""
    is_forgotten: Callable[[str], bool] = lambda transactional_id: False
    """That a transactional id's coordinator lost what it had committed."""
    is_group_forgotten: Callable[[str], bool] = lambda group: False
    """The same of a group."""


@dataclass
class _Final:
    """What the final phase found of one partition."""

    value_at: dict[int, Value] = field(default_factory=dict)
    offset_of: dict[Value, int] = field(default_factory=dict)
    doubled: dict[Value, int] = field(default_factory=dict)

    def take(self, poll: CommittedPoll) -> None:
        for offset, value in poll.records:
            self.value_at[offset] = value
            if self.offset_of.setdefault(value, offset) != offset:
                self.doubled[value] = offset


def check_transactions(history: TransactionHistory, excuses: Excuses | None = None) -> TransactionReport:
    """Judges a finished history."""
    judge = _Judge(history, excuses or Excuses())
    judge.judge()
    findings = judge.findings
    return TransactionReport(findings.anomalies, findings.excused, dict(judge.counts))


class _Judge:
    def __init__(self, history: TransactionHistory, excuses: Excuses) -> None:
        self.history = history
        self.excuses = excuses
        self.findings = Findings()
        self.counts: Counter[str] = Counter()
        self.writers: dict[tuple[TopicKey, Value], Transaction] = {
            (write.key, value): transaction
            for transaction in history.transactions
            for write in transaction.writes
            for value in write.values
        }
        self.finals = {key: _Final() for key in history.log_starts}
        self._sorted: dict[TopicKey, list[int]] = {}
        for poll in history.polls:
            if poll.final and poll.key in self.finals:
                self.finals[poll.key].take(poll)

    def judge(self) -> None:
        for poll in self.history.polls:
            self._judge_reads(poll)
            if not poll.final and poll.key in self.finals:
                self._judge_against_final(poll)
        for key, final in self.finals.items():
            for value, offset in final.doubled.items():
                text = f"{shown(value)} was found at offsets {final.offset_of[value]} and {offset}"
                self._add(DOUBLED, self._label(key), text, excused=self.excuses.is_cut(key))
        for transaction in self.history.transactions:
            self.counts[f"transactions {transaction.end}"] += 1
            self._judge_whole(transaction)
        self._judge_cycles()
        self._judge_outputs()
        self._judge_offsets()

    def _add(self, oracle: str, label: str, text: str, *, excused: bool = False) -> None:
        self.findings.add(oracle, label, lambda: (text, ()), excused=excused)

    def _label(self, key: TopicKey) -> str:
        return f"{self.history.names.get(key[0]) or key[0].hex()[:8]}-{key[1]}"

    # -- reads

    def _judge_reads(self, poll: CommittedPoll) -> None:
        for offset, value in poll.records:
            self.counts["committed records read"] += 1
            transaction = self.writers.get((poll.key, value))
            where = f"{poll.process} read {shown(value)} at offset {offset}"
            if transaction is None:
                self._add("unsent-read", self._label(poll.key), f"{where}, which nobody sent there")
            elif transaction.cannot_be_committed:
                text = f"{where}, of {_named(transaction)}, which was not committed"
                # Without the marker that aborted it, it ends with its producer's next transaction.
                excused = transaction.end is TransactionEnd.ABORTED and self.excuses.is_cut(poll.key)
                self._add(ABORTED_READ, self._label(poll.key), text, excused=excused)
            elif poll.at_s < transaction.commit_asked_s:
                text = f"{where} at {poll.at_s:.3f} s, and the commit of {_named(transaction)} was asked"
                text += f" at {transaction.commit_asked_s:.3f} s"
                self._add(PRECOMMITTED_READ, self._label(poll.key), text)

    def _judge_against_final(self, poll: CommittedPoll) -> None:
        """A reader gets what the final phase finds, no more and no less, in the range that it has passed."""
        key, final = poll.key, self.finals[poll.key]
        start = max(poll.position, self.history.log_starts[key])
        offsets = self._offsets(key)
        found = dict(poll.records)
        first, end = bisect_left(offsets, start), bisect_left(offsets, poll.next_offset)
        for offset in offsets[first:end]:
            value = final.value_at[offset]
            if found.get(offset) == value:
                continue
            text = f"{poll.process} read from {poll.position} to {poll.next_offset} without {shown(value)}"
            excused = self.excuses.is_cut(key)
            self._add(SKIPPED, self._label(key), f"{text}, which is committed at {offset}", excused=excused)
        for offset, value in poll.records:
            if offset >= start and final.value_at.get(offset) != value:
                text = f"{poll.process} read {shown(value)} at offset {offset}; the final phase did not"
                excused = self.excuses.is_gone(key, offset, value) or self.excuses.is_cut(key)
                self._add(VANISHED, self._label(key), text, excused=excused)

    def _offsets(self, key: TopicKey) -> list[int]:
        """The offsets of the committed records that the final phase found, in order."""
        if key not in self._sorted:
            self._sorted[key] = sorted(self.finals[key].value_at)
        return self._sorted[key]

    # -- whole transactions

    def is_visible(self, key: TopicKey, value: Value) -> bool:
        final = self.finals.get(key)
        return final is not None and value in final.offset_of

    def has_effect(self, transaction: Transaction) -> bool:
        """Whether it is committed, as its client was told or as its records show."""
        return transaction.end is TransactionEnd.COMMITTED or any(
            self.is_visible(write.key, value) for write in transaction.writes for value in write.values
        )

    def _judge_whole(self, transaction: Transaction) -> None:
        if transaction.cannot_be_committed:
            return
        demanded = [
            (key, offset, value)
            for key, offset, value in transaction.acknowledged
            if key in self.finals and offset >= self.history.log_starts[key]
        ]
        missing = [one for one in demanded if not self.is_visible(one[0], one[2])]
        self.counts["records of transactions demanded"] += len(demanded)
        if not missing:
            return
        is_torn = len(missing) < len(demanded)
        if not is_torn and transaction.end is not TransactionEnd.COMMITTED:
            return
        key, offset, value = missing[0]
        said = "was acknowledged" if transaction.end is TransactionEnd.COMMITTED else "was asked"
        text = (
            f"the commit of {_named(transaction)} {said}; of {len(demanded)} records {len(missing)} were not"
        )
        text += f" found, such as {shown(value)} at offset {offset} of {self._label(key)}"
        excused = self.excuses.is_forgotten(transaction.transactional_id) or all(
            self.excuses.is_gone(key, offset, value) or self.excuses.is_cut(key)
            for key, offset, value in missing
        )
        self._add(TORN if is_torn else LOST, transaction.transactional_id, text, excused=excused)

    # -- cycles

    def _judge_cycles(self) -> None:
        """Searches for a cycle among what transactions wrote in order, and then among reads besides."""
        committed = [one for one in self.history.transactions if self.has_effect(one)]
        writes = _edges_of_writes(committed, self.finals)
        cycle = _cycle(writes)
        if cycle:
            self._add_cycle(WRITE_CYCLE, cycle)
            return
        reads: dict[int, set[int]] = {index: set(after) for index, after in writes.items()}
        for transaction in committed:
            for key, offset in _sources(transaction):
                final = self.finals.get(key)
                value = None if final is None else final.value_at.get(offset)
                read_of = None if value is None else self.writers.get((key, value))
                if read_of is transaction:
                    self._add_cycle(READ_CYCLE, [transaction.index])
                elif read_of is not None:
                    reads.setdefault(read_of.index, set()).add(transaction.index)
        cycle = _cycle(reads)
        if cycle:
            self._add_cycle(READ_CYCLE, cycle)

    def _add_cycle(self, oracle: str, cycle: list[int]) -> None:
        named = [self.history.transactions[index] for index in cycle]
        keys = {write.key for one in named for write in one.writes}
        keys |= {key for one in named for key, _ in _sources(one)}
        excused = any(map(self.excuses.is_cut, keys)) or any(
            self.excuses.is_forgotten(one.transactional_id) for one in named
        )
        text = " is before ".join([*map(_named, named), _named(named[0])])
        self._add(oracle, named[0].transactional_id, text, excused=excused)

    # -- outputs

    def _judge_outputs(self) -> None:
        """Of each committed record below what processors committed to have read there is one committed output."""
        outputs: dict[tuple[str, Source], list[tuple[Transaction, Write, int]]] = {}
        read_up_to: dict[tuple[str, TopicKey], int] = {}
        for transaction in self.history.transactions:
            for write in transaction.writes:
                for n, source in enumerate(write.sources):
                    outputs.setdefault((transaction.group, source), []).append((transaction, write, n))
            if transaction.group and self.has_effect(transaction):
                for key, offset in transaction.consumed.items():
                    known = read_up_to.get((transaction.group, key), 0)
                    read_up_to[transaction.group, key] = max(known, offset)
        for (group, source), made in outputs.items():
            found = [(one, write, n) for one, write, n in made if self.is_visible(write.key, write.values[n])]
            self.counts["outputs judged"] += bool(found)
            if len(found) > 1:
                values = " and ".join(shown(write.values[n]) for _, write, n in found)
                text = f"offset {source[1]} of {self._label(source[0])} has the outputs {values}"
                self._add(DOUBLED_OUTPUT, group, text, excused=self._excuses_output(group, source, made))
        for (group, key), end in read_up_to.items():
            for offset in self._offsets(key) if key in self.finals else ():
                source = (key, offset)
                made = outputs.get((group, source), [])
                if offset >= end or any(self.is_visible(write.key, write.values[n]) for _, write, n in made):
                    continue
                if any(write.key not in self.finals for _, write, _ in made):
                    continue  # where it went could not be read
                text = f"the group has read {self._label(key)} up to {end}, and there is no output of offset {offset}"
                self._add(MISSING_OUTPUT, group, text, excused=self._excuses_output(group, source, made))

    def _excuses_output(
        self, group: str, source: Source, made: Iterable[tuple[Transaction, Write, int]]
    ) -> bool:
        excuses = self.excuses
        return (
            excuses.is_group_forgotten(group)
            or excuses.is_cut(source[0])
            or any(
                excuses.is_forgotten(transaction.transactional_id)
                or excuses.is_cut(write.key)
                or excuses.is_gone(write.key, write.base_offset + n, write.values[n])
                for transaction, write, n in made
            )
        )

    # -- offsets of groups

    def _judge_offsets(self) -> None:
        made = {tag: one for one in self.history.transactions for tag in one.tags}
        for told in self.history.told:
            transaction = made.get(told.tag)
            if transaction is None:
                continue
            self.counts["offsets of transactions told"] += 1
            text = f"a client was told commit {told.tag} of {_named(transaction)} at {told.at_s:.3f} s"
            if transaction.cannot_be_committed:
                self._add(ABORTED_OFFSET, transaction.group, f"{text}, which was not committed")
            elif told.at_s < transaction.commit_asked_s:
                text += f", whose commit was asked at {transaction.commit_asked_s:.3f} s"
                self._add(PRECOMMITTED_OFFSET, transaction.group, text)


def _sources(transaction: Transaction) -> list[Source]:
    return [source for write in transaction.writes for source in write.sources]


def _edges_of_writes(
    committed: Iterable[Transaction], finals: Mapping[TopicKey, _Final]
) -> dict[int, set[int]]:
    """Which transaction is before which: those of one id as they began, and in each partition as they lie there."""
    by_id: dict[str, list[Transaction]] = {}
    for transaction in committed:
        by_id.setdefault(transaction.transactional_id, []).append(transaction)
    edges: dict[int, set[int]] = {}
    for transactions in by_id.values():
        for one, following in pairwise(transactions):
            edges.setdefault(one.index, set()).add(following.index)
        in_partition: dict[TopicKey, list[tuple[int, int]]] = {}
        for transaction in transactions:
            for write in transaction.writes:
                final = finals.get(write.key)
                offsets = (final.offset_of.get(value) for value in write.values) if final else ()
                found = [(offset, transaction.index) for offset in offsets if offset is not None]
                in_partition.setdefault(write.key, []).extend(found)
        for found in in_partition.values():
            for (_, one_index), (_, next_index) in pairwise(sorted(found)):
                if one_index != next_index:
                    edges.setdefault(one_index, set()).add(next_index)
    return edges


def _cycle(edges: Mapping[int, Iterable[int]]) -> list[int]:
    """The nodes of some cycle, in its order; none: there is no cycle."""
    done: set[int] = set()
    for root in edges:
        path: dict[int, None] = {}
        stack = [(root, iter(sorted(edges.get(root, ()))))]
        if root in done:
            continue
        path[root] = None
        while stack:
            node, following = stack[-1]
            found = next((one for one in following if one not in done), None)
            if found is None:
                stack.pop()
                del path[node]
                done.add(node)
            elif found in path:
                nodes = list(path)
                return nodes[nodes.index(found) :]
            else:
                path[found] = None
                stack.append((found, iter(sorted(edges.get(found, ())))))
    return []


def _named(transaction: Transaction) -> str:
    return f"transaction {transaction.index} of {transaction.transactional_id} by {transaction.process}"
