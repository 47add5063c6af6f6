"""`kraft ingest` killed again and again while producers go on: each acknowledged record is in the table once.

Of the driver, the JVM and the Python worker one is killed in each round, at a random moment or at a step of a commit;
in two rounds a broker dies as well. INGEST_KILL_ROUNDS (2) and INGEST_KILL_RECORDS (20,000) make it longer.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")

from confluent_kafka import KafkaError, Message, Producer
from deltalake import DeltaTable

from kraft.ingest.model import Format
from tests.support.ingest_process import AFTER, BEFORE, DURING, IngestProcess, kraft
from tests.support.node_processes import NodeProcesses

ROUNDS = int(os.environ.get("INGEST_KILL_ROUNDS", "2"))
RECORDS = int(os.environ.get("INGEST_KILL_RECORDS", "20000"))
PARTITIONS = 3
STEADY_RECORDS, STEADY_S = 100, 0.1
"""So many records come in such intervals, beside the rounds' own."""
MAX_DELAY_S = 3.0
DELIVERED_S = 120.0

Kill = Callable[[IngestProcess], str]
"""Says what was killed."""


def at_step(step: str) -> Kill:
    return lambda run: f"the driver {step} a commit, in fact {run.kill_at(step)}"


def killed(what: str, kill: Callable[[IngestProcess], None]) -> Kill:
    def done(run: IngestProcess) -> str:
        kill(run)
        if what == "worker":
            run.wait_commits(run.commits() + 1)  # the driver goes on without it
        return what

    return done


KILLS: tuple[tuple[Format, Kill], ...] = (
    ("delta", at_step(DURING)),
    ("parquet", at_step(DURING)),
    ("delta", killed("worker", IngestProcess.kill_worker)),
    ("parquet", killed("JVM", IngestProcess.kill_jvm)),
    ("delta", at_step(BEFORE)),
    ("parquet", at_step(BEFORE)),
    ("delta", killed("JVM", IngestProcess.kill_jvm)),
    ("parquet", killed("worker", IngestProcess.kill_worker)),
    ("delta", at_step(AFTER)),
    ("parquet", at_step(AFTER)),
    ("delta", killed("driver", IngestProcess.kill_driver)),
    ("parquet", killed("driver", IngestProcess.kill_driver)),
)
"""In turn."""
BROKER_DIES_IN = (1, 8)
"""These rounds."""


class Producers:
    """Sends records all the time and keeps what was acknowledged: partition → offset → the record's number."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[int, dict[int, int]] = {number: {} for number in range(PARTITIONS)}
        self.failures: list[KafkaError] = []
        self._topic = topic
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": int(DELIVERED_S * 1000),
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def send(self, count: int) -> None:
        with self._lock:
            for number in itertools.islice(self._numbers, count):
                key, value = record(number)
                self._producer.produce(
                    self._topic, value, key, partition=number % PARTITIONS, on_delivery=self._heard_of(number)
                )
            self._producer.poll(0)

    def check(self) -> None:
        """It goes on: without news a run has nothing to commit."""
        assert self._thread.is_alive()
        assert not self.failures

    def finish(self) -> None:
        """Returns when all that was sent is acknowledged."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(DELIVERED_S) == 0
        assert not self.failures

    def _go_on(self) -> None:
        while not self._stopped.wait(STEADY_S):
            self.send(STEADY_RECORDS)

    def _heard_of(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def heard(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged[message.partition()][message.offset()] = number  # type: ignore[index]

        return heard


def record(number: int) -> tuple[bytes, bytes]:
    """Key and value of the record of a number."""
    return b"key-%d" % (number % 1000), b"%d:" % number + b"x" * (number % 97)


@pytest.fixture
def producers(fragile_cluster: NodeProcesses) -> Iterator[tuple[str, Producers]]:
    topic = fragile_cluster.create_topic("ingest-kills", partitions=PARTITIONS, min_insync_replicas="2")
    made = Producers(fragile_cluster.bootstrap, topic)
    try:
        yield topic, made
    finally:
        made._stopped.set()


@pytest.mark.timeout(
    900 + 120 * ROUNDS
)  # each starts a JVM, and so do the last runs; idle hosts need a tenth
def test_every_acknowledged_record_is_in_the_table_once(
    fragile_cluster: NodeProcesses, producers: tuple[str, Producers], tmp_path: Path
) -> None:
    topic, sending = producers
    chance = random.Random(28)
    for number, (table_format, kill) in zip(range(ROUNDS), itertools.cycle(KILLS), strict=False):
        sending.send(RECORDS // ROUNDS)
        sending.check()
        run = started(topic, tmp_path, table_format, fragile_cluster, continuous=True)
        try:
            run.wait_commits(run.commits() + 1)
            if number in BROKER_DIES_IN:
                fragile_cluster.local.kill(fragile_cluster.busiest_leader(topic))
            threading.Event().wait(chance.uniform(0, MAX_DELAY_S))
            print(f"round {number}, {table_format}: {kill(run)}", flush=True)
        finally:
            run.close()
            fragile_cluster.restore()
    sending.finish()
    for table_format in dict.fromkeys(table_format for table_format, _ in KILLS[:ROUNDS]):
        run = started(topic, tmp_path, table_format, fragile_cluster, continuous=False)
        try:
            run.result()
        finally:
            run.close()
        check_table(tmp_path / table_format, table_format, sending.acknowledged)
        audited = kraft(
            "ingest", "audit", str(tmp_path / table_format), "--json",
            "--bootstrap-server", fragile_cluster.bootstrap,
        )  # fmt: skip
        assert audited.returncode == 0, audited.stdout + audited.stderr
        assert json.loads(audited.stdout)["complete"] is True


def started(
    topic: str, folder: Path, table_format: Format, cluster: NodeProcesses, *, continuous: bool
) -> IngestProcess:
    return IngestProcess(
        topic,
        folder / table_format,
        table_format,
        cluster.bootstrap,
        folder / f"{table_format}.log",
        continuous=continuous,
    )


def check_table(folder: Path, table_format: Format, acknowledged: dict[int, dict[int, int]]) -> None:
    """What other readers see: no row twice, each acknowledged record at its offset, as it was sent."""
    files = DeltaTable(str(folder)).file_uris() if table_format == "delta" else folder
    seen: dict[int, set[int]] = {number: set() for number in range(PARTITIONS)}
    found = 0
    columns = ["partition", "offset", "key", "value"]
    for batch in ds.dataset(files, format="parquet").to_batches(columns=columns):
        for partition, offset, key, value in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            assert offset not in seen[partition], f"{partition}: offset {offset} is there twice"
            seen[partition].add(offset)
            number = acknowledged[partition].get(offset)
            if number is not None:
                found += 1
                assert (key, value) == record(number)
    assert found == sum(len(offsets) for offsets in acknowledged.values()) > 0
