"""Clients that are a burden and no witnesses: a storm of connections, and one that reads a backlog slowly. What they
did is counted (`counts`), so that a file may promise that the burden was there."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kraft.chaos.experiments.document import Workload
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.workload.client import SETTINGS, Client
from kraft.chaos.real.workload.consumers import CONSUMER, POLL_S
from kraft.chaos.real.workload.recorder import Recorder
from kraft.protocol.messages import encode_request_frame
from kraft.protocol.schemas.api_versions import ApiVersionsRequest
from kraft.user_error import UserError

CONNECT_S: Final = 2.0
OPEN_MAX: Final = 500
"""Connections that a storm keeps open; then it closes the oldest."""
QUESTION: Final = encode_request_frame(ApiVersionsRequest(), 0, correlation_id=1, client_id="storm")
ANSWER_HEAD_BYTES: Final = 10
"""Length, correlation id and error code."""
BACKLOG_VALUE_BYTES: Final = 64 * 1024
BACKLOG_BYTES_A_S: Final = 2_000_000
"""A backlog that is written more slowly than this, all in all, is given up."""
BACKLOG_LEAST_S: Final = 60.0
IN_FLIGHT_MAX: Final = 500
READ_AT_ONCE: Final = 4


class ConnectionStorm(Client):
    """Opens `rate` connections a second, in turn to all brokers, asks on each what clients ask first, and closes the
    oldest when it has `clients`."""

    def __init__(self, name: str, brokers: Brokers, recorder: Recorder, spec: Workload) -> None:
        super().__init__(name, brokers, recorder)
        self._spec = spec
        self._answered = 0
        self._unanswered = 0
        """Refused, or closed without an answer, as a storm's are while a broker is down."""

    def counts(self) -> Mapping[str, int]:
        return {"connections": self._answered, "connections_unanswered": self._unanswered}

    def work(self) -> None:
        listeners, tls = self.brokers.addresses, self.brokers.tls
        kept: list[socket.socket] = []
        number, due_s = 0, time.monotonic()
        try:
            while not self.stopping.wait(max(0.0, due_s - time.monotonic())):
                due_s = max(due_s + 1.0 / self._spec.rate, time.monotonic() - 1.0)
                number += 1
                try:
                    host, port = listeners[number % len(listeners)]
                    connection = socket.create_connection((host, port), CONNECT_S)
                    if tls is not None:
                        connection = tls.wrap_socket(connection, server_hostname=host)
                    kept.append(connection)
                    connection.sendall(QUESTION)
                except OSError:
                    self._unanswered += 1
                    continue
                while len(kept) > min(self._spec.clients, OPEN_MAX):
                    self._close(kept.pop(0))
        finally:
            for connection in kept:
                self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        """Closes one, and looks whether it was answered."""
        answer = b""
        with contextlib.suppress(OSError), connection:
            connection.setblocking(False)
            answer = connection.recv(ANSWER_HEAD_BYTES)
        is_answered = len(answer) == ANSWER_HEAD_BYTES and not any(answer[-2:])
        self._answered += is_answered
        self._unanswered += not is_answered


class SlowConsumer(Client):
    """Writes a backlog before the workload begins (`prepare`), and reads it at `bandwidth`, from the start again when
    it has come to the end."""

    def __init__(self, name: str, brokers: Brokers, recorder: Recorder, spec: Workload, topic: str) -> None:
        super().__init__(name, brokers, recorder)
        self._spec = spec
        self._topic = topic
        self._written_bytes = 0
        self._read_bytes = 0

    def counts(self) -> Mapping[str, int]:
        return {"backlog_bytes": self._written_bytes, "backlog_read_bytes": self._read_bytes}

    def prepare(self) -> None:
        """Raises UserError if the backlog cannot be written."""
        producer = Producer({**SETTINGS, **self.brokers.settings, "enable.idempotence": True})
        value = b"x" * BACKLOG_VALUE_BYTES
        failures: list[str] = []
        records = max(1, self._spec.backlog_bytes // BACKLOG_VALUE_BYTES)
        until_s = time.monotonic() + max(BACKLOG_LEAST_S, self._spec.backlog_bytes / BACKLOG_BYTES_A_S)
        for _ in range(records):
            while len(producer) > IN_FLIGHT_MAX and not failures and time.monotonic() < until_s:
                producer.poll(0.1)
            if failures or time.monotonic() >= until_s:
                break
            producer.produce(
                self._topic,
                value=value,
                partition=0,
                on_delivery=lambda error, _: failures.append(error.str()) if error else None,
            )
            self._written_bytes += len(value)
        left = producer.flush(max(1.0, until_s - time.monotonic()))
        if left or failures or self._written_bytes < records * len(value):
            raise UserError(
                f"the backlog of {self._topic} could not be written: {next(iter(failures), 'it took too long')}"
            )

    def work(self) -> None:
        consumer = Consumer(
            {
                **SETTINGS,
                **CONSUMER,
                **self.brokers.settings,
                "group.id": f"unused-{self.name}",
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 1024,
                "enable.partition.eof": True,
            }
        )
        start = [TopicPartition(self._topic, 0, OFFSET_BEGINNING)]
        began_s = time.monotonic()
        try:
            consumer.assign(start)
            while not self.stopping.is_set():
                early_s = self._read_bytes / self._spec.bandwidth - (time.monotonic() - began_s)
                if early_s > 0:
                    self.stopping.wait(min(early_s, 1.0))
                    continue
                for message in consumer.consume(READ_AT_ONCE, POLL_S):
                    error = message.error()
                    if error is None:
                        self._read_bytes += len(message.value() or b"")
                    elif error.code() == KafkaError._PARTITION_EOF:
                        consumer.assign(start)
                    elif error.fatal():
                        raise KafkaException(error)
        finally:
            consumer.close()
