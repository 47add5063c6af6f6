"""A program with transactions, in Python: `CLIENT commands SETTINGS` or `CLIENT process SETTINGS`, settings as JSON.

`commands` takes one a line from standard input and answers each with a line, `done` or `failed NAME`:

    init                         the transactional id is this program's from now on
    begin
    send TOPIC PARTITION VALUE   answered when it is acknowledged
    commit
    abort

`process` is an exactly-once processor until SIGTERM: it sends each value of one topic to the same partition of another,
in transactions that commit its group's offsets too, and tells `committed N` for each. It ends with status 3 where its
client says that it cannot go on; whoever runs it starts it again.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

TIMEOUT_S = 30.0
POLL_S = 0.2
RECORDS = 50
"""Of a transaction at most."""
CANNOT_GO_ON = 3


def tell(*words: object) -> None:
    print(*words, flush=True)


def words(line: str) -> list[str]:
    return line.rstrip("\n").split(" ", 3)


class Over:
    """Whether SIGTERM came."""

    def __init__(self) -> None:
        self.is_over = False

    def end(self, *_: object) -> None:
        self.is_over = True


# -- confluent-kafka


def confluent_producer(settings: dict[str, Any]) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": settings["bootstrap"],
            "transactional.id": settings["transactional_id"],
            "transaction.timeout.ms": settings["transaction_timeout_ms"],
            "linger.ms": 1,
            "log_level": 0,
        }
    )


def confluent_commands(settings: dict[str, Any]) -> None:
    from confluent_kafka import KafkaException

    producer = confluent_producer(settings)

    def send(topic: str, partition: str, value: str) -> None:
        errors: list[Any] = []
        producer.produce(
            topic, value.encode(), partition=int(partition), on_delivery=lambda error, _: errors.append(error)
        )
        while not errors:
            producer.poll(POLL_S)
        if errors[0] is not None:
            raise KafkaException(errors[0])

    actions: dict[str, Callable[..., Any]] = {
        "init": lambda: producer.init_transactions(TIMEOUT_S),
        "begin": producer.begin_transaction,
        "send": send,
        "commit": lambda: producer.commit_transaction(TIMEOUT_S),
        "abort": lambda: producer.abort_transaction(TIMEOUT_S),
    }
    for line in sys.stdin:
        command, *arguments = words(line)
        try:
            actions[command](*arguments)
        except KafkaException as error:
            tell("failed", error.args[0].name())
        else:
            tell("done")


def confluent_process(settings: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException

    over = Over()
    signal.signal(signal.SIGTERM, over.end)
    consumer = Consumer(
        {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": settings["session_timeout_ms"],
            "log_level": 0,
        }
    )
    producer = confluent_producer(settings)
    try:
        producer.init_transactions(TIMEOUT_S)
        consumer.subscribe([settings["input"]])
        while not over.is_over:
            messages = [one for one in consumer.consume(RECORDS, POLL_S) if one.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(settings["output"], message.value(), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            tell("committed", len(messages))
    except KafkaException as error:
        print(error, file=sys.stderr)
        sys.exit(CANNOT_GO_ON)
    finally:
        consumer.close()


# -- aiokafka


def aio_producer(settings: dict[str, Any]) -> Any:
    from aiokafka import AIOKafkaProducer

    return AIOKafkaProducer(
        bootstrap_servers=settings["bootstrap"].split(","),
        transactional_id=settings["transactional_id"],
        transaction_timeout_ms=settings["transaction_timeout_ms"],
    )


async def aio_commands(settings: dict[str, Any]) -> None:
    from aiokafka.errors import KafkaError

    producer = aio_producer(settings)

    async def send(topic: str, partition: str, value: str) -> None:
        await producer.send_and_wait(topic, value.encode(), partition=int(partition))

    actions: dict[str, Callable[..., Awaitable[Any]]] = {
        "init": producer.start,
        "begin": producer.begin_transaction,
        "send": send,
        "commit": producer.commit_transaction,
        "abort": producer.abort_transaction,
    }
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *arguments = words(line)
        try:
            await actions[command](*arguments)
        except KafkaError as error:
            tell("failed", type(error).__name__)
        else:
            tell("done")
    await producer.stop()


async def aio_process(settings: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    over = Over()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.end)
    consumer = AIOKafkaConsumer(
        settings["input"],
        bootstrap_servers=settings["bootstrap"].split(","),
        group_id=settings["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=settings["session_timeout_ms"],
        heartbeat_interval_ms=settings["session_timeout_ms"] // 10,
    )
    producer = aio_producer(settings)
    try:
        await producer.start()
        await consumer.start()
        while not over.is_over:
            batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=RECORDS)
            if not batches:
                continue
            async with producer.transaction():
                for place, records in batches.items():
                    for record in records:
                        await producer.send(settings["output"], record.value, partition=place.partition)
                offsets = {place: records[-1].offset + 1 for place, records in batches.items()}
                await producer.send_offsets_to_transaction(offsets, settings["group"])
            tell("committed", sum(map(len, batches.values())))
    except KafkaError as error:
        print(repr(error), file=sys.stderr)
        sys.exit(CANNOT_GO_ON)
    finally:
        await consumer.stop()


def main(client: str, mode: str, given: str) -> None:
    settings = json.loads(given)
    match client, mode:
        case "confluent", "commands":
            confluent_commands(settings)
        case "confluent", "process":
            confluent_process(settings)
        case "aiokafka", "commands":
            asyncio.run(aio_commands(settings))
        case "aiokafka", "process":
            asyncio.run(aio_process(settings))
        case _:
            sys.exit(f"there is no {mode} of {client}")


if __name__ == "__main__":
    main(*sys.argv[1:])
