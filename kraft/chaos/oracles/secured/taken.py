"""The judge of produce quotas: over any time, nobody takes more of a broker than its quota and what it may be ahead.

- quota-exceeded: from when a quota was set, a user's requests in bytes are at most the quota times the time and one
  burst (all windows), and one last request more for each connection, which is muted only for what it asked itself,
  and for each time for which a connection can be muted at most.

The model counts bytes and looks at the metadata; it knows nothing of the product's buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kraft.broker.client_quotas import BrokerQuotas
from kraft.broker.request import HandlerResult, Request
from kraft.chaos import security
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.verdict import Verdicts
from kraft.network.connection import MUTE_MAX_S
from kraft.network.session import Session
from kraft.protocol.api import ApiKey
from quorum.metadata.image import MetadataImage

HELD = "quota held for longer than a burst"
BURST_S = 3.0
"""quota.window.num times quota.window.size.seconds of secured scenarios."""
EVENTS = (HELD,)
_GUESTS = frozenset(f"User:{name}" for name in security.GUESTS)


@dataclass
class Account:
    """What one user took of one broker since its quota was set."""

    rate: float
    since_s: float
    taken: int = 0
    largest: int = 0
    sessions: dict[int, tuple[Session, int]] = field(default_factory=dict)
    """Connections, and the largest request of each."""
    has_held: bool = False

    def take(self, session: Session, size_bytes: int) -> None:
        """Enters a request."""
        self.taken += size_bytes
        self.largest = max(self.largest, size_bytes)
        before = self.sessions.get(id(session), (session, 0))[1]
        self.sessions[id(session)] = session, max(before, size_bytes)

    def bound(self, now_s: float) -> float:
        """What it may have taken by now, in bytes."""
        elapsed_s = now_s - self.since_s
        last = sum(largest for _, largest in self.sessions.values())
        released = int(elapsed_s / MUTE_MAX_S) * self.largest * len(self.sessions)
        return self.rate * (elapsed_s + BURST_S) + last + released


class TakenByClients(Probes):
    """Probes on the quotas of all brokers."""

    def __init__(self, verdicts: Verdicts, whose: Whose, *, is_secured: bool) -> None:
        self._verdicts = verdicts
        self._whose = whose
        self._rates: dict[int, tuple[BrokerQuotas, dict[str, float]]] = {}
        self._accounts: dict[tuple[int, str], Account] = {}
        if is_secured:
            verdicts.declare(EVENTS)

    @around(BrokerQuotas, "on_metadata")
    def _changed(self, original: Method, quotas: BrokerQuotas, changes: Any, image: MetadataImage) -> None:
        original(quotas, changes, image)
        if not image.client_quotas and id(quotas) not in self._rates:
            return
        rates: dict[str, float] = {}
        for name in security.GUESTS:
            values = image.client_quotas.get((("user", name),), {})
            if "producer_byte_rate" in values:
                rates[f"User:{name}"] = values["producer_byte_rate"]
        before = self._rates.get(id(quotas), (quotas, {}))[1]
        self._rates[id(quotas)] = quotas, rates
        for principal in _GUESTS:
            if rates.get(principal) != before.get(principal):
                self._accounts.pop((id(quotas), principal), None)

    @around(BrokerQuotas, "charged")
    def _charged(
        self, original: Method, quotas: BrokerQuotas, request: Request[Any], size_bytes: int, result: Any
    ) -> HandlerResult:
        principal = request.session.principal
        rate = self._rates.get(id(quotas), (quotas, {}))[1].get(principal)
        if rate is not None and request.body.API_KEY is ApiKey.PRODUCE and self._whose.node() is not None:
            now_s = quotas.clock_s()
            account = self._accounts.setdefault((id(quotas), principal), Account(rate, now_s))
            account.take(request.session, size_bytes)
            self._judge(account, principal, now_s)
        answer: HandlerResult = original(quotas, request, size_bytes, result)
        return answer

    def _judge(self, account: Account, principal: str, now_s: float) -> None:
        if not account.has_held and now_s - account.since_s > BURST_S:
            account.has_held = True
            self._verdicts.happened(HELD, principal)
        bound = account.bound(now_s)
        if account.taken > bound:
            self._verdicts.violated(
                "quota-exceeded",
                f"node {self._whose.node()}: {principal} took {account.taken} bytes in"
                f" {now_s - account.since_s:.3f} s by {len(account.sessions)} connections; by its quota of"
                f" {account.rate:g} bytes/s {bound:.0f} were the most",
            )
