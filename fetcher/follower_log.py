"""What a fetcher needs of a follower's replica: a port. `partitions.partition.Partition` fits it."""

from __future__ import annotations

from typing import Protocol

from fetcher.leader_endpoint import Buffer
from leader_epoch.epoch_cache import EpochCache


class FollowerLog(Protocol):
    """A replica that follows. Every change names the leader epoch that it comes from, and is refused in another.

    Errors carry Kafka's error name as `code`; NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH and
    UNKNOWN_LEADER_EPOCH say that the replica does not follow in that epoch (any more).
    """

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def awaits_flush(self) -> bool:
        """Whether what was appended has to become durable before more is fetched: a fetch tells the leader that this
        replica has everything below its offset. `FetcherManager.resume` is called when that is over."""

    @property
    def epochs(self) -> EpochCache: ...

    def confirm_epoch_end(self, epoch: int) -> None:
        """Makes sure of what `epochs` say of where this one ends: the file that they come from may have rotted.

        `epochs` may be others then, also the newest. Raises an error with KAFKA_STORAGE_ERROR as
        its `code` if the log's batches contradict them and may be what has rotted, or cannot be read.
        """

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int, leader_high_watermark: int, leader_log_start_offset: int
    ) -> None:
        """Appends batches at the log's end (there may be none), then takes over the leader's watermarks."""

    def truncate_to(self, offset: int, *, leader_epoch: int) -> None:
        """Cuts the log at `offset`, also the epochs that start there or later without a record."""

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Gives up the whole log and starts anew at `offset`."""
