"""At least once: the work is done and durable before the offset is committed, so a crash in between does it again.

Right where doing it twice is as good as once: writing a row under its key, say. Usage:
    at_least_once.py BOOTSTRAP TOPIC GROUP FILE    appends each value to FILE, one a line
"""

import os
import sys

from confluent_kafka import Consumer, KafkaException

bootstrap, topic, group, file = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.instance.id": f"{group}-1",  # the same member when it starts again
        "auto.offset.reset": "earliest",
        # Off: the client would commit what it has handed out, whether it was worked on or not.
        "enable.auto.commit": False,
    }
)
consumer.subscribe([topic])
with open(file, "a") as out:
    while True:
        messages = [one for one in consumer.consume(100, 1.0) if not one.error()]
        if not messages:
            continue
        for message in messages:
            out.write(message.value().decode() + "\n")
        out.flush()
        os.fsync(out.fileno())  # durable, and only then:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            # The work is done: a commit that fails costs a repetition at most, and the next one covers it too.
            print(f"not committed: {error}", file=sys.stderr)
