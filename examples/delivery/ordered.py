"""Order kept under retries, five requests in flight: the idempotent producer numbers its records, and the broker takes
them in that order, each once, however often they are sent.

Started again after a crash it goes on behind the last line that is stored. A request that was under way at the crash
and arrives after that look would be doubled: where that matters, use a transaction. Usage:
    ordered.py BOOTSTRAP TOPIC FILE    sends the lines of FILE to partition 0
"""

import sys
import time
from itertools import islice

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S = 30.0
bootstrap, topic, file = sys.argv[1:]


def lines_stored() -> int:
    """By the header of the last record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    while True:
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
            break
        except KafkaException as error:  # while the partition has no leader, say
            print(f"asking again: {error}", file=sys.stderr)
            time.sleep(0.5)
    if end == 0:
        return 0
    consumer.assign([TopicPartition(topic, 0, end - 1)])
    message = consumer.poll(TIMEOUT_S)
    if message is None or message.error():
        sys.exit(f"the last record cannot be read: {message and message.error()}")
    consumer.close()
    return int(dict(message.headers())["line"])


def on_delivery(error: object, message: object) -> None:
    if error is not None:  # it was tried for delivery.timeout.ms; what comes after it must not be sent
        sys.exit(f"gave up: {error}")


producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,  # acks=all, no gaps and no doubles by retries
        "max.in.flight.requests.per.connection": 5,  # the most that keeps the order
        "linger.ms": 1,
    }
)
done = lines_stored()
with open(file) as lines:
    for number, line in enumerate(islice(lines, done, None), done + 1):
        while True:
            try:
                producer.produce(
                    topic,
                    line.rstrip("\n"),
                    partition=0,
                    headers={"line": str(number)},
                    on_delivery=on_delivery,
                )
                break
            except BufferError:  # the queue is full: deliveries make room
                producer.poll(0.1)
        producer.poll(0)
producer.flush()
