"""What clients produced, consumed and cost, and how long each has to wait for having exceeded its quota.

The caller records what a request took, and mutes the connection for the answer. Produced bytes and time are recorded
though they exceed the quota, since they were taken; an answer to a fetch is recorded only if it may be sent. Bytes are
those of requests and of record batches in answers. Of time, 100 % is the node's event loop; more than one window is
waited for no request, as in Kafka. A client without a quota costs a look-up and no memory. KIP-13, KIP-55, KIP-124.
"""

from __future__ import annotations

from typing import Final

from kraft.security.quotas.entities import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
    QuotaTable,
    Share,
)
from kraft.security.quotas.rates import SENSORS_MAX, Sensors, Windows

PERCENT_OF_A_SECOND: Final = 100.0


class Quota:
    """One kind of quota."""

    def __init__(self, key: str, windows: Windows, sensors_max: int) -> None:
        self.key = key
        self.windows = windows
        self.table = QuotaTable(key, {})
        self.sensors: Sensors[Share] = Sensors(windows.of_rate_ms, sensors_max)

    def record(self, user: str, client_id: str, value: float, now_ms: float) -> int:
        """So much was taken; how long in ms the client has to wait for it."""
        limit = self.table.find(user, client_id)
        if limit is None:
            return 0
        bucket = self.sensors.of(limit.share, now_ms)
        bucket.take(value, limit.value, now_ms)
        return bucket.throttle_time_ms(limit.value, now_ms)

    def throttle_time_ms(self, user: str, client_id: str, now_ms: float) -> int:
        """How long the client has to wait before it may take anything."""
        limit = self.table.find(user, client_id)
        if limit is None:
            return 0
        return self.sensors.of(limit.share, now_ms).throttle_time_ms(limit.value, now_ms)


class ClientQuotas:
    """The quotas of one broker."""

    def __init__(self, windows: Windows, sensors_max: int = SENSORS_MAX) -> None:
        self.produce, self.fetch, self.request = self.kinds = tuple(
            Quota(key, windows, sensors_max)
            for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        )
        self.is_limiting = False
        """Whether any client has a quota."""

    def update(self, quotas: Quotas) -> None:
        """These quotas hold from now on; what was recorded stays."""
        for kind in self.kinds:
            kind.table = QuotaTable(kind.key, quotas)
        self.is_limiting = any(kind.table for kind in self.kinds)

    def worked(self, user: str, client_id: str, busy_s: float, now_ms: float) -> int:
        """The loop was busy with a request for so long; how long in ms the client has to wait for it."""
        wait_ms = self.request.record(user, client_id, busy_s * PERCENT_OF_A_SECOND, now_ms)
        return min(wait_ms, self.request.windows.size_ms)

    def fetch_max_bytes(self, user: str, client_id: str, now_ms: float) -> int | None:
        """What one answer to a fetch may have, so that no more than its first batch exceeds the quota; None: as much
        as it likes."""
        limit = self.fetch.table.find(user, client_id)
        if limit is None:
            return None
        return max(1, int(self.fetch.sensors.of(limit.share, now_ms).left(limit.value, now_ms)))
