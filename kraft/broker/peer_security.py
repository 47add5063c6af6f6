"""Who this broker is to the others, and how it knows them: TLS and credentials of the inter-broker listener."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog

from kraft.broker.listener_security import nonce
from kraft.broker.tls import follower_context
from kraft.config import ConfigError, ServerConfig, inter_broker_token_login
from kraft.listeners import is_loopback
from kraft.runtime.tokens import Tokens
from kraft.security.mechanisms import Credentials
from kraft.security.token_login import URL, TokenError
from quorum.rpc.client import TlsSource

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """For connections to other brokers."""

    tls: TlsSource | None = None
    credentials: Credentials | Tokens | None = None
    nonce: Callable[[], str] = str

    async def start(self) -> None:
        """Before other brokers are connected to. A token's file has to be there; an endpoint may answer later, and
        nobody waits for it here. Raises ConfigError."""
        if not isinstance(self.credentials, Tokens):
            return
        login = self.credentials.login
        parts = urlsplit(login.url)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            log.warning(
                "whoever is between here and the issuer reads this broker's secret: use https",
                url=login.place,
            )
        fetching = self.credentials.begin()
        if login.path is not None:
            try:
                await fetching
            except TokenError as error:
                raise ConfigError(f"{URL}: {error}") from error

    async def close(self) -> None:
        """When no other broker is connected to any more."""
        if isinstance(self.credentials, Tokens):
            await self.credentials.close()

    def context(self) -> ssl.SSLContext | None:
        """That of a new connection; None: it is plain."""
        return None if self.tls is None else self.tls()


PLAIN_PEERS = PeerSecurity()
"""Of brokers that speak PLAINTEXT to each other."""


def peer_security(config: ServerConfig, rng: random.Random, now_ms: Callable[[], int]) -> PeerSecurity:
    """As the configuration says; made on the event loop. Raises ConfigError."""
    return PeerSecurity(follower_context(config), _credentials(config, now_ms), lambda: nonce(rng))


def _credentials(config: ServerConfig, now_ms: Callable[[], int]) -> Credentials | Tokens | None:
    endpoint = config.inter_broker_listener
    if not endpoint.has_sasl:
        return None
    login = inter_broker_token_login(config)
    if login is not None:
        return Tokens(login, lambda: now_ms() / 1000, _tell)
    mechanism = config.get("sasl.mechanism.inter.broker.protocol")
    options = config.of_listener(endpoint.name, "sasl.jaas.config", mechanism).options
    return Credentials(mechanism, options["username"], options["password"])


def _tell(error: TokenError) -> None:
    log.warning(
        "a token for other brokers cannot be had; the one before it counts as long as it lasts",
        reason=str(error),
    )
