"""`kraft transactions`, `kraft produce --transactional-id` and `kraft consume --isolation-level` on a real node."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from kraft.local_cluster.spec import replication_settings
from kraft.protocol.errors import ErrorCode
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED
from tests.support.node_processes import PATIENCE, NodeProcesses, until
from tests.support.raw_client import RawConnection, batch

COMMAND_S = 120
HANGING = 4_000_000
"""A producer id that no coordinator knows."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    """One node, which takes transactional batches that belong to no transaction, as Kafka did before KIP-890."""
    settings = {
        **PATIENCE,
        **replication_settings(1),
        "transaction.partition.verification.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
    }
    running = NodeProcesses(tmp_path_factory.mktemp("transactions"), nodes=1, settings=settings)
    with contextlib.closing(running):
        yield running


@pytest.fixture
def topic(node: NodeProcesses) -> str:
    return node.create_topic("transactions", partitions=2, replication_factor=1)


class Commands:
    """`kraft …` on the node."""

    def __init__(self, node: NodeProcesses) -> None:
        self._node = node

    def line(self, *arguments: str) -> list[str]:
        bootstrap = ("--bootstrap-server", self._node.bootstrap)
        return [sys.executable, "-m", "kraft.cli.entry", *arguments, *bootstrap]

    def run(
        self, *arguments: str, stdin: str = "", exit_code: int = EXIT_DONE
    ) -> subprocess.CompletedProcess[str]:
        """Runs one to its end."""
        done = subprocess.run(
            self.line(*arguments), input=stdin, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        assert done.returncode == exit_code, f"{arguments}: {done.stderr}"
        return done

    def told(self, *arguments: str) -> Any:
        """What --json of a command on transactions has."""
        return json.loads(self.run("transactions", *arguments, "--json").stdout)["transactions"]

    def values(self, topic: str, isolation: str, *options: str) -> list[str]:
        arguments = ("consume", topic, "--from-beginning", "--exit-at-end", "--isolation-level", isolation)
        return sorted(self.run(*arguments, *options).stdout.split())


@pytest.fixture
def kraft(node: NodeProcesses) -> Commands:
    return Commands(node)


@contextlib.contextmanager
def opened(node: NodeProcesses, topic: str, transactional_id: str) -> Iterator[Any]:
    """A producer with an open transaction that has one record in partition 1."""
    settings = {"bootstrap.servers": node.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(COMMAND_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    assert producer.flush(COMMAND_S) == 0
    yield producer
    with contextlib.suppress(KafkaException):  # a test may have ended it
        producer.abort_transaction(COMMAND_S)


def test_lines_in_transactions_and_who_reads_them(
    node: NodeProcesses, topic: str, kraft: Commands, tmp_path: Path
) -> None:
    lines = "".join(f"{number}\n" for number in range(10))
    in_transactions = ("--transactional-id", "lines", "--transaction-records", "4")
    done = kraft.run("produce", topic, *in_transactions, stdin=lines)
    assert done.stderr == "10 committed, 0 aborted, 0 failed, 0 not sent\n"
    data = "k:a\nk:b\nk:c\nno key\n"
    options = ("--transactional-id", "lines", "--transaction-records", "2", "--key-separator", ":")
    done = kraft.run("produce", topic, *options, stdin=data, exit_code=EXIT_FAILED)
    assert "2 committed, " in " ".join(done.stderr.split())
    committed = sorted([*(str(number) for number in range(10)), "a", "b"])
    for group in ((), ("--group", f"{topic}-committed")):
        assert kraft.values(topic, "read_committed", *group) == committed
    for group in ((), ("--group", f"{topic}-uncommitted")):
        assert set(kraft.values(topic, "read_uncommitted", *group)) >= set(committed)


def test_an_interrupted_transaction_is_aborted(node: NodeProcesses, topic: str, kraft: Commands) -> None:
    process = subprocess.Popen(
        kraft.line("produce", topic, "--transactional-id", "broken", "--json"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("".join(f"aborted-{number}\n" for number in range(5)))
    process.stdin.flush()
    until(lambda: kraft.values(topic, "read_uncommitted") or None, "the lines are sent")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=COMMAND_S)
    assert (process.returncode, json.loads(out)["committed"]) == (EXIT_FAILED, 0)
    assert kraft.values(topic, "read_committed") == []
    assert len(kraft.values(topic, "read_uncommitted")) == 5
    assert kraft.told("describe", "broken")[0]["state"] == "CompleteAbort"


def test_list_and_describe(node: NodeProcesses, topic: str, kraft: Commands) -> None:
    with opened(node, topic, "listed"):
        (found,) = kraft.told("list", "--pattern", "list.*", "--state", "ongoing")
        assert (found["transactional_id"], found["state"]) == ("listed", "Ongoing")
        assert found["partitions"] == [{"topic": topic, "partition": 1}]
        assert found["age_ms"] >= 0
        (described,) = kraft.told("describe", "listed")
        assert described == {**found, "age_ms": described["age_ms"]}
        assert kraft.told("list", "--producer-id", str(found["producer_id"])) != []
        assert kraft.told("list", "--pattern", "list.*", "--duration", "PT1H") == []
        lag = metric(node, "kafka_cluster_partition_laststableoffsetlag", f'topic="{topic}"')
        assert lag == 1
        assert metric(node, "kafka_server_transaction_coordinator_metrics_transaction_count", "Ongoing") == 1
    (ended,) = kraft.told("describe", "listed")
    assert (ended["state"], ended["partitions"], ended["age_ms"]) == ("CompleteAbort", [], None)
    assert metric(node, "kafka_cluster_partition_laststableoffsetlag", f'topic="{topic}"') is None
    assert "no transactional id nobody" in kraft.run(
        "transactions", "describe", "nobody", exit_code=EXIT_FAILED
    ).stderr.replace("\n", " ")


def metric(node: NodeProcesses, name: str, label: str) -> float | None:
    """The value of the series that has the label."""
    address = node.local.node(1).http_port
    with urllib.request.urlopen(f"http://127.0.0.1:{address}/metrics", timeout=COMMAND_S) as answer:
        lines = answer.read().decode().splitlines()
    values = [line.split()[-1] for line in lines if line.startswith(name + "{") and label in line]
    return float(values[0]) if values else None


def test_a_fenced_producer(node: NodeProcesses, topic: str, kraft: Commands) -> None:
    with opened(node, topic, "fenced") as producer:
        done = json.loads(kraft.run("transactions", "fence", "fenced", "--json").stdout)
        assert done["transactional_ids"][0]["transactional_id"] == "fenced"
        with pytest.raises(KafkaException):
            producer.commit_transaction(COMMAND_S)
    assert kraft.values(topic, "read_committed") == []
    kraft.run("transactions", "fence", "fenced", "nobody", exit_code=EXIT_FAILED)
    assert kraft.told("list", "--pattern", "nobody") == [], "fencing makes no id"


def test_what_hangs_is_found_and_aborted(node: NodeProcesses, topic: str, kraft: Commands) -> None:
    with RawConnection(node.address(1)) as connection:
        fields = {"producer_id": HANGING, "producer_epoch": 3, "base_sequence": 0, "is_transactional": True}
        assert (
            connection.produce(topic, batch(b"late", **fields), transactional_id="x").error_code
            == ErrorCode.NONE
        )
    kraft.run("produce", topic, "--partition", "0", stdin="after\n")
    with opened(node, topic, "in-time"):
        (found,) = kraft.told("find-hanging", "--max-transaction-timeout", "0")
        assert (found["producer_id"], found["epoch"], found["start_offset"]) == (HANGING, 3, 0)
        assert found["partitions"] == [{"topic": topic, "partition": 0}]
        assert kraft.told("find-hanging", "--max-transaction-timeout", "99999999") == [], "it is younger"
    assert kraft.values(topic, "read_committed") == [], "nobody gets past it"
    where = ("--topic", topic, "--partition", "0")
    kraft.run("transactions", "abort", *where, "--start-offset", "1", exit_code=EXIT_FAILED)
    (aborted,) = kraft.told("abort", *where, "--start-offset", "0")
    assert aborted["producer_id"] == HANGING
    assert kraft.values(topic, "read_committed") == ["after"]
    assert kraft.told("find-hanging", "--max-transaction-timeout", "0") == []


def test_nobody_answers(kraft: Commands, node: NodeProcesses) -> None:
    line = [
        sys.executable,
        "-m",
        "kraft.cli.entry",
        "transactions",
        "list",
        "--bootstrap-server",
        "127.0.0.1:1",
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert (done.returncode, done.stdout) == (EXIT_UNDECIDED, "")
