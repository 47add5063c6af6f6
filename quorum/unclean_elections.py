"""Tells operators of unclean elections: committed leaders that may lack acknowledged records.

Guarantees that none passes in silence: the active controller writes an error for each, and counts it. An
unclean election is one whose record says RECOVERING (KIP-704): of the last known leader when nobody is
in ISR or ELR (KIP-966), or of any replica where that is allowed or was asked for. Owned by the
controller server.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from quorum.metadata.image import MetadataImage
from quorum.metadata.records import RECOVERING, PartitionChange, Record

log = structlog.get_logger(__name__)


class UncleanElections:
    """`count` is of those committed while this node was the active controller."""

    def __init__(self) -> None:
        self.count = 0

    def committed(self, before: MetadataImage, records: Iterable[Record]) -> None:
        """`before` is an image from before the records, to say what was known of the partition."""
        for record in records:
            if not isinstance(record, PartitionChange) or record.leader is None or record.leader < 0:
                continue
            if record.leader_recovery_state != RECOVERING:
                continue
            self.count += 1
            topic = before.topics.get(record.topic_id)
            state = before.partition(record.topic_id, record.partition)
            last_known = state is not None and state.last_known_elr == (record.leader,)
            log.error(
                "unclean leader election",
                consequence="acknowledged records that only other replicas have are lost",
                partition=f"{topic.name if topic else record.topic_id.hex()}-{record.partition}",
                leader=record.leader,
                elected_as="the last known leader" if last_known else "a replica that was not in sync",
                isr=() if state is None else state.isr,
                elr=() if state is None else state.elr,
                replicas=() if state is None else state.replicas,
            )
