"""Transactions of real clients: commit, abort, zombies, timeouts, and processing that is exactly once under kill -9."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.java_programs import DOWNLOAD_S, FLAGS, RUN_S, compiled
from tests.support.node_processes import NodeProcesses, until
from tests.support.real_clients import CLIENTS as PLAIN_CLIENTS
from tests.support.real_clients import How
from tests.support.shared_builds import made_once
from tests.support.transactional_clients import (
    AIOKAFKA,
    CONFLUENT,
    PROGRAMS,
    Failed,
    Library,
    Processor,
    Transactor,
    coordinator,
    described,
    franz_go,
    is_stable,
    java,
    kafkajs,
    read_all,
    read_records,
    until_stable,
)

PARTITIONS = 3
SHORT_TIMEOUT_MS = 15_000
"""In which a client on a busy machine has sent a few records, and somebody has looked at them."""
TRANSACTIONS_SEEN = 3
"""A processor that has committed so many is not waited for longer."""
UNREACHABLE = (
    "dial tcp", "no such host", "proxyconnect", "i/o timeout", "TLS handshake timeout", "connection reset",
    "unexpected EOF", "429 Too Many Requests", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway",
)  # fmt: skip
CLIENTS = ("confluent", "aiokafka", "kafkajs", "franz-go", "java")
ROUNDS = int(os.environ.get("EXACTLY_ONCE_ROUNDS", "2"))
"""How often a coordinator is killed in mid-transaction; 20 is the long form."""

Libraries = Callable[[str], Library]


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """franz-go's, built."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed: franz-go cannot be run")

    def make(folder: Path) -> None:
        command = ["go", "build", "-o", str(folder / "transactional"), "."]
        done = subprocess.run(
            command,
            cwd=PROGRAMS / "franz_go",
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_S,
            check=False,
        )
        if done.returncode and any(sign in done.stderr for sign in UNREACHABLE):
            pytest.skip(f"franz-go cannot be downloaded: {done.stderr.strip().splitlines()[0]}")
        assert done.returncode == 0, done.stderr

    return made_once(tmp_path_factory, "franz-go", make) / "transactional"


@pytest.fixture(scope="session")
def java_classes(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the compiled programs."""
    return compiled(tmp_path_factory, java_classpath, "Transactions", "WordCount")


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Libraries:
    """A client library by its name; skips the test where it is not to be had."""

    def named(name: str) -> Library:
        match name:
            case "kafkajs":
                return kafkajs(request.getfixturevalue("node_modules"))
            case "franz-go":
                return franz_go(request.getfixturevalue("go_program"))
            case "java":
                return java(request.getfixturevalue("java_classes"))
        return {one.name: one for one in (CONFLUENT, AIOKAFKA)}[name]

    return named


def values(word: str) -> dict[int, str]:
    """One for each partition."""
    return {number: f"{word}-{number}" for number in range(PARTITIONS)}


def counted(*words: str) -> Counter[str]:
    return Counter(value for word in words for value in values(word).values())


@pytest.mark.timeout(DOWNLOAD_S)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    client: str, cluster: NodeProcesses, library: Libraries
) -> None:
    topic, transactional_id = cluster.create_topic("txn", PARTITIONS), cluster.new_name(f"id-{client}")
    with Transactor(cluster, library(client), transactional_id) as producer:
        producer.ask("init")
        for number in range(3):
            producer.transaction(topic, values(f"commit{number}"))
            producer.transaction(topic, values(f"abort{number}"), commits=False)
        until_stable(cluster, topic)
        committed = counted("commit0", "commit1", "commit2")
        assert read_all(cluster, topic, committed=True) == committed
        aborted = counted("abort0", "abort1", "abort2")
        assert read_all(cluster, topic, committed=False) == committed + aborted

        producer.ask("begin")
        producer.send(topic, values("open"))
        assert not is_stable(cluster, topic)
        assert described(cluster, transactional_id).transaction_state == "Ongoing"
        assert read_all(cluster, topic, committed=True) == committed, "an open transaction shows nothing"
        producer.ask("commit")
    until_stable(cluster, topic)
    assert read_all(cluster, topic, committed=True) == committed + counted("open")


@pytest.mark.timeout(DOWNLOAD_S)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_zombie_is_fenced(client: str, cluster: NodeProcesses, library: Libraries) -> None:
    topic, transactional_id = cluster.create_topic("zombie", PARTITIONS), cluster.new_name(f"id-{client}")
    with (
        Transactor(cluster, library(client), transactional_id) as zombie,
        Transactor(cluster, library(client), transactional_id) as successor,
    ):
        zombie.ask("init")
        zombie.transaction(topic, values("before"))
        zombie.ask("begin")
        zombie.send(topic, values("zombie"))
        successor.ask("init")
        successor.transaction(topic, values("after"))
        with pytest.raises(Failed):
            zombie.ask("commit")
    until_stable(cluster, topic)
    assert read_all(cluster, topic, committed=True) == counted("before", "after")


@pytest.mark.timeout(DOWNLOAD_S)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_transaction_that_takes_too_long_is_aborted(
    client: str, cluster: NodeProcesses, library: Libraries
) -> None:
    topic, transactional_id = cluster.create_topic("slow", PARTITIONS), cluster.new_name(f"id-{client}")
    with Transactor(cluster, library(client), transactional_id, SHORT_TIMEOUT_MS) as producer:
        producer.ask("init")
        producer.ask("begin")
        producer.send(topic, values("late"))
        assert not is_stable(cluster, topic)
        until_stable(cluster, topic)
        with pytest.raises(Failed):
            producer.ask("commit")
    assert read_all(cluster, topic, committed=True) == Counter()
    with Transactor(cluster, library(client), transactional_id) as producer:
        producer.ask("init")
        producer.transaction(topic, values("next"))
    until_stable(cluster, topic)
    assert read_all(cluster, topic, committed=True) == counted("next")


class Input:
    """What processors read: values in transactions, every third of which is aborted, in several partitions."""

    def __init__(self, cluster: NodeProcesses, producer: Transactor, topic: str) -> None:
        self._cluster = cluster
        self._producer = producer
        self.topic = topic
        self.values: Counter[str] = Counter()
        self._written = 0

    def write(self, transactions: int) -> None:
        for _ in range(transactions):
            self._written += 1
            is_aborted = self._written % 3 == 0
            word = f"value{self._written}"
            self._producer.transaction(self.topic, values(word), commits=not is_aborted)
            if not is_aborted:
                self.values += counted(word)


@pytest.mark.timeout(DOWNLOAD_S + 60 * ROUNDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_processor_is_exactly_once_though_its_coordinator_is_killed_in_mid_transaction(
    client: str, fragile_cluster: NodeProcesses, library: Libraries
) -> None:
    cluster = fragile_cluster
    source, target = cluster.create_topic("input", PARTITIONS), cluster.create_topic("output", PARTITIONS)
    transactional_id = cluster.new_name(f"processor-{client}")
    with (
        Transactor(cluster, CONFLUENT, cluster.new_name("feeder")) as feeder,
        Processor(cluster, library(client), transactional_id, source, target) as processor,
    ):
        feeder.ask("init")
        given = Input(cluster, feeder, source)
        given.write(3)
        processor.await_transactions(1)
        for number in range(_rounds(client)):
            given.write(12)
            _kill_in_mid_transaction(cluster, transactional_id, processor, given)
            if number % 2:
                processor.kill()
            given.write(3)
            cluster.restore()
        _await_processed(cluster, processor, given, target)


def _rounds(client: str) -> int:
    """By default those of the clients that most people use; the long form is for each."""
    return ROUNDS if ROUNDS > 2 or client in ("confluent", "java") else 1


def _kill_in_mid_transaction(
    cluster: NodeProcesses, transactional_id: str, processor: Processor, given: Input
) -> None:
    """Kills the coordinator's broker when it says that a transaction is open; who asks may miss short ones, so that
    input goes on: a processor that was away may take all that there is in one."""
    killed = coordinator(cluster, transactional_id)
    processed = processor.transactions

    def is_open_or_over() -> bool:
        processor.look()
        if described(cluster, transactional_id).transaction_state in ("Ongoing", "PrepareCommit"):
            return True
        given.write(1)
        return processor.transactions >= processed + TRANSACTIONS_SEEN

    until(is_open_or_over, "a transaction is open")
    cluster.local.kill(killed)


def _await_processed(cluster: NodeProcesses, processor: Processor, given: Input, target: str) -> None:
    def all_is_there() -> bool:
        processor.look()
        return not given.values - read_all(cluster, target, committed=True)

    until(all_is_there, "all input is processed", 180.0)
    until_stable(cluster, target)
    assert read_all(cluster, target, committed=True) == given.values, "each value once"


@pytest.mark.timeout(DOWNLOAD_S + RUN_S)
def test_kafka_streams_counts_words_exactly_once(
    cluster: NodeProcesses, java_classes: str, tmp_path: Path
) -> None:
    source, target = cluster.create_topic("lines", PARTITIONS), cluster.create_topic("counts", PARTITIONS)
    lines = [f"kraft counts word{number % 7} exactly once" for number in range(300)]
    words = Counter(word for line in lines for word in line.split(" "))

    def start(name: str) -> subprocess.Popen[str]:
        settings = {
            "application.id": source,
            "bootstrap.servers": cluster.bootstrap,
            "state.dir": str(tmp_path / name),
            "commit.interval.ms": "100",
            "replication.factor": "3",
            "consumer.session.timeout.ms": "10000",
            "consumer.auto.offset.reset": "earliest",
        }
        pairs = [f"{key}={value}" for key, value in settings.items()]
        command = ["java", *FLAGS, "-cp", java_classes, "WordCount", source, target, *pairs]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def send(part: list[str]) -> None:
        given = {number: [one.encode() for one in part[number::PARTITIONS]] for number in range(PARTITIONS)}
        PLAIN_CLIENTS[0].produce(cluster.bootstrap, source, given, How(idempotent=True))

    first = start("first")
    try:
        send(lines[:150])
        until(lambda: sum(_counts(cluster, target).values()) > 0, "the first counts are there", 150.0)
        first.kill()
        send(lines[150:])
        second = start("second")
        try:
            until(lambda: _counts(cluster, target) == words, "all words are counted", 150.0)
        finally:
            _end(second)
    finally:
        _end(first)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=RUN_S)


def _counts(cluster: NodeProcesses, topic: str) -> Counter[str]:
    """The newest committed count of each word."""
    return Counter({word: int(count) for word, count in read_records(cluster, topic, committed=True)})
