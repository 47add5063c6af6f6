"""DescribeLogDirs (35): the data directories of this broker, their room, and the logs in them (KIP-113, KIP-827).

A directory that cannot be used, or whose disk does not answer, is told with KAFKA_STORAGE_ERROR and nothing else.
Logs do not move between directories here, so none is a future replica.
"""

from __future__ import annotations

import asyncio

import structlog

from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.log_dirs import (
    UNKNOWN_LAG,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from partitions.errors import PartitionError
from partitions.log.log import PartitionLog
from partitions.topic_partition import TopicPartition

LOGS_PER_STEP = 500
"""That are looked at before other requests have their turn."""

log = structlog.get_logger(__name__)

_Wanted = set[TopicPartition] | None


async def handle_describe_log_dirs(
    services: BrokerServices, request: Request[DescribeLogDirsRequest]
) -> DescribeLogDirsResponse:
    """Answers DescribeLogDirs: the directories in the order of log.dirs, the logs in each by name."""
    named = request.body.topics
    wanted = None if named is None else {TopicPartition(t.topic, n) for t in named for n in t.partitions}
    results: dict[str, DescribeLogDirsResult] = {}
    for path in services.logs.directory_paths:
        try:
            total_bytes, usable_bytes = await services.logs.space(path)
        except OSError as error:
            log.warning("the room on a disk cannot be told", path=path, reason=str(error))
        else:
            results[path] = DescribeLogDirsResult(
                log_dir=path, total_bytes=total_bytes, usable_bytes=usable_bytes
            )
    await _add_logs(services, wanted, results)
    for path in services.logs.failed_directories:
        results.pop(path, None)
    return DescribeLogDirsResponse(
        results=[results.get(path) or _offline(path) for path in services.logs.directory_paths]
    )


def _offline(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)


async def _add_logs(
    services: BrokerServices, wanted: _Wanted, results: dict[str, DescribeLogDirsResult]
) -> None:
    """Adds the wanted logs to the directories that they are in; takes out one whose disk does not tell a size."""
    for number, (key, stored) in enumerate(sorted(services.logs.logs.items()), start=1):
        if number % LOGS_PER_STEP == 0:
            await asyncio.sleep(0)
        if services.logs.get(key) is not stored or (wanted is not None and key not in wanted):
            continue
        path = services.logs.directory_of(key)
        if path not in results:
            continue
        topics = results[path].topics
        try:
            partition = _described(services, key, stored)
        except OSError as error:
            log.warning("the size of a log cannot be told", partition=str(key), reason=str(error))
            del results[path]
            continue
        if not topics or topics[-1].name != key.topic:
            topics.append(DescribeLogDirsTopic(name=key.topic))
        topics[-1].partitions.append(partition)


def _described(
    services: BrokerServices, key: TopicPartition, stored: PartitionLog
) -> DescribeLogDirsPartition:
    """Raises OSError."""
    try:
        lag = max(0, services.replicas.partition(key).high_watermark - stored.log_end_offset)
    except PartitionError:
        lag = UNKNOWN_LAG
    return DescribeLogDirsPartition(
        partition_index=key.partition, partition_size=stored.size_bytes, offset_lag=lag
    )
