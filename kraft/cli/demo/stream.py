"""The demo's producer: an unmodified librdkafka client, idempotent, acks=all, paced.

It keeps what became of each item, by its key, so that the audit can compare identities.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kraft.cli.demo.sources import Item

FLUSH_TIMEOUT_S = 120.0
POLL_S = 0.05
PACE_STEP_S = 0.02


def digest(value: bytes) -> int:
    """What the audit remembers of a value: its CRC-32 and length in one number."""
    return zlib.crc32(value) << 32 | len(value)


@dataclass
class Ledger:
    """What was sent and acknowledged, by partition and key."""

    partitions: int
    sent: list[dict[bytes, int]] = field(init=False)
    acknowledged: list[set[bytes]] = field(init=False)
    acknowledged_after_kill: int = 0
    first_error: str | None = None
    killed: bool = False

    def __post_init__(self) -> None:
        self.sent = [{} for _ in range(self.partitions)]
        self.acknowledged = [set() for _ in range(self.partitions)]

    @property
    def sent_total(self) -> int:
        return sum(map(len, self.sent))

    @property
    def acknowledged_total(self) -> int:
        return sum(map(len, self.acknowledged))


class PacedStream:
    """Sends items at an even pace; calls `on_progress(sent, acknowledged)` now and then."""

    def __init__(self, client: Mapping[str, str], topic: str, ledger: Ledger) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._ledger = ledger
        self._producer: Any = Producer(
            {
                **client,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(FLUSH_TIMEOUT_S * 1000),
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            },
            logger=None,
        )

    def run(self, items: Iterable[Item], rate_per_s: float | None, on_sent: Callable[[int], None]) -> None:
        """Sends all items, at most `rate_per_s` of them a second, then waits for every acknowledgement."""
        started = time.monotonic()
        for number, item in enumerate(items, start=1):
            self._send(item)
            on_sent(number)
            if rate_per_s is not None:
                ahead_s = number / rate_per_s - (time.monotonic() - started)
                if ahead_s > PACE_STEP_S:
                    self._producer.poll(ahead_s)
            self._producer.poll(0)
        self._producer.flush(FLUSH_TIMEOUT_S)

    def _send(self, item: Item) -> None:
        partition = zlib.crc32(item.key) % self._ledger.partitions
        self._ledger.sent[partition][item.key] = digest(item.value)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=item.value,
                    key=item.key,
                    partition=partition,
                    on_delivery=self._delivered,
                )
            except BufferError:  # the client's queue is full: let deliveries make room
                self._producer.poll(POLL_S)
                continue
            return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._ledger.first_error = self._ledger.first_error or error.str()
            return
        self._ledger.acknowledged[message.partition()].add(message.key())
        if self._ledger.killed:
            self._ledger.acknowledged_after_kill += 1
