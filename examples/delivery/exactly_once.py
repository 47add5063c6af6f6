"""Exactly once from topic to topic: the results and the offsets of what they were made of are one transaction.

Readers of the output need isolation.level=read_committed. Usage:
    exactly_once.py BOOTSTRAP INPUT OUTPUT GROUP    sends each value in upper case
"""

import sys
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S = 30.0
bootstrap, source, output, group = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.instance.id": f"{group}-1",  # the same member when it starts again
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # offsets are part of the transaction
        "isolation.level": "read_committed",
    }
)
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        # One for each process that runs at the same time, and the same when it starts again.
        "transactional.id": f"{group}-1",
    }
)


def retried(call: Callable[[], None]) -> None:
    """A call that may be made again is: an answer was late, and the client goes on where it was."""
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def process() -> None:
    """One transaction."""
    # Before the records are read: if the group moves on meanwhile, the commit is refused, and not that of the
    # member that has the partitions by then.
    member = consumer.consumer_group_metadata()
    messages = [one for one in consumer.consume(500, 1.0) if not one.error()]
    if not messages:
        return
    producer.begin_transaction()
    behind = {}
    for message in messages:
        producer.produce(output, key=message.key(), value=message.value().upper())
        producer.poll(0)
        behind[message.topic(), message.partition()] = message.offset() + 1
    offsets = [TopicPartition(*place, offset) for place, offset in behind.items()]
    retried(lambda: producer.send_offsets_to_transaction(offsets, member, TIMEOUT_S))
    retried(lambda: producer.commit_transaction(TIMEOUT_S))


def rewind() -> None:
    """Back to what is committed: the records of a transaction that was aborted are read again."""
    for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
        place.offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(place)


# Fences an older self that still runs, and aborts what it left open.
retried(lambda: producer.init_transactions(TIMEOUT_S))
consumer.subscribe([source])
while True:
    try:
        process()
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise  # fenced, or worse: whoever started this process starts it again
        retried(lambda: producer.abort_transaction(TIMEOUT_S))
        rewind()
