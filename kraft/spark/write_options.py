"""The options of `write` and `writeStream` of format("kraft"), as librdkafka's properties.

Names are those of Spark's own Kafka sink: `topic`, and Kafka's producer options behind `kafka.`. What would weaken the
promise (acknowledged by all in-sync replicas, nothing doubled or reordered by the producer's own retries, keys placed
as Java's producer places them) is refused with a sentence; what Kafka's Java client alone knows has no effect.
`writer.py` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kraft.spark.connection import BrokerAddress
from kraft.spark.errors import OptionError
from kraft.spark.options import DEFAULT_CLIENT_ID, parse_bootstrap
from kraft.spark.security import Security, parse_security

DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
"""Java's default."""
_MAX_REQUEST_SIZE = 1 << 20
"""Java's default of max.request.size; librdkafka's own is smaller."""
_QUEUE_KBYTES = 32 << 10
"""What a task holds back at most, so that a Python worker stays small."""
_IGNORED_BY_WRITES = frozenset(("checkpointlocation", "queryname", "path", "includeheaders"))
"""Spark's own, which it hands to sinks as well."""
_PASSED = MappingProxyType(
    {
        "batch.size": "batch.size",
        "client.rack": "client.rack",
        "compression.type": "compression.type",
        "connections.max.idle.ms": "connections.max.idle.ms",
        "linger.ms": "linger.ms",
        "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
        "max.request.size": "message.max.bytes",
        "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
        "receive.buffer.bytes": "socket.receive.buffer.bytes",
        "reconnect.backoff.ms": "reconnect.backoff.ms",
        "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
        "request.timeout.ms": "request.timeout.ms",
        "retries": "retries",
        "retry.backoff.ms": "retry.backoff.ms",
        "retry.backoff.max.ms": "retry.backoff.max.ms",
        "send.buffer.bytes": "socket.send.buffer.bytes",
    }
)
"""Kafka's options, and librdkafka's names for them."""
_ONLY = MappingProxyType({"acks": ("all", "-1"), "enable.idempotence": ("true",)})
_REFUSED = MappingProxyType(
    {
        "key.serializer": "keys are strings or bytes; cast the column",
        "value.serializer": "values are strings or bytes; cast the column",
        "interceptor.classes": "there is no Java producer to intercept",
        "partitioner.class": "keys are placed as by Java's default; a column `partition` places records otherwise",
        "transactional.id": "writes are at least once",
    }
)
_EXACTLY_ONCE = (
    "Option transactional cannot be true: there is no exactly-once sink, since a transaction that Spark has decided on"
    " can time out before it is committed. Writes are at least once. Write each row's topic, partition and offset as"
    " headers and drop duplicates of them where the topic is read, or write a table with `kraft ingest`."
)


@dataclass(frozen=True)
class WriteOptions:
    """Pickled to the executors."""

    bootstrap: tuple[BrokerAddress, ...]
    topic: str | None
    """For all records; None: each row names its own."""
    client_id: str
    delivery_timeout_ms: int
    properties: Mapping[str, str]
    """Of librdkafka, given by the user."""
    security: Security

    def producer_properties(self) -> dict[str, Any]:
        """All that the producer is made with."""
        return {
            "queue.buffering.max.kbytes": _QUEUE_KBYTES,
            "message.max.bytes": _MAX_REQUEST_SIZE,
            **self.properties,
            **self.security.producer_properties(),
            "bootstrap.servers": ",".join(map(str, self.bootstrap)),
            "client.id": self.client_id,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "delivery.timeout.ms": self.delivery_timeout_ms,
            "delivery.report.only.error": True,
        }


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Reads the options as Spark hands them over. Raises OptionError."""
    options = {name.lower(): value for name, value in given.items()}
    properties = {}
    for name, value in options.items():
        if not name.startswith("kafka."):
            if name == "transactional":
                _check_not_transactional(value)
            elif name != "topic" and name not in _IGNORED_BY_WRITES:
                raise OptionError(
                    f"Unknown option {name}. The options of a write are topic, kafka.bootstrap.servers and kafka.…"
                    " for Kafka's producer options."
                )
            continue
        option = name.removeprefix("kafka.")
        if option in _REFUSED:
            raise OptionError(f"Option {name} is not supported: {_REFUSED[option]}.")
        if option in _ONLY and value.strip().lower() not in _ONLY[option]:
            raise OptionError(f"Option {name} can only be {_ONLY[option][0]}, not {value!r}.")
        if option in _PASSED:
            properties[_PASSED[option]] = value.strip()
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("Option topic is empty: name a topic, or leave it out and give a column topic.")
    return WriteOptions(
        bootstrap=parse_bootstrap(options.get("kafka.bootstrap.servers", "")),
        topic=None if topic is None else topic.strip(),
        client_id=options.get("kafka.client.id") or DEFAULT_CLIENT_ID,
        delivery_timeout_ms=_timeout_ms(options.get("kafka.delivery.timeout.ms")),
        properties=properties,
        security=parse_security(options),
    )


def _check_not_transactional(value: str) -> None:
    if value.strip().lower() == "true":
        raise OptionError(_EXACTLY_ONCE)
    if value.strip().lower() != "false":
        raise OptionError(f"Option transactional can only be false, not {value!r}.")


def _timeout_ms(text: str | None) -> int:
    if text is None:
        return DEFAULT_DELIVERY_TIMEOUT_MS
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) < 2**31:
        raise OptionError(f"kafka.delivery.timeout.ms must be a time in ms above 0, not {text!r}.")
    return int(digits)
