"""Where the logs of partitions begin and end, which offset a time has, and how old a record is: asked of leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from kraft.cli.shared.admin_client import LIST_OFFSETS_VERSION, AdminClient, BrokerAwayError
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from partitions.records.header import CorruptBatchError, parse_header
from partitions.topic_partition import TopicPartition

FETCH_VERSION = 12
AGES_BYTES_MAX = 64 * 1024 * 1024
"""Batches that are fetched for the age of their records, all together."""

Offsets = dict[TopicPartition, int]


class Ends(NamedTuple):
    """The first offset of each log, and its high watermark; partitions whose leader does not tell are missing."""

    start: Offsets
    end: Offsets


class LogPositions:
    """The logs of some topics, as their leaders know them now."""

    def __init__(self, admin: AdminClient, leaders: Mapping[TopicPartition, int]) -> None:
        self._admin = admin
        self.leaders = leaders
        """The leader's id of each partition that there is; -1 for none."""

    @classmethod
    async def of(cls, admin: AdminClient, topics: Iterable[str]) -> LogPositions:
        """Of all partitions of these topics; those that are not there have none."""
        names = sorted(set(topics))
        found = (await admin.metadata(names)).topics if names else []
        return cls(
            admin,
            {
                TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
                for topic in found
                for partition in topic.partitions
            },
        )

    async def ends(self, partitions: Iterable[TopicPartition]) -> Ends:
        wanted = list(partitions)
        return Ends(await self.at(wanted, EARLIEST_TIMESTAMP), await self.at(wanted, LATEST_TIMESTAMP))

    async def at(self, partitions: Iterable[TopicPartition], timestamp: int) -> Offsets:
        """The offset of each partition at a time, in ms since 1970 or a constant of ListOffsets; -1: it has none. Those
        whose leader does not tell are missing."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in partitions:
            if (leader := self.leaders.get(key, -1)) >= 0:
                by_leader.setdefault(leader, []).append(key)
        found: Offsets = {}
        for leader, keys in by_leader.items():
            try:
                answer = await self._admin.request_of(
                    leader, _list_offsets(keys, timestamp), version=LIST_OFFSETS_VERSION
                )
            except (BrokerAwayError, ConnectionLostError):
                continue  # its partitions are missing, which callers tell
            found |= {
                TopicPartition(topic.name, partition.partition_index): partition.offset
                for topic in cast("ListOffsetsResponse", answer).topics
                for partition in topic.partitions
                if not partition.error_code
            }
        return found

    async def batch_times(self, offsets: Mapping[TopicPartition, int]) -> Offsets:
        """The time, in ms since 1970, of the record at an offset of each partition, by the header of its batch: exact
        for the first record of a batch, for the others not after their own.

        One small Fetch a partition, whose answer is one batch. Partitions are missing whose leader does not tell, that
        have no record there, or whose records have no time; and the last ones, once `AGES_BYTES_MAX` have been read.
        """
        found: Offsets = {}
        left_bytes = AGES_BYTES_MAX
        for key, offset in offsets.items():
            leader = self.leaders.get(key, -1)
            if leader < 0 or left_bytes <= 0:
                continue
            try:
                answer = await self._admin.request_of(leader, _fetch_one(key, offset), version=FETCH_VERSION)
            except (BrokerAwayError, ConnectionLostError):
                continue  # the partition is missing, which callers tell
            records = _records(cast("FetchResponse", answer))
            left_bytes -= len(records)
            time_ms = batch_time(records)
            if time_ms is not None:
                found[key] = time_ms
        return found


def batch_time(records: memoryview) -> int | None:
    """The time of the first batch's oldest record, by its header; as the coordinator's own metrics reckon it."""
    try:
        header = parse_header(records)
    except CorruptBatchError:  # also for no bytes at all
        return None
    time_ms = header.oldest_time_ms
    return time_ms if time_ms >= 0 else None


def _list_offsets(partitions: Iterable[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, number in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=number, timestamp=timestamp))
    return ListOffsetsRequest(topics=list(topics.values()))


def _fetch_one(key: TopicPartition, offset: int) -> FetchRequest:
    """The first batch, whole: a broker sends it however little is asked for."""
    partition = FetchPartition(partition=key.partition, fetch_offset=offset, partition_max_bytes=1)
    return FetchRequest(max_bytes=1, topics=[FetchTopic(topic=key.topic, partitions=[partition])])


def _records(answer: FetchResponse) -> memoryview:
    for topic in answer.responses:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.NONE and partition.records is not None:
                return memoryview(cast("memoryview", partition.records))
    return memoryview(b"")
