"""The programs of examples/delivery keep what they promise, though they and a broker are killed with SIGKILL."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Producer, TopicPartition

from tests.support.node_processes import NodeProcesses, until
from tests.support.real_clients import DEADLINE_S, confluent_consumer

RECIPES = Path(__file__).parents[2] / "examples" / "delivery"
RECORDS = 3_000
PARTITIONS = 2
BATCH_MAX = 100
"""What the programs read at a time."""
FIRST = RECORDS // 2
"""Values that are there before the program starts."""
LINES = 200_000
STARTS_MAX = 12
INPUT = [f"v{number}" for number in range(RECORDS)]


def send(cluster: NodeProcesses, topic: str, values: Sequence[str]) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "enable.idempotence": True}
    producer = Producer(settings)
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


class Recipe:
    """A program that is started, killed and started again; it is started too where it has given up by itself."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self._line = [sys.executable, str(RECIPES / name), *arguments]
        self._log = directory / "recipe.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        assert self.starts <= STARTS_MAX, self._log.read_text()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._line, stderr=log)

    @property
    def has_ended(self) -> bool:
        """With nothing left to do."""
        assert self._process is not None
        code = self._process.poll()
        if code:
            self.start()
        return code == 0

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running(recipe: Recipe) -> Iterator[None]:
    """Killed at the end."""
    recipe.start()
    try:
        yield
    finally:
        recipe.kill()


def values_in(file: Path) -> list[str]:
    """Whole lines."""
    return file.read_text().split("\n")[:-1] if file.exists() else []


def committed_values(cluster: NodeProcesses, topic: str) -> list[str]:
    """What a reader of committed records gets from all of the topic's partitions."""
    consumer = confluent_consumer(
        cluster.bootstrap, **{"isolation.level": "read_committed", "enable.partition.eof": True}
    )
    numbers = list(cluster.partitions(topic))
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
    values: list[str] = []
    left = set(numbers)
    while left:
        for message in consumer.consume(1_000, 0.2):
            if message.error() is None:
                values.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    consumer.close()
    return values


def through_kills(
    cluster: NodeProcesses,
    recipe: Recipe,
    topic: str,
    count: Callable[[], int],
    is_done: Callable[[], bool],
    more: Sequence[str] = (),
) -> None:
    """Runs the program until it is done: it is killed in the midst of its work and started again, and when it goes on
    a leader is killed. Half of `more` is sent when it starts again, since the kill may have taken along all that there
    was, the rest with the leader's end."""
    half = len(more) // 2
    with running(recipe):
        until(lambda: count() > 0, "it works")
    before = count()
    with running(recipe):
        send(cluster, topic, more[:half])
        until(lambda: recipe.has_ended or count() > before or count() == FIRST, "it goes on")
        victim = cluster.leader(topic)
        cluster.local.kill(victim)
        send(cluster, topic, more[half:])
        until(lambda: recipe.has_ended or is_done(), "all is done")
        cluster.local.start_node(victim)
    cluster.restore()


@pytest.fixture
def source(fragile_cluster: NodeProcesses) -> str:
    """A topic with the first half of the input."""
    topic = fragile_cluster.create_topic("recipe-input", PARTITIONS, min_insync_replicas="2")
    send(fragile_cluster, topic, INPUT[:FIRST])
    return topic


def test_at_most_once(fragile_cluster: NodeProcesses, source: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    recipe = Recipe(tmp_path, "at_most_once.py", fragile_cluster.bootstrap, source, "most", str(out))

    def is_done() -> bool:
        return set(INPUT[-PARTITIONS:]) <= set(values_in(out))

    through_kills(fragile_cluster, recipe, source, lambda: len(values_in(out)), is_done, INPUT[FIRST:])
    found = Counter(values_in(out))
    assert found.keys() <= set(INPUT)
    assert max(found.values()) == 1, "nothing twice"
    assert RECORDS - len(found) <= BATCH_MAX * recipe.starts, "each end loses what was read, and no more"


def test_at_least_once(fragile_cluster: NodeProcesses, source: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    recipe = Recipe(tmp_path, "at_least_once.py", fragile_cluster.bootstrap, source, "least", str(out))

    def is_done() -> bool:
        return set(values_in(out)) == set(INPUT)

    through_kills(fragile_cluster, recipe, source, lambda: len(values_in(out)), is_done, INPUT[FIRST:])


def test_exactly_once_from_topic_to_topic(
    fragile_cluster: NodeProcesses, source: str, tmp_path: Path
) -> None:
    output = fragile_cluster.create_topic("recipe-output", PARTITIONS, min_insync_replicas="2")
    recipe = Recipe(tmp_path, "exactly_once.py", fragile_cluster.bootstrap, source, output, "exactly")

    def values() -> list[str]:
        return committed_values(fragile_cluster, output)

    def is_done() -> bool:
        return len(set(values())) == RECORDS

    through_kills(fragile_cluster, recipe, source, lambda: len(values()), is_done, INPUT[FIRST:])
    assert Counter(values()) == Counter(value.upper() for value in INPUT), "the input, once"


def test_exactly_once_into_a_database(fragile_cluster: NodeProcesses, source: str, tmp_path: Path) -> None:
    file = tmp_path / "results.db"
    recipe = Recipe(
        tmp_path, "exactly_once_sqlite.py", fragile_cluster.bootstrap, source, "database", str(file)
    )

    def values() -> list[str]:
        with contextlib.closing(sqlite3.connect(file)) as database:
            try:
                return [value for (value,) in database.execute("SELECT value FROM results")]
            except sqlite3.OperationalError:  # the program has not made it yet
                return []

    def is_done() -> bool:
        return len(set(values())) == RECORDS

    through_kills(fragile_cluster, recipe, source, lambda: len(values()), is_done, INPUT[FIRST:])
    assert Counter(values()) == Counter(INPUT)


def test_order_with_five_requests_in_flight(fragile_cluster: NodeProcesses, tmp_path: Path) -> None:
    topic = fragile_cluster.create_topic("recipe-order", min_insync_replicas="2")
    lines = [str(number) for number in range(LINES)]
    file = tmp_path / "lines"
    file.write_text("".join(f"{line}\n" for line in lines))
    recipe = Recipe(tmp_path, "ordered.py", fragile_cluster.bootstrap, topic, str(file))

    def stored() -> int:
        return sum(batch.record_count for batch in fragile_cluster.stored_batches(topic, 0))

    through_kills(fragile_cluster, recipe, topic, stored, lambda: False)
    assert committed_values(fragile_cluster, topic) == lines, "each once, in order"
