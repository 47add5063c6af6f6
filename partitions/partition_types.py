"""The words in which a replica speaks with the rest of the broker: its inputs, answers and listener.

Values only; what they mean in time is in `partition.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from partitions.isr import AlterPartitionProposal
from partitions.lag_schedule import LagSchedule
from partitions.leadership import BrokerEligibility
from partitions.replica import FetchClock

if TYPE_CHECKING:
    from partitions.partition import Partition

ACKS_ALL: Final = -1
NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class MetadataState(Protocol):
    """A partition's state as the metadata has it; the metadata image's partition fits."""

    @property
    def leader(self) -> int:
        """Broker id, -1 when there is no leader."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def elr(self) -> tuple[int, ...]:
        """Eligible leader replicas: those outside the ISR that have everything committed (KIP-966)."""

    @property
    def offline_replicas(self) -> tuple[int, ...]:
        """Those whose brokers cannot serve their logs."""


class LeaderState(NamedTuple):
    """A `MetadataState` by itself."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class Transition(Enum):
    """What a metadata change did to the replica."""

    IGNORED = "ignored"
    """Older than, or the same as, what the replica knows."""
    UPDATED = "updated"
    """The same leader epoch with a newer ISR or assignment; fetchers go on."""
    BECAME_LEADER = "became leader"
    BECAME_FOLLOWER = "became follower"
    """In a new leader epoch: a fetcher has to start anew, from `leader_id` unless that is -1."""


class AckStatus(StrEnum):
    """Where a delayed acks=-1 append stands. Any member but the first two is Kafka's error name."""

    PENDING = "PENDING"
    OK = "OK"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    NOT_LEADER_OR_FOLLOWER = "NOT_LEADER_OR_FOLLOWER"
    KAFKA_STORAGE_ERROR = "KAFKA_STORAGE_ERROR"


class FollowerFetch(NamedTuple):
    """One partition of a follower's Fetch request, with the request's ReplicaState."""

    replica_id: int
    broker_epoch: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int = NO_EPOCH
    """-1 from a follower whose log is empty."""
    log_start_offset: int = 0
    session: FetchClock | None = None
    """The fetch session that repeats this fetch from now on without naming the partition (KIP-227).

    One without leaves it to the session before, if there is one, which goes on by itself.
    """


class PartitionListener(Protocol):
    """Told what changed; called synchronously, after the change, by the call that made it."""

    def on_append(self, partition: Partition, log_end_offset: int) -> None:
        """Records were appended: followers' delayed fetches may go on."""

    def on_high_watermark(self, partition: Partition, high_watermark: int) -> None:
        """It rose: delayed produces and consumers' delayed fetches may go on."""

    def on_low_watermark(self, partition: Partition) -> None:
        """It may have risen: a log of the partition starts later, or one less counts."""

    def on_state_change(self, partition: Partition) -> None:
        """Role, leader epoch, ISR or assignment changed, or the replica came to its end."""

    def on_alter_partition(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        """The proposal has to be sent; its result goes to `Partition.on_alter_partition_result`."""


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """What all replicas of a broker share."""

    broker_id: int
    eligibility: BrokerEligibility
    listener: PartitionListener
    lag_schedule: LagSchedule[Partition]
    replica_lag_time_max_ms: int = 30_000
