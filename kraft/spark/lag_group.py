"""`groupIdForLag`: tells a consumer group how far a stream has come, so that lag tools see it.

Spark keeps a stream's offsets in its checkpoint, and only there do they count. The group's are a report: one batch
late, since Spark tells of a batch when it plans the next; a commit that fails is a warning, and no reason to stop. The
group must have no members. `stream.py` calls it, in the driver.
"""

from __future__ import annotations

from kraft.protocol import ErrorCode
from kraft.protocol.schemas.find_coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kraft.spark.client import ClusterClient, TransientError
from kraft.spark.connection import BrokerAddress
from kraft.spark.data_loss import LOGGER
from kraft.spark.errors import ClusterUnavailableError, ConnectorError, RequestFailedError
from kraft.spark.retry import Attempts
from kraft.spark.stream_offsets import StreamOffset

LAG_BUDGET_S = 5.0
"""A batch is held up no longer for a commit; the next one says more anyway."""


class LagGroup:
    """Commits through the client, whose policy bounds how long a batch is held up for it."""

    def __init__(self, client: ClusterClient, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self._coordinator: BrokerAddress | None = None

    def commit(self, offset: StreamOffset) -> None:
        """Returns when the group knows it, or with a warning when the policy's time is over."""
        if not any(topic.partitions for topic in offset.values()):
            return
        attempts = Attempts(self._client.policy)
        try:
            while True:
                try:
                    return self._commit(offset)
                except TransientError as failure:
                    self._coordinator = None
                    attempts.wait_or_raise(failure.error)
        except ConnectorError as error:
            LOGGER.warning(
                "The stream's offsets could not be committed to group %s (groupIdForLag): %s The stream goes on.",
                self._group_id,
                error,
            )

    def _commit(self, offset: StreamOffset) -> None:
        if self._coordinator is None:
            self._coordinator = self._find_coordinator()
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        index, position.offset, position.leader_epoch, committed_metadata=""
                    )
                    for index, position in topic.partitions.items()
                ],
            )
            for name, topic in offset.items()
        ]
        request = OffsetCommitRequest(group_id=self._group_id, topics=topics)
        response = self._client.call(self._coordinator, request, OffsetCommitResponse)
        for answered in response.topics:
            for partition in answered.partitions:
                self._check(partition.error_code)

    def _find_coordinator(self) -> BrokerAddress:
        request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=[self._group_id])
        found = self._client.call(None, request, FindCoordinatorResponse).coordinators
        if not found:
            raise RequestFailedError("The brokers name no coordinator.")
        self._check(found[0].error_code)
        return BrokerAddress(found[0].host, found[0].port)

    def _check(self, error_code: int) -> None:
        code = ErrorCode.of(error_code)
        if code is ErrorCode.NONE:
            return
        sentence = f"The group's coordinator says {code.name}. {code.message}"
        if code.retriable:
            raise TransientError(ClusterUnavailableError(sentence))
        raise RequestFailedError(sentence)
