"""Where consumers are sent to read: the leader's answer to their rack (KIP-392).

Guarantees: nobody is sent to a broker that is fenced, or that has no listener of the name that the client came
in by; with the leader's own selector, or for a client without a rack, nothing is worked out at all. The fetch
handler asks for each partition that a consumer fetches from its leader; who qualifies is decided in
`partitions.replica_selector`.
"""

from __future__ import annotations

from kraft.broker.membership.metadata_cache import MetadataCache
from partitions.partition import Partition
from partitions.replica_selector import (
    NO_PREFERRED_REPLICA,
    SELECTORS,
    preferred_read_replica,
    select_leader,
)


class ReadReplicas:
    """The replica selector of one broker."""

    def __init__(self, selector_class: str, metadata: MetadataCache) -> None:
        """`selector_class` is the value of `replica.selector.class`."""
        self._selector = SELECTORS[selector_class]
        self._metadata = metadata
        self.looks_at_racks = self._selector is not select_leader
        """Whether it matters in which rack a consumer is."""

    def preferred(
        self, partition: Partition, *, rack: str, listener_name: str, fetch_offset: int, now_ms: int
    ) -> int:
        """The broker that a consumer in `rack` should read this offset from; -1: from this one."""
        leading = partition.leadership
        if leading is None or not rack or not self.looks_at_racks:
            return NO_PREFERRED_REPLICA
        return preferred_read_replica(
            self._selector,
            leading,
            lambda broker_id: self._reachable_rack(broker_id, listener_name),
            leader_id=partition.leader_id,
            leader_end_offset=partition.log_end_offset,
            rack=rack,
            fetch_offset=fetch_offset,
            now_ms=now_ms,
        )

    def _reachable_rack(self, broker_id: int, listener_name: str) -> str | None:
        """A broker's rack, if clients that came by this listener reach the broker now."""
        metadata = self._metadata
        if not metadata.is_live(broker_id) or metadata.endpoint(broker_id, listener_name) is None:
            return None
        return metadata.image.brokers[broker_id].rack
