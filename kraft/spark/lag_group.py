"""`groupIdForLag`: tells a consumer group how far a stream has come, so that lag tools see it.

Spark keeps a stream's offsets in its checkpoint, and only there do they count. The group's are a report: one batch
late, since Spark tells of a batch when it plans the next; a commit that fails is a warning, and no reason to stop. The
group must have no members. `stream.py` calls it, in the driver.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from kraft.spark.data_loss import LOGGER
from kraft.spark.options import ReadOptions
from kraft.spark.stream_offsets import StreamOffset

_ANSWER_S = 5.0
"""A batch is held up for its commit no longer; the answer may also come later, and the next commit says more anyway."""
_POLL_S = 0.01


class LagGroup:
    """A consumer that never consumes. Connects when it first commits."""

    def __init__(self, options: ReadOptions, group_id: str) -> None:
        from confluent_kafka import Consumer

        self._group_id = group_id
        self._under_way = 0
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": ",".join(map(str, options.bootstrap)),
                "client.id": options.client_id,
                "group.id": group_id,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "on_commit": self._on_commit,
                **options.security.producer_properties(),
            },
            logger=logging.getLogger("kraft.spark.librdkafka"),
        )

    def commit(self, offset: StreamOffset) -> None:
        """Waits a little for the answer: the query may end at once, and its process with it."""
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [
            TopicPartition(name, index, position.offset)
            for name, topic in offset.items()
            for index, position in topic.partitions.items()
        ]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
            self._under_way += 1
        except KafkaException as error:
            self._warn(error.args[0])
        until = time.monotonic() + _ANSWER_S
        while self._under_way and time.monotonic() < until:
            self._consumer.poll(_POLL_S)

    def close(self) -> None:
        """What is under way is forgotten. The library's own close would wait for it, for a session's length."""
        self._consumer = None

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        self._under_way -= 1
        failed = error or next((one.error for one in partitions if one.error is not None), None)
        if failed is not None:
            self._warn(failed)

    def _warn(self, error: Any) -> None:
        LOGGER.warning(
            "The stream's offsets could not be committed to group %s (groupIdForLag): %s. The stream goes on.",
            self._group_id,
            error.str(),
        )
