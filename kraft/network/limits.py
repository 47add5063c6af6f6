"""The limits of the socket server, with Kafka's defaults where Kafka has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KAFKA_MIN_REQUEST_BYTES = 8
"""api key, api version and correlation id: no request header is shorter."""


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """What one listener grants its peers.

    `max_unanswered_requests` bounds pipelining on one connection: beyond it the connection is not
    read until an answer left. Kafka itself handles one request per connection at a time, so every
    client copes; 64 is far above the in-flight limits with which clients are configured.
    """

    max_request_bytes: int = 100 * 1024 * 1024
    max_unauthenticated_request_bytes: int = 512 * 1024
    min_request_bytes: int = KAFKA_MIN_REQUEST_BYTES
    max_connections: int | None = None
    max_connections_per_ip: int | None = None
    max_connections_of_ip: Mapping[str, int] = field(default_factory=dict)
    """The same for addresses that differ."""
    connections_max_idle_ms: int | None = 10 * 60 * 1000
    max_unanswered_requests: int = 64
    authentication_timeout_ms: int = 30_000
    """How long a connection may take to say who it is, where it has to."""
    closing_grace_ms: int = 10_000
    """How long a connection that was told to close may take to get its last bytes out."""
