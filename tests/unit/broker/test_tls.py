"""Contexts of TLS: from PEM and PKCS12 files and from texts, read again when they change; names in certificates."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kraft.broker.listener_security import ListenerSecurity, inter_broker_principal
from kraft.broker.tls import follower_context, server_context
from kraft.config import ConfigError, ServerConfig, load_config
from kraft.network.connection import Connection
from kraft.network.response import Response
from kraft.network.server import SocketServer
from kraft.network.session import Session
from kraft.security.sasl_servers import ScramUsers
from tests.support.certificates import Authority

FRAME = (8).to_bytes(4, "big") + b"01234567"
BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "SSL://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


class Files:
    """An authority, and a node's files that it signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.trusted = self.authority.write_certificate(folder / "ca.pem")
        self.node = self.authority.write_identity(folder / "node.pem", "CN=node,O=kraft")
        self.client = self.authority.write_identity(folder / "client.pem", "CN=alice,OU=people,O=kraft")

    def config(self, **changes: str) -> ServerConfig:
        given = {key.replace("_", "."): value for key, value in changes.items()}
        files = {"ssl.keystore.location": str(self.node), "ssl.truststore.location": str(self.trusted)}
        values = {**BASE, **files, **given}
        return load_config("\n".join(f"{key}={value}" for key, value in values.items() if value))

    def client_context(self, identity: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.trusted))
        if identity is not None:
            context.load_cert_chain(identity)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def serving(config: ServerConfig) -> AsyncIterator[tuple[SocketServer, list[Session]]]:
    """A listener that echoes, and the sessions of its connections."""
    security = ListenerSecurity(config, config.inter_broker_listener, ScramUsers(dict, b""), None, lambda: 0)  # type: ignore[arg-type]
    sessions: list[Session] = []

    def introduce(session: Session, transport: asyncio.Transport) -> None:
        security.introduce(session, transport)
        sessions.append(session)

    def echo(frame: memoryview, _: Connection) -> Response:
        return Response.of(bytes(frame))

    server = SocketServer(echo, ssl_context=security.tls(), introduce=introduce)
    await server.start("127.0.0.1", 0)
    try:
        yield server, sessions
    finally:
        await server.close(0)


async def ask(server: SocketServer, context: ssl.SSLContext) -> tuple[str | None, dict[str, object] | None]:
    """One request over one connection: the version of TLS, and the server's certificate."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    try:
        writer.write(FRAME)
        assert await reader.readexactly(len(FRAME)) == FRAME
        tls = writer.get_extra_info("ssl_object")
        return tls.version(), tls.getpeercert()
    finally:
        writer.close()


def common_name(certificate: object) -> str:
    assert isinstance(certificate, dict)
    return dict(pair for rdn in certificate["subject"] for pair in rdn)["commonName"]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_both_versions_are_served(files: Files, version: str) -> None:
    context = files.client_context()
    wanted = ssl.TLSVersion.TLSv1_2 if version == "TLSv1.2" else ssl.TLSVersion.TLSv1_3
    context.minimum_version = context.maximum_version = wanted
    async with serving(files.config()) as (server, _):
        assert (await ask(server, context))[0] == version
    other = "TLSv1.3" if version == "TLSv1.2" else "TLSv1.2"
    async with serving(files.config(ssl_enabled_protocols=other)) as (server, _):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(server, context)


@pytest.mark.parametrize(
    ("auth", "with_certificate", "without"),
    [
        ("none", "User:ANONYMOUS", "User:ANONYMOUS"),
        ("requested", "User:CN=alice,OU=people,O=kraft", "User:ANONYMOUS"),
        ("required", "User:CN=alice,OU=people,O=kraft", None),
    ],
)
async def test_who_a_client_is_by_its_certificate(
    files: Files, auth: str, with_certificate: str, without: str | None
) -> None:
    async with serving(files.config(ssl_client_auth=auth)) as (server, sessions):
        await ask(server, files.client_context(files.client))
        assert sessions.pop().principal == with_certificate
        if without is None:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await ask(server, files.client_context())
        else:
            await ask(server, files.client_context())
            assert sessions.pop().principal == without
        stranger = Authority("stranger").write_identity(files.folder / "stranger.pem", "CN=alice")
        if auth != "none":
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await ask(server, files.client_context(stranger))


async def test_rules_say_who_a_certificate_stands_for(files: Files) -> None:
    rules = "RULE:^CN=(.*?),OU=people.*$/$1/U"
    async with serving(files.config(ssl_client_auth="required", ssl_principal_mapping_rules=rules)) as (
        server,
        sessions,
    ):
        await ask(server, files.client_context(files.client))
        assert [session.principal for session in sessions] == ["User:ALICE"]
        other = files.authority.write_identity(files.folder / "robot.pem", "CN=robot,OU=things")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask(server, files.client_context(other))


def pkcs12(files: Files) -> dict[str, str]:
    return {
        "ssl_keystore_location": str(files.authority.write_pkcs12(files.folder / "n.p12", "CN=node", "pw")),
        "ssl_keystore_type": "PKCS12",
        "ssl_keystore_password": "pw",
        "ssl_truststore_location": str(files.authority.write_trust_store(files.folder / "t.p12", "tw")),
        "ssl_truststore_type": "PKCS12",
        "ssl_truststore_password": "tw",
    }


def encrypted_pem(files: Files) -> dict[str, str]:
    path = files.authority.write_identity(files.folder / "e.pem", "CN=node", "pw")
    return {"ssl_keystore_location": str(path), "ssl_key_password": "pw"}


def texts(files: Files) -> dict[str, str]:
    key, marker, chain = files.node.read_text().partition("-----END PRIVATE KEY-----\n")
    return {
        "ssl_keystore_location": "",
        "ssl_keystore_key": (key + marker).replace("\n", "\\n"),
        "ssl_keystore_certificate_chain": chain.replace("\n", "\\n"),
        "ssl_truststore_location": "",
        "ssl_truststore_certificates": files.trusted.read_text().replace("\n", "\\n"),
    }


@pytest.mark.parametrize("stores", [pkcs12, encrypted_pem, texts])
async def test_stores_of_all_kinds(files: Files, stores: Callable[[Files], dict[str, str]]) -> None:
    config = files.config(ssl_client_auth="required", **stores(files))
    async with serving(config) as (server, sessions):
        follower = follower_context(config)
        assert follower is not None
        _, certificate = await ask(server, follower())
        assert common_name(certificate) == "node"
        assert sessions[0].principal == inter_broker_principal(config)
        assert sessions[0].principal.startswith("User:CN=node")


async def test_changed_files_count_from_the_next_connection_on(files: Files) -> None:
    """A new identity by another authority, which alone is trusted now; who is connected stays."""
    async with serving(files.config(ssl_client_auth="required")) as (server, sessions):
        old = files.client_context(files.client)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=old)
        other = Authority("other")
        new_client = other.write_identity(files.folder / "new-client.pem", "CN=bob")
        other.write_certificate(files.trusted)
        other.write_identity(files.node, "CN=renewed")
        new = files.client_context(new_client)
        _, certificate = await ask(server, new)
        assert common_name(certificate) == "renewed"
        assert sessions[-1].principal == "User:CN=bob"
        with pytest.raises(ssl.SSLError):
            await ask(server, old)
        writer.write(FRAME)
        assert await reader.readexactly(len(FRAME)) == FRAME
        files.node.write_text("half written")
        assert common_name((await ask(server, new))[1]) == "renewed"
        other.write_identity(files.node, "CN=whole")
        assert common_name((await ask(server, new))[1]) == "whole"
        writer.close()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ssl_keystore_location": "/not/there"}, "cannot be used: No such file"),
        ({"ssl_truststore_location": "/not/there"}, "cannot be used: No such file"),
        ({"ssl_keystore_type": "PKCS12"}, "is no PKCS12 store, or has another password"),
        ({"ssl_cipher_suites": "NO-SUCH"}, "cannot be used"),
    ],
)
def test_files_that_cannot_be_used(files: Files, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        server_context(files.config(**changes), "SSL")
