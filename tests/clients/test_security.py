"""Unmodified clients at a secured cluster: each mechanism, right and wrong passwords, TLS, sessions that end, rotation.

That the cluster comes up at all shows that brokers authenticate with each other: they speak SASL_SSL, as users that are
in nothing but the metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kraft.cli.app import run
from tests.support.kept_connection import KeptConnection
from tests.support.node_processes import until
from tests.support.secured_cluster import (
    BOB,
    ERIN,
    FRANK,
    MECHANISMS,
    PASSWORD,
    USER,
    WAIT_S,
    SecuredCluster,
    round_trip,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own resources
    import kafka
    import kafka.errors


def refusal(properties: dict[str, Any]) -> str:
    """Why a client cannot connect."""
    errors: list[KafkaError] = []
    client = Producer(properties | {"error_cb": errors.append})

    def refused() -> str | None:
        client.poll(0.1)
        reasons = [str(error) for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
        return reasons[0] if reasons else None

    return str(until(refused, "the client is refused"))


@pytest.mark.parametrize("listener", ["SASL", "SASLTLS"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(secured: SecuredCluster, listener: str, mechanism: str) -> None:
    round_trip(secured.librdkafka(listener, mechanism), secured.create_topic("rd"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_with_a_wrong_password(secured: SecuredCluster, mechanism: str) -> None:
    reason = refusal(secured.librdkafka("SASL", mechanism, "wrong"))
    assert "_AUTHENTICATION" in reason
    told = (
        "Invalid username or password"
        if mechanism == "PLAIN"
        else "due to invalid credentials with SASL mechanism"
    )
    assert told in reason


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured: SecuredCluster, mechanism: str) -> None:
    topic = secured.create_topic("kp")
    given: dict[str, Any] = {
        "bootstrap_servers": secured.servers("SASLTLS").split(","),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secured.trusted),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    producer = kafka.KafkaProducer(**given)
    producer.send(topic, b"value").get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **given, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    assert next(consumer).value == b"value"
    consumer.close()
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**given | {"sasl_plain_password": "wrong"}, bootstrap_timeout_ms=3000)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(secured: SecuredCluster, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError as AioKafkaError

    topic = await asyncio.to_thread(secured.create_topic, "aio")
    given: dict[str, Any] = {
        "bootstrap_servers": secured.servers("SASLTLS"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(secured.trusted)),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    async with AIOKafkaProducer(**given) as producer:
        await producer.send_and_wait(topic, b"value")
    async with AIOKafkaConsumer(topic, **given, auto_offset_reset="earliest") as consumer:
        assert (await asyncio.wait_for(consumer.getone(), WAIT_S)).value == b"value"
    refused = AIOKafkaProducer(**given | {"sasl_plain_password": "wrong"})
    with pytest.raises(AioKafkaError):
        await refused.start()
    await refused.stop()


def test_certificates_say_who_clients_are(secured: SecuredCluster) -> None:
    properties = secured.librdkafka("TLS")
    identity = str(secured.client_identity)
    round_trip(
        properties | {"ssl.certificate.location": identity, "ssl.key.location": identity},
        secured.create_topic("mtls"),
    )
    host, port = secured.servers("TLS").split(",")[0].split(":")
    context = ssl.create_default_context(cafile=str(secured.trusted))
    with (
        socket.create_connection((host, int(port)), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as stranger,
        contextlib.suppress(ssl.SSLError, ConnectionError),
    ):
        assert stranger.recv(1) == b"", "without a certificate a connection is closed"


STREAMED, SESSIONS = 5_000, 2


def test_a_session_is_renewed_in_mid_stream(secured: SecuredCluster) -> None:
    """Some sessions long, thousands of records: each acknowledged and read once, on one connection."""
    topic = secured.create_topic("short", replication_factor=1)
    kept = KeptConnection(secured.leader(topic))
    properties = secured.librdkafka("SHORT", "SCRAM-SHA-256")
    producer = Producer(properties | kept.properties() | {"enable.idempotence": True})
    consumer = Consumer(properties | {"group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    outcomes: list[KafkaError | None] = []
    sent, read = 0, []

    def sessions_over() -> bool:
        nonlocal sent
        for sent in range(sent + 1, sent + 51):  # noqa: B020  # goes on where it was
            producer.produce(topic, str(sent), on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0)
        read.extend(consumer.consume(100, 0.02))
        return kept.messages() >= 2 * (SESSIONS + 1) and sent >= STREAMED

    until(
        sessions_over,
        "a connection outlives some sessions, with two messages for each authentication",
        WAIT_S * 2,
    )
    assert producer.flush(WAIT_S) == 0
    assert outcomes == [None] * sent
    until(lambda: len(read) >= sent or read.extend(consumer.consume(1000, 0.5)), "all records are read")
    assert [message.error() for message in read if message.error()] == []
    assert [int(message.value()) for message in read] == list(range(1, sent + 1))
    consumer.close()


def test_users_are_altered_while_the_cluster_runs(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By Kafka's admin API and by our commands."""
    secured.admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(
                "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"one"
            )
        ]
    )["carol"].result(WAIT_S)
    described = secured.admin.describe_user_scram_credentials(["carol"])["carol"].result(WAIT_S)
    (info,) = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    carol = secured.librdkafka("SASL", "SCRAM-SHA-256", "one") | {"sasl.username": "carol"}
    topic = secured.create_topic("carol")
    round_trip(carol, topic)

    servers = ["--bootstrap-server", secured.bootstrap, "--json"]
    file = tmp_path / "password"
    file.write_text("two\n")
    command = [
        "users",
        "add",
        "carol",
        "--mechanism",
        "scram-sha-256",
        "--password-file",
        str(file),
        *servers,
    ]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out) == {
        "user": "carol",
        "mechanisms": ["SCRAM-SHA-256"],
        "iterations": 4096,
    }
    assert "_AUTHENTICATION" in refusal(carol)
    round_trip(carol | {"sasl.password": "two", "group.instance.id": "2"}, secured.create_topic("carol"))
    assert run(["users", "list", *servers]) == 0
    listed = json.loads(capsys.readouterr().out)["users"]
    assert [user["user"] for user in listed] == [USER, BOB, "broker", "carol", ERIN, FRANK]
    assert run(["users", "remove", "carol", *servers]) == 0
    assert run(["users", "describe", "carol", *servers]) == 1
    assert "there is no user carol" in capsys.readouterr().err
    assert "_AUTHENTICATION" in refusal(carol | {"sasl.password": "two"})
    deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
    with pytest.raises(KafkaException) as refused:
        secured.admin.alter_user_scram_credentials([deletion])["carol"].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_who_is_known_and_not_allowed_is_refused(secured: SecuredCluster) -> None:
    credential = UserScramCredentialUpsertion(
        "dave", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"x"
    )
    secured.admin.alter_user_scram_credentials([credential])["dave"].result(WAIT_S)
    properties = secured.librdkafka("SASL", "SCRAM-SHA-256", "x") | {"sasl.username": "dave"}
    errors: list[KafkaError | None] = []
    producer = Producer(properties | {"message.timeout.ms": 20_000})
    producer.produce(
        secured.create_topic("dave"), b"value", on_delivery=lambda error, _: errors.append(error)
    )
    producer.flush(WAIT_S)
    assert [error and error.code() for error in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_the_console_reads_messages_over_the_listener_of_brokers(secured: SecuredCluster) -> None:
    """Each node's, with the TLS and the credentials that brokers have between each other."""
    topic = secured.create_topic("console", partitions=3)
    producer = Producer(secured.librdkafka("SASL", "PLAIN"))
    for number in range(3):
        producer.produce(topic, b"%d" % number, partition=number)
    assert producer.flush(WAIT_S) == 0

    def read(node_id: int) -> list[str] | None:
        answer = secured.local.http_json(node_id, f"/api/topics/{topic}/messages?offset=earliest")
        found = sorted(message["value"]["text"] for message in answer["messages"])
        return found if len(found) == 3 else None

    for node_id in secured.node_ids:
        assert until(partial(read, node_id), f"node {node_id} tells of all") == ["0", "1", "2"]


ROTATIONS, NEWCOMERS = 3, 4


def test_certificates_are_renewed_under_load(secured: SecuredCluster) -> None:
    """A producer never stops, others come anew all the time; each is shown the certificate of the moment, and no
    request of anybody fails."""
    topic = secured.create_topic("rotated")
    outcomes: list[KafkaError | None] = []
    disconnects: list[int] = []

    def seen(text: str) -> None:
        disconnects[:] = [broker["disconnects"] for broker in json.loads(text)["brokers"].values()]

    def send(producer: Producer) -> None:
        producer.produce(topic, bytes(100), on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0)

    properties = secured.librdkafka("SASLTLS", "PLAIN")
    steady = Producer(properties | {"statistics.interval.ms": 200, "stats_cb": seen})
    host, port = secured.servers("SASLTLS").split(",")[0].split(":")
    expected = 0

    def shown() -> bool:
        nonlocal expected
        send(steady)
        expected += 1
        certificate = ssl.get_server_certificate((host, int(port)), ca_certs=str(secured.trusted))
        return certificate.strip() in Path(secured.node_identity).read_text()

    for number in range(ROTATIONS):
        secured.authority.write_identity(secured.node_identity, f"CN=renewed-{number}")
        until(shown, "newcomers are shown the new certificate")
        for newcomer in [Producer(properties) for _ in range(NEWCOMERS)]:
            send(newcomer)
            send(steady)
            expected += 2
            assert newcomer.flush(WAIT_S) == 0
    assert steady.flush(WAIT_S) == 0
    assert outcomes == [None] * expected
    until(lambda: steady.poll(0.1) >= 0 and disconnects, "the producer has told of its connections")
    assert set(disconnects) == {0}


@pytest.mark.parametrize("names", ["librdkafka", "java"])
def test_our_commands_say_who_they_are(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: str
) -> None:
    """By a file with a client's own keys; the servers stand in it too."""
    file = tmp_path / "client.properties"
    quoted = PASSWORD.replace('"', '\\\\"')
    of_names = {
        "librdkafka": f"sasl.username={USER}\nsasl.password={PASSWORD}\nssl.ca.location={secured.trusted}\n",
        "java": f'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}"'
        f' password="{quoted}";\nssl.truststore.location={secured.trusted}\nssl.truststore.type=PEM\n',
    }
    common = f"bootstrap.servers={secured.servers('SASLTLS')}\nsecurity.protocol=SASL_SSL\nclient.id=me\n"
    file.write_text(common + "sasl.mechanism=SCRAM-SHA-512\n" + of_names[names])
    topic, lines = secured.create_topic("cli"), tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    config = ["--command-config", str(file)]
    assert run(["topics", "describe", topic, "--json", *config]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["leo"].keys() == {"1", "2", "3"}
    assert run(["produce", topic, str(lines), *config]) == 0
    capsys.readouterr()
    assert run(["consume", topic, "--from-beginning", "--exit-at-end", *config]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    file.write_text(file.read_text().replace("of=alice", "of=nobody"))
    assert run(["users", "list", *config]) == 1
    told = capsys.readouterr().err
    assert "SASL_AUTHENTICATION_FAILED" in told
    assert "of=nobody" not in told


def test_a_quota_is_of_the_user_whatever_the_client_is_called(secured: SecuredCluster) -> None:
    topic = secured.create_topic("quota-of-a-user")
    server = ["--bootstrap-server", secured.bootstrap]
    assert run(["quotas", "add", "producer_byte_rate=500", "--user", USER, *server]) == 0
    try:
        told: list[float] = []
        for client_id in ("one", "two"):
            properties = secured.librdkafka("SASL", "SCRAM-SHA-512") | {"client.id": client_id}
            producer = Producer(properties | {"throttle_cb": lambda event: told.append(event.throttle_time)})
            producer.produce(topic, bytes(15_000), partition=0)
            assert producer.flush(WAIT_S) == 0
        assert (
            max(told) > 25
        )  # seconds: 20 for what each sent, less the burst; 50 for both, less what passed since
    finally:
        assert run(["quotas", "remove", "--user", USER, *server]) == 0
