"""A member of a group that tells what befalls it, a line each, until SIGTERM: `CLIENT TOPIC SETTINGS-AS-JSON`.

    rebalanced           an assignment has come
    owns 0,2             its partitions of the topic, whenever they changed
    read 2 17 text       a record's partition, offset and value
    left                 it has closed its consumer

Every client library has its own settings, commits by itself, and is used as its documentation shows.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import sys
from collections.abc import Iterable
from typing import Any

POLL_S = 0.1


class Told:
    """What was told, and whether to end."""

    def __init__(self) -> None:
        self.is_over = False
        self._owned: list[int] = []

    def end(self, *_: object) -> None:
        self.is_over = True

    def rebalanced(self, *_: object) -> None:
        print("rebalanced", flush=True)

    def owns(self, partitions: Iterable[int]) -> None:
        owned = sorted(partitions)
        if owned != self._owned:
            self._owned = owned
            print("owns", ",".join(map(str, owned)), flush=True)

    def read(self, partition: int, offset: int, value: bytes) -> None:
        print("read", partition, offset, value.decode(), flush=True)


def assignor(package: str, settings: dict[str, Any]) -> Any:
    """The class that a setting, taken out, names by module and name; both libraries have the same ones."""
    module, name = settings.pop("assignor").split(":")
    return getattr(importlib.import_module(f"{package}.coordinator.assignors.{module}"), name)


def confluent(topic: str, settings: dict[str, Any], told: Told) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    signal.signal(signal.SIGTERM, told.end)
    consumer = Consumer(settings)
    consumer.subscribe([topic], on_assign=told.rebalanced)
    while not told.is_over:
        message = consumer.poll(POLL_S)
        told.owns(one.partition for one in consumer.assignment())
        if message is None:
            continue
        if (error := message.error()) is None:
            told.read(message.partition(), message.offset(), message.value())
        elif error.fatal() or error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            raise KafkaException(error)
    consumer.close()


def kafka_python(topic: str, settings: dict[str, Any], told: Told) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            pass

        def on_partitions_assigned(self, assigned: object) -> None:
            told.rebalanced()

    signal.signal(signal.SIGTERM, told.end)
    consumer = KafkaConsumer(partition_assignment_strategy=[assignor("kafka", settings)], **settings)
    consumer.subscribe([topic], listener=Listener())
    while not told.is_over:
        batches = consumer.poll(timeout_ms=int(POLL_S * 1000))
        told.owns(one.partition for one in consumer.assignment())
        for records in batches.values():
            for record in records:
                told.read(record.partition, record.offset, record.value)
    consumer.close()


async def aio_kafka(topic: str, settings: dict[str, Any], told: Told) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            pass

        def on_partitions_assigned(self, assigned: object) -> None:
            told.rebalanced()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.end)
    consumer = AIOKafkaConsumer(partition_assignment_strategy=[assignor("aiokafka", settings)], **settings)
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not told.is_over:
        batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        told.owns(one.partition for one in consumer.assignment())
        for records in batches.values():
            for record in records:
                told.read(record.partition, record.offset, record.value)
    await consumer.stop()


def main(client: str, topic: str, settings: str) -> None:
    told = Told()
    match client:
        case "confluent":
            confluent(topic, json.loads(settings), told)
        case "kafka_python":
            kafka_python(topic, json.loads(settings), told)
        case "aio_kafka":
            asyncio.run(aio_kafka(topic, json.loads(settings), told))
        case _:
            sys.exit(f"no client is called {client}")
    print("left", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
