"""The judge of a log's contents: one value at an offset, one offset for a value, whole batches, only sent values.

Oracles: inconsistent-offsets, duplicate, torn-batch, aborted-read, unsent-read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kraft.chaos.checker.evidence import Partition, SentBatch, is_ok
from kraft.chaos.checker.report import Describe, Findings, IsExcused, shown
from kraft.chaos.history import Operation, Value


@dataclass
class ContentsJudge:
    """Judges the contents of one partition."""

    partition: Partition
    namesakes: list[Partition]
    """The same partition of other topics of its name."""
    findings: Findings
    is_excused: IsExcused

    def judge(self) -> int:
        """Runs all oracles. Returns how many values plain producers doubled, as their retries may."""
        self._judge_offsets()
        self._judge_claims()
        doubled = self._judge_duplicates()
        self._judge_batches()
        self._judge_writers()
        return doubled

    def _judge_offsets(self) -> None:
        """inconsistent-offsets, by polls alone: an offset never shows two values, with any acks."""
        for offset in self.partition.contested:
            values = self.partition.values_at(offset)

            def describe(offset: int = offset, values: list[Value] = values) -> tuple[str, list[Operation]]:
                polls = [self.partition.reads_of(offset, value)[0] for value in values]
                told = [f"{shown(one)} to {by.process}" for one, by in zip(values, polls, strict=True)]
                return f"offset {offset} showed {' and '.join(told)}", polls

            self._add("inconsistent-offsets", describe, excused=self._is_one_held(offset, values))

    # -- acknowledged offsets

    def _judge_claims(self) -> None:
        """inconsistent-offsets, by acknowledgements: an acknowledged value is at its offset and nowhere else.

        A value that was never read must not claim an offset at which another was read, or which another claims. For a
        value that was read elsewhere see `_judge_read_elsewhere`.
        """
        partition = self.partition
        offset_of = partition.offset_of
        claimed: dict[int, tuple[Value, Operation]] = {}
        for batch in partition.batches:
            for send in batch.claims:
                if send.base_offset < 0:
                    continue
                for offset, value in enumerate(batch.values, send.base_offset):
                    read_at = offset_of.get(value)
                    if read_at == offset:
                        continue
                    if read_at is not None:
                        self._judge_read_elsewhere(batch, send, offset, value)
                        continue
                    rival, by = claimed.setdefault(offset, (value, send))
                    for other in partition.values_at(offset):
                        self._add_rival(send, offset, value, other, None)
                    if rival != value:
                        self._add_rival(send, offset, value, rival, by)

    def _add_rival(
        self, send: Operation, offset: int, value: Value, rival: Value, claim: Operation | None
    ) -> None:
        """Two values at one offset: one acknowledged and never read, the other read or claimed."""

        def describe() -> tuple[str, list[Operation]]:
            told = f"offset {offset} was acknowledged to {send.process} for {shown(value)}, and "
            if claim is not None:
                return f"{told}to {claim.process} for {shown(rival)}", [send, claim]
            polls = self.partition.reads_of(offset, rival)[:1]
            return f"{told}showed {shown(rival)} to {polls[0].process}", [send, *polls]

        self._add("inconsistent-offsets", describe, excused=self._is_one_held(offset, [value, rival]))

    def _judge_read_elsewhere(self, batch: SentBatch, send: Operation, offset: int, value: Value) -> None:
        """Judges an acknowledged value that was read at another offset.

        An idempotent producer's value has one offset. A plain producer's retry may have doubled it; then it must be at
        the acknowledged offset, too, once a poll has looked there.
        """
        partition = self.partition
        read_at = partition.offsets_of(value)
        if offset in read_at:
            return
        is_looked_at = offset >= partition.log_start and partition.was_looked_at(
            offset, send, self.is_excused
        )
        if not batch.is_idempotent and (not is_looked_at or partition.may_be_compacted(offset, value)):
            return

        def describe() -> tuple[str, list[Operation]]:
            text = f"{shown(value)} was acknowledged at offset {offset} and read at {read_at[0]}"
            return text, [send, *partition.reads_of(read_at[0], value)[:1]]

        excused = self.is_excused(partition.key, offset, value)
        if not is_looked_at:
            # It may be there, written anew after the loss of the copy that was read.
            excused = excused or all(self.is_excused(partition.key, other, value) for other in read_at)
        self._add("inconsistent-offsets", describe, excused=excused)

    # -- duplicates

    def _judge_duplicates(self) -> int:
        """duplicate: a value of an idempotent producer read, or acknowledged, at more than one offset.

        Excused if faults explain the loss of all copies but one: then the log had forgotten the producer.
        """
        partition = self.partition
        doubled = 0
        for value in partition.copies:
            offsets = partition.offsets_of(value)
            batch = partition.writer.get(value)
            if batch is None:
                continue
            if not batch.is_idempotent:
                doubled += 1
                continue

            def describe(value: Value = value, offsets: list[int] = offsets) -> tuple[str, list[Operation]]:
                polls = [partition.reads_of(offset, value)[0] for offset in offsets]
                return f"{shown(value)} was read at offsets {offsets}", polls

            self._add("duplicate", describe, excused=self._is_one_copy_held(value, offsets))
        for batch in partition.batches:
            if batch.is_idempotent and len(batch.claims) > 1:
                self._judge_repeated_claims(batch)
        return doubled

    def _judge_repeated_claims(self, batch: SentBatch) -> None:
        """duplicate, by answers: a repeated attempt is answered with the offset of the first."""
        bases = sorted({send.base_offset for send in batch.claims if send.base_offset >= 0})
        if len(bases) < 2:
            return

        def describe() -> tuple[str, list[Operation]]:
            return f"{shown(batch.values[0])} was acknowledged at offsets {bases}", batch.claims

        self._add("duplicate", describe, excused=self._is_one_copy_held(batch.values[0], bases))

    # -- batches

    def _judge_batches(self) -> None:
        """torn-batch: where one value of a send was read, all of its values are, in order, side by side.

        A plain producer's retry makes a second whole copy. Offsets that no poll looked at prove nothing.
        """
        partition = self.partition
        offset_of, copies = partition.offset_of, partition.copies
        for batch in partition.batches:
            if len(batch.values) == 1:
                continue
            base = offset_of.get(batch.values[0], -1)
            if all(
                offset_of.get(value) == offset and value not in copies
                for offset, value in enumerate(batch.values, base)
            ):
                continue
            bases = {
                offset - n: None
                for n, value in enumerate(batch.values)
                for offset in partition.offsets_of(value)
            }
            for base in bases:
                self._judge_copy(batch, base)

    def _judge_copy(self, batch: SentBatch, base: int) -> None:
        """Judges one copy of a batch that was read in part.

        lost-write is Jepsen's for a send without an answer: other values of it were read, and higher offsets, too.
        """
        partition = self.partition
        missing = [
            (offset, value)
            for offset, value in enumerate(batch.values, base)
            if value not in partition.values_at(offset)
            and (offset < 0 or partition.covered(offset))
            and not (offset >= 0 and partition.may_be_compacted(offset, value))
        ]
        if not missing:
            return

        def describe(offset: int, value: Value) -> tuple[str, list[Operation]]:
            others = " and ".join(map(shown, partition.values_at(offset))) or "nothing"
            read = [(n, one) for n, one in enumerate(batch.values, base) if one in partition.values_at(n)]
            text = (
                f"{shown(read[0][1])} was read at offset {read[0][0]}, but at {offset}, where"
                f" {shown(value)} of the same send must be, {others}"
            )
            return text, [*batch.attempts, *partition.reads_of(*read[0])[:1]]

        offset, value = missing[0]
        excuses = [self._is_gone(offset, value) for offset, value in missing]
        self._add("torn-batch", partial(describe, offset, value), excused=all(excuses))
        if batch.acks != -1 or any(map(is_ok, batch.attempts)):
            return
        for (offset, value), excused in zip(missing, excuses, strict=True):
            if value not in partition.offset_of and partition.log_start <= offset <= partition.highest_read:
                self._add("lost-write", partial(describe, offset, value), excused=excused)

    def _is_gone(self, offset: int, value: Value) -> bool:
        """Whether faults explain that this value is not there, or that what was read there is gone, too."""
        rivals = self.partition.rivals_at(offset)
        return offset >= 0 and any(
            self.is_excused(self.partition.key, offset, one) for one in (value, *rivals)
        )

    # -- writers

    def _judge_writers(self) -> None:
        """aborted-read: a value was read whose send certainly failed; unsent-read: no client sent it here."""
        partition = self.partition
        for batch in partition.batches:
            if batch.is_failed:
                for value in batch.values:
                    if value in partition.offset_of:
                        self._add_read("aborted-read", value, "though its send failed", batch.attempts)
        for value in partition.offset_of:
            if value in partition.writer:
                continue
            writers = [other.writer[value] for other in self.namesakes if value in other.writer]
            if not writers:
                self._add_read("unsent-read", value, "which nobody sent there", [])
            elif all(batch.is_failed for batch in writers):
                sends = [send for batch in writers for send in batch.attempts]
                self._add_read("aborted-read", value, "though its send failed", sends)
            else:
                # Produce may go by name: a send under way may arrive in the next topic of the name. An answered
                # send, with every attempt, is in the first topic and nowhere else; a client that retries within
                # one operation has to name topics by id.
                ended = [batch for batch in writers if len(batch.claims) == len(batch.attempts)]
                if ended:
                    why = "which was acknowledged in a topic of that name that was deleted"
                    self._add_read("unsent-read", value, why, ended[0].attempts)

    def _add_read(self, oracle: str, value: Value, why: str, sends: list[Operation]) -> None:
        def describe() -> tuple[str, list[Operation]]:
            offset = self.partition.offset_of[value]
            polls = self.partition.reads_of(offset, value)[:1]
            return f"{polls[0].process} read {shown(value)} at offset {offset}, {why}", [*sends, *polls]

        self._add(oracle, describe)

    def _add(self, oracle: str, describe: Describe, *, excused: bool = False) -> None:
        self.findings.add(oracle, self.partition.label, describe, excused=excused)

    # -- excuses

    def _is_one_held(self, offset: int, values: list[Value]) -> bool:
        """Whether faults explain that at most one of the values is still there: then the offset was given away
        anew."""
        return sum(not self.is_excused(self.partition.key, offset, value) for value in values) < 2

    def _is_one_copy_held(self, value: Value, offsets: list[int]) -> bool:
        return sum(not self.is_excused(self.partition.key, offset, value) for offset in offsets) < 2
