"""One broker with a listener of each kind, for clients as they are told: plain, encrypted, authenticated by SCRAM.

All clients of PLAINTEXT are `User:ANONYMOUS`. `User:admin`, who authenticates by SCRAM, may do everything.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench.brokers import Cluster
from bench.errors import BenchError
from bench.groups.link import Address, Link
from kraft.config import load_config
from kraft.local_cluster.cluster import LocalCluster
from kraft.protocol.api import APIS
from kraft.protocol.schema import Message
from kraft.runtime.free_ports import free_port_range, free_ports
from kraft.security.exchange import sasl_exchange
from kraft.security.mechanisms import Credentials
from kraft.storage import added_users, format_configured

HOST: Final = "127.0.0.1"
ADMIN: Final = Credentials("SCRAM-SHA-256", "admin", secrets.token_urlsafe(12))
PASSWORD_FILE: Final = "admin-password"
LISTENERS: Final[Mapping[str, str]] = {"TLS": "SSL", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL"}
AUTHORIZED: Final[Mapping[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN.username}",
}


class SecuredBroker(Cluster):
    """`bootstrap` is of PLAINTEXT. `certificate` is what clients of TLS trust."""

    def __init__(self, local: LocalCluster, start_s: float, ports: Mapping[str, int], files: Path) -> None:
        super().__init__(local, start_s)
        self._ports = ports
        self.certificate = files / "certificate.pem"
        self.password_file = files / PASSWORD_FILE

    def address(self, listener: str = "PLAINTEXT") -> Address:
        return HOST, self._ports[listener]

    def pid(self) -> int:
        (pid,) = self.pids()
        return pid


@contextmanager
def secured(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[SecuredBroker]:
    """A fresh broker in `directory`, with these settings beside the listeners. Raises BenchError, UserError."""
    local = LocalCluster(directory)
    try:
        directory.mkdir(parents=True)
        write_identity(directory)
        password = directory / PASSWORD_FILE
        password.touch(mode=0o600)
        password.write_text(ADMIN.password)
        spec = local.create(1, free_port_range(1), {})
        taken = {spec.nodes[0].client_port, spec.nodes[0].controller_port, spec.nodes[0].http_port}
        ports = dict(zip(LISTENERS, free_ports(len(LISTENERS), avoid=taken), strict=True))
        config = local.node_dir(1) / "server.properties"
        config.write_text(_with_listeners(config.read_text(), ports, directory, settings or {}))
        shutil.rmtree(local.node_dir(1) / "data")
        users = added_users([f"{ADMIN.mechanism}=[name={ADMIN.username},password=@{password}]"])
        loaded = load_config(config.read_text())
        format_configured(spec.cluster_id, loaded, ignore_formatted=False, standalone=False, users=users)
        began_s = time.monotonic()
        local.start_all()
        ports["PLAINTEXT"] = spec.nodes[0].client_port
        yield SecuredBroker(local, time.monotonic() - began_s, ports, directory)
    finally:
        local.destroy()
        shutil.rmtree(directory, ignore_errors=True)


def _with_listeners(text: str, ports: Mapping[str, int], files: Path, settings: Mapping[str, str]) -> str:
    lines = dict(line.split("=", 1) for line in text.splitlines())
    lines["listeners"] += "".join(f",{name}://{HOST}:{port}" for name, port in ports.items())
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
    lines |= {
        "listener.security.protocol.map": ",".join(f"{name}:{of}" for name, of in protocols.items()),
        "sasl.enabled.mechanisms": ADMIN.mechanism,
        "ssl.keystore.location": str(files / "identity.pem"),
        **settings,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def write_identity(directory: Path) -> None:
    """A key of the curve P-256 with a certificate that it signs itself: `identity.pem`, `certificate.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2100, 1, 1))
        .add_extension(addresses, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    identity = directory / "identity.pem"
    identity.touch(mode=0o600)
    identity.write_bytes(secret + certificate)
    (directory / "certificate.pem").write_bytes(certificate)


async def authenticated(address: Address, credentials: Credentials = ADMIN) -> Link:
    """A connection that has said who it is. Raises OSError, SaslRefusal, SaslError."""
    link = await Link.open(address)
    try:
        steps, answer = sasl_exchange(credentials, secrets.token_urlsafe(18)), None
        while True:
            request = steps.send(answer)
            answer = await link.send(request, APIS[request.API_KEY].versions[-1])
    except StopIteration:
        return link
    except BaseException:
        await link.close()
        raise


def ask_as_admin(broker: SecuredBroker, requests: list[Message]) -> None:
    """Sends them one by one. Raises BenchError where a result has an error."""

    async def ask() -> None:
        link = await authenticated(broker.address("SASL"))
        try:
            for request in requests:
                answer: Any = await link.send(request, APIS[request.API_KEY].versions[-1])
                results = answer.entries if hasattr(answer, "entries") else answer.results
                for result in results:
                    if result.error_code:
                        raise BenchError(f"{type(request).__name__} was refused: {result.error_message}")
        finally:
            await link.close()

    asyncio.run(ask())
