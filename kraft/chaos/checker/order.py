"""The judge of the order in which processes read and write. Oracles: poll-skip, non-monotonic-poll,
non-monotonic-send.

It compares offsets by their place among the offsets that hold something, since transaction markers and compaction
leave holes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from kraft.chaos.checker.evidence import Partition, is_ok, span
from kraft.chaos.checker.report import Findings, IsExcused, shown
from kraft.chaos.history import MARKER, Operation, Value


@dataclass
class OrderJudge:
    """Judges the order of polls and sends in one partition."""

    partition: Partition
    findings: Findings
    is_excused: IsExcused
    _unread: dict[int, Value] = field(default_factory=dict)
    """The values that were acknowledged and read nowhere, by offset."""

    def judge(self) -> None:
        """All oracles."""
        partition = self.partition
        index = self._index()
        polls: dict[str, list[Operation]] = {}
        for poll in partition.polls:
            polls.setdefault(poll.process, []).append(poll)
        for polls_of_process in polls.values():
            self._judge_polls(polls_of_process, index)
        for idempotent in (True, False):
            sends: dict[str, list[_Told]] = {}
            for batch in partition.batches:
                answer = next((send for send in batch.claims if send.base_offset >= 0), None)
                if answer is not None and batch.is_idempotent == idempotent:
                    sends.setdefault(answer.process, []).append(_Told(batch.attempts[0], answer))
            for of_process in sends.values():
                self._judge_sends(of_process, in_order=idempotent)

    def _index(self) -> list[int]:
        """The offsets that hold something, in order: of values that were read, or acknowledged and read nowhere."""
        partition = self.partition
        offsets = dict.fromkeys(partition.seen)
        for batch in partition.batches:
            for send in batch.claims:
                if send.base_offset < 0:
                    continue
                for offset, value in enumerate(batch.values, send.base_offset):
                    is_unread = offset not in offsets and value not in partition.offset_of
                    if is_unread and not self.is_excused(partition.key, offset, value):
                        offsets[offset] = None
                        self._unread[offset] = value
        return sorted(offsets)

    # -- polls

    def _judge_polls(self, polls: list[Operation], index: list[int]) -> None:
        """poll-skip, non-monotonic-poll: from its start, or its deliberate seek, a process reads one offset of the
        index after the other, within a poll and from poll to poll. A poll has read everything below its
        `next_offset`. Records that retention or compaction removed may be skipped.
        """
        place = -1
        has_sought = True
        before: Operation | None = None
        for poll in polls:
            has_sought = has_sought or poll.sought
            if not is_ok(poll):
                continue  # a seek stays one, though the first poll after it failed
            start, end = span(poll)
            if has_sought:
                place, has_sought = bisect_left(index, start), False
            read = [offset for offset, _ in poll.records]
            if index[place : place + len(read)] == read:
                place += len(read)
            else:
                for offset in read:
                    found = bisect_left(index, offset)
                    if found > place:
                        self._add_skip(poll, before, index[place:found])
                    elif found < place:
                        self._add_backwards(poll, before, offset, index[place - 1])
                    place = found + 1
            if place < len(index) and index[place] < end:
                upto = bisect_left(index, end)
                self._add_skip(poll, before, index[place:upto])
                place = upto
            before = poll

    def _add_skip(self, poll: Operation, before: Operation | None, skipped: list[int]) -> None:
        partition = self.partition
        kept = [
            offset
            for offset in skipped
            if offset >= partition.log_start and not self._may_be_compacted(offset)
        ]
        if not kept:
            return
        missed = [
            offset
            for offset in kept
            if not partition.may_be_gone(offset, self.is_excused) and not self._was_marker(poll, offset)
        ]

        def describe() -> tuple[str, list[Operation]]:
            told = (missed or kept)[0]
            more = len(missed or kept) - 1
            others = f" and {more} more" if more else ""
            text = f"{poll.process} read past offset {told}{others} in its poll from {span(poll)[0]}"
            return text, [poll] if before is None else [before, poll]

        self.findings.add("poll-skip", partition.label, describe, excused=not missed)

    def _was_marker(self, poll: Operation, offset: int) -> bool:
        """Whether the poll saw a transaction's marker there, which faults took, so that the offset was given anew."""
        return offset in poll.markers and self.is_excused(self.partition.key, offset, MARKER)

    def _may_be_compacted(self, offset: int) -> bool:
        """Whether compaction may have removed every value that was ever at this offset."""
        if not self.partition.is_compacted:
            return False
        values = self.partition.values_at(offset) or [self._unread[offset]]
        return all(self.partition.may_be_compacted(offset, value) for value in values)

    def _add_backwards(self, poll: Operation, before: Operation | None, offset: int, last: int) -> None:
        def describe() -> tuple[str, list[Operation]]:
            text = f"{poll.process} read offset {offset} after {last}"
            return text, [poll] if before is None else [before, poll]

        self.findings.add("non-monotonic-poll", self.partition.label, describe)

    # -- sends

    def _judge_sends(self, sends: list[_Told], *, in_order: bool) -> None:
        """non-monotonic-send: of two sends of one process, the later one has the higher offsets.

        An idempotent producer's sends (`in_order`) count in order of invocation, even with several in flight; retries
        keep the place of their first attempt. A plain producer's send is later only if it was invoked after the other
        was answered.
        """
        earlier = sends if in_order else sorted(sends, key=lambda send: send.answer.completed_s)
        highest: Operation | None = None
        taken = 0
        for send in sends:
            while taken < len(earlier) and earlier[taken].is_before(send, in_order):
                answer = earlier[taken].answer
                if highest is None or _end(answer) > _end(highest):
                    highest = answer
                taken += 1
            if highest is not None and send.answer.base_offset < _end(highest):
                self._add_lower(highest, send.answer)
                highest = None  # one step back is reported once

    def _add_lower(self, earlier: Operation, later: Operation) -> None:
        last = (_end(earlier) - 1, earlier.values[-1])

        def describe() -> tuple[str, list[Operation]]:
            text = (
                f"{later.process} was told offset {later.base_offset} for {shown(later.values[0])}, after"
                f" offset {last[0]} for {shown(last[1])}"
            )
            return text, [earlier, later]

        key = self.partition.key
        excused = self.is_excused(key, *last) or self.is_excused(key, later.base_offset, later.values[0])
        self.findings.add("non-monotonic-send", self.partition.label, describe, excused=excused)


@dataclass(frozen=True, slots=True)
class _Told:
    """A batch whose producer knows its offset."""

    first: Operation
    """Its first attempt."""
    answer: Operation

    def is_before(self, other: _Told, in_order: bool) -> bool:
        """Whether its records must lie below the other's."""
        if in_order:
            return self.first.index < other.first.index
        return self.answer.completed_s <= other.first.invoked_s and self is not other


def _end(send: Operation) -> int:
    """The offset after an acknowledged send."""
    return send.base_offset + len(send.values)
