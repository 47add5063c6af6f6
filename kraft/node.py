"""One node: broker, controller or both, assembled from its configuration and its environment.

`start` returns when the node takes part (its listeners are open, its broker is registered and asks to
be unfenced); `ready` says whether it serves. `stop` is a controlled shutdown. Run by `kraft server`
in a process of its own, by `kraft.testing` many in one process, and by the simulator under virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import structlog

from kraft.broker.membership.lifecycle import BrokerState, RegistrationRefused
from kraft.broker.server import BrokerServer, Identity
from kraft.broker.tls import controller_client_context, controller_server_context, server_context
from kraft.cluster_document import cluster_document
from kraft.config import HTTP_LISTENER, ConfigError, ServerConfig, is_quorum_on_this_host, is_unauthenticated
from kraft.dynamic_configs import DynamicBrokerConfigs
from kraft.environment import Environment
from kraft.group_configs import DynamicGroupConfigs
from kraft.http.hosts import AllowedHosts
from kraft.http.login import Login, make_login
from kraft.http.server import HttpServer
from kraft.listeners import WILDCARD_HOSTS, Endpoint, split_host_port
from kraft.security.quotas.mutation_quotas import TokenBuckets
from kraft.security.quotas.rates import Windows
from partitions.disk import DirLock, Disk
from partitions.log.errors import DataDirectoryError, LogError
from partitions.log.node_logs.data_directory import LOCK_FILE
from partitions.log.node_logs.meta_properties import (
    MetaProperties,
    check_meta_properties,
    read_meta_properties,
)
from quorum.bootstrap_checkpoint import read_bootstrap
from quorum.controller.decision import ControllerConfig
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.controller_server import ControllerServer
from quorum.controller_server_config import ControllerServerConfig
from quorum.metadata.features import new_cluster_records
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE
from quorum.raft.config import RaftConfig, RaftConfigError, RaftTiming
from quorum.raft.membership import directory_id_bytes
from quorum.raft.storage import RaftStorageError

log = structlog.get_logger(__name__)

UNFENCED_TIMEOUT_S = 60.0
SECRET_BYTES = 32
LOOPBACK = "localhost"


class NotReadyError(Exception):
    """The node started, and was not unfenced in time; the message says why."""


STARTUP_ERRORS = (
    ConfigError,
    DataDirectoryError,
    LogError,
    NotReadyError,
    OSError,
    RaftConfigError,
    RaftStorageError,
    RegistrationRefused,
)
"""What an operator can mend; each error's text is a sentence."""


class Node:
    """One node. Made, started and stopped on the event loop that it lives on."""

    def __init__(self, config: ServerConfig, environment: Environment) -> None:
        self.config = config
        self._environment = environment
        self._loop = asyncio.get_running_loop()
        self._metadata_lock: DirLock | None = None
        self._stopping = False
        self.cluster_id = ""
        self._metadata_directory_id = b""
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        self.http: HttpServer | None = None

    # -- life

    async def start(self) -> None:
        """Starts the node. Raises one of STARTUP_ERRORS.

        Whatever was started before an error is stopped again.
        """
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise

    async def _start(self) -> None:
        config = self.config
        for warning in config.warnings:
            log.warning(warning)
        self._warn_of_open_listeners()
        identities = self._identify()
        secret = self._secret()
        if config.is_broker:
            directories = tuple(directory_id_bytes(identity.directory_id) for identity in identities)
            self.broker = BrokerServer(
                config, self._environment, Identity(self.cluster_id, directories), secret
            )
            self.broker.open_logs()  # this takes the lock of the data directories
        if config.is_controller:
            self._lock_metadata_directory()
            self.controller = self._make_controller(secret)
            await self.controller.start()
        hosts = own_hosts(config, self._environment.host_name)
        self.http = HttpServer(self, self._environment, hosts, self._login())
        tls = server_context(config, HTTP_LISTENER) if config.get("http.ssl.enable") else None
        await self.http.start(config.get("http.listener"), tls)
        if self.broker is not None:
            await self.broker.start()

    async def stop(self) -> None:
        """Controlled shutdown: the broker first, while the quorum still answers; then the controller.

        What fails on the way keeps nothing else open; its error is raised at the end.
        """
        self._stopping = True
        try:
            if self.broker is not None:
                broker, self.broker = self.broker, None
                await broker.stop()
            if self.controller is not None:
                await self.controller.hand_over()
        finally:
            await self._close()

    async def abort(self) -> None:
        """Ends the node at once and tells nobody: the cluster has to notice. Its logs are closed properly."""
        await self._close()

    async def _close(self) -> None:
        self._stopping = True
        async with contextlib.AsyncExitStack() as last_to_first:
            if self._metadata_lock is not None:
                lock, self._metadata_lock = self._metadata_lock, None
                last_to_first.callback(lock.release)
            if self.http is not None:
                http, self.http = self.http, None
                last_to_first.push_async_callback(http.close)
            if self.controller is not None:
                controller, self.controller = self.controller, None
                last_to_first.push_async_callback(controller.close)
            if self.broker is not None:
                broker, self.broker = self.broker, None
                last_to_first.push_async_callback(broker.abort)

    async def wait_ready(self) -> None:
        """Returns when the broker is unfenced; at once on a dedicated controller. Raises NotReadyError.

        Its own metadata has to say so too: that is what clients are answered from.
        """
        broker = self.broker
        if broker is None or broker.lifecycle is None:
            return
        try:
            async with asyncio.timeout(UNFENCED_TIMEOUT_S):
                await broker.lifecycle.wait_unfenced()
                await broker.loader.wait_until(lambda _: broker.metadata.is_live(self.config.node_id))
        except TimeoutError:
            reasons = ", ".join(self.unready_reasons())
            raise NotReadyError(
                f"node {self.config.node_id} is not ready after {UNFENCED_TIMEOUT_S:g} s: {reasons}"
            ) from None

    # -- what is so

    def unready_reasons(self) -> list[str]:
        """Why the node does not serve now; empty when it does."""
        reasons = []
        if self.controller is not None:
            reasons += self.controller.unready_reasons()
        if self.config.is_broker:
            lifecycle = None if self.broker is None else self.broker.lifecycle
            if self._stopping:
                reasons.append("shutting down")
            elif self.broker is None or lifecycle is None or lifecycle.state is BrokerState.STARTING:
                reasons.append("starting")
            else:
                if not lifecycle.unfenced:
                    reasons.append("fenced" if lifecycle.state is BrokerState.FENCED else "shutting down")
                elif not self.broker.metadata.is_live(self.config.node_id):
                    reasons.append("fenced")  # by what it tells clients
                silent_s = self._loop.time() - self.broker.loader.last_contact_s
                if silent_s > self.config.get("broker.session.timeout.ms") / 1000:
                    reasons.append("no active controller answers")
        return reasons

    def _warn_of_open_listeners(self) -> None:
        """Kafka's stock files have one: it is served, and not in silence."""
        names = ", ".join(one.name for one in self.config.open_listeners)
        if names:
            log.warning(
                "whoever reaches this host is served without encryption and without a name; make the listener SASL_SSL"
                " in listener.security.protocol.map, or have it listen on 127.0.0.1",
                listeners=names,
            )

    def warnings(self) -> list[str]:
        """The data directories that were lost: the node serves what is in the others. And those that take no
        appends, for want of room or of descriptors: the node serves what is in them.
        """
        if self.broker is None:
            return []
        lost, refusing = self.broker.logs.failed_directories, self.broker.replicas.refusals.directories
        return [
            *(f"the data directory {path} is lost: {reason}" for path, reason in sorted(lost.items())),
            *(f"the data directory {path} takes no appends: {why}" for path, why in sorted(refusing.items())),
        ]

    @property
    def _image(self) -> MetadataImage:
        """The cluster as this node knows it."""
        if self.broker is not None:
            return self.broker.metadata.image
        return EMPTY if self.controller is None else self.controller.image

    def _login(self) -> Login | None:
        environment = self._environment
        return make_login(
            self.config,
            lambda: self._image.scram_credentials,
            self.cluster_id,
            environment.executor,
            environment.rng,
        )

    def describe(self) -> dict[str, Any]:
        """The document of `/api/cluster`, as this node knows the cluster."""
        leader = self.controller.leader_id if self.controller else None
        if leader is None and self.broker is not None:
            leader = self.broker.controller.leader_id
        return {
            "cluster_id": self.cluster_id,
            "node_id": self.config.node_id,
            "roles": list(self.config.roles),
            "controller_id": leader,
            "quorum": None if self.controller is None else dict(self.controller.status()),
            **({} if self.broker is None else self.broker.storage_document()),
            **cluster_document(self._image),
        }

    # -- parts

    def _identify(self) -> list[MetaProperties]:
        """Checks that every folder was formatted for this node and cluster; learns the cluster's id.

        Data directories that cannot be read are left out, while there are others, and the log manager says so.
        """
        config, disk = self.config, self._environment.disk
        home = config.metadata_log_dir
        usable = [folder for folder in config.log_dirs if _is_there(disk, folder)]
        needs_home = config.is_controller or home not in config.log_dirs
        source = home if needs_home or not usable else usable[0]
        first = read_meta_properties(disk, source)
        if first is None:
            option = " --standalone" if config.is_standalone else ""
            raise DataDirectoryError(
                f"{source} is not formatted; run `kraft storage format --cluster-id ID --config FILE{option}`"
                " with this node's configuration first"
            )
        self.cluster_id = first.cluster_id
        self._metadata_directory_id = directory_id_bytes(first.directory_id)
        folders = (usable or config.log_dirs) if config.is_broker else (home,)
        return [
            check_meta_properties(disk, folder, cluster_id=first.cluster_id, node_id=config.node_id)
            for folder in folders
        ]

    def _lock_metadata_directory(self) -> None:
        folder = self.config.metadata_log_dir
        if self.config.is_broker and folder in self.config.log_dirs:
            return
        try:
            self._metadata_lock = self._environment.disk.lock(f"{folder}/{LOCK_FILE}")
        except BlockingIOError as error:
            raise DataDirectoryError(
                f"another process uses {folder}; stop it, or give this node another metadata.log.dir"
            ) from error

    def _secret(self) -> bytes:
        """What the nodes of the cluster authenticate each other with. Without one, the controllers are for
        this host alone; a node that is its own quorum, and can be reached from elsewhere, tells nobody."""
        configured: str | None = self.config.get("controller.listener.secret")
        if configured is not None:
            return configured.encode()
        if is_unauthenticated(self.config) and not is_quorum_on_this_host(self.config):
            return self._environment.rng.randbytes(SECRET_BYTES)
        return self.cluster_id.encode()

    def _controller_host(self, listener: Endpoint) -> str:
        """Where the controller listener binds: on every interface only if strangers are told apart."""
        if (
            is_unauthenticated(self.config)
            and listener.host in WILDCARD_HOSTS
            and is_quorum_on_this_host(self.config)
        ):
            log.warning(
                "the controller listener is open to this host only: controller.listener.secret is not set"
            )
            return LOOPBACK
        return listener.host

    def _make_controller(self, secret: bytes) -> ControllerServer:
        config, environment = self.config, self._environment
        listener = config.controller_listener
        assert listener is not None, "a controller has a listener"
        bootstrap = read_bootstrap(environment.disk, config.metadata_log_dir)
        return ControllerServer(
            ControllerServerConfig(
                raft=RaftConfig(
                    node_id=config.node_id,
                    voters=dict(config.voters),
                    cluster_id=self.cluster_id,
                    directory=config.metadata_log_dir,
                    directory_id=self._metadata_directory_id,
                    timing=raft_timing(config),
                    snapshot_every_bytes=config.get("metadata.log.max.record.bytes.between.snapshots"),
                    snapshot_interval_s=config.get("metadata.log.max.snapshot.interval.ms") / 1000,
                    segment_bytes=config.get("metadata.log.segment.bytes"),
                    segment_ms=config.get("metadata.log.segment.ms"),
                ),
                controller=ControllerConfig(
                    cluster_id=self.cluster_id,
                    default_partitions=config.get("num.partitions"),
                    default_replication_factor=config.get("default.replication.factor"),
                    session_timeout_ms=config.get("broker.session.timeout.ms"),
                    auto_leader_rebalance=config.get("auto.leader.rebalance.enable"),
                    leader_imbalance_check_interval_ms=1000
                    * config.get("leader.imbalance.check.interval.seconds"),
                    leader_imbalance_per_broker_percentage=config.get(
                        "leader.imbalance.per.broker.percentage"
                    ),
                    new_cluster_features=new_cluster_records(bootstrap.levels),
                    new_cluster_users=bootstrap.users,
                ),
                host=self._controller_host(listener),
                port=listener.port,
                secret=secret,
                server_tls=controller_server_context(config),
                client_tls=controller_client_context(config),
            ),
            lane=environment.raft_lane_factory(),
            disk=environment.disk,
            clock=environment.monotonic_s,
            now_ms=environment.now_ms,
            rng=environment.rng,
            halt=environment.halt,
            topic_configs=LogTopicConfigs(config.log_defaults),
            resource_configs={
                BROKER_RESOURCE: DynamicBrokerConfigs(config.log_defaults),
                GROUP_RESOURCE: DynamicGroupConfigs(config.get),
            },
            mutation_quotas=TokenBuckets(
                Windows(
                    config.get("controller.quota.window.num"),
                    1000 * config.get("controller.quota.window.size.seconds"),
                )
            ),
            connector=environment.connector_factory,
            link_lane=environment.link_lane_factory(),
        )


def own_hosts(config: ServerConfig, host_name: str) -> AllowedHosts:
    """The names by which the node's pages may be asked for: those that it listens by and is advertised by."""
    listens, _ = split_host_port(config.get("http.listener"))
    endpoints = (*config.broker_listeners, *config.advertised)
    return AllowedHosts(
        (listens, host_name, *(endpoint.host for endpoint in endpoints), *config.get("http.allowed.hosts"))
    )


def raft_timing(config: ServerConfig) -> RaftTiming:
    """The quorum's timers: elections between one and two election timeouts, five heartbeats in one."""
    election_s = config.get("controller.quorum.election.timeout.ms") / 1000
    return RaftTiming(
        election_min_s=election_s,
        election_max_s=2 * election_s,
        heartbeat_s=election_s / 5,
        leader_fallback_s=min(2 * election_s, config.get("controller.quorum.fetch.timeout.ms") / 1000),
    )


def _is_there(disk: Disk, folder: str) -> bool:
    """Whether a data directory can be looked into; whether it was ever formatted is another matter."""
    try:
        disk.list_dir(folder)
    except OSError:
        return False
    return True
