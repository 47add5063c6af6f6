"""Exactly once into a database: each result and the offset behind its record are one transaction of the database.

The group's offsets are not used: the database says where to go on. Usage:
    exactly_once_sqlite.py BOOTSTRAP TOPIC GROUP DATABASE    a row of `results` for each record
"""

import sqlite3
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

bootstrap, topic, group, file = sys.argv[1:]
database = sqlite3.connect(file, isolation_level=None)
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE IF NOT EXISTS results (value TEXT)")
database.execute(
    "CREATE TABLE IF NOT EXISTS offsets (topic TEXT, number INTEGER, next INTEGER, PRIMARY KEY (topic, number))"
)
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.instance.id": f"{group}-1",  # the same member when it starts again
        "enable.auto.commit": False,
        "auto.offset.reset": "error",  # what the database asks for and the log has not is a matter for people
    }
)


def stored(place: TopicPartition) -> int:
    """Where the database says to go on."""
    where = "SELECT next FROM offsets WHERE topic = ? AND number = ?"
    row = database.execute(where, (place.topic, place.partition)).fetchone()
    return OFFSET_BEGINNING if row is None else row[0]


def assign(consumer: Consumer, places: list[TopicPartition]) -> None:
    consumer.assign([TopicPartition(place.topic, place.partition, stored(place)) for place in places])


def store(message: object) -> None:
    """The result and its offset. A record that another process stored meanwhile is not stored again."""
    place = TopicPartition(message.topic(), message.partition())
    if message.offset() < stored(place):
        return
    database.execute("INSERT INTO results VALUES (?)", (message.value().decode(),))
    database.execute(
        "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)",
        (message.topic(), message.partition(), message.offset() + 1),
    )


consumer.subscribe([topic], on_assign=assign)
while True:
    messages = [one for one in consumer.consume(100, 1.0) if not one.error()]
    if not messages:
        continue
    database.execute("BEGIN IMMEDIATE")  # from here on nobody else writes
    for message in messages:
        store(message)
    database.execute("COMMIT")
