"""A cluster of `kraft cluster start --secure`, as a person uses it: with the files that it writes, as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from kraft.cli.shared.bootstrap import BOOTSTRAP_VARIABLE
from kraft.cli.shared.profiles import PROFILE_VARIABLE
from kraft.local_cluster.cluster import LocalCluster
from kraft.runtime.free_ports import free_port_range
from tests.support.real_clients import is_passing
from tests.support.source_tree import ROOT

WAIT_S = 60.0
TOPIC = "orders"
VALUES = [b"%d" % number for number in range(100)]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Secured(NamedTuple):
    """`directory` is the cluster's; `elsewhere` is a folder without one."""

    directory: Path
    elsewhere: Path

    def kraft(self, *arguments: str, cwd: Path | None = None, stdin: str = "", **environment: str) -> Ended:
        """Runs a command to its end."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in (BOOTSTRAP_VARIABLE, PROFILE_VARIABLE)
        }
        ended = subprocess.run(
            [sys.executable, "-m", "kraft", *arguments],
            cwd=cwd or self.elsewhere,
            env={
                **inherited,
                "PYTHONPATH": str(ROOT),
                "XDG_CONFIG_HOME": str(self.elsewhere / "config"),
                **environment,
            },
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT_S * 2,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def told(self, *arguments: str, **more: Any) -> str:
        """The standard output of a command that succeeds."""
        ended = self.kraft(*arguments, **more)
        assert ended.code == 0, ended.err
        return ended.out

    @property
    def client_file(self) -> Path:
        return self.directory / "client.properties"

    @property
    def settings(self) -> dict[str, Any]:
        """The file, line by line, as any program reads it."""
        lines = [line for line in self.client_file.read_text().splitlines() if not line.startswith("#")]
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("home") / ".kraft", tmp_path_factory.mktemp("elsewhere"))
    port = str(free_port_range(3))
    try:
        started = made.kraft("cluster", "start", "--dir", str(made.directory), "--port", port, "--secure")
        assert started.code == 0, started.err
        assert str(made.client_file) in started.err
        made.told("topics", "create", TOPIC, "--partitions", "2", "--command-config", str(made.client_file))
        yield made
    finally:
        made.kraft("cluster", "destroy", "--dir", str(made.directory))


def written(settings: dict[str, Any]) -> list[int]:
    """Writes the values; returns the codes of errors, of connections and of records."""
    codes: list[int] = []
    producer = Producer(
        {
            **settings,
            "log_level": 0,
            "message.timeout.ms": 60_000,
            "error_cb": lambda error: codes.append(error.code()),
        }
    )
    left = [len(VALUES)]

    def delivered(error: KafkaError | None, _message: object) -> None:
        left[0] -= 1
        if error is not None:
            codes.append(error.code())

    for value in VALUES:
        producer.produce(TOPIC, value, on_delivery=delivered)
    while left[0] and KafkaError._AUTHENTICATION not in codes and KafkaError._SSL not in codes:
        producer.poll(0.1)
    return codes


def test_librdkafka_takes_the_file_as_it_is(secured: Secured) -> None:
    assert written(secured.settings) == []
    consumer = Consumer(
        {**secured.settings, "log_level": 0, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([TOPIC])
        found: list[bytes] = []
        while len(found) < len(VALUES):
            for message in consumer.consume(len(VALUES), 1.0):
                if is_passing(message.error()):
                    continue
                assert message.error() is None
                found.append(message.value() or b"")
        assert sorted(found) == sorted(VALUES)
    finally:
        consumer.close()


def test_strangers_are_not_let_in(secured: Secured) -> None:
    assert KafkaError._AUTHENTICATION in written({**secured.settings, "sasl.password": "guessed"})
    unknown = {key: value for key, value in secured.settings.items() if key != "ssl.ca.location"}
    assert KafkaError._SSL in written(unknown)


def test_commands_reach_it_by_file_profile_and_folder(secured: Secured) -> None:
    """Each way is the admin's; without any, a command gets no answer."""
    listing = ("topics", "list", "--json")
    by_file = secured.told(*listing, "--command-config", str(secured.client_file))
    secured.told("profile", "create", "mine", "--command-config", str(secured.client_file))
    ways = [
        secured.told(*listing, "--profile", "mine"),
        secured.told(*listing, **{PROFILE_VARIABLE: "mine"}),
        secured.told(*listing, cwd=secured.directory.parent),
    ]
    assert TOPIC in {topic["name"] for topic in json.loads(by_file)["topics"]}
    assert ways == [by_file] * len(ways)
    profile = secured.elsewhere / "config/kraft/profiles/mine.properties"
    assert profile.stat().st_mode & 0o777 == 0o600
    bootstrap = secured.settings["bootstrap.servers"]
    assert secured.kraft("topics", "list", "--bootstrap-server", bootstrap).code != 0


def test_records_pass_through_the_commands(secured: Secured) -> None:
    here = secured.directory.parent
    secured.told("topics", "create", "lines", cwd=here)
    secured.told("produce", "lines", cwd=here, stdin="one\ntwo\n")
    assert secured.told("consume", "lines", "--from-beginning", "--exit-at-end", cwd=here).split() == [
        "one",
        "two",
    ]


def test_a_user_may_what_the_admin_allows(secured: Secured) -> None:
    here = secured.directory.parent
    password = secured.elsewhere / "alice.pw"
    password.write_text("alice's own")
    secured.told("users", "add", "alice", "--password-file", str(password), cwd=here)
    alice = {**secured.settings, "sasl.username": "alice", "sasl.password": "alice's own"}
    denied = written(alice)
    assert denied
    assert set(denied) <= {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
    secured.told("acls", "add", "--allow-principal", "User:alice", "--producer", "--topic", TOPIC, cwd=here)
    assert written(alice) == []


def test_secrets_are_nowhere_but_in_files_of_their_owner(secured: Secured) -> None:
    identities = LocalCluster(secured.directory).spec().identities
    assert identities is not None
    secrets = [identities.admin_password, identities.broker_password]
    here = secured.directory.parent
    nodes = [str(node) for node in (1, 2, 3)]
    answers = [
        secured.told("cluster", "status", "--json", cwd=here),
        secured.told("cluster", "health", "--json", cwd=here),
        *(
            secured.told(
                "configs", "describe", "--entity-type", "brokers", "--entity-name", node, "--all", cwd=here
            )
            for node in nodes
        ),
        *(path.read_text(errors="replace") for path in secured.directory.glob("node-*/*.log")),
    ]
    assert len(answers) >= 5 + len(nodes)
    assert [secret for secret in secrets for answer in answers if secret in answer] == []
    holding = [
        path
        for path in secured.directory.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]
    assert {path.name for path in holding} >= {"client.properties", "java.properties", "spark.properties"}
    keys = secured.directory.rglob("node.pem")
    assert {oct(path.stat().st_mode & 0o777) for path in [*holding, *keys]} == {"0o600"}


def test_spark_reads_with_the_options_of_its_file(secured: Secured) -> None:
    """In the driver alone: what a session would hand to the connector."""
    pytest.importorskip("pyspark")
    from kraft.spark.client import ClusterClient
    from kraft.spark.data_loss import LossPolicy
    from kraft.spark.options import parse_options
    from kraft.spark.plan import plan
    from kraft.spark.retry import RetryPolicy

    lines = (secured.directory / "spark.properties").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    options = parse_options({**given, "subscribe": TOPIC})
    with ClusterClient(
        options.bootstrap, client_id="test", policy=RetryPolicy(), security=options.security
    ) as client:
        assert len(plan(client, options, LossPolicy())) == 2


def test_started_again_it_is_the_same(secured: Secured) -> None:
    before = {path.name: path.read_bytes() for path in secured.directory.glob("*.p*")}
    where = ("--dir", str(secured.directory))
    secured.told("cluster", "stop", *where)
    secured.told("cluster", "start", *where)
    assert {path.name: path.read_bytes() for path in secured.directory.glob("*.p*")} == before
    assert written(secured.settings) == []
