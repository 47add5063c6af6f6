"""Simulated clients' changes of topics and broker configs, requested until they have certainly taken effect.

A broker repeats requests that it forwards to the controller, and the client repeats its own. So a topic that "exists
already" may be this one, and one that is "unknown" may have been deleted by the attempt before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from kraft.chaos.history import Operation, OperationKind, OperationStatus
from kraft.chaos.scenario import TopicSpec
from kraft.chaos.workload.base import Workload
from kraft.chaos.workload.client import REQUEST_TIMEOUT_S, Client
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.configs import ConfigResourceType
from kraft.protocol.schemas.features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from kraft.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraft.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, ALTER_CONFIGS_VERSION = 7, 6, 1
CREATE_PARTITIONS_VERSION, UPDATE_FEATURES_VERSION = 3, 1
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
ALL_BROKERS = ""
SERVER_TIMEOUT_MS = int(REQUEST_TIMEOUT_S * 1000)
THERE = frozenset((ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))
GONE = frozenset((ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
GROWN = frozenset((ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS))
"""The latter where an attempt that was not answered has grown it."""
TAKEN_AWAY = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""By the controller, of a topic that was there: a broker that was paused has carried out an old deletion by name."""
MAY_PASS = frozenset((ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.BROKER_NOT_AVAILABLE))
"""For a while there may be fewer live brokers than the wanted replicas."""

Answer = TypeVar("Answer", bound=Message)


class Admin:
    """Creates and deletes topics for one workload, each as one operation of the history."""

    def __init__(self, workload: Workload, client: Client) -> None:
        self._workload = workload
        self._client = client
        self.open: Operation | None = None

    async def create(self, topic: TopicSpec) -> None:
        """Returns when the topic exists."""
        request = CreateTopicsRequest(topics=[_wanted(topic)], timeout_ms=SERVER_TIMEOUT_MS)
        self.open = self._workload.invoke_admin(OperationKind.CREATE_TOPIC, topic.name)
        await self._until(
            THERE,
            lambda answer: answer.topics[0].error_code,
            request,
            CREATE_TOPICS_VERSION,
            CreateTopicsResponse,
        )

    async def delete(self, topic: str, topic_id: bytes | None = None) -> None:
        """Returns when the topic is gone. By its id where that is known: a broker may carry out an attempt that it did
        not answer much later, and by the name it would then delete the next topic of that name."""
        wanted = (
            DeleteTopicState(name=topic)
            if topic_id is None
            else DeleteTopicState(name=None, topic_id=topic_id)
        )
        request = DeleteTopicsRequest(topics=[wanted], timeout_ms=SERVER_TIMEOUT_MS)
        self.open = self._workload.invoke_admin(OperationKind.DELETE_TOPIC, topic)
        await self._until(
            GONE,
            lambda answer: answer.responses[0].error_code,
            request,
            DELETE_TOPICS_VERSION,
            DeleteTopicsResponse,
        )

    async def grow(self, topic: str, partitions: int) -> None:
        """Returns when the topic has at least so many partitions, or exists no more. It is no operation of the history:
        nobody is judged by it."""
        wanted = CreatePartitionsTopic(name=topic, count=partitions)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=SERVER_TIMEOUT_MS)
        while True:
            broker, answer = await self._client.call_any(
                request, CREATE_PARTITIONS_VERSION, CreatePartitionsResponse
            )
            code = ErrorCode.of(answer.results[0].error_code)
            if code in GROWN or code is TAKEN_AWAY:
                return
            if not code.retriable and code not in MAY_PASS:
                self._client.surprise(broker, f"CreatePartitions was answered with {code.name}")
            await self._client.back_off()

    async def configure_brokers(self, configs: Mapping[str, str | None]) -> None:
        """Returns when the keys are set for every broker; None takes one away."""
        wanted = [
            AlterableConfig(name, (DELETE if value is None else SET).value, value)
            for name, value in configs.items()
        ]
        resource = AlterConfigsResource(ConfigResourceType.BROKER.value, ALL_BROKERS, wanted)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        while True:
            broker, answer = await self._client.call_any(
                request, ALTER_CONFIGS_VERSION, IncrementalAlterConfigsResponse
            )
            code = ErrorCode.of(answer.responses[0].error_code)
            if code is ErrorCode.NONE:
                return
            if not code.retriable and code not in MAY_PASS:
                self._client.surprise(broker, f"IncrementalAlterConfigs was answered with {code.name}")
            await self._client.back_off()

    async def set_feature(self, feature: str, level: int) -> None:
        """Returns when the feature has that level, up or down."""
        update = FeatureUpdateKey(feature, level, upgrade_type=UpgradeType.SAFE_DOWNGRADE.value)
        request = UpdateFeaturesRequest(SERVER_TIMEOUT_MS, [update])
        while True:
            broker, answer = await self._client.call_any(
                request, UPDATE_FEATURES_VERSION, UpdateFeaturesResponse
            )
            of_updates = (result.error_code for result in answer.results if result.error_code)
            code = ErrorCode.of(answer.error_code or next(of_updates, ErrorCode.NONE))
            if code is ErrorCode.NONE:
                return
            if not code.retriable:
                self._client.surprise(broker, f"UpdateFeatures was answered with {code.name}")
            await self._client.back_off()

    async def _until(
        self,
        wanted: Collection[ErrorCode],
        error_of: Callable[[Answer], int],
        request: Message,
        version: int,
        answers: type[Answer],
    ) -> None:
        """Asks again and again, until an answer ends the open operation."""
        while True:
            broker, answer = await self._client.call_any(request, version, answers)
            code = ErrorCode.of(error_of(answer))
            if code in wanted:
                break
            if not code.retriable and code not in MAY_PASS:
                self._client.surprise(broker, f"{type(request).__name__} was answered with {code.name}")
            await self._client.back_off()
        assert self.open is not None, "it was begun"
        operation, self.open = self.open, None
        self._workload.complete(operation, OperationStatus.OK)

    def abandon(self, why: str) -> None:
        """Ends the open operation of a client that is gone as unknown."""
        if self.open is not None:
            operation, self.open = self.open, None
            self._workload.complete(operation, OperationStatus.INFO, error=why)


def _wanted(topic: TopicSpec) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()]
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
    )
