"""Clients' quotas at a broker: what a request took is counted, the connection muted, and the client told for how long.

The dispatcher asks only while `is_limiting`, which is when the metadata have a quota of users or client ids; a
publisher of the loader. Guarantees: an answer's `throttle_time_ms` is how long nothing more will be read from its
connection, and is never more than `THROTTLE_MAX_MS`; the answer itself leaves at once, and no other connection waits
(KIP-219). What brokers ask each other is exempt, and authentication. Produced bytes are those of the request; what is
fetched is counted when it is answered, and an answer that the client may not have yet is empty. Times are the loop's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraft.broker.request import HandlerResult, Request
from kraft.network.connection import MUTE_MAX_S
from kraft.network.response import Deferred, as_it_is
from kraft.network.session import Session
from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message
from kraft.security.quotas.client_quotas import ClientQuotas
from kraft.security.quotas.connection_quotas import ConnectionQuotas
from kraft.security.quotas.entities import user_of
from kraft.security.quotas.rates import Windows
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage

THROTTLE_MAX_MS: Final = int(MUTE_MAX_S * 1000)
PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION = KINDS = ("produce", "fetch", "request", "controller_mutation")
"""Kinds of quotas, as metrics name them."""


@dataclass(slots=True)
class Throttled:
    """What one kind of quota has come to."""

    requests: int = 0
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class QuotasSnapshot:
    """What a scrape shows. `sensors`: clients whose rates are kept."""

    throttled: Mapping[str, Throttled]
    sensors: Mapping[str, int]
    throttled_ips: int = 0
    throttled_listeners: int = 0


@dataclass(slots=True)
class BrokerQuotas:
    """The quotas of one broker."""

    windows: Windows
    clock_s: Callable[[], float]
    connections: ConnectionQuotas
    is_limiting: bool = False
    """Whether any client has a quota: if not, nothing of a request is looked at."""
    throttled: dict[str, Throttled] = field(default_factory=lambda: {kind: Throttled() for kind in KINDS})
    clients: ClientQuotas = field(init=False)

    def __post_init__(self) -> None:
        self.clients = ClientQuotas(self.windows)

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Takes over quotas that changed."""
        if changes.changed_client_quotas:
            self.clients.update(image.client_quotas)
            self.is_limiting = self.clients.is_limiting
            self.connections.update(image.client_quotas)

    # -- by the dispatcher

    def charged(self, request: Request[Any], size_bytes: int, result: HandlerResult) -> HandlerResult:
        """Counts what a request took, when its handler has returned; the answer tells how long to wait."""
        if _is_exempt(request.body):
            return result
        session, now_s = request.session, self.clock_s()
        until_s = self._worked(request, now_s - session.now_s, now_s)
        if request.body.API_KEY is ApiKey.PRODUCE:
            until_s = max(until_s, self._produced(request, size_bytes, now_s))
        session.mute_until(until_s)
        if result is None:
            return None
        if isinstance(result, Message):
            return self._told(result, until_s)
        if not isinstance(result, Deferred):
            result = Deferred(asyncio.ensure_future(result), as_it_is)
        deferred: Deferred[Any, Any] = result

        def finish(outcome: Any) -> Message | None:
            began_s = self.clock_s()
            message: Message | None = deferred.finish(outcome)
            now_s = self.clock_s()
            later_s = max(until_s, self._worked(request, now_s - began_s, now_s))
            session.mute_until(later_s)
            return None if message is None else self._told(message, later_s)

        return Deferred(deferred.future, finish)

    def encoded(self, request: Request[Any], busy_s: float) -> None:
        """An answer took so long to encode: its client waits for that at its next request."""
        if not _is_exempt(request.body):
            user, client_id = _client(request)
            self.clients.worked(user, client_id, busy_s, self.clock_s() * 1000)

    # -- by handlers

    def fetch_max_bytes(self, request: Request[Any]) -> int | None:
        """What one answer may have; None: no quota bounds it."""
        return self.clients.fetch_max_bytes(*_client(request), self.clock_s() * 1000)

    def fetch_throttle_ms(self, request: Request[Any]) -> int:
        """How long the client has to wait before it may have records; it is muted for so long."""
        wait_ms = self.clients.fetch.throttle_time_ms(*_client(request), self.clock_s() * 1000)
        return self.throttle(request.session, FETCH, wait_ms)

    def fetched(self, request: Request[Any], size_bytes: int) -> int:
        """An answer leaves, with so many bytes of batches; for how long in ms the client is muted for it."""
        wait_ms = self.clients.fetch.record(*_client(request), size_bytes, self.clock_s() * 1000)
        return self.throttle(request.session, FETCH, wait_ms)

    def throttle(self, session: Session, kind: str, wait_ms: int) -> int:
        """Mutes a connection for so long; returns what its client is told."""
        if wait_ms <= 0:
            return 0
        wait_ms = self._counted(kind, wait_ms)
        session.mute_until(self.clock_s() + wait_ms / 1000)
        return wait_ms

    def snapshot(self) -> QuotasSnapshot:
        """What metrics show."""
        clients = self.clients
        return QuotasSnapshot(
            self.throttled,
            {
                PRODUCE: len(clients.produce.sensors),
                FETCH: len(clients.fetch.sensors),
                REQUEST: len(clients.request.sensors),
            },
            self.connections.throttled_ips,
            self.connections.throttled_listeners,
        )

    def _worked(self, request: Request[Any], busy_s: float, now_s: float) -> float:
        """Until when the client has to wait for the loop's time."""
        wait_ms = self.clients.worked(*_client(request), busy_s, now_s * 1000)
        return now_s + self._counted(REQUEST, wait_ms) / 1000 if wait_ms else 0.0

    def _produced(self, request: Request[Any], size_bytes: int, now_s: float) -> float:
        """Until when the client has to wait for what it produced."""
        wait_ms = self.clients.produce.record(*_client(request), size_bytes, now_s * 1000)
        return now_s + self._counted(PRODUCE, wait_ms) / 1000 if wait_ms else 0.0

    def _told(self, message: Message, until_s: float) -> Message:
        """The answer with the time that is left."""
        told: int | None = getattr(message, "throttle_time_ms", None)
        left_ms = math.ceil((until_s - self.clock_s()) * 1000)
        if told is not None and left_ms > told:
            message.throttle_time_ms = left_ms  # type: ignore[attr-defined]
        return message

    def _counted(self, kind: str, wait_ms: int) -> int:
        wait_ms = min(wait_ms, THROTTLE_MAX_MS)
        throttled = self.throttled[kind]
        throttled.requests += 1
        throttled.time_ms += wait_ms
        return wait_ms


def _client(request: Request[Any]) -> tuple[str, str]:
    return user_of(request.session.principal), request.client_id or ""


def _is_exempt(body: Any) -> bool:
    """Whether it comes before its client is known, or only brokers ask so: the authorizer, where there is one, keeps
    clients from that (CLUSTER_ACTION)."""
    key = body.API_KEY
    if key in (ApiKey.WRITE_TXN_MARKERS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        return True
    if key is ApiKey.ADD_PARTITIONS_TO_TXN:
        return bool(body.transactions)
    return getattr(body, "replica_id", -1) >= 0
