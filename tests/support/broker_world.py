"""One broker without a network: real logs on a simulated disk, real replicas, handlers, and metadata.

`publish` plays the committed metadata: it applies records to the image and hands it to the publishers, as
the loader does. The controller behind AlterPartition and admin calls is a `FakeController`, leaders that
are followed are `SilentLeader`s. Made on whichever loop runs, real or simulated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

from fetcher.fetch_state import FetchState
from fetcher.fetcher_manager import FetcherManager
from fetcher.leader_endpoint import FetchRequest, FetchResponse, LeaderOffsets, OffsetsQuery, PartitionKey
from fetcher.settings import FetcherSettings
from kraft.broker.authorization import Authorization
from kraft.broker.coordinators.group_coordinator import GroupCoordinator
from kraft.broker.coordinators.marker_writes import write_markers
from kraft.broker.coordinators.transaction_coordinator import TransactionCoordinator
from kraft.broker.dispatch import HANDLERS
from kraft.broker.guards import guarded
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.membership.metadata_loader import MetadataLoader
from kraft.broker.membership.producer_ids import ProducerIds
from kraft.broker.membership.recently_fenced import RecentlyFenced
from kraft.broker.membership.topic_creation import TopicCreation
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.replicas.alter_partition_manager import AlterPartitionManager
from kraft.broker.replicas.offline_replicas import OfflineReplicas
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.broker.replicas.read_replicas import ReadReplicas
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.broker.replicas.replication_throttles import ReplicationThrottles
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.broker.settings import broker_quotas
from kraft.chaos.world.disk import SimulatedDisk
from kraft.config import ServerConfig, load_config
from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.loggers import MemoryLoggers
from kraft.network.request_times import RequestTimes
from kraft.network.session import ANONYMOUS, Session
from kraft.protocol.api import SUPPORTED
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.security.authorizer import StandardAuthorizer
from partitions.disk import Buffer
from partitions.log.config import LogConfig
from partitions.log.node_logs.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from partitions.log_manager import LogManager
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.records import (
    BrokerChange,
    Listener,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from quorum.rpc.sparse_log import SparseLog
from quorum.steps import Steps, finished
from tests.support.fake_controller import FakeController
from tests.support.logs import Halted, memory_disk

T = TypeVar("T")
ME = 1
CLUSTER_ID = "kraftTestingClusterIdA"
LISTENER_NAME = "PLAINTEXT"
NOW_MS = 1_700_000_000_000
PROPERTIES = (
    "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=9@localhost:9093\n"
    "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://broker-1:9092\nlog.dirs=/data\n"
    "log.segment.delete.delay.ms=0\n"
)


class HeldExecutor:
    """Jobs run at once, or when `release` is called while `holding`."""

    def __init__(self) -> None:
        self.holding = False
        self._released = asyncio.Event()

    async def run(self, job: Callable[..., T], *args: object) -> T:
        if self.holding:
            await self._released.wait()
        return job(*args)

    def release(self) -> None:
        self.holding = False
        self._released.set()
        self._released = asyncio.Event()


class SilentLeader:
    """A leader that never answers a fetch; keeps what it was asked."""

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.asked: list[FetchRequest] = []

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        self.asked.append(request)
        answer: FetchResponse = await asyncio.get_running_loop().create_future()
        return answer

    async def log_offsets(self, queries: Sequence[OffsetsQuery]) -> Mapping[PartitionKey, LeaderOffsets]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def close(self) -> None:
        return


class ScriptedVerifier:
    """Answers for the transaction coordinators with `code`, once it may."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.asked: list[tuple[str, ProducerIdAndEpoch, TopicPartition, bool]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition: TopicPartition,
        *,
        adds: bool,
        timeout_s: float,
    ) -> ErrorCode:
        self.asked.append((transactional_id, producer, partition, adds))
        await self.may_answer.wait()
        return self.code


def _no_peer(broker_id: int) -> PeerConnection:
    """There is no network: nobody has an address."""
    return PeerConnection(broker_id, lambda: None, client_id="test")


class BrokerWorld:
    """Broker 1 of a cluster that exists in its metadata."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        properties: str = "",
        *,
        lag_max_ms: int = 30_000,
        directories: Sequence[str] = ("/data",),
    ) -> None:
        self.disk = disk or memory_disk()
        for number, directory in enumerate(directories, start=1):
            self.disk.make_dirs(directory)
            if read_meta_properties(self.disk, directory) is None:
                meta = MetaProperties(CLUSTER_ID, ME, f"kraftTestingDirectory{number}")
                write_meta_properties(self.disk, directory, meta)
        self.config: ServerConfig = load_config(PROPERTIES + properties)
        self.controller = FakeController()
        self.halts: list[str] = []
        self.halted = asyncio.Event()
        self.executor = HeldExecutor()
        self.metadata = MetadataCache()
        self.metrics = BrokerMetrics()
        self.image: MetadataImage = EMPTY
        self.leaders: dict[int, SilentLeader] = {}
        loop, rng = asyncio.get_running_loop(), random.Random(1)
        self.logs = LogManager(
            self.disk,
            directories,
            self.config.log_defaults,
            self.executor,
            now_ms=lambda: NOW_MS,
            halt=self.halt,
            rng=rng,
        )
        self.alter_partitions = AlterPartitionManager(
            ME,
            lambda: 1,
            self.controller,
            lambda: int(loop.time() * 1000),
            rng,
            self.halt,  # type: ignore[arg-type]
            self.metrics,
        )
        self.offline_replicas = OfflineReplicas(ME, lambda: 1, self.controller, rng, self.halt)  # type: ignore[arg-type]
        self.replicas = ReplicaManager(
            ME,
            logs=self.logs,
            default_config=self.config.log_defaults,
            metadata=self.metadata,
            alter_partitions=self.alter_partitions,
            metrics=self.metrics,
            loop=loop,
            halt=self.halt,
            replica_lag_time_max_ms=lag_max_ms,
            offline=self.offline_replicas,
        )
        self.throttles = ReplicationThrottles(ME, windows=11, window_s=1)
        self.quotas = broker_quotas(self.config, loop)
        self.loader = MetadataLoader(ME, self.controller, rng, self.halt)  # type: ignore[arg-type]
        self.recently_fenced = RecentlyFenced(self.replicas.monotonic_ms)
        self.loader.add_publisher(self.metadata)
        self.loader.add_publisher(self.recently_fenced)
        self.loader.add_publisher(self.replicas)
        self.fetchers = FetcherManager(
            self._leader,
            FetcherSettings(),
            jitter=lambda: 0.5,
            listener=self.replicas.events,
            throttle=self.throttles,
        )
        ports = SimpleNamespace(rng=rng, executor=self.executor, now_ms=lambda: NOW_MS, halt=self.halt)
        self.verifier = ScriptedVerifier()
        self.groups = GroupCoordinator(
            self.config,
            ports,  # type: ignore[arg-type]
            self.metadata,
            self.replicas,
            loop,
            self.verifier,
        )
        self.transactions = TransactionCoordinator(
            self.config,
            ports,  # type: ignore[arg-type]
            self.metadata,
            self.replicas,
            loop,
            _no_peer,
            lambda writes, timeout_s: write_markers(self.replicas.appends, self.groups, writes, timeout_s),
        )
        self._handlers = dict(HANDLERS)
        self.services = BrokerServices(
            broker_id=ME,
            cluster_id=CLUSTER_ID,
            config=self.config,
            loop=loop,
            rng=rng,
            metadata=self.metadata,
            recently_fenced=self.recently_fenced,
            loader=self.loader,
            controller=self.controller,  # type: ignore[arg-type]
            lifecycle=None,  # type: ignore[arg-type]  # no handler looks at it
            logs=self.logs,
            replicas=self.replicas,
            producer_ids=ProducerIds(ME, lambda: 1, self.controller),  # type: ignore[arg-type]
            topic_creation=TopicCreation(self.controller, self.loader),  # type: ignore[arg-type]
            groups=self.groups,
            transactions=self.transactions,
            verifier=self.verifier,
            read_replicas=ReadReplicas(self.config.get("replica.selector.class"), self.metadata),
            throttles=self.throttles,
            quotas=self.quotas,
            request_times={key: RequestTimes() for key in SUPPORTED},
            loggers=MemoryLoggers(),
            refused_clients=SparseLog("authentication failed"),
        )

    def halt(self, reason: str) -> None:
        self.halts.append(reason)
        self.halted.set()
        raise Halted(reason)

    def _leader(self, leader_id: int) -> SilentLeader:
        return self.leaders.setdefault(leader_id, SilentLeader(leader_id))

    # -- life

    async def start(self, *records: Record) -> None:
        """Opens the logs and publishes the first image: brokers 1 to 3, unfenced, and what `records` add."""
        self.logs.start(cluster_id=CLUSTER_ID, node_id=ME)
        self.alter_partitions.start()
        self.offline_replicas.start()
        self.replicas.start(self.fetchers)
        await self.publish(*(unfenced for n in (1, 2, 3) for unfenced in broker(n)), *records)

    def authorize(self, *super_users: str) -> None:
        """From now on requests are judged by ACLs; to be called before `start`."""
        authorizer = StandardAuthorizer(frozenset(super_users))
        authorization = Authorization(authorizer, self.metadata, self.services.loop.time)
        self.services = replace(self.services, authorization=authorization)
        self._handlers = guarded(HANDLERS)

    async def close(self) -> None:
        self.executor.release()
        await self.loader.close()
        await self.transactions.close()
        await self.groups.close()
        await self.replicas.close()
        await self.alter_partitions.close()
        await self.offline_replicas.close()
        await self.logs.close(broker_epoch=1, high_watermarks=self.replicas.high_watermarks())

    # -- metadata

    async def publish(self, *records: Record) -> None:
        """One step of committed metadata, and what it makes of the logs, unless the executor holds jobs back."""
        self.publish_soon(*records)
        if not self.executor.holding:
            await self.replicas.settled()

    def publish_soon(self, *records: Record) -> None:
        """One step of committed metadata; broker N is registered under epoch N."""
        finished(self.publish_begun(*records))

    def publish_begun(self, *records: Record) -> Steps[None]:
        """The same, as far as it is done at once; the rest comes with the steps."""
        delta = MetadataDelta(self.image)
        for record in records:
            offset = record.broker_id if isinstance(record, RegisterBroker) else self.image.offset + 1
            delta.apply(record, offset, 1)
        image = delta.finish(max(self.image.offset, 100) + 1, 1)
        return self.hand_out(delta, image)

    def hand_out(self, changes: MetadataChanges, image: MetadataImage) -> Steps[None]:
        self.image = self.loader.image = image
        self.metadata.on_metadata(changes, image)
        if self.services.authorization is not None:
            self.services.authorization.authorizer.on_metadata(changes, image)
        self.recently_fenced.on_metadata(changes, image)
        self.throttles.on_metadata(changes, image)
        self.metrics.topics.on_metadata(changes, image)
        self.quotas.on_metadata(changes, image)
        return self.replicas.on_metadata(changes, image)

    # -- looking and asking

    def followed(self, key: TopicPartition) -> FetchState | None:
        return self.fetchers.state(key)

    def handle(self, body: Message, version: int, principal: str = ANONYMOUS) -> Any:
        """Runs the handler; its answer, or what has to be awaited for it."""
        session = Session(LISTENER_NAME, ("127.0.0.1", 1))
        session.principal = principal
        return self._handlers[body.API_KEY](self.services, Request(body, version, "test", session))


def broker(broker_id: int) -> tuple[RegisterBroker, BrokerChange]:
    """A broker's registration, and its unfencing."""
    listener = Listener(LISTENER_NAME, f"broker-{broker_id}", 9092, "PLAINTEXT")
    return (
        RegisterBroker(broker_id, bytes([broker_id]) * 16, (listener,), None, (bytes([broker_id]) * 16,)),
        BrokerChange(broker_id, broker_id, fenced=False),
    )


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def topic(
    name: str, number: int, *partitions: tuple[int, ...], isr: tuple[int, ...] | None = None, epoch: int = 0
) -> tuple[Record, ...]:
    """A topic whose partitions have these replicas, the first of which leads."""
    return (
        Topic(name, topic_id(number)),
        *(
            Partition(topic_id(number), n, replicas, isr or replicas, replicas[0], leader_epoch=epoch)
            for n, replicas in enumerate(partitions)
        ),
    )


def gone(number: int) -> RemoveTopic:
    return RemoveTopic(topic_id(number))


def led_by(number: int, partition: int, leader: int, isr: tuple[int, ...] | None = None) -> PartitionChange:
    return PartitionChange(topic_id(number), partition, isr=isr, leader=leader)


def batch(*values: bytes, **fields: Any) -> Buffer:
    return build_batch([(NOW_MS, None, value, ()) for value in values], **fields)


__all__ = [
    "BrokerWorld",
    "HeldExecutor",
    "LogConfig",
    "SilentLeader",
    "batch",
    "broker",
    "gone",
    "led_by",
    "topic",
]
