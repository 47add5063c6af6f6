"""What planners and slice readers ask: the leaders of a cluster (`client.py`), or stopped directories (`offline`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from kraft.protocol.fetch import PartitionData
from kraft.spark.retry import RetryPolicy
from partitions.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kraft.spark.client import LeaderOffset, TopicMetadata


class LogSource(Protocol):
    """Answers as a leader does. All methods raise ConnectorError; `fetch` may raise TransientError."""

    policy: RetryPolicy

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicMetadata]:
        """The topics of these names, which all exist, or all topics (None)."""

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, LeaderOffset]:
        """The offset for a timestamp (ms, EARLIEST_TIMESTAMP or LATEST_TIMESTAMP) of each partition; -1: none."""

    def fetch(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        *,
        offset: int,
        last_fetched_epoch: int,
        max_bytes: int,
    ) -> PartitionData:
        """Whole batches from the one on that holds `offset`; the last may be torn."""

    def suspect(self, partition: TopicPartition) -> None:
        """What is known of the partition's leader may be wrong."""
