"""What a broker counts: plain integers, so that the hot path pays an addition and nothing else.

`kraft.http` reads them when somebody asks for `/metrics`. Names follow Kafka's BrokerTopicMetrics and
ReplicaManager beans.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BrokerMetrics:
    """Counters since the start of the broker."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    """Proposals for an ISR that the controller refused, or whose outcome is not known."""
    leader_elections: int = 0
    """Times that this broker became leader of a partition."""
    truncations: int = 0
    truncated_records: int = 0
    """By offsets, of all truncations."""
    lost_records: int = 0
    """Of these, all that an unclean election gave up, acknowledged or not, and others known here to be committed."""
    replication_retries: int = 0
    failed_partitions: int = 0

    def on_produced(self, records: int, size_bytes: int) -> None:
        """Batches of one partition were appended."""
        self.messages_in += records
        self.bytes_in += size_bytes
        self.produce_requests += 1

    def on_fetched(self, size_bytes: int, *, is_follower: bool) -> None:
        """A fetch was answered."""
        self.fetch_requests += 1
        if is_follower:
            self.replication_bytes_out += size_bytes
        else:
            self.bytes_out += size_bytes
