"""Who this broker is to the others, and how it knows them: TLS and credentials of the inter-broker listener."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from kraft.broker.listener_security import nonce
from kraft.broker.tls import follower_context
from kraft.config import ServerConfig
from kraft.security.mechanisms import Credentials
from quorum.rpc.client import TlsSource


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """For connections to other brokers."""

    tls: TlsSource | None = None
    credentials: Credentials | None = None
    nonce: Callable[[], str] = str

    def context(self) -> ssl.SSLContext | None:
        """That of a new connection; None: it is plain."""
        return None if self.tls is None else self.tls()


PLAIN_PEERS = PeerSecurity()
"""Of brokers that speak PLAINTEXT to each other."""


def peer_security(config: ServerConfig, rng: random.Random) -> PeerSecurity:
    """As the configuration says. Raises ConfigError."""
    return PeerSecurity(follower_context(config), _credentials(config), lambda: nonce(rng))


def _credentials(config: ServerConfig) -> Credentials | None:
    endpoint = config.inter_broker_listener
    if not endpoint.has_sasl:
        return None
    mechanism = config.get("sasl.mechanism.inter.broker.protocol")
    options = config.of_listener(endpoint.name, "sasl.jaas.config", mechanism).options
    return Credentials(mechanism, options["username"], options["password"])
