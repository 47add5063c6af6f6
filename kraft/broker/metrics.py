"""What a broker counts: plain integers, so that the hot path pays an addition and nothing else.

`kraft.http` reads them, with their names and texts, when somebody asks for `/metrics`. Names follow Kafka's
BrokerTopicMetrics and ReplicaManager beans.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _counter(name: str, text: str) -> Any:
    """`name` is that of its metric, between `kafka_server_` and `_total`; `text` says there what it counts."""
    return field(default=0, metadata={"name": name, "text": text})


@dataclass(slots=True)
class BrokerMetrics:
    """Counters since the start of the broker."""

    messages_in: int = _counter("brokertopicmetrics_messagesin", "Records appended by producers.")
    bytes_in: int = _counter("brokertopicmetrics_bytesin", "Bytes of record batches from producers.")
    bytes_out: int = _counter("brokertopicmetrics_bytesout", "Bytes of record batches to consumers.")
    replication_bytes_out: int = _counter(
        "brokertopicmetrics_replicationbytesout", "Bytes of record batches to followers."
    )
    produce_requests: int = _counter("brokertopicmetrics_totalproducerequests", "Partitions produced to.")
    fetch_requests: int = _counter("brokertopicmetrics_totalfetchrequests", "Fetches answered.")
    failed_produce_requests: int = _counter(
        "brokertopicmetrics_failedproducerequests", "Partitions whose produce failed."
    )
    isr_shrinks: int = _counter("replicamanager_isrshrinks", "ISRs that a leader here has shrunk.")
    isr_expands: int = _counter("replicamanager_isrexpands", "ISRs that a leader here has expanded.")
    failed_isr_updates: int = _counter(
        "replicamanager_failedisrupdates",
        "Proposals of a leader here for an ISR that were refused, or whose outcome is not known.",
    )
    leader_elections: int = _counter(
        "replicamanager_leaderelections", "Times that this broker became leader of a partition."
    )
    truncations: int = _counter("replicafetchermanager_truncations", "Logs cut back to their leader's.")
    truncated_records: int = _counter(
        "replicafetchermanager_truncatedrecords", "Records cut off by truncations, counted by offsets."
    )
    lost_records: int = _counter(
        "replicafetchermanager_lostrecords",
        "Records cut off here that an unclean election gave up, of which some may never have been"
        " acknowledged, or that were known to be committed. Each replica that had them counts them.",
    )
    replication_retries: int = _counter(
        "replicafetchermanager_retries", "Fetches of a partition that are tried again after an error."
    )
    failed_partitions: int = _counter(
        "replicafetchermanager_failedpartitions",
        "Times that replication of a partition was given up until the metadata changes, for an"
        " error in it or because a newer leader epoch fenced it.",
    )

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
