"""A confluent-kafka producer whose records `kraft audit` can account for: it counts what was acknowledged, by window.

Use `AuditedProducer` where `Producer` was, and call poll() and flush() as ever: they send the counts, to the topic
kraft-audit (`kraft topics create kraft-audit --partitions 1`). A process that dies leaves the records uncounted that it
sent since the last window ended: the audit then shows more of them stored than produced. Not for transactions, whose
records count only once they are committed.

    python examples/audited_producer.py 127.0.0.1:9092 orders < lines
    kraft audit orders
"""

from __future__ import annotations

import socket
import sys
import time
import uuid
from typing import Any

from confluent_kafka import Producer

from kraft.auditing.counting import WindowCounter
from kraft.auditing.messages import DEFAULT_AUDIT_TOPIC, DEFAULT_WINDOW_MS, CountMessage


class AuditedProducer(Producer):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__({"enable.idempotence": True, **config})
        self._counter = WindowCounter(socket.gethostname(), uuid.uuid4().hex, DEFAULT_WINDOW_MS)

    def produce(self, topic: str, *args: Any, on_delivery: Any = None, **kwargs: Any) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._counter.add(topic, message.timestamp()[1])
            if on_delivery is not None:
                on_delivery(error, message)

        super().produce(topic, *args, on_delivery=delivered, **kwargs)

    def poll(self, timeout: float = -1) -> int:
        self._tell(self._counter.due(round(time.time() * 1000)))
        return int(super().poll(timeout))

    def flush(self, timeout: float = -1) -> int:
        unsent = super().flush(timeout)  # what is acknowledged now is counted
        self._tell(self._counter.rest())
        return int(unsent or super().flush(timeout))

    def _tell(self, counts: list[CountMessage]) -> None:
        for count in counts:
            super().produce(DEFAULT_AUDIT_TOPIC, count.encode(), count.producer)


def main(arguments: list[str]) -> None:
    bootstrap, topic = arguments
    producer = AuditedProducer({"bootstrap.servers": bootstrap})
    for line in sys.stdin:
        while True:
            try:
                producer.produce(topic, line.rstrip("\n"))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if unsent := producer.flush(30):
        sys.exit(f"{unsent} lines or counts stayed unacknowledged")


if __name__ == "__main__":
    main(sys.argv[1:])
