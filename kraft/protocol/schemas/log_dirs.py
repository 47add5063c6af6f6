"""DescribeLogDirs (35): what a broker's data directories hold, and how much room they have (KIP-113, KIP-827)."""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import INT32, Message, array, boolean, int16, int32, int64, message, string

UNKNOWN_BYTES = -1
UNKNOWN_LAG = -1
"""Of a log without a replica: one that is about to be deleted."""


@message
class DescribableLogDirTopic(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


@message
class DescribeLogDirsRequest(Message):
    """`topics` None asks for all partitions; the directories are told whatever is asked for."""

    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_LOG_DIRS

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


@message
class DescribeLogDirsPartition(Message):
    """`offset_lag`: how far the log's end is below the high watermark. `is_future_key`: the log is to replace the
    replica's log in another directory."""

    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


@message
class DescribeLogDirsTopic(Message):
    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


@message
class DescribeLogDirsResult(Message):
    """One data directory. `total_bytes` and `usable_bytes` are of the file system that it is on."""

    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=UNKNOWN_BYTES, ignorable=True)
    usable_bytes: int = int64("4+", default=UNKNOWN_BYTES, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


@message
class DescribeLogDirsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_LOG_DIRS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")
