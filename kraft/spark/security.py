"""`kafka.security.protocol`: encryption with PEM files or texts, and SASL, for our own client and for librdkafka.

Names are Kafka's. Files are read on every machine where a driver or an executor runs. Secrets are in no text that this
module makes: not in a repr, not in an error. JKS and PKCS12 stores are not read: PEM says the same. Of SASL there are
PLAIN and SCRAM, with name and password in `kafka.sasl.jaas.config`, and OAUTHBEARER, whose tokens each process fetches
for itself. `options.py` and `write_options.py` read it from the options, `connection.py` and `writer.py` use it.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kraft.security.jaas import JaasError, LoginModule, parse_jaas
from kraft.security.mechanisms import OFFERED, PLAIN, Credentials
from kraft.security.oauthbearer_client import OAUTHBEARER, BearerToken
from kraft.security.token_login import MODULE, URL, LoginError, TokenLogin, parse_token_login
from kraft.spark.authentication import shown
from kraft.spark.errors import OptionError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM = "kafka.sasl.mechanism"
_JAAS = "kafka.sasl.jaas.config"
_PACKAGE = "org.apache.kafka.common.security."
_LOGIN_MODULES = {"plain.PlainLoginModule": "PLAIN", "scram.ScramLoginModule": "SCRAM"}
_JAAS_FORM = f'{_PACKAGE}scram.ScramLoginModule required username="…" password="…";'
_TOKEN_FORM = f'{MODULE} required clientId="…" clientSecret="…";'
_CLIENT_PREFIX = "kafka."
_TOKEN_URL = f"{_CLIENT_PREFIX}{URL}"
_OF_LOGINS = ("kafka.sasl.oauthbearer.", "kafka.sasl.login.", "kafka.https.ca.")
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
    credentials: Credentials | TokenLogin | None = None
    """Of SASL; None: connections do not say who they are."""

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

    def producer_properties(self) -> dict[str, Any]:
        """The same for librdkafka, whose tokens come by a callback. Raises AuthenticationError where there is none now:
        librdkafka would wait for it, and not say why it does not come."""
        sasl = self.credentials
        protocol = ("SASL_" if sasl else "") + ("SSL" if self.encrypted else "PLAINTEXT")
        given: dict[str, Any] = {"security.protocol": protocol}
        if isinstance(sasl, TokenLogin):
            shown(sasl)
            given |= {"sasl.mechanism": sasl.mechanism, "oauth_cb": _callback(sasl)}
        elif sasl is not None:
            given |= {
                "sasl.mechanism": sasl.mechanism,
                "sasl.username": sasl.username,
                "sasl.password": sasl.password,
            }
        if self.encrypted:
            given |= {
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


def _callback(login: TokenLogin) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """What librdkafka calls for a token, from whichever of its users' threads polls. What it raises, it tells as an
    error of the client."""

    def token(_: str) -> tuple[str, float, str, dict[str, str]]:
        found = shown(login)
        assert isinstance(found, BearerToken)
        return found.token, found.expires_at_s, found.username, dict(found.extensions)

    return token


def _reason(error: Exception) -> str:
    """Without what it was about: that may be a secret's place, or part of one."""
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or "not what it should be"


def parse_security(options: Mapping[str, str]) -> Security:
    """From options with lower-case names. Raises OptionError, which shows no value."""
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise OptionError(f"kafka.security.protocol must be one of {', '.join(_PROTOCOLS)}.")
    for name in options:
        if name.startswith(_PREFIX) and name not in _KNOWN:
            reason = (
                _PEM_ONLY if name.endswith("store.password") else f"those are {', '.join(sorted(_KNOWN))}"
            )
            raise OptionError(f"Option {name} is not supported: {reason}.")
    given = next((name for name in (_JAAS, _TOKEN_URL) if name in options), None)
    if given is not None and "kafka.security.protocol" not in options:
        raise OptionError(
            f"{given} is given: set kafka.security.protocol to SASL_SSL or SASL_PLAINTEXT, too."
        )
    credentials = _credentials(options) if protocol.startswith("SASL_") else None
    if not protocol.endswith("SSL"):
        return Security(credentials=credentials)
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
        credentials=credentials,
    )


def _credentials(options: Mapping[str, str]) -> Credentials | TokenLogin:
    """Who the job is, from the options of SASL; what they say and is not done is refused."""
    mechanism = options.get(_MECHANISM, "").strip().upper()
    if mechanism not in OFFERED:
        raise OptionError(
            f"{_MECHANISM} must be one of {', '.join(OFFERED)} (Kafka's default, GSSAPI, is not supported)."
        )
    if mechanism == OAUTHBEARER:
        return _token_login(options)
    module = _module(options, _JAAS_FORM)
    # Also the names that platforms give to their copies of Kafka's classes.
    kind = next(
        (kind for name, kind in _LOGIN_MODULES.items() if module.name.endswith(_PACKAGE + name)), None
    )
    if kind is None or not mechanism.startswith(kind):
        fitting = "plain.PlainLoginModule" if mechanism == PLAIN else "scram.ScramLoginModule"
        raise OptionError(f"{_JAAS} must name {_PACKAGE}{fitting} for {_MECHANISM} {mechanism}.")
    if "tokenauth" in module.options:
        raise OptionError(
            f"{_JAAS}: delegation tokens (tokenauth) are not supported: give name and password."
        )
    for name in ("username", "password"):
        if not module.options.get(name):
            raise OptionError(f"{_JAAS} has no {name}: it must be like {_JAAS_FORM}")
    return Credentials(mechanism, module.options["username"], module.options["password"])


def _module(options: Mapping[str, str], form: str) -> LoginModule:
    try:
        return parse_jaas(options.get(_JAAS, ""))
    except JaasError as error:
        raise OptionError(f"{_JAAS} is no login module ({error}): write {form}") from None


def _token_login(options: Mapping[str, str]) -> TokenLogin:
    given = {
        name.removeprefix(_CLIENT_PREFIX): value
        for name, value in options.items()
        if name.startswith(_OF_LOGINS)
    }
    module = _module(options, _TOKEN_FORM) if options.get(_JAAS, "").strip() else None
    try:
        return parse_token_login(given, module, _CLIENT_PREFIX)
    except LoginError as error:
        raise OptionError(str(error)) from None


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
