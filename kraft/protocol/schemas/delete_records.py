"""DeleteRecords (21): gives up the records of partitions below an offset (KIP-107)."""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, array, int16, int32, int64, message, string

HIGH_WATERMARK = -1
"""The offset that means the partition's high watermark."""
UNKNOWN_LOW_WATERMARK = -1


@message
class DeleteRecordsPartition(Message):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


@message
class DeleteRecordsTopic(Message):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


@message
class DeleteRecordsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DELETE_RECORDS

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


@message
class DeleteRecordsPartitionResult(Message):
    """`low_watermark`: no live replica has a record below it."""

    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


@message
class DeleteRecordsTopicResult(Message):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


@message
class DeleteRecordsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DELETE_RECORDS

    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
