"""The judge of quotas: nobody takes more of a broker than his quota and what he may be ahead, nor before his time.

- quota-exceeded: from when a quota was set, what a user took is at most the quota times the time and one burst (all
  windows), and one last request more for each connection, which is muted only for what it asked itself, and for each
  time for which a connection can be muted at most. Taken are the bytes of requests to produce, those of record batches
  in answers to fetches, and the loop's time;
- read-while-muted: nothing more is read from a connection for as long as it was told to wait (KIP-219).

The model counts what it sees in requests and answers and looks at the metadata; it knows nothing of the product's
buckets. A handler takes no time in this world: so the probe has each request of a guest begin `REQUEST_COST_S` earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kraft.broker.client_quotas import BrokerQuotas
from kraft.broker.guards import finished
from kraft.broker.request import HandlerResult, Request
from kraft.chaos import security
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.verdict import Verdicts
from kraft.network.connection import MUTE_MAX_S
from kraft.network.session import Session
from kraft.protocol.api import ApiKey
from kraft.protocol.fetch import FetchResponse
from kraft.protocol.schema import Message
from quorum.metadata.image import MetadataImage

WINDOW_S = 1.0
"""quota.window.size.seconds of secured scenarios."""
BURST_S = 3.0
"""quota.window.num times that."""
TOLD_EARLIER_S = 0.002
"""A client is told whole milliseconds, rounded up; and sums of seconds are rounded, too."""
PRODUCED, FETCHED, WORKED = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
HELD: Final[Mapping[str, str]] = MappingProxyType(
    {key: f"{key} held for longer than a burst" for key in (PRODUCED, FETCHED, WORKED)}
)
MUTED = "connection muted as its client was told"
EVENTS = (*HELD.values(), MUTED)
MUTED_AT_MOST_S: Final[Mapping[str, float]] = MappingProxyType(
    {PRODUCED: MUTE_MAX_S, FETCHED: MUTE_MAX_S, WORKED: WINDOW_S}
)
"""For how long one request can mute a connection, however much was taken."""
PERCENT: Final = 100.0
_GUESTS = frozenset(f"User:{name}" for name in security.GUESTS)


@dataclass
class Account:
    """What one user took of one broker since its quota was set."""

    rate: float
    """Bytes, or seconds, in a second."""
    since_s: float
    muted_at_most_s: float = MUTE_MAX_S
    taken: float = 0
    largest: float = 0
    sessions: dict[Session, float] = field(default_factory=dict)
    """Connections, and the most that one request of each took."""
    has_held: bool = False

    def take(self, session: Session, amount: float) -> None:
        """Enters a request."""
        self.taken += amount
        self.largest = max(self.largest, amount)
        self.sessions[session] = max(self.sessions.get(session, 0), amount)

    def bound(self, now_s: float) -> float:
        """What it may have taken by now."""
        elapsed_s = now_s - self.since_s
        last = sum(self.sessions.values())
        released = int(elapsed_s / self.muted_at_most_s) * self.largest * len(self.sessions)
        return self.rate * (elapsed_s + BURST_S) + last + released


def rates_of(image: MetadataImage) -> dict[tuple[str, str], float]:
    """By principal and key: what guests may take in a second, in bytes, or in seconds of the loop."""
    rates: dict[tuple[str, str], float] = {}
    for name in security.GUESTS:
        for key, value in image.client_quotas.get((("user", name),), {}).items():
            if key in HELD:
                rates[f"User:{name}", key] = value / PERCENT if key == WORKED else value
    return rates


def batches_bytes(answer: FetchResponse) -> int:
    """How many bytes of record batches an answer has."""
    total = 0
    for topic in answer.responses:
        for one in topic.partitions:
            records: Any = one.records
            if isinstance(records, (bytes, bytearray, memoryview)):
                total += len(records)
            elif records is not None:
                total += sum(one.length if hasattr(one, "length") else len(one) for one in records)
    return total


class TakenByClients(Probes):
    """Probes on the quotas of all brokers."""

    def __init__(self, verdicts: Verdicts, whose: Whose, *, is_secured: bool) -> None:
        self._verdicts = verdicts
        self._whose = whose
        self._rates: dict[int, tuple[BrokerQuotas, dict[tuple[str, str], float]]] = {}
        self._accounts: dict[tuple[int, str, str], Account] = {}
        self._told_until_s: dict[Session, float] = {}
        if is_secured:
            verdicts.declare(EVENTS)

    @around(BrokerQuotas, "on_metadata")
    def _changed(self, original: Method, quotas: BrokerQuotas, changes: Any, image: MetadataImage) -> None:
        original(quotas, changes, image)
        if not image.client_quotas and id(quotas) not in self._rates:
            return
        rates = rates_of(image)
        before = self._rates.get(id(quotas), (quotas, {}))[1]
        self._rates[id(quotas)] = quotas, rates
        for account in rates.keys() | before.keys():
            if rates.get(account) != before.get(account):
                self._accounts.pop((id(quotas), *account), None)

    @around(BrokerQuotas, "charged")
    def _charged(
        self, original: Method, quotas: BrokerQuotas, request: Request[Any], size_bytes: int, result: Any
    ) -> HandlerResult:
        session, key = request.session, request.body.API_KEY
        if session.principal not in _GUESTS or self._whose.node() is None or _is_free(key):
            answer: HandlerResult = original(quotas, request, size_bytes, result)
            return answer
        self._judge_muted(session, quotas.clock_s())
        self._take(quotas, session, WORKED, security.REQUEST_COST_S)
        if key is ApiKey.PRODUCE:
            self._take(quotas, session, PRODUCED, size_bytes)
        session.now_s -= security.REQUEST_COST_S
        charged: HandlerResult = original(quotas, request, size_bytes, result)

        def told(message: Message | None) -> Message | None:
            if message is not None and self._whose.node() is not None:
                self._told(quotas, session, message)
            return message

        return finished(charged, told)

    def _told(self, quotas: BrokerQuotas, session: Session, message: Any) -> None:
        """An answer leaves."""
        if isinstance(message, FetchResponse) and (size_bytes := batches_bytes(message)):
            self._take(quotas, session, FETCHED, size_bytes)
        wait_ms: int = getattr(message, "throttle_time_ms", 0)
        if wait_ms:
            until_s = quotas.clock_s() + wait_ms / 1000
            self._told_until_s[session] = max(until_s, self._told_until_s.get(session, 0.0))

    def _judge_muted(self, session: Session, now_s: float) -> None:
        until_s = self._told_until_s.get(session)
        if until_s is None:
            return
        if now_s < until_s - TOLD_EARLIER_S:
            self._verdicts.violated(
                "read-while-muted",
                f"node {self._whose.node()} read on from {session.principal}, whom it had told to wait",
            )
        else:
            del self._told_until_s[session]
            self._verdicts.counted(MUTED, session.principal)

    def _take(self, quotas: BrokerQuotas, session: Session, key: str, amount: float) -> None:
        principal, now_s = session.principal, quotas.clock_s()
        rate = self._rates.get(id(quotas), (quotas, {}))[1].get((principal, key))
        if rate is None:
            return
        account = self._accounts.setdefault(
            (id(quotas), principal, key), Account(rate, now_s, MUTED_AT_MOST_S[key])
        )
        account.take(session, amount)
        if not account.has_held and now_s - account.since_s > BURST_S:
            account.has_held = True
            self._verdicts.happened(HELD[key], principal)
        bound = account.bound(now_s)
        if account.taken > bound:
            self._verdicts.violated(
                "quota-exceeded",
                f"node {self._whose.node()}: {principal} took {account.taken:g} by {key} in"
                f" {now_s - account.since_s:.3f} s by {len(account.sessions)} connections; by its quota of"
                f" {account.rate:g} a second {bound:g} were the most",
            )


def _is_free(key: ApiKey) -> bool:
    """Who says who it is, is not charged for it."""
    return key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
