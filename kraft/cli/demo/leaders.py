"""Watches who leads the demo topic's partitions, and how long each has no leader after the kill."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

METADATA_TIMEOUT_S = 1.0
POLL_S = 0.02


class LeaderWatch:
    """Asks for metadata in a thread of its own once `killed` was called, until every partition is led again."""

    def __init__(self, client: Mapping[str, str], topic: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin: Any = AdminClient({**client, "log_level": 0}, logger=None)
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.leaderless_ms = [0] * partitions

    def leaders(self) -> dict[int, int]:
        """Leader by partition, as the brokers say now; -1 for none, {} when nobody answers."""
        from confluent_kafka import KafkaException

        try:
            topic = self._admin.list_topics(self._topic, METADATA_TIMEOUT_S).topics[self._topic]
        except KafkaException:
            return {}
        return {partition: info.leader for partition, info in sorted(topic.partitions.items())}

    def busiest(self) -> int:
        """The broker that leads most partitions; the lowest id among equals."""
        counts = Counter(leader for leader in self.leaders().values() if leader >= 0)
        return min(counts, key=lambda broker: (-counts[broker], broker))

    def killed(self, broker: int, led: dict[int, int], at: float) -> None:
        """Starts the watch: `broker` died at monotonic time `at` while `led` was who led what."""
        pending = {partition for partition, leader in led.items() if leader == broker}
        self._thread = threading.Thread(target=self._watch, args=(broker, pending, at), name="leader-watch")
        self._thread.start()

    def _watch(self, broker: int, pending: set[int], at: float) -> None:
        while pending and not self._stop.is_set():
            leaders = self.leaders()
            elapsed_ms = round((time.monotonic() - at) * 1000)
            for partition in sorted(pending):
                self.leaderless_ms[partition] = elapsed_ms
                if leaders.get(partition, -1) not in (-1, broker):
                    pending.discard(partition)
            self._stop.wait(POLL_S)

    def close(self) -> None:
        """Ends the watch."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
