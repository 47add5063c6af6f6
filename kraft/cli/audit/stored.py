"""Reads the audit topic's counts, and counts a topic's committed records by window, with the connector's client.

Bounded: records are counted a fetch at a time and forgotten. Raises ConnectorError where the cluster cannot tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft.auditing.comparing import NEVER, Produced, check_number
from kraft.auditing.messages import decode_count
from kraft.ingest.completeness import compacted_topics
from kraft.spark.client import ClusterClient
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import UnknownTopicError
from kraft.spark.options import EARLIEST, LATEST, ByTimestamp, parse_options
from kraft.spark.plan import list_bounds, resolve
from kraft.spark.reading import driver_client
from kraft.spark.slice_reader import PartitionSlice, SliceReader
from partitions.topic_partition import TopicPartition

FOREVER = 2**63 - 1
_LOSS = LossPolicy(advice="Run kraft audit again.")
Ranges = Mapping[int, tuple[int, int]]
"""By partition: the offsets from the first up to, not including, the second."""


class Counts(NamedTuple):
    """What the audit topic says."""

    produced: Produced
    counted_from_ms: int
    """Messages from before this time have expired."""
    unreadable: int
    """Messages that are none."""


class Stored(NamedTuple):
    """The records of a topic by the start of their window."""

    stored: Counter[int]
    taken: Counter[int]
    """Those of them that lie in the ranges asked for."""
    stored_from_ms: int
    """Records from before this time have expired."""
    is_held_back: bool
    """An open transaction keeps records from being read that were there before."""


class Source:
    """The cluster, asked by the connector's client. Use it as a context manager."""

    def __init__(self, client_options: Mapping[str, str]) -> None:
        """`client_options`: `kafka.…` options of the connector, among them the brokers. Raises OptionError."""
        with ExitStack() as stack:
            self._client = stack.enter_context(_client(client_options, "read_committed"))
            self._uncommitted = stack.enter_context(_client(client_options, "read_uncommitted"))
            self._closing = stack.pop_all()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def topic_id(self, topic: str) -> bytes:
        """Raises UnknownTopicError."""
        return self._client.topics([topic])[topic].topic_id

    def is_compacted(self, topic: str) -> bool:
        """Whether records may go before their time."""
        return topic in compacted_topics(self._client, [topic])

    def counts(self, audit_topic: str, topic: str) -> Counts:
        """All messages that are there now. A topic that is not there says nothing."""
        try:
            parts = _slices(self._client, audit_topic, EARLIEST)
        except UnknownTopicError:
            return Counts(Produced(topic), NEVER, 0)
        produced = Produced(topic, is_whole=all(earliest == 0 for _, earliest in parts))
        counted_from_ms, unreadable = NEVER, 0
        for part, earliest in parts:
            first = earliest > 0
            if first and part.start == part.end:
                counted_from_ms = FOREVER
            for batch in _batches(self._client, part, ("timestamp", "value")):
                if first:
                    counted_from_ms = max(counted_from_ms, int(_times_ms(batch)[0]))
                    first = False
                for value in batch["value"].to_pylist():
                    try:
                        message = decode_count(value)
                    except ValueError:
                        unreadable += 1
                    else:
                        produced.take(message)
        return Counts(produced, counted_from_ms, unreadable)

    def stored(self, topic: str, window_ms: int, since_ms: int | None, ranges: Ranges) -> Stored:
        """The topic's committed records, of windows from `since_ms` on."""
        start = EARLIEST if since_ms is None else ByTimestamp(since_ms, or_latest=True)
        stored: Counter[int] = Counter()
        taken: Counter[int] = Counter()
        stored_from_ms = NEVER
        high_watermarks = {
            part.partition: part.end for part, _ in _slices(self._uncommitted, topic, EARLIEST)
        }
        is_held_back = False
        for part, earliest in _slices(self._client, topic, start):
            is_held_back |= part.end < high_watermarks.get(part.partition, 0)
            first = earliest > 0 and part.start == earliest
            if first and part.start == part.end:
                stored_from_ms = FOREVER
            low, high = ranges.get(part.partition, (0, 0))
            for batch in _batches(self._client, part, ("timestamp", "offset")):
                times, offsets = _times_ms(batch), batch["offset"].to_numpy()
                if first:
                    stored_from_ms = max(stored_from_ms, int(times[0]))
                    first = False
                count_windows(stored, times, window_ms, since_ms)
                count_windows(taken, times[(offsets >= low) & (offsets < high)], window_ms, since_ms)
        return Stored(stored, taken, stored_from_ms, is_held_back)


def _client(client_options: Mapping[str, str], isolation_level: str) -> ClusterClient:
    return driver_client(
        parse_options(
            {
                **client_options,
                "subscribe": "-",  # the client is asked for topics by name
                "kafka.isolation.level": isolation_level,
                "kafka.client.id": "kraft-audit",
            }
        )
    )


def count_windows(
    counts: Counter[int], times_ms: npt.NDArray[np.int64], window_ms: int, since_ms: int | None
) -> None:
    """Adds records to the windows that they are in. Raises TooManyWindowsError."""
    starts, numbers = np.unique(times_ms - times_ms % window_ms, return_counts=True)
    for start, number in zip(starts.tolist(), numbers.tolist(), strict=True):
        if since_ms is None or start >= since_ms:
            counts[start] += number
    check_number(len(counts))


def _slices(client: ClusterClient, topic: str, start: int | ByTimestamp) -> list[tuple[PartitionSlice, int]]:
    """What is there now of each partition, and its earliest offset."""
    metadata = client.topics([topic])[topic]
    bounds = list_bounds(client, [TopicPartition(topic, number) for number in metadata.leaders])
    starts = resolve(client, start, "starting", bounds, _LOSS)
    ends = resolve(client, LATEST, "ending", bounds, _LOSS)
    return [
        (
            PartitionSlice(
                topic,
                metadata.topic_id,
                partition.partition,
                starts[partition],
                ends[partition],
                bound.leader_epoch,
            ),
            bound.earliest,
        )
        for partition, bound in bounds.items()
    ]


def _batches(
    client: ClusterClient, part: PartitionSlice, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return SliceReader(client, part, columns=columns, loss=_LOSS).batches()


def _times_ms(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = batch["timestamp"].cast(pa.int64()).to_numpy() // 1000
    return times
