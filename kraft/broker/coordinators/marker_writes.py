"""Writing the markers that end transactions into partitions that this broker leads (KIP-98, KIP-890, KIP-1228).

WriteTxnMarkers asks for it, and a transaction coordinator here for what this broker leads itself. A marker is judged
and appended in one call, whatever else waits for the partition, and is told of once it is committed; so is one that
was written before. The partitions of __consumer_offsets are ended by their group coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from kraft.broker.coordinators.group_coordinator import GroupCoordinator
from kraft.broker.replicas.appends import AckCondition, Appends
from kraft.coordinator.shard import TransactionMarker
from kraft.protocol.errors import ErrorCode
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import CONSUMER_OFFSETS

_NO_GROUPS_YET: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

Codes = dict[TopicPartition, ErrorCode]


class MarkerWrite(NamedTuple):
    """A marker, and where it is to be written."""

    marker: TransactionMarker
    partitions: Collection[TopicPartition]


async def write_markers(
    appends: Appends, groups: GroupCoordinator, writes: Sequence[MarkerWrite], timeout_s: float
) -> list[Codes]:
    """What became of each marker in each of its partitions, in the order of `writes`.

    NONE once it is committed, or was before. Else: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, why this
    broker cannot append, or REQUEST_TIMED_OUT after `timeout_s` seconds, when it may have been written.
    """
    results: list[Codes] = [{} for _ in writes]
    conditions: dict[TopicPartition, AckCondition] = {}
    appended: list[tuple[Codes, TopicPartition]] = []
    ended: list[tuple[Codes, TopicPartition, asyncio.Future[ErrorCode]]] = []
    for (marker, partitions), codes in zip(writes, results, strict=True):
        for key in partitions:
            if key.topic == CONSUMER_OFFSETS:
                ended.append((codes, key, groups.end_transaction(key.partition, marker)))
                continue
            try:
                condition = appends.append_marker(key, marker)
            except (PartitionError, LogError) as error:
                codes[key] = ErrorCode[error.code]
                continue
            earlier = conditions.get(key)
            conditions[key] = condition if earlier is None else earlier.and_then(condition)
            appended.append((codes, key))
    committed = appends.when_committed(
        conditions, timeout_s
    )  # its time runs from here on, as that of groups does
    if ended:
        await asyncio.wait([future for _, _, future in ended], timeout=timeout_s)
    for codes, key, future in ended:
        codes[key] = _told_by_groups(future)
    outcomes = committed if isinstance(committed, dict) else await committed
    for codes, key in appended:
        outcome = outcomes[key]
        codes[key] = ErrorCode.NONE if outcome is None else ErrorCode[outcome]
    return results


def _told_by_groups(future: asyncio.Future[ErrorCode]) -> ErrorCode:
    """A transaction coordinator knows nothing of group coordinators: where one is not ready, there is no leader yet."""
    if not future.done():
        future.cancel()
        return ErrorCode.REQUEST_TIMED_OUT
    code = future.result()
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NO_GROUPS_YET else code
