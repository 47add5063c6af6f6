"""TLS of a node's listeners, and of what it connects to: PEM (KIP-651) or PKCS12 files, read again when they change.

A context is made anew at the first handshake after one of its files has changed; connections that are there live on. A
file that cannot be used then, half written perhaps, changes nothing: the context before it stays, and one line says so.
What a client's certificate says of its name is `ssl.principal.mapping.rules`' affair (KIP-371).
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from kraft.config import ConfigError, ServerConfig
from kraft.security.authentication import USER_PREFIX
from kraft.security.principal_mapping import PrincipalMapping
from quorum.rpc.client import TlsSource

log = structlog.get_logger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class _Settings:
    """The keys of one listener."""

    config: ServerConfig
    listener: str

    def get(self, key: str) -> Any:
        return self.config.of_listener(self.listener, key)

    @property
    def files(self) -> tuple[str, ...]:
        """Those that contexts are made of."""
        return tuple(
            path for kind in ("keystore", "truststore") if (path := self.get(f"ssl.{kind}.location"))
        )


def server_context(config: ServerConfig, listener: str, *, has_sasl: bool = False) -> ssl.SSLContext:
    """The context of an encrypted listener. It hands each connection on to the newest one.

    Where SASL says who clients are, certificates are asked for only if the listener's own key says so, as in Kafka
    (KIP-684). Raises ConfigError if a file is missing or cannot be used.
    """
    settings = _Settings(config, listener)
    client_auth = settings.get("ssl.client.auth")
    if has_sasl:
        client_auth = config.listener_values.get(f"listener.name.{listener.lower()}.ssl.client.auth", "none")

    def make() -> ssl.SSLContext:
        context = _with_stores(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings)
        context.verify_mode = _CLIENT_AUTH[client_auth]
        return context

    newest = _Newest(make, settings.files)
    front = newest()

    def hand_on(connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        context = newest()
        if context is not front:
            connection.context = context

    front.sni_callback = hand_on
    return front


def follower_context(config: ServerConfig) -> TlsSource | None:
    """What followers connect to leaders with; None where the inter-broker listener is not encrypted.

    Certificates are verified against the trust store (else the host's authorities) and must name the host that the
    leader advertises, unless `ssl.endpoint.identification.algorithm` is empty. Raises ConfigError as `server_context`.
    """
    endpoint = config.inter_broker_listener
    return _client_context(config, endpoint.name) if endpoint.is_encrypted else None


def controller_server_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context of the controller listener; None where it is plain. Raises as `server_context` does."""
    if config.controller_protocol != "SSL":
        return None
    return server_context(config, config.controller_listener_name)


def controller_client_context(config: ServerConfig) -> TlsSource | None:
    """What brokers and voters connect to controllers with; None where these are plain.

    Certificates are verified as those of leaders are, and ours is shown. For one thread. Raises as `server_context`.
    """
    if config.controller_protocol != "SSL":
        return None
    return _client_context(config, config.controller_listener_name)


def certificate_principal(certificate: bytes | None, mapping: PrincipalMapping) -> str | None:
    """Who a client with this certificate (DER) is; None if no rule says so, or the certificate cannot be read."""
    if certificate is None:
        return None
    try:
        name = x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
    except ValueError:
        return None
    mapped = mapping.name(name)
    return None if mapped is None else USER_PREFIX + mapped


def own_certificate_principal(config: ServerConfig, listener: str) -> str:
    """Who this node is to others, by the certificate that it shows them. Raises ConfigError."""
    settings = _Settings(config, listener)
    with _key_store(settings) as (path, _), open(path, "rb") as file:
        certificate = x509.load_pem_x509_certificates(file.read())[0]
    mapped = settings.get("ssl.principal.mapping.rules").name(certificate.subject.rfc4514_string())
    return f"{USER_PREFIX}{mapped or ''}"


class _Newest:
    """A context, made anew when a file has changed since the last time."""

    def __init__(self, make: TlsSource, files: tuple[str, ...]) -> None:
        self._make = make
        self._files = files
        self._stamp = _stamp(files)
        self._context = make()

    def __call__(self) -> ssl.SSLContext:
        stamp = _stamp(self._files)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._make()
            except ConfigError as error:
                log.warning(
                    "changed TLS files are not used; the ones before them still are", reason=str(error)
                )
            else:
                log.info("changed TLS files are used from now on", files=self._files)
        return self._context


def _stamp(files: tuple[str, ...]) -> _Stamp:
    return tuple(map(_stamp_of, files))


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _client_context(config: ServerConfig, listener: str) -> TlsSource:
    settings = _Settings(config, listener)

    def make() -> ssl.SSLContext:
        context = _with_stores(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings)
        context.check_hostname = settings.get("ssl.endpoint.identification.algorithm") == "https"
        return context

    return _Newest(make, settings.files)


def _with_stores(context: ssl.SSLContext, settings: _Settings) -> ssl.SSLContext:
    versions = [_VERSIONS[version] for version in settings.get("ssl.enabled.protocols")]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    try:
        if suites := settings.get("ssl.cipher.suites"):
            context.set_ciphers(":".join(suites))
        with _key_store(settings) as (path, password):
            context.load_cert_chain(path, password=password)
        trusted = _trusted(settings)
        if trusted is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=trusted)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
        raise ConfigError(
            f"the TLS files of the listener {settings.listener} cannot be used: {reason}"
        ) from error
    return context


@contextmanager
def _key_store(settings: _Settings) -> Iterator[tuple[str, str]]:
    """A PEM file of the key and its certificates, and the key's password. Python's ssl reads them from files only: what
    is not one is written to one, for this user alone, as long as that takes."""
    password = settings.get("ssl.key.password") or ""
    location = settings.get("ssl.keystore.location")
    if location is not None and settings.get("ssl.keystore.type") == "PEM":
        yield location, password
        return
    if location is None:
        key, chain = settings.get("ssl.keystore.key"), settings.get("ssl.keystore.certificate.chain")
        pem = f"{key}\n{chain}\n".encode()
    else:
        pem = _pem_of_pkcs12(location, settings.get("ssl.keystore.password"))
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        yield path, password
    finally:
        os.unlink(path)


def _pem_of_pkcs12(path: str, password: str | None) -> bytes:
    store = _pkcs12(path, password)
    if store.key is None or store.cert is None:
        raise ValueError(f"{path} holds no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificates = [store.cert, *store.additional_certs]
    return key + b"".join(one.certificate.public_bytes(Encoding.PEM) for one in certificates)


def _pkcs12(path: str, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    with open(path, "rb") as file:
        content = file.read()
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise ValueError(f"{path} is no PKCS12 store, or has another password") from error


def _trusted(settings: _Settings) -> str | None:
    """The authorities as PEM text; None: those of the host."""
    location: str | None = settings.get("ssl.truststore.location")
    if location is None:
        texts: str | None = settings.get("ssl.truststore.certificates")
        return texts
    if settings.get("ssl.truststore.type") == "PEM":
        with open(location, encoding="ascii", errors="replace") as file:
            return file.read()
    store = _pkcs12(location, settings.get("ssl.truststore.password"))
    certificates = [one for one in (store.cert, *store.additional_certs) if one is not None]
    return "".join(one.certificate.public_bytes(Encoding.PEM).decode() for one in certificates)
