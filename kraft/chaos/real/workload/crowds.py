"""Clients that are a burden and no witnesses: a storm of connections, and one that reads a backlog slowly."""

from __future__ import annotations

import socket
import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kraft.chaos.experiments.document import Workload
from kraft.chaos.real.workload.client import END_S, SETTINGS, Client
from kraft.chaos.real.workload.consumers import CONSUMER, POLL_RECORDS_MAX, POLL_S
from kraft.chaos.real.workload.recorder import Recorder

CONNECT_S: Final = 2.0
OPEN_MAX: Final = 500
"""Connections that a storm keeps open; then it closes the oldest."""
BACKLOG_VALUE_BYTES: Final = 64 * 1024


class ConnectionStorm(Client):
    """Opens `rate` connections a second, in turn to all brokers, and closes the oldest when it has `clients`."""

    def __init__(self, name: str, bootstrap: str, recorder: Recorder, spec: Workload) -> None:
        super().__init__(name, bootstrap, recorder)
        self._spec = spec
        self.opened = 0
        self.refused = 0

    def work(self) -> None:
        ports = [int(address.rpartition(":")[2]) for address in self.bootstrap.split(",")]
        kept: list[socket.socket] = []
        due_s = time.monotonic()
        try:
            while not self.stopping.wait(max(0.0, due_s - time.monotonic())):
                due_s = max(due_s + 1.0 / self._spec.rate, time.monotonic() - 1.0)
                try:
                    port = ports[(self.opened + self.refused) % len(ports)]
                    kept.append(socket.create_connection(("127.0.0.1", port), CONNECT_S))
                    self.opened += 1
                except OSError:
                    self.refused += 1  # as a storm's are, while a broker is down
                while len(kept) > min(self._spec.clients, OPEN_MAX):
                    kept.pop(0).close()
        finally:
            for connection in kept:
                connection.close()


class SlowConsumer(Client):
    """Writes a backlog before the workload begins (`prepare`), and reads it at `bandwidth`, from the start again when
    it has come to the end."""

    def __init__(self, name: str, bootstrap: str, recorder: Recorder, spec: Workload, topic: str) -> None:
        super().__init__(name, bootstrap, recorder)
        self._spec = spec
        self._topic = topic
        self.read_bytes = 0

    def prepare(self) -> None:
        """Raises RuntimeError if the backlog cannot be written."""
        producer = Producer({**SETTINGS, "bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        value, failures = b"x" * BACKLOG_VALUE_BYTES, []
        for _ in range(max(1, self._spec.backlog_bytes // BACKLOG_VALUE_BYTES)):
            while len(producer) > 500:
                producer.poll(0.1)
            producer.produce(
                self._topic,
                value=value,
                partition=0,
                on_delivery=lambda error, _: failures.append(error.str()) if error else None,
            )
        if producer.flush(END_S) or failures:
            raise RuntimeError(f"the backlog of {self._topic} could not be written: {failures[:1]}")

    def work(self) -> None:
        consumer = Consumer(
            {
                **SETTINGS,
                **CONSUMER,
                "bootstrap.servers": self.bootstrap,
                "group.id": f"unused-{self.name}",
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 1024,
            }
        )
        began_s = time.monotonic()
        try:
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            while not self.stopping.is_set():
                early_s = self.read_bytes / self._spec.bandwidth - (time.monotonic() - began_s)
                if early_s > 0:
                    self.stopping.wait(min(early_s, 1.0))
                    continue
                for message in consumer.consume(min(POLL_RECORDS_MAX, 4), POLL_S):
                    if message.error() is None:
                        self.read_bytes += len(message.value() or b"")
        finally:
            consumer.close()
