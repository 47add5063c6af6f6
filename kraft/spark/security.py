"""Encryption: `kafka.security.protocol=SSL` with PEM files or texts, for our own client and for librdkafka.

Names are Kafka's. Files are read on every machine where a driver or an executor runs. Secrets are in no text that this
module makes: not in a repr, not in an error. Authentication (SASL) is not there yet, JKS and PKCS12 stores never: PEM
says the same. `options.py` and `write_options.py` read it from the options, `connection.py` and `writer.py` use it.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kraft.spark.errors import OptionError

_PREFIX = "kafka.ssl."
_STORE_TYPES = ("kafka.ssl.truststore.type", "kafka.ssl.keystore.type")
_KNOWN = frozenset(
    (
        *_STORE_TYPES,
        "kafka.ssl.truststore.location",
        "kafka.ssl.truststore.certificates",
        "kafka.ssl.keystore.location",
        "kafka.ssl.keystore.key",
        "kafka.ssl.keystore.certificate.chain",
        "kafka.ssl.key.password",
        "kafka.ssl.endpoint.identification.algorithm",
    )
)
_PEM_ONLY = "only PEM is read: convert the store with openssl, and set the type to PEM"


@dataclass(frozen=True)
class Security:
    """How brokers are spoken to. Pickled to the executors."""

    encrypted: bool = False
    trusted_file: str | None = None
    """PEM file of the authorities; None with `trusted` None: those of the system."""
    trusted: str | None = None
    """The same as PEM text."""
    identity_file: str | None = None
    """PEM file of the own private key and certificates."""
    identity: str | None = field(default=None, repr=False)
    """The same as PEM text: secret."""
    password: str | None = field(default=None, repr=False)
    """Of the private key: secret."""
    check_host_name: bool = True

    def context(self) -> ssl.SSLContext | None:
        """What a connection is wrapped with; None: nothing. Raises OptionError."""
        if not self.encrypted:
            return None
        try:
            context = ssl.create_default_context(
                ssl.Purpose.SERVER_AUTH, cafile=self.trusted_file, cadata=self.trusted
            )
            context.check_hostname = self.check_host_name
            with self._identity_on_disk() as path:
                if path is not None:
                    context.load_cert_chain(path, password=self.password or "")
        except (OSError, ValueError) as error:
            raise OptionError(
                f"The options {_PREFIX}… cannot be used: {type(error).__name__}, {_reason(error)}. PEM files are"
                " needed on this machine, and the password of an encrypted key."
            ) from None
        return context

    @contextmanager
    def _identity_on_disk(self) -> Iterator[str | None]:
        """Python's ssl reads own certificates from files only; a text's lives as long as that takes."""
        if self.identity is None:
            yield self.identity_file
            return
        descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable by this user alone
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self.identity)
            yield path
        finally:
            os.unlink(path)

    def producer_properties(self) -> dict[str, str]:
        """The same for librdkafka."""
        if not self.encrypted:
            return {}
        given = {
            "security.protocol": "SSL",
            "ssl.ca.location": self.trusted_file,
            "ssl.ca.pem": self.trusted,
            "ssl.certificate.location": self.identity_file,
            "ssl.key.location": self.identity_file,
            "ssl.certificate.pem": self.identity,
            "ssl.key.pem": self.identity,
            "ssl.key.password": self.password,
            "ssl.endpoint.identification.algorithm": "https" if self.check_host_name else "none",
        }
        return {name: value for name, value in given.items() if value is not None}


def _reason(error: Exception) -> str:
    """Without what it was about: that may be a secret's place, or part of one."""
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or "not what it should be"


def parse_security(options: Mapping[str, str]) -> Security:
    """From options with lower-case names. Raises OptionError, which shows no value."""
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in ("PLAINTEXT", "SSL") or any(name.startswith("kafka.sasl.") for name in options):
        raise OptionError(
            "kafka.security.protocol can be PLAINTEXT or SSL; authentication by SASL is not supported: give the"
            " job a certificate (kafka.ssl.keystore.…) instead."
        )
    for name in options:
        if name.startswith(_PREFIX) and name not in _KNOWN:
            reason = (
                _PEM_ONLY if name.endswith("store.password") else f"those are {', '.join(sorted(_KNOWN))}"
            )
            raise OptionError(f"Option {name} is not supported: {reason}.")
    if protocol == "PLAINTEXT":
        return Security()
    _check_pem(options)
    identity, password = _identity(options), options.get("kafka.ssl.key.password")
    algorithm = options.get("kafka.ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", ""):
        raise OptionError("kafka.ssl.endpoint.identification.algorithm must be https, or empty for no check.")
    return Security(
        encrypted=True,
        trusted_file=options.get("kafka.ssl.truststore.location"),
        trusted=options.get("kafka.ssl.truststore.certificates"),
        identity_file=options.get("kafka.ssl.keystore.location"),
        identity=identity,
        password=password,
        check_host_name=algorithm == "https",
    )


def _check_pem(options: Mapping[str, str]) -> None:
    for name in _STORE_TYPES:
        store = name.removesuffix("type")
        has_file = f"{store}location" in options
        # Java's default type is JKS; a file of that name ending would be one.
        kind = options.get(name, "PEM").strip().upper()
        looks_like_jks = options.get(f"{store}location", "").lower().endswith((".jks", ".p12", ".pfx"))
        if kind != "PEM" or (has_file and looks_like_jks):
            raise OptionError(f"Option {store}location: {_PEM_ONLY}.")
    for one, other in (
        ("kafka.ssl.truststore.location", "kafka.ssl.truststore.certificates"),
        ("kafka.ssl.keystore.location", "kafka.ssl.keystore.key"),
    ):
        if one in options and other in options:
            raise OptionError(f"Options {one} and {other} say the same: give one of them.")


def _identity(options: Mapping[str, str]) -> str | None:
    key = options.get("kafka.ssl.keystore.key")
    chain = options.get("kafka.ssl.keystore.certificate.chain")
    if (key is None) != (chain is None):
        raise OptionError("kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain belong together.")
    return None if key is None or chain is None else f"{key.strip()}\n{chain.strip()}\n"
