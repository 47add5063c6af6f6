"""Who the clients of a listener are: by SASL, by their certificate, or nobody in particular.

`kraft.broker.server` has one for each listener, which introduces every new connection: it gives its session the means
to say who it is, or says so at once. A broker that connects to another one is a client like any other; its principal is
`inter_broker_principal`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
import ssl
from collections.abc import Callable
from typing import Any, Final

from kraft.broker.jwks import TokenJudge
from kraft.broker.tls import certificate_principal, own_certificate_principal, server_context
from kraft.config import Endpoint, ServerConfig
from kraft.network.connection import CloseConnectionError
from kraft.network.session import ANONYMOUS, Session
from kraft.security.authentication import USER_PREFIX, Authentication, Offer
from kraft.security.mechanisms import PLAIN
from kraft.security.oauthbearer import OAuthBearerServer
from kraft.security.oauthbearer_client import OAUTHBEARER
from kraft.security.sasl_servers import PlainServer, SaslServer, ScramUsers, ScramUserServer

NONCE_BYTES: Final = 24
_USER_OPTION: Final = "user_"


class ListenerSecurity:
    """One listener's."""

    def __init__(
        self,
        config: ServerConfig,
        endpoint: Endpoint,
        users: ScramUsers,
        rng: random.Random,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._endpoint = endpoint
        self._mapping = config.of_listener(endpoint.name, "ssl.principal.mapping.rules")
        self._tokens = _token_judge(config, endpoint, now_ms)
        self._offers = _offers(config, endpoint, users, rng, self._tokens) if endpoint.has_sasl else {}

    async def start(self) -> None:
        """Before clients come. Raises ConfigError."""
        if self._tokens is not None:
            await self._tokens.start()

    async def close(self) -> None:
        """When no more come."""
        if self._tokens is not None:
            await self._tokens.close()

    def tls(self) -> ssl.SSLContext | None:
        """What connections are encrypted with. Raises ConfigError."""
        if not self._endpoint.is_encrypted:
            return None
        return server_context(self._config, self._endpoint.name, has_sasl=self._endpoint.has_sasl)

    def introduce(self, session: Session, transport: asyncio.Transport) -> None:
        """Raises CloseConnectionError for a certificate that no rule has a name for."""
        if self._offers:
            session.authentication = Authentication(self._offers)
        elif self._endpoint.is_encrypted:
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            if certificate is None:
                return
            principal = certificate_principal(certificate, self._mapping)
            if principal is None:
                raise CloseConnectionError("ssl.principal.mapping.rules has no name for its certificate")
            session.principal = principal


def inter_broker_principal(config: ServerConfig) -> str | None:
    """Who this broker is to others: `super.users` should name it, as in Kafka. None: its tokens say it. Raises
    ConfigError."""
    endpoint = config.inter_broker_listener
    if endpoint.has_sasl:
        mechanism = config.get("sasl.mechanism.inter.broker.protocol")
        if mechanism == OAUTHBEARER:
            return None
        module = config.of_listener(endpoint.name, "sasl.jaas.config", mechanism)
        return f"{USER_PREFIX}{module.options['username']}"
    if endpoint.is_encrypted and config.of_listener(endpoint.name, "ssl.client.auth") != "none":
        return own_certificate_principal(config, endpoint.name)
    return ANONYMOUS


def false_salt_secret(config: ServerConfig, cluster_id: str) -> bytes:
    """What false salts are made of: the same on all brokers of a cluster, and unknown to who is not let in."""
    shared: str = config.get("controller.listener.secret") or ""
    return hashlib.sha256(f"false salts\0{cluster_id}\0{shared}".encode()).digest()


def nonce(rng: random.Random) -> str:
    """A new random text, as SCRAM needs it."""
    return base64.b64encode(rng.randbytes(NONCE_BYTES)).decode()


def _token_judge(config: ServerConfig, endpoint: Endpoint, now_ms: Callable[[], int]) -> TokenJudge | None:
    mechanisms = config.of_listener(endpoint.name, "sasl.enabled.mechanisms") if endpoint.has_sasl else ()
    return TokenJudge(config, endpoint.name, now_ms) if OAUTHBEARER in mechanisms else None


def _offers(
    config: ServerConfig,
    endpoint: Endpoint,
    users: ScramUsers,
    rng: random.Random,
    tokens: TokenJudge | None,
) -> dict[str, Offer]:
    """By mechanism, in the order of `sasl.enabled.mechanisms`."""

    def begin(mechanism: str) -> Callable[[], SaslServer]:
        if mechanism == PLAIN:
            passwords = _plain_passwords(config.of_listener(endpoint.name, "sasl.jaas.config", PLAIN))
            return lambda: PlainServer(passwords)
        if mechanism == OAUTHBEARER and tokens is not None:
            return lambda: OAuthBearerServer(tokens)
        return lambda: ScramUserServer(mechanism, users, nonce(rng))

    return {
        mechanism: Offer(
            begin(mechanism), config.of_listener(endpoint.name, "connections.max.reauth.ms", mechanism)
        )
        for mechanism in config.of_listener(endpoint.name, "sasl.enabled.mechanisms")
    }


def _plain_passwords(module: Any) -> dict[str, str]:
    """The users of a PlainLoginModule: user_NAME="PASSWORD"."""
    return {
        option.removeprefix(_USER_OPTION): password
        for option, password in module.options.items()
        if option.startswith(_USER_OPTION)
    }
