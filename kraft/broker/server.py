"""A broker, assembled: logs, replicas, fetchers, handlers, listeners, and its life with the controller.

`start` opens the logs and the listeners, registers, follows the metadata, and returns when the controller has
unfenced the broker or `start`'s caller gives up waiting; `stop` moves leaderships away first and leaves every log
closed. Started by `kraft.node` on nodes with the broker role. (KRaft's BrokerServer.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import structlog

from fetcher.fetcher_manager import FetcherManager
from kraft.broker.authorization import Authorization
from kraft.broker.coordinators.coordinators import Coordinators
from kraft.broker.dispatch import Dispatcher
from kraft.broker.listener_security import ListenerSecurity, false_salt_secret, inter_broker_principal
from kraft.broker.membership.controller_client import ControllerClient
from kraft.broker.membership.history_guard import HistoryGuard
from kraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState, Registration
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.membership.metadata_loader import MetadataLoader
from kraft.broker.membership.producer_ids import ProducerIds
from kraft.broker.membership.recently_fenced import RecentlyFenced
from kraft.broker.membership.topic_creation import TopicCreation
from kraft.broker.metrics import BrokerMetrics, TopicsMetrics
from kraft.broker.peer_security import PLAIN_PEERS, peer_security
from kraft.broker.replicas.alter_partition_manager import AlterPartitionManager
from kraft.broker.replicas.leader_endpoint import RemoteLeader
from kraft.broker.replicas.offline_replicas import OfflineReplicas, offline_document
from kraft.broker.replicas.partition_health import PartitionHealth
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.broker.replicas.read_replicas import ReadReplicas
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.broker.replicas.replication_throttles import ReplicationThrottles
from kraft.broker.services import BrokerServices
from kraft.broker.settings import (
    DescriptorBudget,
    broker_quotas,
    cleaner_config,
    fetcher_settings,
    network_limits,
)
from kraft.broker.tls import controller_client_context
from kraft.broker.views.history import RateHistory
from kraft.broker.views.views import BrokerViews
from kraft.broker.vital_task import start_vital_task
from kraft.config import Endpoint, ServerConfig
from kraft.environment import Environment
from kraft.network.connection import CloseConnectionError, Connection
from kraft.network.request import decoding
from kraft.network.request_times import RequestTimes
from kraft.network.response import Answer
from kraft.network.sender import telling_of_files
from kraft.network.server import SocketServer
from kraft.protocol.api import SUPPORTED
from kraft.security.authorizer import StandardAuthorizer
from kraft.security.sasl_servers import ScramUsers
from partitions.log.errors import LogStorageError
from partitions.log.node_logs.data_directory import UNKNOWN_BROKER_EPOCH
from partitions.log_manager import LogManager
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.records import Listener
from quorum.recent_changes import RecentChanges
from quorum.rpc.client import ControllerChannel, RpcClient
from quorum.rpc.sparse_log import SparseLog

log = structlog.get_logger(__name__)

INCARNATION_ID_BYTES = 16
LISTENER_GRACE_S = 2.0
RETENTION_LOGS_PER_STEP = 100
DISK_SAMPLE_MS = 60_000
DELETED_FILES_CHECK_MS = 5_000
"""How often files that were set aside are looked at: they stay at most so much longer than they have to."""


@dataclass(frozen=True)
class Identity:
    """Who this broker is on disk."""

    cluster_id: str
    directory_ids: tuple[bytes, ...]


class BrokerServer:
    """One broker. Made, started and stopped on the event loop that it lives on."""

    def __init__(
        self, config: ServerConfig, environment: Environment, identity: Identity, secret: bytes
    ) -> None:
        self._config = config
        self._environment = environment
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._listeners: list[SocketServer] = []
        self._listener_security: list[ListenerSecurity] = []
        self._peer_security = PLAIN_PEERS
        rng, halt = environment.rng, environment.halt
        self._rpc = RpcClient(
            secret, environment.connector_factory, rng=rng, tls=controller_client_context(config)
        )
        self.controller = ControllerClient(ControllerChannel(self._rpc, config.voters, rng))
        self.metadata = MetadataCache()
        self._users = ScramUsers(
            lambda: self.metadata.image.scram_credentials, false_salt_secret(config, identity.cluster_id)
        )
        self.authorization = self._make_authorization()
        self.recently_fenced = RecentlyFenced(lambda: self.replicas.monotonic_ms())
        self.metrics = BrokerMetrics(TopicsMetrics(config.get("metrics.topics.max")))
        self.request_times = {key: RequestTimes() for key in SUPPORTED}
        self.history = RateHistory()
        self.loader = MetadataLoader(config.node_id, self.controller, rng, halt)
        self.recent_changes = RecentChanges()
        self.loader.on_entries = lambda entries: self.recent_changes.take(entries, environment.now_ms())
        self._descriptors = DescriptorBudget.within(environment.open_files_limit)
        self.logs = self._make_logs()
        self.offline_replicas = OfflineReplicas(config.node_id, self._epoch, self.controller, rng, halt)
        self._alter_partitions = AlterPartitionManager(
            config.node_id,
            self._epoch,
            self.controller,
            lambda: self.replicas.monotonic_ms(),
            rng,
            halt,
            self.metrics,
        )
        self.replicas = ReplicaManager(
            config.node_id,
            logs=self.logs,
            default_config=config.log_defaults,
            metadata=self.metadata,
            alter_partitions=self._alter_partitions,
            metrics=self.metrics,
            loop=self._loop,
            halt=halt,
            replica_lag_time_max_ms=config.get("replica.lag.time.max.ms"),
            offline=self.offline_replicas,
            flush_scheduler_interval_ms=config.get("log.flush.scheduler.interval.ms"),
        )
        self.health = PartitionHealth(config.node_id, LogTopicConfigs(config.log_defaults))
        self.throttles = ReplicationThrottles(
            config.node_id,
            windows=config.get("replication.quota.window.num"),
            window_s=config.get("replication.quota.window.size.seconds"),
        )
        self.quotas = broker_quotas(config, self._loop)
        logs, executor = self.logs, environment.executor
        self._history = HistoryGuard(
            environment.disk, lambda: logs.usable_directories, executor, halt, logs.fail_directory
        )
        self.coordinators = Coordinators(
            config, environment, self.metadata, self.replicas, self._loop, self.peer
        )
        self.groups, self.group_lag = self.coordinators.groups, self.coordinators.group_lag
        self.transactions = self.coordinators.transactions
        self._subscribe()
        self.lifecycle: BrokerLifecycle | None = None
        self.services: BrokerServices | None = None
        """From when it has registered."""
        self.views: BrokerViews | None = None
        self._started_at_ms = environment.now_ms()
        self._previous_broker_epoch = UNKNOWN_BROKER_EPOCH

    def _make_logs(self) -> LogManager:
        config, environment = self._config, self._environment
        return LogManager(
            environment.disk,
            config.log_dirs,
            config.log_defaults,
            environment.executor,
            now_ms=environment.now_ms,
            halt=environment.halt,
            rng=environment.rng,
            cleaner=cleaner_config(config),
            max_open_files=self._descriptors.max_open_files,
            max_loaded_indexes=self._descriptors.max_loaded_indexes,
            vital_directory=config.metadata_log_dir if config.is_controller else None,
        )

    def _make_authorization(self) -> Authorization | None:
        config = self._config
        if not config.get("authorizer.class.name"):
            return None
        super_users = config.get("super.users")
        authorizer = StandardAuthorizer(
            super_users, allow_everyone_if_no_acl_found=config.get("allow.everyone.if.no.acl.found")
        )
        principal = inter_broker_principal(config)
        if principal is None:
            log.info("brokers connect to each other as who their tokens name: super.users should list that")
        elif principal not in super_users:
            log.warning(
                f"brokers connect to each other as {principal}, and super.users does not list it: they replicate only"
                f" while ACLs allow {principal} CLUSTER_ACTION on the cluster",
                super_users=";".join(sorted(super_users)),
            )
        return Authorization(authorizer, self.metadata, self._loop.time)

    def _subscribe(self) -> None:
        """Who is told of metadata, in order: whoever acts on them finds the cache up to date."""
        self.loader.add_publisher(self._history)
        self.loader.add_publisher(self.metadata)
        if self.authorization is not None:
            self.loader.add_publisher(self.authorization.authorizer)
        self.loader.add_publisher(self.recently_fenced)
        self.loader.add_publisher(self.throttles)
        self.loader.add_publisher(self.quotas)
        self.loader.add_publisher(self.replicas)
        self.loader.add_publisher(self.health)
        self.loader.add_publisher(self.metrics.topics)
        self.coordinators.subscribe(self.loader)

    # -- life

    def open_logs(self) -> None:
        """Takes the data directories and opens all logs. Blocks. Raises DataDirectoryError."""
        report = self.logs.start(cluster_id=self._identity.cluster_id, node_id=self._config.node_id)
        self._previous_broker_epoch = report.previous_broker_epoch
        log.info("logs opened", logs=report.logs, clean=report.clean_shutdown)
        for partition, recovery in report.recovered.items():
            log.warning("a log was recovered", partition=str(partition), recovery=str(recovery))
        for partition, error in report.failed.items():
            log.error("a log cannot be used", partition=str(partition), reason=str(error))
        self._history.load()

    async def start(self) -> None:
        """Listens, registers, catches up, asks to be unfenced.

        Raises OSError, ConfigError (TLS files), RegistrationRefused.
        """
        config = self._config
        self._peer_security = peer_security(config, self._environment.rng, self._environment.now_ms)
        await self._peer_security.start()
        for endpoint in config.broker_listeners:
            await self._listen(endpoint)
        self.lifecycle = lifecycle = self._make_lifecycle()
        services = self._services(lifecycle)
        self.views = BrokerViews(
            services,
            self._environment,
            self.metrics,
            self.group_lag,
            self.history,
            lambda: chain.from_iterable(listener.sessions() for listener in self._listeners),
            self._started_at_ms,
        )
        self.services = services = replace(services, views=self.views)
        await lifecycle.start()
        self._alter_partitions.start()
        self.offline_replicas.start()
        self.replicas.start(self._make_fetchers())
        self.loader.start(lifecycle.epoch)
        # Nothing is served before the metadata is at least as new as the registration, and nobody elects a
        # broker that is still making its replicas.
        await self.loader.wait_until(lambda image: image.offset >= lifecycle.epoch)
        await self.replicas.settled()
        handler = decoding(Dispatcher(services))
        for listener in self._listeners:
            listener.handler = handler
        lifecycle.set_ready()
        self.group_lag.start()
        self._start_periodic()

    async def stop(self) -> None:
        """Moves leaderships away if a controller answers, then closes everything, logs last."""
        lifecycle = self.lifecycle
        try:
            if lifecycle is not None and lifecycle.state is not BrokerState.NOT_RUNNING:
                timeout_s = self._config.get("controlled.shutdown.timeout.ms") / 1000
                moved = await lifecycle.controlled_shutdown(timeout_s)
                log.info("controlled shutdown", leaderships_moved=moved)
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Closes everything at once, without asking the controller; the logs are closed properly all the same.

        One part that fails to close keeps none of the others open; its error is raised at the end.
        """
        async with contextlib.AsyncExitStack() as last_to_first:
            last_to_first.push_async_callback(self._rpc.close)
            last_to_first.push_async_callback(self._peer_security.close)
            last_to_first.push_async_callback(self._close_logs)
            last_to_first.push_async_callback(self._history.close)
            if self.lifecycle is not None:
                last_to_first.push_async_callback(self.lifecycle.close)
            last_to_first.push_async_callback(self._alter_partitions.close)
            last_to_first.push_async_callback(self.offline_replicas.close)
            last_to_first.push_async_callback(self.replicas.close)
            last_to_first.push_async_callback(self.coordinators.close)
            last_to_first.push_async_callback(self.loader.close)
            last_to_first.push_async_callback(self._end_periodic)
            for security in self._listener_security:
                last_to_first.push_async_callback(security.close)
            for listener in self._listeners:
                last_to_first.push_async_callback(listener.close, LISTENER_GRACE_S)

    async def _close_logs(self) -> None:
        epoch = self._epoch()
        if epoch == UNKNOWN_BROKER_EPOCH:
            # It has not registered, so nothing was appended since it stopped in that epoch, if it did so cleanly.
            epoch = self._previous_broker_epoch
        await self.logs.close(broker_epoch=epoch, high_watermarks=self.replicas.high_watermarks())

    # -- parts

    def storage_document(self) -> dict[str, Any]:
        """What of this broker's storage cannot be used, with the reasons, as JSON values."""
        return offline_document(self.logs.failed_directories, self.replicas.offline_partitions)

    def connection_counts(self) -> dict[str, int]:
        """Open connections by listener."""
        return {listener.name: listener.connection_count for listener in self._listeners}

    def sample_rates(self) -> None:
        """Once a second: adds what the counters are to the history of rates. O(APIs)."""
        metrics = self.metrics
        counters = (
            metrics.bytes_in,
            metrics.bytes_out,
            metrics.messages_in,
            metrics.replication_bytes_out,
            sum(times.count for times in self.request_times.values()),
            metrics.failed_produce_requests + metrics.failed_fetch_requests,
        )
        self.history.sample(self._loop.time(), self._environment.now_ms(), counters)

    def _epoch(self) -> int:
        return UNKNOWN_BROKER_EPOCH if self.lifecycle is None else self.lifecycle.epoch

    async def _listen(self, endpoint: Endpoint) -> None:
        """Opens a listener; who connects before the broker is ready is turned away, and comes again."""
        security = ListenerSecurity(
            self._config, endpoint, self._users, self._environment.rng, self._environment.now_ms
        )
        self._listener_security.append(security)
        await security.start()
        listener = SocketServer(
            _not_ready,
            limits=network_limits(self._config, self._descriptors, endpoint.name),
            ssl_context=security.tls(),
            authentication_required=endpoint.has_sasl,
            introduce=security.introduce,
            sender_factory=telling_of_files(self._environment.sender_factory, self.replicas.on_unreadable),
            name=endpoint.name,
            quotas=self.quotas.connections,
        )
        await listener.start(endpoint.host, endpoint.port)
        self._listeners.append(listener)

    def _advertised(self) -> tuple[Listener, ...]:
        """What clients are told: this host's name where the file leaves it open, the port that was bound."""
        return tuple(
            Listener(
                endpoint.name,
                endpoint.host or self._environment.host_name,
                endpoint.port or listener.port,
                endpoint.protocol,
            )
            for endpoint, listener in zip(self._config.advertised, self._listeners, strict=True)
        )

    def _make_lifecycle(self) -> BrokerLifecycle:
        config, rng = self._config, self._environment.rng
        registration = Registration(
            broker_id=config.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=rng.randbytes(INCARNATION_ID_BYTES),
            listeners=self._advertised(),
            rack=config.get("broker.rack"),
            log_dirs=self._identity.directory_ids,
            previous_broker_epoch=self._previous_broker_epoch,
        )
        return BrokerLifecycle(
            registration,
            self.controller,
            rng,
            heartbeat_interval_s=config.get("broker.heartbeat.interval.ms") / 1000,
            session_timeout_s=config.get("broker.session.timeout.ms") / 1000,
            metadata_offset=lambda: self.loader.image.offset,
            halt=self._environment.halt,
            on_registered=self.offline_replicas.on_registered,
            may_unfence=lambda: self.offline_replicas.is_settled,
        )

    def _services(self, lifecycle: BrokerLifecycle) -> BrokerServices:
        return BrokerServices(
            broker_id=self._config.node_id,
            cluster_id=self._identity.cluster_id,
            config=self._config,
            loop=self._loop,
            rng=self._environment.rng,
            metadata=self.metadata,
            recently_fenced=self.recently_fenced,
            loader=self.loader,
            controller=self.controller,
            lifecycle=lifecycle,
            logs=self.logs,
            replicas=self.replicas,
            producer_ids=ProducerIds(self._config.node_id, self._epoch, self.controller),
            topic_creation=TopicCreation(self.controller, self.loader),
            groups=self.groups,
            transactions=self.transactions,
            verifier=self.coordinators.verifier,
            read_replicas=ReadReplicas(self._config.get("replica.selector.class"), self.metadata),
            throttles=self.throttles,
            quotas=self.quotas,
            request_times=self.request_times,
            loggers=self._environment.loggers,
            refused_clients=SparseLog("authentication failed"),
            authorization=self.authorization,
        )

    def _make_fetchers(self) -> FetcherManager:
        return FetcherManager(
            self._endpoint,
            fetcher_settings(self._config),
            jitter=self._environment.rng.random,
            listener=self.replicas.events,
            throttle=self.throttles,
        )

    def _endpoint(self, leader_id: int) -> RemoteLeader:
        name = self._config.inter_broker_listener_name
        return RemoteLeader(
            leader_id,
            self._config.node_id,
            broker_epoch=self._epoch,
            address=lambda: self.metadata.endpoint(leader_id, name),
            request_timeout_s=self._config.get("replica.socket.timeout.ms") / 1000,
            security=self._peer_security,
        )

    def peer(self, broker_id: int, client_id: str, max_response_bytes: int) -> PeerConnection:
        """A connection to another broker, as brokers connect to each other; its maker closes it."""
        name = self._config.inter_broker_listener_name
        return PeerConnection(
            broker_id,
            lambda: self.metadata.endpoint(broker_id, name),
            client_id=client_id,
            security=self._peer_security,
            max_response_bytes=max_response_bytes,
        )

    # -- what has to be done now and then

    def _start_periodic(self) -> None:
        get = self._config.get
        for name, interval_ms, action in (
            (
                "hw-checkpoint",
                get("replica.high.watermark.checkpoint.interval.ms"),
                self._checkpoint_high_watermarks,
            ),
            (
                "metadata-position",
                get("replica.high.watermark.checkpoint.interval.ms"),
                self._history.checkpoint,
            ),
            (
                "recovery-points",
                get("log.flush.offset.checkpoint.interval.ms"),
                self._checkpoint_recovery_points,
            ),
            ("retention", get("log.retention.check.interval.ms"), self._apply_retention),
            ("delete-files", DELETED_FILES_CHECK_MS, self.logs.removals.remove_due),
            ("disk-space", DISK_SAMPLE_MS, self._sample_disks),
            *self._cleaning(),
        ):
            self._tasks.append(
                start_vital_task(self._every(interval_ms / 1000, action), name, self._environment.halt)
            )

    def _cleaning(self) -> tuple[tuple[str, int, Callable[[], Coroutine[Any, Any, None]]], ...]:
        cleaner = self.logs.cleaner.config
        return (("cleaner", cleaner.backoff_ms, self._clean_logs),) if cleaner.enable else ()

    async def _every(self, interval_s: float, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Until the broker stops. An action is never cancelled: its job, half done, would run on and
        write the same checkpoint as the end does.
        """
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(interval_s):
                    await self._stopping.wait()
                return
            except TimeoutError:
                pass
            try:
                await action()
            except LogStorageError as error:
                log.error("a periodic task failed; it runs again", task=action.__name__, reason=str(error))

    async def _end_periodic(self) -> None:
        self._stopping.set()
        self.logs.cleaner.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _checkpoint_high_watermarks(self) -> None:
        changed = self.replicas.events.take_changed_high_watermarks()
        try:
            if changed:
                await self.logs.checkpoints.write_high_watermarks(changed)
        except LogStorageError:
            self.replicas.events.note_changed_high_watermarks(changed)  # the next round writes them
            raise

    async def _checkpoint_recovery_points(self) -> None:
        try:
            await self.logs.checkpoint_recovery_points()
        finally:  # a full directory keeps the others from neither
            await self.logs.checkpoints.write_log_start_offsets()

    async def _apply_retention(self) -> None:
        """A round over all logs, in steps with other events between them."""
        while True:
            await self.replicas.delete_old_segments(max_logs=RETENTION_LOGS_PER_STEP)
            if not self.logs.retention.is_pending:
                return
            await asyncio.sleep(0)

    async def _sample_disks(self) -> None:
        assert self.views is not None, "it has started"
        await self.views.sample_disks()

    async def _clean_logs(self) -> None:
        await self.logs.cleaner.clean_dirty_logs(self.replicas.high_watermark)


def _not_ready(_frame: memoryview, _connection: Connection) -> Answer:
    raise CloseConnectionError("this broker is still starting")
