"""What one request may still have of partitions created and deleted, by the quota of its client (KIP-599).

`topic_control` takes from it, topic by topic, just before a topic is changed. The node gives the controller its
`MutationQuotas`, which measure; without them, or for a request of the brokers themselves, nothing is limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from quorum.errors import ControllerError
from quorum.metadata.records import QuotaEntity
from quorum.rpc.messages import Mutator


class MutationQuotas(Protocol):
    """Measures what clients have changed. It forgets with the controller, as in Kafka."""

    def take(
        self,
        quotas: Mapping[QuotaEntity, Mapping[str, float]],
        client: tuple[str, str],
        tokens: int,
        now_ms: int,
        *,
        strict: bool,
    ) -> tuple[bool, int]:
        """Takes so many partitions for a (user, client id), under these quotas: whether it may, and how long in ms it
        has to wait now. A `strict` client that has to wait gets none."""


class MutationBudget:
    """Of one request. `throttle_time_ms` says how long its client has to wait for what was taken."""

    def __init__(
        self,
        measured: MutationQuotas | None,
        quotas: Mapping[QuotaEntity, Mapping[str, float]],
        mutator: Mutator | None,
        now_ms: int,
    ) -> None:
        self._measured = measured if quotas else None
        self._quotas = quotas
        self._mutator = mutator
        self._now_ms = now_ms
        self.throttle_time_ms = 0

    def take(self, partitions: int) -> None:
        """Takes them. Raises ControllerError THROTTLING_QUOTA_EXCEEDED if the client has to wait first."""
        mutator = self._mutator
        if self._measured is None or mutator is None:
            return
        client = (mutator.user, mutator.client_id)
        may, wait_ms = self._measured.take(
            self._quotas, client, partitions, self._now_ms, strict=mutator.strict
        )
        self.throttle_time_ms = max(self.throttle_time_ms, wait_ms)
        if not may:
            raise ControllerError(
                "THROTTLING_QUOTA_EXCEEDED",
                f"The quota of partitions that this client may have created or deleted is exceeded; try again in"
                f" {wait_ms} ms.",
            )


UNLIMITED = MutationBudget(None, {}, None, 0)
"""Of what no client asked for."""
