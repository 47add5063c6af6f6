"""At most once: the offset is committed before the record is worked on, so a crash in between loses it.

Right for what is worth nothing later, such as a gauge that is shown now. Usage:
    at_most_once.py BOOTSTRAP TOPIC GROUP FILE    appends each value to FILE, one a line
"""

import sys

from confluent_kafka import Consumer

bootstrap, topic, group, file = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        # The same member when it starts again: it need not wait until its dead self is given up.
        "group.instance.id": f"{group}-1",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
consumer.subscribe([topic])
with open(file, "a", buffering=1) as out:
    while True:
        messages = [one for one in consumer.consume(100, 1.0) if not one.error()]
        if not messages:
            continue
        # First the offsets, and only once they are stored the work. A commit that fails raises: what it was to cover
        # is read again, and nothing of it has been worked on.
        consumer.commit(asynchronous=False)
        for message in messages:
            out.write(message.value().decode() + "\n")
