"""What a controller counts as the metadata is committed; a metrics page reads it when somebody asks.

A commit costs O(records). Only an image that comes whole (at start, or after a long absence) is walked. The controller
server owns it.
"""

from __future__ import annotations

from quorum.leader_elections import LeaderElections
from quorum.metadata.image import MetadataImage
from quorum.metadata.tally import PartitionCounts
from quorum.raft.events import Committed


class ControllerMetrics:
    """Elections while this node was active, and the partitions as the committed metadata has them."""

    def __init__(self) -> None:
        self.elections = LeaderElections()
        self.partitions = PartitionCounts()

    def committed(self, before: MetadataImage, committed: Committed, *, is_active: bool) -> None:
        """`before` is the committed image until now."""
        if not committed.entries:
            self.partitions.recount(committed.image)
            return
        records = [record for entry in committed.entries for record in entry.records]
        self.partitions.committed(before, committed.image, records)
        if is_active:
            self.elections.committed(before, records)
