"""What keeps a follower from copying too fast: a port. `kraft.broker.replicas.replication_throttles` fits it (KIP-73).

Both calls are synchronous and O(1). `FetchStates` asks before each request, and leaves out for a while what is held
back; `Replication` says what came. Times are monotonic milliseconds.
"""

from __future__ import annotations

from typing import Final, Protocol

from fetcher.leader_endpoint import PartitionKey

THROTTLE_PAUSE_MS: Final = 100
"""How long a partition that is held back is left out before it is asked about again."""


class ReplicationThrottle(Protocol):
    """The limits of one broker's copying."""

    def holds_back(self, key: PartitionKey, *, in_sync: bool, now_ms: int) -> bool:
        """Whether to leave the partition out of the next request."""

    def copied(self, key: PartitionKey, size_bytes: int, now_ms: int) -> None:
        """So many bytes of records came from the leader."""


class Unthrottled:
    """No limits."""

    def holds_back(self, key: PartitionKey, *, in_sync: bool, now_ms: int) -> bool:
        return False

    def copied(self, key: PartitionKey, size_bytes: int, now_ms: int) -> None:
        return


UNTHROTTLED: Final = Unthrottled()
