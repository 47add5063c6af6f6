"""What clients are told where a cluster asks who they are, with and without permission, by each mechanism they have.

Java and kafkajs where they are there: each program plays all its clients at once. alice may do all; bob sees topics,
erin reads in groups.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
import subprocess
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kraft.cli.app import run
from kraft.protocol.errors import ErrorCode
from tests.support.group_members import MEMBERS
from tests.support.java_programs import DOWNLOAD_S, RUN_S, compiled, run_java
from tests.support.node_processes import until
from tests.support.secured_cluster import (
    BOB,
    ERIN,
    FRANK,
    MECHANISMS,
    MESSAGE_TIMEOUT_MS,
    PASSWORD,
    USER,
    WAIT_S,
    SecuredCluster,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own resources
    import kafka
    import kafka.admin
    import kafka.errors

AN_ACL = AclBinding(
    ResourceType.TOPIC,
    "any",
    ResourcePatternType.LITERAL,
    "User:any",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
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
ALL_DONE = dict.fromkeys(ACTIONS, "done") | {"describe-acls": "CLUSTER_AUTHORIZATION_FAILED"}
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
    by_all = (*MECHANISMS, "OAUTHBEARER")
    allowed = {f"alice-{mechanism}": secured.java("SASLTLS", mechanism) for mechanism in by_all}
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
        elif mechanism == "OAUTHBEARER":
            made["sasl"] = {"mechanism": "oauthbearer", "token": secured.issuer.token(time.time(), user)}
        else:
            made["sasl"] = {"mechanism": mechanism.lower(), "username": user, "password": PASSWORD}
        return made

    by_all = (*MECHANISMS, "OAUTHBEARER")
    allowed = {f"alice-{mechanism}": client("SASLTLS", USER, mechanism) for mechanism in by_all}
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
    assert told(done.stdout) == dict.fromkeys(allowed, ALL_DONE) | JS_DENIED | {
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
        | {
            "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
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


# -- Python's clients: by which mechanisms they connect, `test_security.py` has

OUTCOMES = {
    USER: dict.fromkeys(ACTIONS[:-1], "done") | {"create-acls": "CLUSTER_AUTHORIZATION_FAILED"},
    BOB: {
        "produce": "TOPIC_AUTHORIZATION_FAILED",
        "consume": "GROUP_AUTHORIZATION_FAILED",
        "transact": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "create-topic": "TOPIC_AUTHORIZATION_FAILED",
        "create-acls": "CLUSTER_AUTHORIZATION_FAILED",
    },
    ERIN: {
        "produce": "TOPIC_AUTHORIZATION_FAILED",
        "consume": "TOPIC_AUTHORIZATION_FAILED",
        "transact": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "create-topic": "TOPIC_AUTHORIZATION_FAILED",
        "create-acls": "CLUSTER_AUTHORIZATION_FAILED",
    },
}


class Outcomes(dict[str, str]):
    """What came of each action."""

    @contextlib.contextmanager
    def of(self, action: str, *errors: type[Exception]) -> Iterator[None]:
        try:
            yield
        except errors as error:
            self[action] = error_name(error)
        else:
            self[action] = "done"


def error_name(error: Exception) -> str:
    """librdkafka has the name, kafka-python and aiokafka a class for each of Kafka's numbers."""
    if isinstance(error, KafkaException):
        return str(error.args[0].name())
    return ErrorCode(error.errno).name  # type: ignore[attr-defined]


def test_an_expression_finds_the_topics_that_its_user_may_describe(
    secured: SecuredCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Groups of KIP-848: alice has all that match, frank his own, and more once he may."""
    own, other = secured.create_topic("expressed"), secured.create_topic("expressed")

    def reader(user: str) -> Consumer:
        properties = secured.librdkafka("SASLTLS", "SCRAM-SHA-512", user=user)
        consumer = Consumer(properties | {"group.id": f"{own}-{user}", "group.protocol": "consumer"})
        consumer.subscribe(["^expressed.*"])
        return consumer

    def assigned(user: str) -> set[str]:
        capsys.readouterr()
        command = ["groups", "describe", f"{own}-{user}", "--json", "--bootstrap-server", secured.bootstrap]
        if run(command) != 0:
            return set()
        members = json.loads(capsys.readouterr().out)["members"]
        return {one["topic"] for member in members for one in member["partitions"]}

    def have(expected: Mapping[str, set[str]]) -> bool:
        for consumer in consumers:
            consumer.poll(0.1)
        return {user: assigned(user) for user in expected} == expected

    secured.allow(f"User:{FRANK}", kinds=[ResourceType.TOPIC], operation=AclOperation.READ, name=own)
    secured.allow(
        f"User:{FRANK}", kinds=[ResourceType.GROUP], operation=AclOperation.READ, name=f"{own}-{FRANK}"
    )
    consumers = [reader(USER), reader(FRANK)]
    try:
        until(lambda: have({USER: {own, other}, FRANK: {own}}), "each has what he may see")
        secured.allow(f"User:{FRANK}", kinds=[ResourceType.TOPIC], operation=AclOperation.READ, name=other)
        until(lambda: have({USER: {own, other}, FRANK: {own, other}}), "frank has the other one, too")
    finally:
        for consumer in consumers:
            consumer.close()


@pytest.mark.parametrize("user", OUTCOMES)
def test_librdkafka(secured: SecuredCluster, user: str) -> None:
    topic, found = secured.create_topic("rd"), Outcomes()
    properties = secured.librdkafka("SASLTLS", "SCRAM-SHA-512", user=user)
    properties |= {"message.timeout.ms": MESSAGE_TIMEOUT_MS}

    def raised(error: KafkaError | None) -> None:
        if error is not None:
            raise KafkaException(error)

    with found.of("produce", KafkaException):
        producer, outcomes = Producer(properties), []
        producer.produce(topic, b"value", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(WAIT_S) == 0
        raised(outcomes[0])
    del properties["message.timeout.ms"]
    with found.of("consume", KafkaException):
        consumer = Consumer(properties | {"group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        raised(until(lambda: consumer.poll(1.0), "a record or an error comes").error())
    consumer.close()
    with found.of("transact", KafkaException):
        producer = Producer(properties | {"transactional.id": topic})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce(topic, b"in a transaction")
        producer.commit_transaction(WAIT_S)
    admin = AdminClient(properties)
    with found.of("create-topic", KafkaException):
        admin.create_topics([NewTopic(f"{topic}-made", 1)])[f"{topic}-made"].result(WAIT_S)
    with found.of("create-acls", KafkaException):
        admin.create_acls([AN_ACL])[AN_ACL].result(WAIT_S)
    assert found == OUTCOMES[user]


@pytest.mark.parametrize("user", OUTCOMES)
def test_kafka_python(secured: SecuredCluster, user: str) -> None:
    topic, found = secured.create_topic("kp"), Outcomes()
    given: dict[str, Any] = {
        "bootstrap_servers": secured.servers("SASLTLS").split(","),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secured.trusted),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORD,
    }
    errors = kafka.errors.BrokerResponseError
    producer = kafka.KafkaProducer(**given, enable_idempotence=False)
    with contextlib.closing(producer), found.of("produce", errors):
        producer.send(topic, b"value").get(WAIT_S)
    given_group = {
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "consumer_timeout_ms": 3_000 if user == ERIN else 60_000,
    }
    with contextlib.closing(kafka.KafkaConsumer(topic, **given, **given_group)) as consumer:
        with found.of("consume", errors):
            record = next(consumer, None)
            assert record is None or record.value == b"value"
        if found["consume"] == "done" and record is None:
            found["consume"] = "nothing"
    producer = kafka.KafkaProducer(**given, transactional_id=topic)
    with contextlib.closing(producer), found.of("transact", errors):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"in a transaction")
        producer.commit_transaction()
    with contextlib.closing(kafka.KafkaAdminClient(**given)) as admin:
        with found.of("create-topic", errors):
            admin.create_topics([kafka.admin.NewTopic(f"{topic}-made", 1, 1)])
        with found.of("create-acls", errors):
            anything = kafka.admin.ResourcePattern(kafka.admin.ResourceType.TOPIC, topic)
            read = kafka.admin.ACLOperation.READ
            allow = kafka.admin.ACLPermissionType.ALLOW
            made = admin.create_acls([kafka.admin.ACL("User:x", "*", read, allow, anything)])
            raise made["failed"][0]
    of_kafka_python = {"consume": "nothing"} if user == ERIN else {}  # it tells its log alone
    assert found == OUTCOMES[user] | of_kafka_python


@pytest.mark.parametrize("user", OUTCOMES)
async def test_aiokafka(secured: SecuredCluster, user: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin import NewTopic as AioTopic
    from aiokafka.errors import BrokerResponseError, for_code

    topic, found = await asyncio.to_thread(secured.create_topic, "aio"), Outcomes()
    given: dict[str, Any] = {
        "bootstrap_servers": secured.servers("SASLTLS"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(secured.trusted)),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORD,
    }
    async with AIOKafkaProducer(**given) as producer:
        with found.of("produce", BrokerResponseError):
            await producer.send_and_wait(topic, b"value")
    consumer = AIOKafkaConsumer(topic, **given, group_id=topic, auto_offset_reset="earliest")
    with found.of("consume", BrokerResponseError):
        await consumer.start()
        assert (await asyncio.wait_for(consumer.getone(), WAIT_S)).value == b"value"
    await consumer.stop()
    producer = AIOKafkaProducer(**given, transactional_id=topic)
    with found.of("transact", BrokerResponseError):
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"in a transaction")
    await producer.stop()
    admin = AIOKafkaAdminClient(**given)
    await admin.start()
    with found.of("create-topic", BrokerResponseError):
        answer = await admin.create_topics([AioTopic(f"{topic}-made", 1, 1)])
        if code := answer.topic_errors[0][1]:
            raise for_code(code)
    await admin.close()
    assert found == {action: OUTCOMES[user][action] for action in ACTIONS[:-1]}, "it has no calls for ACLs"
