"""`kraft cluster start --secure`, used as its files say: by librdkafka, by commands, by who has no right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from kraft.local_cluster.cluster import LocalCluster
from kraft.properties import parse_properties
from kraft.runtime.free_ports import free_port_range
from tests.support.source_tree import ROOT

RECORDS = 100
WAIT_S = 30.0


class Secured:
    """A secured cluster in `.kraft` of a folder, and its commands as somebody types them there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.local = LocalCluster(folder / ".kraft")
        self.port = free_port_range(3)

    def call(self, *arguments: str, code: int = 0, cwd: Path | None = None, **variables: str) -> str:
        """Standard output; standard error too, where the command is to fail."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            **variables,
        }
        done = subprocess.run(
            [sys.executable, "-m", "kraft", *arguments],
            env=environment,
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + (done.stderr if code else "")

    def client(self, **over: str) -> dict[str, str]:
        """client.properties, as it is."""
        text = (self.local.directory / "client.properties").read_text()
        return parse_properties(text).values | over


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        started = json.loads(made.call("cluster", "start", "--secure", "--port", str(made.port), "--json"))
        assert started["secure"] is True
        made.call("topics", "create", "events", "--partitions", "2")
        yield made
    finally:
        made.local.destroy()


def produce(client: dict[str, str], topic: str) -> list[KafkaError | None]:
    """Sends RECORDS records. Returns how each ended."""
    ends: list[KafkaError | None] = []
    producer = Producer(client)
    for number in range(RECORDS):
        producer.produce(topic, str(number), on_delivery=lambda error, _: ends.append(error))
    assert producer.flush(WAIT_S) == 0
    return ends


def test_librdkafka_takes_the_file_as_it_is(secured: Secured) -> None:
    assert produce(secured.client(), "events") == [None] * RECORDS
    consumer = Consumer(secured.client(**{"group.id": "readers", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["events"])
    read = []
    while len(read) < RECORDS:
        record = consumer.poll(WAIT_S)
        assert record is not None
        assert record.error() is None
        read.append(record.value())
    consumer.close()
    assert sorted(read, key=int) == [str(number).encode() for number in range(RECORDS)]


def test_who_is_not_admin_may_what_he_is_given(secured: Secured) -> None:
    (secured.folder / "bob.pw").write_text("bob's\n")
    secured.call("users", "add", "bob", "--password-file", "bob.pw", "--mechanism", "SCRAM-SHA-512")
    bob = secured.client(**{"sasl.username": "bob", "sasl.password": "bob's"})
    secured.call("topics", "create", "bobs")
    assert {error.code() for error in produce(bob | {"message.timeout.ms": "20000"}, "bobs") if error} == {
        KafkaError.TOPIC_AUTHORIZATION_FAILED
    }
    secured.call("acls", "add", "--allow-principal", "User:bob", "--producer", "--topic", "bobs")
    assert produce(bob, "bobs") == [None] * RECORDS


@pytest.mark.parametrize("over", [{"sasl.password": "guess"}, {"security.protocol": "SSL"}])
def test_strangers_get_nothing(secured: Secured, over: dict[str, str]) -> None:
    with pytest.raises(KafkaException):
        Producer(secured.client(**over)).list_topics(timeout=3)


@pytest.mark.parametrize("name", ["client.properties", "java.properties"])
def test_commands_take_the_files_from_anywhere(secured: Secured, tmp_path: Path, name: str) -> None:
    file = str(secured.local.directory / name)
    assert "events" in secured.call("topics", "list", "--command-config", file, cwd=tmp_path).split()
    profiles = {"XDG_CONFIG_HOME": str(tmp_path)}
    secured.call("profile", "create", "there", "--command-config", file, cwd=tmp_path, **profiles)
    assert "events" in secured.call("topics", "list", "--profile", "there", cwd=tmp_path, **profiles).split()
    secured.call("profile", "use", "there", cwd=tmp_path, **profiles)
    (tmp_path / "lines").write_text("one\ntwo\n")
    secured.call("produce", "events", "lines", cwd=tmp_path, **profiles)
    read = secured.call("consume", "events", "--from-beginning", "--exit-at-end", cwd=tmp_path, **profiles)
    assert {"one", "two"} <= set(read.split("\n"))


def test_commands_of_operators_work_in_the_folder(secured: Secured) -> None:
    assert "CurrentVoters" in secured.call("quorum", "describe")
    assert "healthy" in secured.call("cluster", "health")
    assert "events" in secured.call("metadata", "shell", "ls", "/topics/by-name")
    assert "events" in secured.call("log-dirs")
    users = json.loads(secured.call("users", "list", "--json"))
    assert {user["user"] for user in users["users"]} >= {"admin", "broker"}


def test_no_secret_is_in_a_log_a_status_a_config_or_a_dump(secured: Secured) -> None:
    identities = secured.local.spec().identities
    assert identities is not None
    secrets = (identities.admin_password, identities.broker_password, secured.local.spec().secret)
    shown = [
        secured.call("cluster", "status", "--json"),
        secured.call("configs", "describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
        secured.call("metadata", "dump", "--json"),
        *(path.read_text() for path in secured.local.directory.glob("node-*/server.log")),
    ]
    assert "(secret)" in shown[1]
    for text in shown:
        assert text
        assert not any(secret in text for secret in secrets)


def test_it_is_as_secured_when_it_starts_again(secured: Secured) -> None:
    before = secured.client()
    secured.call("cluster", "stop")
    secured.call("cluster", "start")
    assert secured.client() == before
    assert produce(before, "events") == [None] * RECORDS
    told = secured.call("topics", "list", "--bootstrap-server", secured.client()["bootstrap.servers"], code=3)
    assert "no broker answers" in told
