"""Stopped data directories as planner and slice reader see them: topics, offsets and fetches, as leaders answer.

Guarantees: nothing from the checkpointed high watermark on is read (a broker that was killed wrote it up to five
seconds earlier), for read_committed nothing from the first undecided transaction on. A log that ends below it, lacks a
segment, or has no high watermark is data loss. `source.py` plans in the driver and reads in the executors: a slice
carries the replica that it is of, so that all tasks read the same, and directories are held while they are read.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa

from kraft.protocol.fetch import AbortedTransaction, PartitionData
from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kraft.runtime.read_only_disk import ReadOnlyDisk
from kraft.spark.client import LeaderOffset, PartitionLeader, TopicMetadata
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import DataLossError, UnknownTopicError
from kraft.spark.offline.directories import (
    DirectoryUnreadableError,
    Replica,
    check_topic_ids,
    find_replicas,
    held,
)
from kraft.spark.offline.log_files import LogFiles
from kraft.spark.offline.transactions import Aborted, Decided, decided
from kraft.spark.options import ReadOptions
from kraft.spark.plan import plan
from kraft.spark.quiet import hide_broken_pipes
from kraft.spark.retry import RetryPolicy
from kraft.spark.slice_reader import PartitionSlice, SliceReader
from partitions.topic_partition import TopicPartition

ADVICE: Final = (
    "Give the directories of the other replicas as well (path=DIR,DIR): the best of each partition is read. Or set"
    " failOnDataLoss to false to read what is left."
)
_NO_BROKER: Final = -1
_INTERNAL: Final = frozenset(("__consumer_offsets", "__transaction_state"))
_NAMED: Final = 10
"""Partitions in a message, at most."""
_NO_RETRIES: Final = RetryPolicy(max_attempts=1)
"""Files do not come back by waiting."""


class OfflineSlice(NamedTuple):
    """A slice, and the folder that it is read from."""

    part: PartitionSlice
    replica: Replica
    """With the segments that the slice needs."""
    aborted: tuple[Aborted, ...]
    """The transactions that a read_committed read of the slice leaves out."""


def plan_offline(options: ReadOptions, loss: LossPolicy) -> list[OfflineSlice]:
    """The cut through the directories of `path`, and its slices. Raises ConnectorError."""
    directories = list(dict.fromkeys(map(os.path.abspath, options.path)))
    loss = replace(loss, advice=ADVICE)
    with _readable(), held(directories):
        replicas = find_replicas(directories, _wanted(options))
        with StoppedCluster(
            replicas, loss, read_committed=options.read_committed, whole=options.partitions is None
        ) as cluster:
            return [cluster.offline_slice(part) for part in plan(cluster, options, loss)]


def read_offline(options: ReadOptions, loss: LossPolicy, given: OfflineSlice) -> Iterator[pa.RecordBatch]:
    """The rows of one slice. Raises ConnectorError."""
    hide_broken_pipes()
    loss = replace(loss, advice=ADVICE)
    replica = given.replica
    with (
        _readable(),
        held([replica.directory]),
        StoppedCluster({replica.partition: [replica]}, loss, aborted=given.aborted) as cluster,
    ):
        yield from SliceReader(cluster, given.part, columns=options.columns, loss=loss).batches()


def _wanted(options: ReadOptions) -> Callable[[str], bool]:
    """Whether a topic of this name is asked for."""
    if options.pattern is not None:
        pattern = options.pattern
        return lambda name: pattern.search(name) is not None and name not in _INTERNAL
    names = set(options.topics or (partition.topic for partition in options.partitions or ()))
    return names.__contains__


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DirectoryUnreadableError(
            f"path: {error.filename or 'a file'} cannot be read: {error.strerror}. If a broker has run on the directory"
            " since this read was planned, call load() again."
        ) from error


class StoppedCluster:
    """A `LogSource` over these replicas. Use it as a context manager."""

    def __init__(
        self,
        replicas: Mapping[TopicPartition, Sequence[Replica]],
        loss: LossPolicy,
        *,
        read_committed: bool = False,
        whole: bool = False,
        aborted: Sequence[Aborted] = (),
    ) -> None:
        """`whole`: topics are asked for with all of their partitions. `aborted`: what fetches tell of."""
        self.policy = _NO_RETRIES
        self._all = replicas
        self._replicas = {partition: found[0] for partition, found in sorted(replicas.items())}
        self._loss = loss
        self._read_committed = read_committed
        self._whole = whole
        self._aborted = aborted
        self._disk = ReadOnlyDisk()
        self._logs: dict[TopicPartition, LogFiles] = {}
        self._decided: dict[TopicPartition, Decided] = {}
        self._closing = ExitStack()

    def __enter__(self) -> StoppedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    # ---- as a leader answers

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicMetadata]:
        """Those that have a folder. Raises UnknownTopicError, OptionError, DataLossError."""
        found: dict[str, dict[int, Replica]] = {}
        for partition, replica in self._replicas.items():
            found.setdefault(partition.topic, {})[partition.partition] = replica
        for name in names or ():
            if name not in found:
                raise UnknownTopicError(
                    f"path: none of the directories holds a partition of the topic {name}."
                )
        folders: dict[str, list[Replica]] = {}
        for partition, replicas in self._all.items():
            folders.setdefault(partition.topic, []).extend(replicas)
        for name, partitions in found.items():
            check_topic_ids(folders[name])
            self._check_whole(name, partitions)
        return {
            name: TopicMetadata(
                name,
                max(replica.topic_id for replica in partitions.values()),
                name in _INTERNAL,
                {number: PartitionLeader(_NO_BROKER, one.leader_epoch) for number, one in partitions.items()},
            )
            for name, partitions in found.items()
        }

    def _check_whole(self, name: str, partitions: Mapping[int, Replica]) -> None:
        """As far as folders can tell: nothing in them says how many partitions a topic has."""
        missing = (number for number in range(max(partitions)) if number not in partitions)
        if self._whole and (named := list(islice(missing, _NAMED))):
            listed = ", ".join(f"{name}-{number}" for number in named)
            self._loss.report(f"path: none of the directories holds {listed}.")

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, LeaderOffset]:
        """See LogSource. LATEST is the high watermark, for read_committed the last stable offset."""
        return {
            partition: LeaderOffset(*self._offset(partition, time), self._replicas[partition].leader_epoch)
            for partition, time in wanted.items()
        }

    def fetch(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        *,
        offset: int,
        last_fetched_epoch: int,
        max_bytes: int,
    ) -> PartitionData:
        """See LogSource. Raises DataLossError where the folder has changed since the read was planned."""
        records = self._log(partition).read(offset, max_bytes)
        if not records:
            replica = self._replicas[partition]
            raise DataLossError(f"{replica.folder} holds nothing at offset {offset} any more. {ADVICE}")
        first = bisect_left(self._aborted, offset, key=attrgetter("last_offset"))
        return PartitionData(
            partition_index=partition.partition,
            log_start_offset=self._replicas[partition].start_offset,
            aborted_transactions=[
                AbortedTransaction(one.producer_id, one.first_offset) for one in self._aborted[first:]
            ],
            records=records,
        )

    def suspect(self, partition: TopicPartition) -> None:
        """There is no leader to be wrong about."""

    # ----

    def offline_slice(self, part: PartitionSlice) -> OfflineSlice:
        """The slice with what a task needs to read it."""
        replica = self._replicas[TopicPartition(part.topic, part.partition)]
        spans = tuple(
            span for span in replica.spans if span.end_offset > part.start and span.base_offset < part.end
        )
        aborted = self._decision(replica.partition).aborted if self._read_committed else ()
        return OfflineSlice(
            part,
            replace(replica, spans=spans),
            tuple(one for one in aborted if one.last_offset >= part.start and one.first_offset < part.end),
        )

    def _offset(self, partition: TopicPartition, time: int) -> tuple[int, int]:
        replica = self._replicas[partition]
        if time == EARLIEST_TIMESTAMP:
            return replica.start_offset, -1
        latest = self._decision(partition).last_stable_offset
        if time == LATEST_TIMESTAMP:
            return latest, -1
        return self._log(partition).first_since(time, replica.start_offset, latest) or (-1, -1)

    def _decision(self, partition: TopicPartition) -> Decided:
        """Where the cut of the partition is, found once."""
        if partition not in self._decided:
            replica = self._replicas[partition]
            end = max(self._committed_end(replica), replica.start_offset)
            self._decided[partition] = (
                decided(self._disk, replica, end) if self._read_committed else Decided(end, ())
            )
        return self._decided[partition]

    def _committed_end(self, replica: Replica) -> int:
        """The high watermark, or the log's end where that is lower. Reports what is missing below."""
        end, high_watermark = replica.end_offset, replica.high_watermark
        if high_watermark is None:
            if end > replica.start_offset:
                self._loss.report(
                    f"{replica.directory} has no high watermark of {replica.partition}: nothing tells which of the"
                    f" offsets from {replica.start_offset} up to {end} were committed, and none of them is read."
                )
            return replica.start_offset
        if high_watermark > end:
            self._loss.report(
                f"{replica.folder} ends at offset {end}, below its high watermark {high_watermark}: committed records"
                " are missing at the end."
            )
        if not replica.was_compacted:
            for before, after in pairwise(replica.spans):
                if before.end_offset < after.base_offset < high_watermark:
                    self._loss.report(
                        f"{replica.folder} has nothing from offset {before.end_offset} up to"
                        f" {after.base_offset}, where its next segment begins: a file is missing or damaged, unless the"
                        " topic is compacted."
                    )
        return min(high_watermark, end)

    def _log(self, partition: TopicPartition) -> LogFiles:
        if partition not in self._logs:
            replica = self._replicas[partition]
            files = LogFiles(self._disk, replica.folder, replica.spans)
            self._logs[partition] = self._closing.enter_context(files)
        return self._logs[partition]
