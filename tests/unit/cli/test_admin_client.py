"""The command line's admin client: which bootstrap server it takes, and what it makes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kraft.cli.app import run
from kraft.cli.consume import positions
from kraft.cli.shared import admin_client
from kraft.cli.shared.admin_client import AdminClient, Peers, raise_for
from kraft.cli.shared.command_config import CommandConfig, Servers
from kraft.network.authentication import AuthenticatedConnection
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.metadata import MetadataRequest
from kraft.security.mechanisms import Credentials
from kraft.spark.security import Security
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, UserError
from tests.support.fake_broker import FakeCluster
from tests.support.sasl_server import SaslUsers


@pytest.fixture
async def strange_servers() -> AsyncIterator[tuple[str, str]]:
    """Two that accept connections: one closes them at once, as a broker that starts; one says nothing, as the
    kernel of one that stands still."""
    held: list[asyncio.StreamWriter] = []

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    closing = await asyncio.start_server(close, "127.0.0.1", 0)
    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    yield tuple(f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in (closing, silent))
    for server in (closing, silent):
        server.close()
    for writer in held:
        writer.close()


async def test_the_first_server_that_answers_is_taken(
    strange_servers: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silent one costs its time; whoever answers may be slow here."""
    answering = admin_client._answering

    async def timed(peers: Peers, host: str, port: int) -> AuthenticatedConnection:
        is_silent = f"{host}:{port}" == strange_servers[1]
        monkeypatch.setattr(admin_client, "CONNECT_TIMEOUT_S", 0.1 if is_silent else 60.0)
        return await answering(peers, host, port)

    monkeypatch.setattr(admin_client, "_answering", timed)
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        client = await AdminClient.connect(",".join((*strange_servers, cluster.bootstrap)))
        try:
            assert [topic.name for topic in (await client.metadata(["t"])).topics] == ["t"]
        finally:
            client.close()


async def test_every_server_is_tried_once_and_named(
    strange_servers: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "CONNECT_TIMEOUT_S", 0.1)
    with pytest.raises(UserError, match="no broker answers") as caught:
        await AdminClient.connect(",".join(strange_servers))
    for address in strange_servers:
        assert str(caught.value).count(address) == 1


async def test_a_broker_that_stands_still_is_waited_for_once(
    strange_servers: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "LOOK_TIMEOUT_S", 0.1)
    host, port = strange_servers[1].split(":")
    with FakeCluster() as cluster:
        client = await AdminClient.connect(cluster.bootstrap)
        try:
            client._addresses = {7: (host, int(port))}
            assert await client.end_offsets(7, "t", [0], -2) == {}
            monkeypatch.setattr(admin_client, "LOOK_TIMEOUT_S", 3600)
            assert await client.end_offsets(7, "t", [0], -2) == {}
        finally:
            client.close()


async def test_who_turns_to_the_next_server_goes_round() -> None:
    with FakeCluster(brokers=3) as cluster:
        client = await AdminClient.connect(cluster.bootstrap)
        try:
            cluster.stop(1)
            cluster.stop(2)
            await client.turn_to_next()
            await client.metadata([])
            assert cluster.requests[-1][0] == 3
            cluster.start(2)
            await client.turn_to_next()
            await client.metadata([])
            assert cluster.requests[-1][0] == 2
            cluster.stop(2)
            cluster.stop(3)
            with pytest.raises(ConnectionLostError, match="no broker answers"):
                await client.turn_to_next()
            cluster.start(3)
            await client.turn_to_next()
            await client.metadata([])
            assert cluster.requests[-1][0] == 3
        finally:
            client.close()


@pytest.mark.parametrize(
    "command",
    [
        ("quorum", "describe"),
        ("topics", "describe"),
        ("configs", "describe", "--entity-type", "brokers", "--entity-default"),
        ("reassign", "verify"),
        ("consume", "t"),
        ("metadata", "dump"),
    ],
)
def test_what_nobody_answers_cannot_be_told(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "METADATA_TIMEOUT_S", 0.5)
    assert run([*command, "--bootstrap-server", "127.0.0.1:1"]) == EXIT_UNDECIDED
    assert "no broker answer" in capsys.readouterr().err


def test_a_change_that_nobody_answers_is_not_made() -> None:
    assert run(["topics", "delete", "t", "--bootstrap-server", "127.0.0.1:1"]) == EXIT_FAILED


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "create", "t"),
        ("topics", "delete", "t"),
        ("topics", "elect-leaders", "t", "--election-type", "preferred"),
        ("reassign", "start", "t", "--to", "1"),
        ("reassign", "cancel", "t", "--partition", "0"),
        ("configs", "alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "k=v"),
    ],
)
def test_of_a_change_whose_answer_is_lost_it_cannot_be_told(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    def hang_up(_: int, request: Message) -> None:
        if not isinstance(request, MetadataRequest):
            raise ConnectionResetError

    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.hook = hang_up
        assert run([*command, "--bootstrap-server", cluster.bootstrap]) == EXIT_UNDECIDED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "cannot be told" in shown.err


@pytest.mark.parametrize(
    ("code", "exit_code", "text"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, EXIT_FAILED, "topic t was not created: why (TOPIC_ALREADY_EXISTS)"),
        (
            ErrorCode.REQUEST_TIMED_OUT,
            EXIT_UNDECIDED,
            "it cannot be told whether topic t was created: why (REQUEST_TIMED_OUT)",
        ),
    ],
)
def test_a_change_that_timed_out_is_undecided(code: ErrorCode, exit_code: int, text: str) -> None:
    with pytest.raises(UserError) as caught:
        raise_for(code, "why", "topic t was not created", change="topic t was created")
    assert (caught.value.exit_code, str(caught.value)) == (exit_code, text)
    raise_for(ErrorCode.NONE, None, "nothing")


def test_a_question_that_timed_out_has_failed_undecided() -> None:
    with pytest.raises(UserError) as caught:
        raise_for(ErrorCode.REQUEST_TIMED_OUT, "why", "the quorum was not described")
    assert caught.value.exit_code == EXIT_UNDECIDED
    assert str(caught.value) == "the quorum was not described: why (REQUEST_TIMED_OUT)"


async def test_a_command_renews_its_session_on_the_same_connection() -> None:
    """Requests that find it nearly over wait for one of them to authenticate."""
    users = SaslUsers({"alice": "secret"}, lifetime_ms=60_000)
    with FakeCluster(sasl=users) as cluster:
        security = Security(credentials=Credentials("SCRAM-SHA-256", "alice", "secret"))
        client = await AdminClient.connect(
            Servers.of(cluster.bootstrap, CommandConfig(None, security, options={}))
        )
        try:
            first = users.authenticated[0]
            await client.metadata([])
            assert users.authenticated == [first]
            client._connection._renew_at_s = 0.0  # its time has come
            await asyncio.gather(*(client.metadata([]) for _ in range(3)))
            assert users.authenticated == [first, first]
            users.passwords["alice"] = "another"
            client._connection._renew_at_s = 0.0
            with pytest.raises(ConnectionLostError, match="SASL_AUTHENTICATION_FAILED"):
                await client.metadata([])
            assert client._connection.closed
        finally:
            client.close()
