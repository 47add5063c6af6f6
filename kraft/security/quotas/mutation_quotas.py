"""How many partitions clients may have created and deleted, a second, at the active controller (KIP-599).

A request that began while nothing was owed is carried out whole, and what it took is owed from then on. What is owed
keeps clients that know of the quota (`strict`) from further changes, and makes all others wait. The quotas are those of
the controller's own image. A new controller begins with full buckets.
"""

from __future__ import annotations

from kraft.security.quotas.entities import CONTROLLER_MUTATION_RATE, Quotas, QuotaTable, Share
from kraft.security.quotas.rates import SENSORS_MAX, Sensors, Windows


class TokenBuckets:
    """Implements `quorum.controller.mutation_budget.MutationQuotas`."""

    def __init__(self, windows: Windows, sensors_max: int = SENSORS_MAX) -> None:
        self._quotas: Quotas = {}
        self._table = QuotaTable(CONTROLLER_MUTATION_RATE, {})
        self._buckets: Sensors[Share] = Sensors(windows.of_bucket_ms, sensors_max)

    def take(
        self, quotas: Quotas, client: tuple[str, str], tokens: int, now_ms: int, *, strict: bool
    ) -> tuple[bool, int]:
        """Takes tokens for a (user, client id); whether they were there, and how long in ms to wait now."""
        if quotas is not self._quotas:  # images share what has not changed
            self._quotas, self._table = quotas, QuotaTable(CONTROLLER_MUTATION_RATE, quotas)
        limit = self._table.find(*client) if self._table else None
        if limit is None:
            return True, 0
        bucket = self._buckets.of(limit.share, now_ms)
        if strict and (wait_ms := bucket.throttle_time_ms(limit.value, now_ms)):
            return False, wait_ms
        bucket.take(tokens, limit.value, now_ms)
        return True, bucket.throttle_time_ms(limit.value, now_ms)
