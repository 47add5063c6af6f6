"""ElectLeaders (43): the election of preferred leaders, or, at the price of lost records, of any live replica.

The controller elects (KIP-183, KIP-460).
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import INT32, Message, array, int8, int16, int32, message, sentence, string

TIMEOUT_DEFAULT_MS = 60_000


class ElectionType(IntEnum):
    """The replicas that may be elected. Version 0 knows PREFERRED only."""

    PREFERRED = 0
    UNCLEAN = 1


@message
class TopicPartitions(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


@message
class ElectLeadersRequest(Message):
    """`topic_partitions` None asks for all partitions."""

    API_KEY: ClassVar[ApiKey] = ApiKey.ELECT_LEADERS

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=TIMEOUT_DEFAULT_MS)


@message
class PartitionResult(Message):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")


@message
class ReplicaElectionResult(Message):
    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


@message
class ElectLeadersResponse(Message):
    """Version 0 cannot say that the whole request failed."""

    API_KEY: ClassVar[ApiKey] = ApiKey.ELECT_LEADERS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")
