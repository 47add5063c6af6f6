"""The judge of missing records, and of whether there was enough evidence. Oracles: lost-write, unseen.

Only sends with acks=-1 promise anything. The final phase, a fresh client that reads everything from the start to
the end, must find their records. In a topic that may be deleted, only offsets that some poll read past prove
anything. Where the final phase had to stop, because every copy was damaged and offline by then, it must have found
the records before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraft.chaos.checker.evidence import Partition, SentBatch, is_ok
from kraft.chaos.checker.report import Findings, IsExcused, shown
from kraft.chaos.history import Operation, Value


@dataclass
class LossJudge:
    """Judges the missing records of one partition."""

    partition: Partition
    findings: Findings
    is_excused: IsExcused
    demanded: int = 0
    """Acknowledged records that the final phase had to find."""
    undecided: str = ""
    """Why the final phase proves nothing of this partition, though records were acknowledged there."""

    def judge(self) -> None:
        """All oracles."""
        partition = self.partition
        unread_finally = 0
        for batch in partition.batches:
            if not batch.claims:
                continue
            send = batch.claims[0]
            kept = _kept(send, partition.log_start)
            demanded = sum(partition.demands(send, offset) for offset in kept)
            self.demanded += demanded
            if not (partition.may_be_deleted or partition.is_unavailable):
                unread_finally += len(kept) - demanded
            self._judge_batch(batch, send)
        if unread_finally:
            self.undecided = (
                f"{partition.label}: {unread_finally} acknowledged records, and no final phase that read them"
            )
        if not partition.may_be_deleted:
            self._judge_vanished()

    def _judge_batch(self, batch: SentBatch, send: Operation) -> None:
        """lost-write: acknowledged at or below the highest offset read, and never read. unseen: the same above it, or
        at an unknown offset.
        """
        partition = self.partition
        for n, value in enumerate(batch.values):
            if value in partition.offset_of:
                continue
            offset = send.base_offset + n if send.base_offset >= 0 else -1
            if 0 <= offset < partition.log_start or partition.may_be_compacted(offset, value):
                continue
            if 0 <= offset <= partition.highest_read:
                if partition.was_looked_at(offset, send, self.is_excused):
                    self._add_unread("lost-write", send, offset, value)
            elif partition.demands(send, offset):
                self._add_unread("unseen", send, offset, value)

    def _add_unread(self, oracle: str, send: Operation, offset: int, value: Value) -> None:
        def describe() -> tuple[str, list[Operation]]:
            where = f"at offset {offset}" if offset >= 0 else "(at no offset told)"
            beyond = "nobody read it"
            if oracle == "lost-write":
                beyond += f", though offset {self.partition.highest_read} was read"
            return f"{shown(value)} was acknowledged to {send.process} {where}; {beyond}", [send]

        excused = self.is_excused(self.partition.key, offset, value)
        self.findings.add(oracle, self.partition.label, describe, excused=excused)

    def _judge_vanished(self) -> None:
        """Judges that the final phase finds every earlier read value at its offset.

        Jepsen takes a value that was ever read as safe. A consumer that follows the log reads everything before it
        can be lost, so this is needed, too: lost-write for values acknowledged with acks=-1, inconsistent-offsets
        (a value, then nothing) for the rest, since even that lay below the high watermark.
        """
        partition = self.partition
        absent = {
            offset
            for offset in partition.seen
            if offset not in partition.final_offsets
            and offset >= partition.log_start
            and partition.was_read_finally(offset)
            and not all(partition.may_be_compacted(offset, one) for one in partition.values_at(offset))
        }
        if not absent:
            return
        judged: set[int] = set()
        for poll in partition.polls:
            if not is_ok(poll) or poll.final or poll.completed_s > partition.final_began_s:
                continue
            for offset, value in poll.records:
                if offset in absent and offset not in judged:
                    judged.add(offset)
                    self._add_vanished(poll, offset, value)

    def _add_vanished(self, poll: Operation, offset: int, value: Value) -> None:
        partition = self.partition
        writer = partition.writer.get(value)
        is_acknowledged = writer is not None and bool(writer.claims)
        is_elsewhere = any(other in partition.final_offsets for other in partition.offsets_of(value))

        def describe() -> tuple[str, list[Operation]]:
            sends = writer.claims if writer is not None else []
            text = (
                f"{poll.process} read {shown(value)} at offset {offset}; the final phase found nothing there"
            )
            return text, [*sends, poll]

        oracle = "lost-write" if is_acknowledged and not is_elsewhere else "inconsistent-offsets"
        excused = partition.may_be_gone(offset, self.is_excused)
        self.findings.add(oracle, partition.label, describe, excused=excused)


def _kept(send: Operation, log_start: int) -> Sequence[int]:
    """The offsets of an acknowledged send that retention has not passed; -1 each if unknown."""
    if send.base_offset < 0:
        return [-1] * len(send.values)
    return range(max(send.base_offset, log_start), send.base_offset + len(send.values))
