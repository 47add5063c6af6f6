"""Brokers that ask who the job is: by each mechanism, again when a session ends, and what is said when they refuse."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft.protocol import ErrorCode
from kraft.security.mechanisms import MECHANISMS
from kraft.spark.client import ClusterClient
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import AuthenticationError, ConnectorError, UnsupportedBrokerError
from kraft.spark.options import ReadOptions, parse_options
from kraft.spark.plan import plan
from kraft.spark.stream_wait import NewsWatch
from partitions.topic_partition import TopicPartition
from tests.support.fake_broker import FakeCluster
from tests.support.sasl_server import SaslUsers
from tests.support.tokens import Issuer
from tests.unit.spark.conftest import Waiting

PASSWORD, WRONG = 'hun"ter2', "wrong-hunter"


@pytest.fixture
def users(waiting: Waiting) -> SaslUsers:
    return SaslUsers({"alice": PASSWORD}, clock=lambda: waiting.now)


@pytest.fixture
def cluster(users: SaslUsers) -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2, sasl=users) as fake:
        fake.create_topic("orders", leaders=(1, 2))
        yield fake


def options_for(cluster: FakeCluster, mechanism: str, password: str = PASSWORD) -> ReadOptions:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = password.replace('"', '\\"')
    return parse_options(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": "orders",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.{module} required"
            f' username="alice" password="{quoted}";',
        }
    )


@pytest.fixture
def connect(cluster: FakeCluster, waiting: Waiting) -> Iterator[Callable[..., ClusterClient]]:
    clients: list[ClusterClient] = []

    def make(mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD) -> ClusterClient:
        options = options_for(cluster, mechanism, password)
        clients.append(
            ClusterClient(
                options.bootstrap, client_id="test", policy=waiting.policy(), security=options.security
            )
        )
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_connection_says_who_it_is(
    cluster: FakeCluster, users: SaslUsers, connect: Callable[..., ClusterClient], mechanism: str
) -> None:
    cluster.topics["orders"].partitions[1].append([(1, None, b"x", ())])
    options = options_for(cluster, mechanism)
    client = connect(mechanism)
    assert sum(part.end - part.start for part in plan(client, options, LossPolicy())) == 1
    assert {name for _, name in users.authenticated} == {"alice"}
    watch = NewsWatch(client)
    before = len(users.authenticated)
    watch.wait({TopicPartition("orders", 1): (cluster.topics["orders"].topic_id, 0)})
    watch.close()
    assert len(users.authenticated) == before + 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sessions_are_renewed_on_the_same_connection(
    cluster: FakeCluster,
    users: SaslUsers,
    connect: Callable[..., ClusterClient],
    waiting: Waiting,
    mechanism: str,
) -> None:
    cluster.stop(2)
    users.lifetime_ms = 10_000
    client = connect(mechanism)
    client.topics([])
    first = users.authenticated[0]
    for now, sessions in ((8.9, 1), (9.1, 2), (18.0, 2), (18.2, 3), (60.0, 4)):
        waiting.now = now
        client.topics([])
        assert users.authenticated == [first] * sessions


def test_a_password_that_does_not_hold_any_longer_ends_the_connection(
    users: SaslUsers, connect: Callable[..., ClusterClient], waiting: Waiting
) -> None:
    users.lifetime_ms = 10_000
    client = connect()
    client.topics([])
    users.passwords["alice"] = "another"
    waiting.now = 9.5
    with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
        client.topics([])
    users.passwords["alice"] = PASSWORD
    assert client.topics([]) == {}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_at_once_and_shown_to_nobody(
    connect: Callable[..., ClusterClient], waiting: Waiting, users: SaslUsers, mechanism: str
) -> None:
    users.reason = "User alice is unknown"
    with pytest.raises(AuthenticationError) as refused:
        connect(mechanism, WRONG).topics([])
    assert (
        f"refuses authentication by {mechanism}: SASL_AUTHENTICATION_FAILED. User alice is unknown."
        in str(refused.value)
    )
    assert "kafka.sasl.jaas.config" in str(refused.value)
    assert waiting.now == 0
    assert "hunter" not in "".join(traceback.format_exception(refused.value))


def test_a_broker_that_repeats_the_password(connect: Callable[..., ClusterClient], users: SaslUsers) -> None:
    users.reason = "The password wrong-hunter is wrong"
    with pytest.raises(AuthenticationError) as refused:
        connect("PLAIN", WRONG).topics([])
    assert "hunter" not in str(refused.value)


def test_a_server_that_does_not_know_the_password(
    connect: Callable[..., ClusterClient], users: SaslUsers
) -> None:
    users.distort = lambda token: b"v=AAAA" if token.startswith(b"v=") else token
    with pytest.raises(AuthenticationError, match="the server does not know the password") as refused:
        connect("SCRAM-SHA-512").topics([])
    assert "hun" not in "".join(traceback.format_exception(refused.value))


def test_a_mechanism_that_is_not_offered(connect: Callable[..., ClusterClient], users: SaslUsers) -> None:
    users.mechanisms = ("SCRAM-SHA-512", "OAUTHBEARER")
    with pytest.raises(
        AuthenticationError, match=r"It offers SCRAM-SHA-512, OAUTHBEARER: set kafka.sasl.mech"
    ):
        connect("PLAIN").topics([])


@pytest.fixture
def by_token(
    cluster: FakeCluster, users: SaslUsers, waiting: Waiting, tmp_path: Path
) -> Iterator[tuple[ClusterClient, Path]]:
    """A client whose tokens stand in a file."""
    users.mechanisms = ("OAUTHBEARER",)
    file = tmp_path / "hunter-token"
    options = parse_options(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": "orders",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
    )
    with ClusterClient(
        options.bootstrap, client_id="test", policy=waiting.policy(), security=options.security
    ) as client:
        yield client, file


def test_each_session_has_the_token_that_counts_then(
    by_token: tuple[ClusterClient, Path], cluster: FakeCluster, users: SaslUsers, waiting: Waiting
) -> None:
    client, file = by_token
    cluster.stop(2)
    users.lifetime_ms = 10_000
    issuer = Issuer()
    for number, now in enumerate((0.0, 9.1, 18.2)):
        token = issuer.token(time.time(), f"alice-{number}")
        file.write_text(token)
        users.tokens = {token: f"alice-{number}"}
        waiting.now = now
        client.topics([])
    assert [name for _, name in users.authenticated] == ["alice-0", "alice-1", "alice-2"]
    assert len({connection for connection, _ in users.authenticated}) == 1


def test_a_token_that_is_refused_is_told_and_shown_to_nobody(
    by_token: tuple[ClusterClient, Path], users: SaslUsers, waiting: Waiting
) -> None:
    client, file = by_token
    token = Issuer().token(time.time())
    file.write_text(token)
    refusal = "refuses authentication by OAUTHBEARER: SASL_AUTHENTICATION_FAILED."
    for reason, told in (
        ("It is of another issuer.", " It is of another issuer."),
        (f"{token} is wrong", " "),
    ):
        users.reason = reason
        with pytest.raises(AuthenticationError) as refused:
            client.topics([])
        assert f"{refusal}{told}" in str(refused.value)
        assert "Check whose token it is, for which audience, and until when." in str(refused.value)
        assert token not in "".join(traceback.format_exception(refused.value))
    assert waiting.now == 0


def test_a_token_that_is_not_there(by_token: tuple[ClusterClient, Path], users: SaslUsers) -> None:
    with pytest.raises(
        AuthenticationError, match=r"There is no token for .* OAUTHBEARER: file:.*No such file"
    ):
        by_token[0].topics([])
    assert users.authenticated == []


def test_brokers_without_sasl(cluster: FakeCluster, connect: Callable[..., ClusterClient]) -> None:
    cluster.api_versions.pop(17)
    with pytest.raises(
        UnsupportedBrokerError, match=r"SASL_HANDSHAKE .* does not offer it\. Where brokers have no"
    ):
        connect().topics([])


def test_a_client_that_does_not_say_who_it_is(cluster: FakeCluster, waiting: Waiting) -> None:
    options = parse_options({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"})
    with (
        ClusterClient(options.bootstrap, client_id="test", policy=waiting.policy()) as client,
        pytest.raises(ConnectorError, match="closed the connection before it answered"),
    ):
        client.topics([])


def test_a_listener_without_sasl(users: SaslUsers, connect: Callable[..., ClusterClient]) -> None:
    users.handshake_error = ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(AuthenticationError, match=r"ILLEGAL_SASL_STATE\. A listener without SASL says so"):
        connect().topics([])
