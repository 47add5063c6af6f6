"""InitProducerId (22): a producer id and epoch for an idempotent or transactional producer.

From version 3 a producer may name the id and epoch that it has, to go on with a raised epoch
(KIP-360). DescribeProducers (61): the producers that a partition's log knows of (KIP-664).
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import INT32, Message, array, int16, int32, int64, message, sentence, string


@message
class InitProducerIdRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID

    transactional_id: str | None = string("0+", nullable="0+", default=None)
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@message
class InitProducerIdResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")


@message
class DescribeProducersTopic(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array(INT32, "0+")


@message
class DescribeProducersRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_PRODUCERS

    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic, "0+")


@message
class ProducerState(Message):
    """What a log knows of one producer; -1 where there is nothing to know."""

    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


@message
class DescribeProducersPartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    active_producers: list[ProducerState] = array(ProducerState, "0+")


@message
class DescribeProducersTopicResult(Message):
    name: str = string("0+")
    partitions: list[DescribeProducersPartition] = array(DescribeProducersPartition, "0+")


@message
class DescribeProducersResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_PRODUCERS

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeProducersTopicResult] = array(DescribeProducersTopicResult, "0+")
