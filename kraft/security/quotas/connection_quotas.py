"""How many connections may be opened a second: of an address, through a listener, through all listeners (KIP-612).

A connection beyond an address's rate is not taken; it is closed a little later, so that who tries again at once gains
nothing. One beyond a listener's rate is taken, and read a little later. An address costs memory only while it has a
quota and connects. Connections between brokers, where they have a listener of their own, do not count for all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final, NamedTuple

from kraft.security.quotas.entities import DEFAULT, Quotas, ip_rates
from kraft.security.quotas.rates import SENSORS_MAX, Sensors, TokenBucket, Windows

NO_LIMIT: Final = 2**31 - 1
"""The default of `max.connection.creation.rate`."""


class Admission(NamedTuple):
    """Whether a new connection is taken, and how long in ms it waits to be read, or closed."""

    is_taken: bool
    delay_ms: int


TAKEN_AT_ONCE = Admission(is_taken=True, delay_ms=0)


class ConnectionQuotas:
    """All listeners of one broker."""

    def __init__(
        self,
        windows: Windows,
        *,
        of_broker: float = NO_LIMIT,
        of_listeners: Mapping[str, float] | None = None,
        protected_listener: str | None = None,
        sensors_max: int = SENSORS_MAX,
    ) -> None:
        """Connections a second: of all listeners together, and by listener. `protected_listener` is the one that
        brokers use among each other, if clients have another."""
        self._windows = windows
        self._of_broker = of_broker
        self._of_listeners = dict(of_listeners or {})
        self._protected_listener = protected_listener
        self._through_all = TokenBucket(windows.of_rate_ms)
        self._through = {name: TokenBucket(windows.of_rate_ms) for name in self._of_listeners}
        self._of_ips: dict[str, float] = {}
        self._ips: Sensors[str] = Sensors(windows.of_rate_ms, sensors_max)
        self.throttled_ips = 0
        """Connections that were not taken."""
        self.throttled_listeners = 0
        """Connections that were read later."""
        self._update_limiting()

    def update(self, quotas: Quotas) -> None:
        """These quotas of addresses hold from now on."""
        self._of_ips = {
            name if name == DEFAULT else canonical_ip(name): rate for name, rate in ip_rates(quotas).items()
        }
        self._update_limiting()

    def _update_limiting(self) -> None:
        self.is_limiting = bool(self._of_ips or self._of_listeners) or self._of_broker < NO_LIMIT

    def admit(self, listener: str, host: str, now_ms: float) -> Admission:
        """A connection from `host` comes in."""
        wait_ms = self._of_ip(canonical_ip(host), now_ms)
        if wait_ms:
            self.throttled_ips += 1
            return Admission(is_taken=False, delay_ms=min(wait_ms, self._windows.size_ms))
        wait_ms = 0
        if listener in self._through:
            wait_ms = self._taken(self._through[listener], self._of_listeners[listener], now_ms)
        if listener != self._protected_listener:
            wait_ms = max(wait_ms, self._taken(self._through_all, self._of_broker, now_ms))
        if not wait_ms:
            return TAKEN_AT_ONCE
        self.throttled_listeners += 1
        return Admission(is_taken=True, delay_ms=min(wait_ms, self._windows.size_ms))

    def _of_ip(self, host: str, now_ms: float) -> int:
        """How long an address has to wait; what is not taken does not count."""
        limit = self._of_ips.get(host, self._of_ips.get(DEFAULT))
        if limit is None:
            return 0
        bucket = self._ips.of(host, now_ms)
        wait_ms = bucket.throttle_time_ms(limit, now_ms, tokens=1)
        if not wait_ms:
            bucket.take(1, limit, now_ms)
        return wait_ms

    @staticmethod
    def _taken(bucket: TokenBucket, limit: float, now_ms: float) -> int:
        bucket.take(1, limit, now_ms)
        return bucket.throttle_time_ms(limit, now_ms)


def canonical_ip(text: str) -> str:
    """One text for one address: IPv4 addresses in IPv6 are those of IPv4. What is no address stays as it is."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
