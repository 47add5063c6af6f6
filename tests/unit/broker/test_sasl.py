"""A SASL listener as clients see it: the door, its refusals and their delay, sessions, and brokers that come by it.

The doors before authentication are fuzzed: whatever bytes come, nobody is let in, nothing but the connection ends, and
memory is bounded. KRAFT_FUZZ_INPUTS sets how many inputs there are (some thousands by default).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.dispatch import Dispatcher
from kraft.broker.listener_security import ListenerSecurity
from kraft.broker.peer_security import PeerSecurity, peer_security
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.config import ConfigError, load_config
from kraft.network.authentication import AuthenticationFailedError, authenticate
from kraft.network.client import BrokerConnection, ConnectionLostError
from kraft.network.connection import CloseConnectionError
from kraft.network.limits import NetworkLimits
from kraft.network.request import decoding
from kraft.network.server import SocketServer
from kraft.network.session import Session
from kraft.protocol.schemas.api_versions import ApiVersionsRequest
from kraft.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kraft.protocol.schemas.scram_credentials import DescribeUserScramCredentialsRequest
from kraft.runtime.tokens import Tokens
from kraft.security.mechanisms import Credentials
from kraft.security.sasl_servers import ScramUsers
from kraft.security.scram import salted_password, scram_keys
from kraft.security.token_login import MODULE
from quorum.metadata.records import Listener, UserScramCredential
from tests.fuzz.inputs import any_request
from tests.support.broker_world import BrokerWorld
from tests.support.token_endpoint import TokenEndpoint
from tests.support.tokens import AUDIENCE, Issuer

SCRAM = "SCRAM-SHA-256"
ISSUES = Issuer()
KEYS = scram_keys(SCRAM, salted_password(SCRAM, "secret", b"salt", 4096))
ALICE = UserScramCredential("alice", 1, b"salt", KEYS.stored, KEYS.server, 4096)
TEXT = (
    "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
    "controller.listener.names=CONTROLLER\nlisteners=SASL://:9092,CONTROLLER://:9093\n"
    "listener.security.protocol.map=SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    f"sasl.enabled.mechanisms={SCRAM},PLAIN\nsasl.mechanism.inter.broker.protocol={SCRAM}\n"
    f'listener.name.sasl.{SCRAM.lower()}.sasl.jaas.config=S required username="alice" password="secret";\n'
    'listener.name.sasl.plain.sasl.jaas.config=P required user_bob="hidden";\n'
)
VERSIONS = {
    SaslHandshakeRequest: 1,
    SaslAuthenticateRequest: 2,
    ApiVersionsRequest: 3,
    DescribeUserScramCredentialsRequest: 0,
}
TIMEOUT_S = 10.0
INPUTS = int(os.environ.get("KRAFT_FUZZ_INPUTS", "4000"))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def by_tokens(keys: Path, url: str, secret: str) -> str:
    """What a configuration says where brokers know each other by tokens. The URL stands behind the listener's name."""
    return (
        "sasl.mechanism.inter.broker.protocol=OAUTHBEARER\nsasl.enabled.mechanisms=OAUTHBEARER,PLAIN\n"
        f"sasl.oauthbearer.jwks.endpoint.url={ISSUES.write_jwks(keys)}\n"
        f"sasl.oauthbearer.expected.audience={AUDIENCE}\nsasl.login.retry.backoff.max.ms=1\n"
        f"listener.name.sasl.oauthbearer.sasl.oauthbearer.token.endpoint.url={url}\n"
        f'listener.name.sasl.oauthbearer.sasl.jaas.config={MODULE} required clientId="broker"'
        f' clientSecret="{secret}";\n'
    )


class Ahead:
    """A clock that is put forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead_ms


class Door:
    """A SASL listener of a broker in a world of its own."""

    def __init__(self, world: BrokerWorld, extra: str) -> None:
        self.sessions: list[Session] = []
        self.config = config = load_config(TEXT + extra)
        users = ScramUsers(lambda: world.services.metadata.image.scram_credentials, b"secret")
        security = ListenerSecurity(config, config.inter_broker_listener, users, random.Random(1), now_ms)

        def introduce(session: Session, transport: asyncio.Transport) -> None:
            security.introduce(session, transport)
            self.sessions.append(session)

        self.handler = decoding(Dispatcher(world.services))
        self.security = security
        self.server = SocketServer(
            self.handler,
            authentication_required=True,
            introduce=introduce,
            name="SASL",
            limits=NetworkLimits(),
        )

    async def connect(self) -> BrokerConnection:
        return await BrokerConnection.connect("127.0.0.1", self.server.port, client_id="test")

    def peer(self, password: str = "secret") -> PeerConnection:
        return self.peer_of(PeerSecurity(None, Credentials(SCRAM, "alice", password), lambda: "nonce"))

    def peer_of(self, security: PeerSecurity) -> PeerConnection:
        address = Listener("SASL", "127.0.0.1", self.server.port, "SASL_PLAINTEXT")
        return PeerConnection(1, lambda: address, client_id="test", security=security)


@asynccontextmanager
async def door(world: BrokerWorld, extra: str = "") -> AsyncIterator[Door]:
    await world.start(ALICE)
    made = Door(world, extra)
    await made.security.start()
    await made.server.start("127.0.0.1", 0)
    try:
        yield made
    finally:
        await made.server.close(0)
        await made.security.close()


async def ask(connection: BrokerConnection, message: Any) -> Any:
    return await connection.request(message, VERSIONS[type(message)], timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    ("credentials", "principal"),
    [
        (Credentials(SCRAM, "alice", "secret"), "User:alice"),
        (Credentials("PLAIN", "bob", "hidden"), "User:bob"),
    ],
)
async def test_who_says_who_it_is_is_served(
    world: BrokerWorld, credentials: Credentials, principal: str
) -> None:
    async with door(world) as opened:
        connection = await opened.connect()
        assert (await ask(connection, ApiVersionsRequest("test", "1"))).error_code == 0
        assert await authenticate(connection, credentials, "nonce", timeout_s=TIMEOUT_S) is None
        assert (await ask(connection, DescribeUserScramCredentialsRequest())).results[0].user == "alice"
        assert [session.principal for session in opened.sessions] == [principal]
        connection.close()


async def test_who_does_not_is_not_served(world: BrokerWorld) -> None:
    async with door(world) as opened:
        for first in ([], [SaslHandshakeRequest("PLAIN")]):
            connection = await opened.connect()
            for message in first:
                assert (await ask(connection, message)).mechanisms == [SCRAM, "PLAIN"]
            with pytest.raises(ConnectionLostError):
                await ask(connection, DescribeUserScramCredentialsRequest())
        assert {session.principal for session in opened.sessions} == {"User:ANONYMOUS"}


async def test_a_refusal_waits_and_then_ends_the_connection(world: BrokerWorld) -> None:
    """The answer comes when the delay is over, and what was sent behind the wrong password is not looked at."""
    async with door(world) as opened:
        connection = await opened.connect()
        await ask(connection, SaslHandshakeRequest("PLAIN"))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        behind = loop.create_task(ask(connection, SaslAuthenticateRequest(b"\0bob\0wrong")))
        after = loop.create_task(ask(connection, SaslAuthenticateRequest(b"\0bob\0hidden")))
        answer = await behind
        assert (answer.error_code, answer.error_message) == (
            58,
            "Authentication failed: Invalid username or password",
        )
        assert (
            loop.time() - began_s
            >= world.services.config.get("connection.failed.authentication.delay.ms") / 1000
        )
        with pytest.raises(ConnectionLostError):
            await after
        assert opened.sessions[0].principal == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        (Credentials(SCRAM, "alice", "wrong"), "SASL_AUTHENTICATION_FAILED"),
        (Credentials(SCRAM, "nobody", "secret"), "SASL_AUTHENTICATION_FAILED"),
        (
            Credentials("SCRAM-SHA-512", "alice", "secret"),
            "UNSUPPORTED_SASL_MECHANISM; it offers SCRAM-SHA-256, PLAIN",
        ),
    ],
)
async def test_a_broker_that_is_refused_is_told_why(
    world: BrokerWorld, credentials: Credentials, reason: str
) -> None:
    async with door(world) as opened:
        connection = await opened.connect()
        with pytest.raises(AuthenticationFailedError, match=reason):
            await authenticate(connection, credentials, "nonce", timeout_s=TIMEOUT_S)


async def test_brokers_authenticate_and_renew_their_sessions(world: BrokerWorld) -> None:
    async with door(world, "connections.max.reauth.ms=2000\n") as opened:
        peer = opened.peer()
        for _ in range(2):
            await peer.request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S)
        assert peer._connection is not None
        peer._connection._renew_at_s = 0.0  # its time has come
        await asyncio.sleep(1.1)  # no client may authenticate more often than once a second
        await asyncio.gather(
            *(peer.request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S) for _ in range(3))
        )
        assert [session.principal for session in opened.sessions] == ["User:alice"], "one connection"
        peer.close()
        with pytest.raises(LeaderUnavailable, match="due to invalid credentials"):
            await opened.peer("wrong").request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S)


async def test_brokers_show_each_other_tokens_and_renew_them(world: BrokerWorld, tmp_path: Path) -> None:
    """A session ends with its token, and is renewed on its connection with a new one."""
    with TokenEndpoint(ISSUES, {"broker": "hunter2"}, lifetime_s=3600) as endpoint:
        async with door(world, by_tokens(tmp_path / "keys", endpoint.url, "hunter2")) as opened:
            clock = Ahead()
            security = peer_security(opened.config, random.Random(1), clock)
            await security.start()
            peer = opened.peer_of(security)
            await peer.request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S)
            connection = peer._connection
            assert connection is not None
            assert connection._renew_at_s is not None
            clock.ahead_ms = 3_000_000
            assert isinstance(security.credentials, Tokens)
            await security.credentials.begin()
            connection._renew_at_s = 0.0  # its time has come
            await asyncio.sleep(1.1)  # no client may authenticate more often than once a second
            await peer.request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S)
            assert peer._connection is connection
            assert [session.principal for session in opened.sessions] == ["User:broker"], "one connection"
            assert len(endpoint.asked) == 2
            peer.close()
            await security.close()


async def test_a_broker_without_a_token_says_why_and_comes_again(world: BrokerWorld, tmp_path: Path) -> None:
    with TokenEndpoint(ISSUES, {"broker": "another"}) as endpoint:
        async with door(world, by_tokens(tmp_path / "keys", endpoint.url, "hunter2")) as opened:
            security = peer_security(opened.config, random.Random(1), now_ms)
            with capture_logs() as logs:
                await security.start()
                peer = opened.peer_of(security)
                with pytest.raises(
                    LeaderUnavailable, match=r"needs a token, and there is none: .* answers 401"
                ) as told:
                    await peer.request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S)
            assert "hunter" not in str(told.value) + str(logs)
            assert "cannot be had" in str(logs)
            endpoint.clients["broker"] = "hunter2"
            await peer.request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S)
            peer.close()
            await security.close()


async def test_a_token_file_that_is_not_there_keeps_a_broker_from_starting(
    world: BrokerWorld, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    async with door(world, by_tokens(tmp_path / "keys", file.as_uri(), "")) as opened:
        security = peer_security(opened.config, random.Random(1), now_ms)
        with pytest.raises(ConfigError, match=r"token\.endpoint\.url: file:.*cannot be read: No such file"):
            await security.start()
        file.write_text(ISSUES.sign(ISSUES.claims(time.time(), "broker") | {"aud": "others"}))
        await security.start()
        peer = opened.peer_of(security)
        with pytest.raises(
            LeaderUnavailable, match=r"by OAUTHBEARER as broker with .*: the token is for another audience"
        ):
            await peer.request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S)
        file.write_text(ISSUES.token(time.time(), "broker"))
        await peer.request(DescribeUserScramCredentialsRequest(), 0, timeout_s=TIMEOUT_S)
        peer.close()
        await security.close()


async def test_a_session_that_has_ended_ends_the_connection(world: BrokerWorld) -> None:
    async with door(world, "connections.max.reauth.ms=1\n") as opened:
        connection = await opened.connect()
        await authenticate(connection, Credentials(SCRAM, "alice", "secret"), "nonce", timeout_s=TIMEOUT_S)
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLostError):
            await ask(connection, DescribeUserScramCredentialsRequest())


async def test_a_listener_without_sasl_says_so(world: BrokerWorld) -> None:
    await world.start()
    server = SocketServer(decoding(Dispatcher(world.services)))
    await server.start("127.0.0.1", 0)
    connection = await BrokerConnection.connect("127.0.0.1", server.port, client_id="test")
    for message in (SaslHandshakeRequest("PLAIN"), SaslAuthenticateRequest(b"")):
        assert (await ask(connection, message)).error_code == 34
    connection.close()
    await server.close(0)


# -- fuzzing


async def fuzz(port: int, rng: random.Random) -> None:
    """One connection, and some frames of any kind."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(rng.randrange(1, 8)):
        content = any_request(rng)
        length = len(content) if rng.random() < 0.9 else rng.randrange(-(2**31), 2**31)
        writer.write(length.to_bytes(4, "big", signed=True) + content)
    writer.write_eof()
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), TIMEOUT_S)
    writer.close()


async def test_no_bytes_open_the_door(world: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    """Through real connections: nobody is let in, and no handler has a defect."""
    rng = random.Random(5)
    async with door(world) as opened:
        with caplog.at_level(logging.ERROR):
            for _ in range(INPUTS // 400):  # refusals wait: many at a time
                await asyncio.gather(*(fuzz(opened.server.port, rng) for _ in range(100)))
        assert {session.principal for session in opened.sessions} == {"User:ANONYMOUS"}
        assert [record.getMessage() for record in caplog.records] == []
        connection = await opened.connect()
        await authenticate(connection, Credentials(SCRAM, "alice", "secret"), "nonce", timeout_s=TIMEOUT_S)
        connection.close()


async def test_nor_do_any_in_process(world: BrokerWorld) -> None:
    """Straight into the handler, many more: each is answered, refused, or closes its connection, and nothing else."""
    rng = random.Random(7)
    async with door(world) as opened:
        for _ in range(INPUTS):
            session = Session("SASL", ("127.0.0.1", 1))
            opened.security.introduce(session, None)  # type: ignore[arg-type]
            connection: Any = type("Connected", (), {"session": session})()
            for _ in range(rng.randrange(1, 6)):
                try:
                    answer = opened.handler(memoryview(any_request(rng)), connection)
                except CloseConnectionError:
                    break
                if hasattr(answer, "future"):
                    answer.future.cancel()
                elif answer is not None and hasattr(answer, "close"):
                    answer.close()
            assert session.principal == "User:ANONYMOUS"
