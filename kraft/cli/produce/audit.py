"""`kraft produce --audit`: counts acknowledged lines by window, and sends the counts with a producer of its own.

Lines of a transaction count once it is committed. A count is sent after its lines are acknowledged, so that what is
counted is stored; one that stays unacknowledged is told at the end. The messages: `kraft.auditing.messages`.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from kraft.auditing.counting import WindowCounter
from kraft.auditing.messages import CountMessage
from kraft.cli.shared.librdkafka import client_of
from kraft.cli.shared.output import console, note_client_errors
from kraft.user_error import UserError

METADATA_TIMEOUT_S = 10.0
MESSAGE_TIMEOUT_MS = 30_000
MARGIN_S = 10.0
POLL_S = 0.1
_OF_LINES = ("transactional.id", "partitioner", "statistics.interval.ms", "delivery.timeout.ms")


class AuditOptions(NamedTuple):
    """What --audit and its companions say."""

    topic: str
    window_ms: int


class LineAudit:
    """The counts of one run."""

    def __init__(
        self, properties: Mapping[str, Any], options: AuditOptions, topic: str, *, in_transactions: bool
    ) -> None:
        """`properties` are those of the lines' producer. Makes the audit topic if there is none. Raises UserError."""
        from confluent_kafka import Producer

        kept = {name: value for name, value in properties.items() if name not in _OF_LINES}
        own = {
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            "error_cb": note_client_errors(),
            "log_level": 0,
        }
        self._producer = client_of(Producer, {**kept, **own})
        self._options = options
        self._topic = topic
        self._counter = WindowCounter(socket.gethostname(), uuid.uuid4().hex, options.window_ms)
        self._pending: Counter[int] | None = Counter() if in_transactions else None
        """Lines of the open transaction by time."""
        self._sent = 0
        """Lines in messages that were sent."""
        self.counted = 0
        """Those in messages that were acknowledged."""
        self.first_error: str | None = None
        ensure_topic({**kept, "log_level": 0}, options.topic)

    @property
    def uncounted(self) -> int:
        """Lines whose counts are not known to have been written."""
        return self._sent - self.counted

    def acknowledged(self, timestamp_ms: int) -> None:
        """A line is in the log, with this time."""
        if self._pending is None:
            self._counter.add(self._topic, timestamp_ms)
        else:
            self._pending[timestamp_ms - timestamp_ms % self._options.window_ms] += 1

    def decided(self, *, committed: bool) -> None:
        """The transaction's end. One of which that is not known stays uncounted."""
        if self._pending:
            for time_ms, count in self._pending.items() if committed else ():
                self._counter.add(self._topic, time_ms, count)
            self._pending.clear()

    def send_due(self) -> None:
        """Sends the counts of windows that are over."""
        self._send(self._counter.due(round(time.time() * 1000)))
        self._producer.poll(0)

    def finish(self) -> None:
        """Sends all counts, and waits for their acknowledgements as long as librdkafka tries."""
        self._send(self._counter.rest())
        self._producer.flush(MESSAGE_TIMEOUT_MS / 1000 + MARGIN_S)

    def _send(self, messages: list[CountMessage]) -> None:
        for message in messages:
            self._sent += message.count
            while not self._queued(message):
                self._producer.poll(POLL_S)  # deliveries, or their failures, make room

    def _queued(self, message: CountMessage) -> bool:
        try:
            self._producer.produce(
                self._options.topic,
                value=message.encode(),
                key=message.producer,
                on_delivery=lambda error, _: self._delivered(error, message.count),
            )
        except BufferError:
            return False
        return True

    def _delivered(self, error: Any, count: int) -> None:
        if error is None:
            self.counted += count
        else:
            self.first_error = self.first_error or error.str()


def ensure_topic(properties: Mapping[str, Any], name: str) -> None:
    """Makes the audit topic, with one partition, if there is none. Raises UserError."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = client_of(AdminClient, properties)
    try:
        if name in admin.list_topics(timeout=METADATA_TIMEOUT_S).topics:
            return
        admin.create_topics([NewTopic(name, 1)])[name].result(METADATA_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, KafkaError) and reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        text = reason.str() if isinstance(reason, KafkaError) else str(reason)
        raise UserError(
            f"there is no topic {name} for the counts, and it could not be made: {text}. Make it with"
            f" `kraft topics create {name} --partitions 1`, or leave --audit out"
        ) from error
    console.print(f"made the topic {name} for the counts", style="dim", markup=False)
