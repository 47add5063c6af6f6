"""What clients are told where a cluster asks who they are: each client, each mechanism it has, with and without permission.

Java and kafkajs where they are there. Each program plays all its clients at once. alice may do all; bob sees topics,
erin reads in groups, frank is only known.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from kraft.cli.app import run
from tests.support.group_members import MEMBERS
from tests.support.java_programs import DOWNLOAD_S, RUN_S, compiled, run_java
from tests.support.secured_cluster import BOB, ERIN, MECHANISMS, PASSWORD, USER, WAIT_S, SecuredCluster

ACTIONS = ("produce", "consume", "transact", "create-topic", "describe-acls")
ALLOWED = dict.fromkeys(ACTIONS, "done") | {"describe-acls": "ClusterAuthorizationException"}
"""alice has no right to the cluster."""
DENIED = {
    BOB: {
        "produce": "ClusterAuthorizationException",  # Kafka's producers are idempotent, which needs a right of its own
        "consume": "GroupAuthorizationException",
        "transact": "TransactionalIdAuthorizationException",
        "create-topic": "TopicAuthorizationException",
        "describe-acls": "ClusterAuthorizationException",
    },
    ERIN: {
        "produce": "TopicAuthorizationException",
        "consume": "TopicAuthorizationException",
        "transact": "TransactionalIdAuthorizationException",
        "create-topic": "TopicAuthorizationException",
        "describe-acls": "ClusterAuthorizationException",
    },
}
STRANGER = dict.fromkeys(ACTIONS, "SaslAuthenticationException")
JS_ALLOWED = dict.fromkeys(ACTIONS, "done") | {"describe-acls": "CLUSTER_AUTHORIZATION_FAILED"}
JS_DENIED = {
    user: {
        "produce": "TOPIC_AUTHORIZATION_FAILED",
        "consume": consume,
        "transact": "CLUSTER_AUTHORIZATION_FAILED",  # it asks for an id without a transaction first
        "create-topic": "TOPIC_AUTHORIZATION_FAILED",
        "describe-acls": "CLUSTER_AUTHORIZATION_FAILED",
    }
    # kafkajs has this one error for every refusal to name a coordinator
    for user, consume in ((BOB, "KafkaJSGroupCoordinatorNotFound"), (ERIN, "TOPIC_AUTHORIZATION_FAILED"))
}
STREAMED, RENEWALS = 4_000, 2

pytestmark = pytest.mark.timeout(DOWNLOAD_S + RUN_S)


def told(printed: str) -> dict[str, dict[str, str]]:
    """By client and action."""
    found: dict[str, dict[str, str]] = {}
    for line in printed.splitlines():
        who, _, outcome = line.rpartition("=")
        name, _, action = who.partition(" ")
        found.setdefault(name, {})[action] = outcome
    return found


def files_of(folder: Path, clients: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A file of properties for each client."""
    made = []
    for name, properties in clients.items():
        file = folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        made.append(str(file))
    return made


@pytest.mark.parametrize("line", ["4", "3.9"])
def test_java(
    line: str,
    java_classpath: str,
    older_java_classpath: str,
    secured: SecuredCluster,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    own = older_java_classpath if line == "3.9" else java_classpath
    programs = compiled(tmp_path_factory, older_java_classpath, "SecuredCalls", "SecuredStream")
    classpath = f"{programs.split(':')[0]}:{own}"
    allowed = {f"alice-{mechanism}": secured.java("SASLTLS", mechanism) for mechanism in MECHANISMS}
    allowed |= {
        "alice-plaintext": secured.java("SASL", "SCRAM-SHA-512"),
        "alice-certified": secured.java("TLS"),
    }
    others = {user: secured.java("SASLTLS", "SCRAM-SHA-512", user) for user in (BOB, ERIN, "mallory")}
    topic = secured.create_topic("java")
    printed = run_java(classpath, "SecuredCalls", topic, *files_of(tmp_path, allowed | others))
    assert told(printed) == dict.fromkeys(allowed, ALLOWED) | DENIED | {"mallory": STRANGER}

    stream = files_of(tmp_path, {"stream": secured.java("SHORT", "SCRAM-SHA-256")})
    topic = secured.create_topic("java-stream", replication_factor=1)
    printed = run_java(classpath, "SecuredStream", topic, *stream, str(STREAMED), str(RENEWALS))
    counts = {key: int(value) for key, _, value in (line.partition("=") for line in printed.splitlines())}
    assert counts["acknowledged"] == counts["read"] == counts["sent"] >= STREAMED
    assert counts["failed"] == counts["failed-authentications"] == 0
    assert min(counts["renewed-by-producer"], counts["renewed-by-consumer"]) >= RENEWALS


def test_kafkajs(node_modules: Path, secured: SecuredCluster) -> None:
    topic = secured.create_topic("js")

    def client(listener: str, user: str = USER, mechanism: str | None = "SCRAM-SHA-512") -> dict[str, Any]:
        made: dict[str, Any] = {"brokers": secured.servers(listener).split(",")}
        if listener in ("TLS", "SASLTLS"):
            made["ssl"] = {"ca": [secured.trusted.read_text()]}
        if mechanism is None:
            identity = secured.client_identity.read_text()
            made["ssl"] |= {"cert": identity, "key": identity}
        else:
            made["sasl"] = {"mechanism": mechanism.lower(), "username": user, "password": PASSWORD}
        return made

    allowed = {f"alice-{mechanism}": client("SASLTLS", USER, mechanism) for mechanism in MECHANISMS}
    allowed |= {"alice-plaintext": client("SASL"), "alice-certified": client("TLS", mechanism=None)}
    others = {user: client("SASLTLS", user) for user in (BOB, ERIN, "mallory")}
    done = subprocess.run(
        ["node", MEMBERS / "kafkajs_secured.js", topic, json.dumps(allowed | others)],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env=os.environ | {"NODE_PATH": str(node_modules)},
    )
    assert done.returncode == 0, done.stderr
    assert told(done.stdout) == dict.fromkeys(allowed, JS_ALLOWED) | JS_DENIED | {
        "mallory": dict.fromkeys(ACTIONS, "KafkaJSSASLAuthenticationError")
    }


ACLS, CONFIGS = "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand"
HEIDI, SECRET = "User:heidi", "wonder land"


def by_tools(classpath: str, server: str, *commands: list[str]) -> list[str]:
    """What each printed. All end well."""
    words = [word for tool, *rest in commands for word in (tool, "--bootstrap-server", server, *rest, ";")]
    *printed, rest = re.split(r"^exit=0\n", run_java(classpath, "ToolCalls", *words), flags=re.MULTILINE)
    assert (len(printed), rest) == (len(commands), ""), printed
    return [text.strip() for text in printed]


def listed_by_kafka(printed: str) -> set[tuple[str, ...]]:
    """The rows of `kafka-acls --list`: kind, name and type of the pattern, principal, host, operation, permission."""
    found = set()
    pattern: tuple[str, ...] = ()
    for line in printed.splitlines():
        if resource := re.search(r"resourceType=(\w+), name=(.+), patternType=(\w+)", line):
            pattern = resource.groups()
        elif entry := re.search(r"principal=(.+), host=(.+), operation=(\w+), permissionType=(\w+)", line):
            found.add((*pattern, *entry.groups()))
    return found


def listed_by_us(secured: SecuredCluster, capsys: pytest.CaptureFixture[str]) -> set[tuple[str, ...]]:
    capsys.readouterr()
    assert run(["acls", "list", "--json", "--bootstrap-server", secured.bootstrap]) == 0
    return {tuple(entry.values()) for entry in json.loads(capsys.readouterr().out)["acls"]}


def sent_by_heidi(secured: SecuredCluster, topic: str) -> tuple[str | None, float]:
    """The error's name, and for how many seconds she is told to wait, when she sends a large record."""
    outcomes: list[KafkaError | None] = []
    throttled: list[float] = [0.0]
    producer = Producer(
        secured.librdkafka("SASLTLS", "SCRAM-SHA-256", SECRET, "heidi")
        | {"message.timeout.ms": 20_000, "throttle_cb": lambda event: throttled.append(event.throttle_time)}
    )
    producer.produce(topic, bytes(15_000), on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(WAIT_S) == 0
    (outcome,) = outcomes
    return outcome and outcome.name(), max(throttled)


def test_kafkas_own_tools(
    java_classpath: str,
    secured: SecuredCluster,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What kafka-configs and kafka-acls set, they show, we show, and the cluster enforces."""
    classpath = compiled(tmp_path_factory, java_classpath, "ToolCalls")
    open_topic, closed_topic = secured.create_topic("tools-open"), secured.create_topic("tools-closed")
    user = ["--entity-type", "users", "--entity-name", "heidi"]
    each_client = [*user, "--entity-type", "clients", "--entity-default"]
    prefixed = ["--topic", "tools-", "--resource-pattern-type", "prefixed"]
    told_of = by_tools(
        classpath,
        secured.bootstrap,
        [CONFIGS, "--alter", *user, "--add-config", f"SCRAM-SHA-256=[iterations=8192,password={SECRET}]"],
        [CONFIGS, "--describe", *user],
        [CONFIGS, "--alter", *each_client, "--add-config", "producer_byte_rate=500"],
        [CONFIGS, "--describe", *each_client],
        [ACLS, "--add", "--allow-principal", HEIDI, "--producer", *prefixed],
        [ACLS, "--add", "--deny-principal", HEIDI, "--operation", "Write", "--topic", closed_topic],
        [ACLS, "--list"],
    )
    assert (
        told_of[1] == "SCRAM credential configs for user-principal 'heidi' are SCRAM-SHA-256=iterations=8192"
    )
    assert told_of[3] == (
        "Quota configs for user-principal 'heidi', the default client-id are producer_byte_rate=500.0"
    )
    of_heidi = {
        ("TOPIC", "tools-", "PREFIXED", HEIDI, "*", operation, "ALLOW")
        for operation in ("WRITE", "DESCRIBE", "CREATE")
    } | {("TOPIC", closed_topic, "LITERAL", HEIDI, "*", "WRITE", "DENY")}
    listed = listed_by_kafka(told_of[-1])
    assert of_heidi <= listed == listed_by_us(secured, capsys)
    error, throttled_s = sent_by_heidi(secured, open_topic)
    assert error is None
    assert throttled_s > 0
    assert sent_by_heidi(secured, closed_topic)[0] == "TOPIC_AUTHORIZATION_FAILED"

    operations = [word for name in ("Write", "Describe", "Create") for word in ("--operation", name)]
    matching = ["--topic", open_topic, "--resource-pattern-type", "match"]
    told_of = by_tools(
        classpath,
        secured.bootstrap,
        [ACLS, "--remove", "--force", "--allow-principal", HEIDI, *operations, *matching],
        [ACLS, "--remove", "--force", "--topic", closed_topic],
        [ACLS, "--list"],
        [CONFIGS, "--alter", *each_client, "--delete-config", "producer_byte_rate"],
        [CONFIGS, "--describe", *each_client],
        [CONFIGS, "--alter", *user, "--delete-config", "SCRAM-SHA-256"],
        [CONFIGS, "--describe", *user],
    )
    assert told_of[4] == told_of[6] == ""
    assert listed_by_kafka(told_of[2]) == listed_by_us(secured, capsys) == listed - of_heidi
