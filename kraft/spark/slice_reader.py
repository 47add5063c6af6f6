"""Reads one slice of one partition from its leader or a replica nearby, also when another broker leads by then.

It yields every record of the slice exactly once, or raises: retention or truncation below the planned end, and a topic
that was replaced, are errors, or warnings where the reader asked for that (`data_loss.py`), and never a silent gap. It
rides out leader changes, restarts and lagging brokers for the
policy's budget without progress. It runs in Spark's executors; `source.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from kraft.protocol import ErrorCode
from kraft.protocol.fetch import PartitionData
from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kraft.spark.client import TransientError
from kraft.spark.data_loss import LossPolicy
from kraft.spark.decode import SliceAudit, SliceDecoder
from kraft.spark.errors import (
    ClusterUnavailableError,
    ConnectorError,
    TopicChangedError,
    UnknownTopicError,
)
from kraft.spark.log_source import LogSource
from kraft.spark.retry import Attempts
from partitions.topic_partition import TopicPartition

FETCH_MAX_BYTES = 4 << 20
"""A fetch, and with it about one Arrow batch. Brokers send a larger batch whole (KIP-74)."""


class PartitionSlice(NamedTuple):
    """Offsets `start` up to, not including, `end` of a partition, as one cut of the topic saw it."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int
    leader_epoch: int
    """Of the leader that named the partition's end when the read was planned."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start}, {self.end})"


class SliceReader:
    """One pass over one slice. After `batches` is exhausted `audit` accounts for every offset."""

    def __init__(
        self,
        client: LogSource,
        part: PartitionSlice,
        *,
        columns: Sequence[str],
        loss: LossPolicy,
        fetch_max_bytes: int = FETCH_MAX_BYTES,
    ) -> None:
        self._client = client
        self._loss = loss
        self._slice = part
        self._partition = TopicPartition(part.topic, part.partition)
        self._fetch_max_bytes = fetch_max_bytes
        self._decoder = SliceDecoder(
            part.topic,
            part.partition,
            part.start,
            part.end,
            plan_epoch=part.leader_epoch,
            columns=columns,
            loss=loss,
        )

    @property
    def audit(self) -> SliceAudit:
        return self._decoder.audit

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The slice's rows in the order of offsets. Raises a ConnectorError; see the module."""
        decoder = self._decoder
        attempts = Attempts(self._client.policy)
        while decoder.position < self._slice.end:
            before = decoder.position
            try:
                data = self._fetch()
            except TransientError as failure:
                self._wait(attempts, failure.error)
                continue
            if data is None:
                continue
            yield from decoder.feed(bytes(data.records), data.aborted_transactions)  # type: ignore[arg-type]
            if decoder.position > before:
                attempts.progressed()
            else:
                attempts.wait_or_raise(self._nothing(f"sends only records before offset {before}"))
        decoder.check_complete()

    def _wait(self, attempts: Attempts, error: ConnectorError) -> None:
        """Before the next attempt. A topic that stays gone, or replaced, is the end of the slice."""
        if isinstance(error, UnknownTopicError):
            error = TopicChangedError(f"{self._slice}: the topic was deleted after this read was planned.")
        try:
            attempts.wait_or_raise(error)
        except TopicChangedError as gone:
            fact = f"{gone} The offsets from {self._decoder.position} on are gone."
            self._loss.report(fact, TopicChangedError)
            self._decoder.skip_to(self._slice.end)

    def _fetch(self) -> PartitionData | None:
        """What the leader has at the decoder's position, at least one byte; None: the position has moved."""
        offset = self._decoder.position
        answer = self._client.fetch(
            self._partition,
            self._slice.topic_id,
            offset=offset,
            last_fetched_epoch=self._decoder.last_epoch,
            max_bytes=self._fetch_max_bytes,
        )
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(offset)
            return None
        if answer.diverging_epoch is not None:
            self._loss.report(
                f"{self._slice}: the records before offset {offset} were read under leader epoch"
                f" {self._decoder.last_epoch}, but the leader's log departs from them at offset"
                f" {answer.diverging_epoch.end_offset} (epoch {answer.diverging_epoch.epoch}): committed"
                " records were truncated by an unclean leader election."
            )
            self._decoder.forget_history()
            return None
        if answer.log_start_offset > offset:
            self._deleted(offset, answer.log_start_offset)
            return None
        if not answer.records:
            self._client.suspect(self._partition)
            reason = f"has nothing at offset {offset}, and its high watermark is {answer.high_watermark}"
            raise TransientError(self._nothing(reason))
        return answer

    def _out_of_range(self, offset: int) -> None:
        """An offset that was there when the read was planned is not any more."""
        earliest, latest = (
            self._client.list_offsets({self._partition: timestamp})[self._partition].offset
            for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        )
        if offset < earliest:
            self._deleted(offset, earliest)
        elif offset > latest:
            self._loss.report(
                f"{self._slice}: offset {offset} is beyond the partition's end, which is {latest} now:"
                " committed records were truncated by an unclean leader election."
            )
            self._decoder.skip_to(self._slice.end)
        else:
            raise TransientError(self._nothing(f"refuses offset {offset}"))

    def _deleted(self, offset: int, earliest: int) -> None:
        self._loss.report(
            f"{self._slice}: the offsets from {offset} up to {earliest} were deleted (by retention, or by"
            " a user) after this read was planned. Read before the data expires: raise retention.ms or"
            " retention.bytes of the topic if reads take that long."
        )
        self._decoder.skip_to(earliest)

    def _nothing(self, what: str) -> ClusterUnavailableError:
        return ClusterUnavailableError(
            f"{self._slice}: the leader {what}, for {self._client.policy.budget_s:g} s."
            " The partition may have lost records in an unclean leader election, or have none left at"
            " the end of the slice (compaction)."
        )
