"""One broker of a replayed history: its disk, and while its process runs, its replica of the one partition.

Real: the log on a simulated disk, the checkpoint of high watermarks, `Partition`, the metadata cache, and the
fetcher's `FetchStates` and `Replication`. What a network and an event loop would do, the stage does when the
script says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from fetcher.fetch_state import FollowedPartition
from fetcher.fetch_states import FetchStates
from fetcher.leader_endpoint import PartitionKey
from fetcher.replication import LogTruncation, Replication
from fetcher.settings import FetcherSettings
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.chaos.replay.rules import LeaderOf, Rule
from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.inodes import Folder, Inode
from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.storage import Storage
from kraft.chaos.world.trace import Trace
from partitions.disk import write_atomically
from partitions.isr import AlterPartitionProposal
from partitions.lag_schedule import LagSchedule
from partitions.log.config import LogConfig
from partitions.log.epochs.epoch_writer import install_files, write_temporaries
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import HIGH_WATERMARKS
from partitions.log.node_logs.offset_checkpoint import decode_offset_checkpoint, encode_offset_checkpoint
from partitions.log.segment import LOG_SUFFIX
from partitions.partition import Partition, ReplicaContext, Transition
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import MetadataImage

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)
DATA = "/data"
CHECKPOINT = f"{DATA}/{HIGH_WATERMARKS}"
REPLICA_LAG_TIME_MAX_MS = 30_000


class ReplayError(RuntimeError):
    """A history could not be played as it is written: a defect of the script, or of what it plays."""


@dataclass(frozen=True)
class SentProposal:
    """An AlterPartition on its way to the controller."""

    broker_id: int
    broker_epoch: int
    replica: Partition
    proposal: AlterPartitionProposal


class _KeepsNothing(random.Random):
    """The draws by which a disk that loses power keeps nothing that was not fsynced."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


def _halt(reason: str) -> NoReturn:
    raise ReplayError(f"a broker halted: {reason}")


class ReplayBroker:
    """A broker. It is the listener of its replica and of its fetcher."""

    def __init__(
        self,
        broker_id: int,
        rule: Rule,
        config: LogConfig,
        now_ms: Callable[[], int],
        propose: Callable[[SentProposal], None],
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.incarnation = 0
        self.is_clean = False
        """Whether its last process closed the log."""
        self.replica: Partition | None = None
        self.log: PartitionLog | None = None
        self._rule = rule
        self._config = config
        self._now_ms = now_ms
        self._propose = propose
        self._scheduler = Scheduler(Trace())
        self._storage = self._new_storage()
        self._process = Incarnation(self._scheduler, f"broker-{broker_id}", 0)

    def _new_storage(self) -> Storage:
        storage = Storage(_KeepsNothing(0))
        storage.make_dirs(DATA)
        storage.sync_everything()
        return storage

    # -- the process

    @property
    def is_running(self) -> bool:
        return self.log is not None

    def boot(self, broker_epoch: int) -> None:
        """Starts a process on what the disk holds."""
        self.incarnation += 1
        self.broker_epoch = broker_epoch
        self._process = Incarnation(self._scheduler, f"broker-{self.broker_id}", self.incarnation)
        self.metadata = MetadataCache()
        self.states = FetchStates(FetcherSettings(), lambda: 0.5)
        self.replication = Replication(self.states, self)
        self.replica = None
        self.log = PartitionLog.open(
            self._disk,
            f"{DATA}/{PARTITION}",
            PARTITION,
            self._config,
            now_ms=self._now_ms,
            halt=_halt,
            clean_shutdown=self.is_clean,
        )
        self.is_clean = False

    def stop(self) -> None:
        """The process ends as it should: its log is closed, and on disk."""
        if self.log is None:
            raise ReplayError(f"broker {self.broker_id} does not run")
        self.checkpoint_high_watermark()
        self.log.close()
        self.crash()
        self.is_clean = True

    def crash(self) -> None:
        """kill -9: what the process had in memory is gone, what it wrote is in the page cache."""
        if not self.is_running:
            raise ReplayError(f"broker {self.broker_id} does not run")
        self._process.alive = False
        self.replica = self.log = None

    def lose_power(self) -> None:
        """As `crash`, and the disk keeps only what was fsynced."""
        self.crash()
        self._storage.lose_power()

    def wipe(self) -> None:
        """As `crash`, and the next process finds a new, empty disk."""
        self.crash()
        self._storage = self._new_storage()

    @property
    def _disk(self) -> SimulatedDisk:
        return SimulatedDisk(self._storage, self._process, lambda low_s, high_s: low_s)

    def sync(self) -> None:
        """All that is written becomes durable, as after a flush."""
        self._storage.sync_everything()

    @property
    def data_on_disk(self) -> bytes:
        """The log's files, as the next process will find them."""
        folder = self._storage.find(f"{DATA}/{PARTITION}")
        names = folder.names if isinstance(folder, Folder) else {}
        files = [node for name, node in sorted(names.items()) if name.endswith(LOG_SUFFIX)]
        return b"".join(bytes(node.data) for node in files if isinstance(node, Inode))

    # -- the checkpoint of high watermarks

    def checkpoint_high_watermark(self) -> None:
        """What `replica.high.watermark.checkpoint.interval.ms` does now and then."""
        content = encode_offset_checkpoint({PARTITION: self.running.high_watermark})
        write_atomically(self._disk, CHECKPOINT, content)

    def _checkpointed_high_watermark(self) -> int:
        if not self._disk.exists(CHECKPOINT):
            return 0
        return decode_offset_checkpoint(self._disk.read_bytes(CHECKPOINT), CHECKPOINT).get(PARTITION, 0)

    # -- its replica

    @property
    def running(self) -> Partition:
        """The replica. Raises ReplayError if the broker does not run or knows of no partition yet."""
        if self.replica is None:
            raise ReplayError(f"broker {self.broker_id} has no replica now")
        return self.replica

    def publish(self, image: MetadataImage, leader: LeaderOf) -> None:
        """Applies the newest metadata, as the replica manager does."""
        if self.log is None:
            raise ReplayError(f"broker {self.broker_id} does not run")
        self.metadata.image = image
        topic = image.topic(TOPIC)
        if topic is None:
            return
        state = topic.partitions[PARTITION.partition]
        if self.replica is None:
            self.replica = self._new_replica(self.log, topic.topic_id)
        transition = self.replica.apply_state(state, self._now_ms())
        if transition is Transition.BECAME_LEADER:
            self.states.remove(PARTITION)
        elif transition is Transition.BECAME_FOLLOWER:
            self.states.remove(PARTITION)
            if state.has_leader:
                log = self._rule.subscribe(self.replica, leader)
                self.states.add(
                    FollowedPartition(PARTITION, topic.topic_id, state.leader, state.leader_epoch, log)
                )
        if self.replica.awaits_epoch_start:
            self._write_epochs(self.log)
            self.replica.on_epoch_start_durable(state.leader_epoch)

    def _write_epochs(self, log: PartitionLog) -> None:
        """The leader's epoch checkpoint (KIP-101), as `EpochWriter` writes it beside an event loop."""
        write = log.epoch_file.prepare_write()
        if write is None:
            return
        errors = write_temporaries(self._disk, [write])
        install = log.epoch_file.begin_install(write)
        if install is not None:
            errors += install_files(self._disk, [install])
        if install is None or errors != (None, None):
            raise ReplayError(f"broker {self.broker_id} cannot write its leader epochs: {errors}")
        log.epoch_file.complete_install(install)

    def _new_replica(self, log: PartitionLog, topic_id: bytes) -> Partition:
        log.claim(topic_id)
        schedule: LagSchedule[Partition] = LagSchedule()
        context = ReplicaContext(self.broker_id, self.metadata, self, schedule, REPLICA_LAG_TIME_MAX_MS)
        high_watermark = self._checkpointed_high_watermark()
        return Partition(PARTITION, topic_id, log, context, high_watermark=high_watermark)

    # -- PartitionListener

    def on_append(self, partition: Partition, log_end_offset: int) -> None:
        """Followers fetch when the script says so."""

    def on_high_watermark(self, partition: Partition, high_watermark: int) -> None:
        """The stage looks at the end of each step who has been acknowledged."""

    def on_low_watermark(self, partition: Partition) -> None:
        """No records are deleted in these histories."""

    def on_state_change(self, partition: Partition) -> None:
        """As for `on_high_watermark`."""

    def on_alter_partition(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        self._propose(SentProposal(self.broker_id, self.broker_epoch, partition, proposal))

    # -- ReplicationListener

    def on_truncated(self, truncation: LogTruncation) -> None:
        """The step's table shows it."""

    def on_partition_failed(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None
    ) -> None:
        if code != "FENCED_LEADER_EPOCH":
            raise ReplayError(f"broker {self.broker_id} stopped copying: {code} {error or ''}")

    def on_retry(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None, failures: int
    ) -> None:
        """It asks again when the script lets it."""
