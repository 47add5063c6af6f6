"""The log of one coordinator's shard: a partition that this broker leads, in the leader epoch of one election; and the
runtime over such logs.

What `kraft.coordinator.runtime` needs of the broker (its port `ShardLog`), over `Appends` and `Partition`. Reading
takes ranges on the loop, as a fetch does; the executor reads and decodes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from kraft.broker.purgatory.offset_waits import Outcomes
from kraft.broker.replicas.appends import AckCondition, Appended
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.broker.vital_task import start_vital_task
from kraft.coordinator.runtime import Environment as RuntimeEnvironment
from kraft.coordinator.runtime import Perform, Runtime
from kraft.coordinator.shard import NO_PRODUCER_ID, Shard, StoredMarker, StoredRecord
from kraft.environment import Environment
from kraft.protocol.errors import ErrorCode
from partitions.disk import FileSlice
from partitions.errors import NotEnoughReplicas, PartitionError
from partitions.log.config import LogConfig
from partitions.log.errors import LogCorruptError
from partitions.partition import ACKS_ALL, Partition
from partitions.ports import Executor
from partitions.records.batch import CorruptBatchError, decode_records, iter_batches
from partitions.records.markers import read_marker
from partitions.topic_partition import TopicPartition

S = TypeVar("S", bound=Shard[Any])

CHUNK_BYTES: Final = 256 * 1024
"""That are read and decoded in one job: some milliseconds of the interpreter, which the loop shares."""
_NEW_TUPLE: Final = tuple.__new__
"""What StoredRecord(...) does, less a Python frame: a shard that loads reads a million of them."""
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""Of one batch: coordinators write none compressed, but the topic may say so."""


class PartitionShardLog:
    """One partition in the leader epoch of one election."""

    def __init__(
        self,
        replicas: ReplicaManager,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        key: TopicPartition,
        leader_epoch: int,
    ) -> None:
        """Raises PartitionError if the replica is not here."""
        self._replicas = replicas
        self._executor = executor
        self._loop = loop
        self._key = key
        self._leader_epoch = leader_epoch
        self._partition = replicas.partition(key)

    @property
    def max_batch_bytes(self) -> int:
        return max_batch_bytes(self._partition)

    @property
    def end_offset(self) -> int:
        return self._partition.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    def refusal(self, *, appends: bool) -> ErrorCode | None:
        """See the port."""
        try:
            if appends:
                self._replicas.newest_partition(self._key).check_append(ACKS_ALL, self._leader_epoch)
            else:
                self._replicas.partition(self._key).check_epoch(self._leader_epoch)
        except NotEnoughReplicas:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except PartitionError:
            return ErrorCode.NOT_COORDINATOR
        return None

    def append(self, batches: bytes) -> int:
        """See the port."""
        appended = self._replicas.appends.append(
            self._key, batches, acks=ACKS_ALL, origin="coordinator", leader_epoch=self._leader_epoch
        )
        assert isinstance(appended, Appended), "no client's append is in the way: they are refused"
        return appended.condition.offset

    def when_committed(self, offset: int, timeout_s: float) -> asyncio.Future[bool]:
        """See the port. A high watermark that has come to the offset did so while the ISR was large enough."""
        condition = AckCondition(self._partition, offset, self._leader_epoch)
        outcomes = self._replicas.appends.when_committed({self._key: condition}, timeout_s)
        committed: asyncio.Future[bool] = self._loop.create_future()
        if isinstance(outcomes, dict):
            committed.set_result(self._is_committed(offset))
        else:
            outcomes.add_done_callback(lambda done: self._tell(committed, offset, done))
        return committed

    def _tell(self, committed: asyncio.Future[bool], offset: int, done: asyncio.Future[Outcomes]) -> None:
        if not committed.done():
            committed.set_result(not done.cancelled() and self._is_committed(offset))

    def _is_committed(self, offset: int) -> bool:
        return self._partition.high_watermark >= offset and self.refusal(appends=False) is None

    def records(self) -> PartitionRecords:
        """See the port."""
        return PartitionRecords(self._partition, self._executor)


def max_batch_bytes(partition: Partition) -> int:
    """What its topic takes, as it is now."""
    config = partition.log.config
    assert isinstance(config, LogConfig), "a broker's logs have whole configs"
    return config.max_message_bytes


def batch_limit(replicas: ReplicaManager, key: TopicPartition) -> int | None:
    """The same of a partition that may have gone elsewhere: None."""
    try:
        return max_batch_bytes(replicas.partition(key))
    except PartitionError:
        return None


def hosting(
    topic: str,
    make_shard: Callable[[int], S],
    replicas: ReplicaManager,
    environment: Environment,
    loop: asyncio.AbstractEventLoop,
    *,
    append_timeout_s: float,
    perform: Perform | None = None,
) -> Runtime[Any, S]:
    """The runtime of an internal topic's shards over this broker's replicas; see `Runtime`."""
    ports = RuntimeEnvironment(
        loop, environment.now_ms, lambda work, name: start_vital_task(work, name, environment.halt)
    )
    effects = {} if perform is None else {"perform": perform}
    return Runtime(
        topic,
        make_shard,
        lambda key, epoch: PartitionShardLog(replicas, environment.executor, loop, key, epoch),
        ports,
        append_timeout_s=append_timeout_s,
        **effects,
    )


class PartitionRecords:
    """The records of a partition from its start to its present end, chunk by chunk."""

    def __init__(self, partition: Partition, executor: Executor) -> None:
        self._log = partition.log
        self._executor = executor
        self._position = partition.log_start_offset
        self.end_offset = partition.log_end_offset

    def __aiter__(self) -> PartitionRecords:
        return self

    async def __anext__(self) -> Sequence[StoredRecord | StoredMarker]:
        start_offset = self._log.log_start_offset
        self._position = max(self._position, start_offset)  # the log may have been cut at its start meanwhile
        if self._position >= self.end_offset:
            raise StopAsyncIteration
        found = self._log.read(self._position, CHUNK_BYTES, up_to_offset=self.end_offset)
        records = await self._executor.run(_decode, tuple(found.slices), self._position)
        self._position = found.next_offset
        return records


def _decode(slices: Sequence[FileSlice], from_offset: int) -> list[StoredRecord | StoredMarker]:
    """The records from an offset on, and the markers of transactions. Raises LogCorruptError."""
    found: list[StoredRecord | StoredMarker] = []
    for one in slices:
        try:
            data = one.read()
            for position, header in iter_batches(data):
                if header.is_control:
                    marker = read_marker(data, position, header)
                    if marker is not None and header.base_offset >= from_offset:
                        is_commit = not marker.is_abort
                        found.append(StoredMarker(header.base_offset, header.producer_id, is_commit))
                    continue
                producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
                records = decode_records(
                    data, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES
                )
                found += [
                    _NEW_TUPLE(StoredRecord, (offset, timestamp_ms, key, value, producer_id))
                    for offset, timestamp_ms, key, value, _ in records
                    if key is not None and offset >= from_offset
                ]
        except (CorruptBatchError, OSError, EOFError) as error:
            raise LogCorruptError(one.path, one.position, str(error)) from error
    return found
