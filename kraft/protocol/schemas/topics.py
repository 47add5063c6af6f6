"""CreateTopics (19), DeleteTopics (20) and CreatePartitions (37).

From version 4 of CreateTopics, -1 as number of partitions or replication factor stands for the
broker's default (KIP-464). DeleteTopics names topics by name or id from version 6 on.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    INT32,
    STRING,
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    sentence,
    string,
    uuid,
)


@message
class CreatableReplicaAssignment(Message):
    partition_index: int = int32("0+")
    broker_ids: list[int] = array(INT32, "0+")


@message
class CreatableTopicConfig(Message):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+", default=None)


@message
class CreatableTopic(Message):
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


@message
class CreateTopicsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS

    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60_000)
    validate_only: bool = boolean("1+")


@message
class CreatableTopicConfigs(Message):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+", default=None)
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@message
class CreatableTopicResult(Message):
    """`topic_config_error_code` says why `configs` is null although the topic was created."""

    name: str = string("0+")
    topic_id: bytes = uuid("7+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = sentence("1+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


@message
class CreateTopicsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")


@message
class DeleteTopicState(Message):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


@message
class DeleteTopicsRequest(Message):
    """`topic_names` up to version 5, `topics` from 6 on."""

    API_KEY: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(STRING, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


@message
class DeletableTopicResult(Message):
    name: str | None = string("0+", nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = sentence("5+", ignorable=True)


@message
class DeleteTopicsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")


@message
class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = array(INT32, "0+")


@message
class CreatePartitionsTopic(Message):
    """`count` is the new total; `assignments`, if given, has one entry for each partition added."""

    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, "0+", nullable="0+", default=None
    )


@message
class CreatePartitionsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


@message
class CreatePartitionsTopicResult(Message):
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")


@message
class CreatePartitionsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS

    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")
