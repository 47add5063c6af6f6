"""A cluster of real processes behind relays, or in network namespaces, and what it looks like now.

Every connection between nodes, and from clients to nodes, goes through `relays`, or every packet through `namespaces`;
clients use `bootstrap`. Questions about the cluster go past all faults (`ask`, and the nodes' HTTP listeners), so that
they hurt nobody and nothing hurts them. Everything blocks. Used by `kraft.chaos.real.run`, by its faults, and by tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraft.chaos.experiments.targets import MetadataView, PartitionView
from kraft.chaos.real.ask import UNKNOWN, Introduction, NoAnswerError, ask
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.doors import Doors, open_doors
from kraft.chaos.real.namespaces import Namespaces
from kraft.chaos.real.relay import CLIENTS, LOCALHOST, WATCHER_HOST, Relays, connections_around
from kraft.local_cluster.cluster import LocalCluster, Placement
from kraft.local_cluster.identities import (
    AUTHORITY_FILE,
    CLIENT_FILE,
    LISTENER,
    Identities,
    write_client_files,
)
from kraft.local_cluster.node_process import process_stat
from kraft.local_cluster.spec import ClusterSpec, node_config
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.api_versions import ApiVersionsRequest
from kraft.protocol.schemas.cluster import DescribeTopicPartitionsRequest, TopicRequest
from kraft.protocol.schemas.find_coordinator import CoordinatorType, FindCoordinatorRequest
from kraft.protocol.schemas.offsets import (
    DEBUGGING_REPLICA_ID,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraft.runtime.free_ports import free_port_range, free_ports, is_free
from kraft.spark.security import Security
from kraft.user_error import UserError

QUESTION_S: Final = 1.0
POLL_S: Final = 0.05
DESCRIBE_VERSION: Final = 0
FIND_COORDINATOR_VERSION: Final = 4
LIST_OFFSETS_VERSION: Final = 5
NO_NODE: Final = -1
REPLICATION: Final = "REPLICATION"
"""The listener through which brokers meet, so that a relay tells them from clients."""
CAP_SYS_ADMIN: Final = 21


@dataclass(frozen=True)
class Health:
    """What is wrong with a cluster now, without its partitions one by one."""

    offset: int = NO_NODE
    controller: int = NO_NODE
    controller_epoch: int = NO_NODE
    fenced: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    """No process, or a stopped one."""
    under_replicated: int = 0
    leaderless: int = 0
    is_known: bool = False
    """Whether any node told."""

    @property
    def ailments(self) -> tuple[str, ...]:
        """Why it is not whole, in words."""
        told = [f"node {node} is down" for node in self.down]
        told += [f"broker {node} is fenced" for node in self.fenced if node not in self.down]
        if not self.is_known:
            return (*told, "no node tells of the cluster")
        if self.controller == NO_NODE:
            told.append("there is no controller")
        if self.leaderless:
            told.append(f"{self.leaderless} partitions have no leader")
        if self.under_replicated:
            told.append(f"{self.under_replicated} partitions are under-replicated")
        return tuple(told)


class NotWholeError(Exception):
    """The cluster did not become whole in its time; the text says what is wrong."""


def put_behind_relays(local: LocalCluster, relays: Relays, *, clients: bool) -> dict[int, int]:
    """Rewrites the configuration of nodes that have not been started, so that each listener that nodes dial, and with
    `clients` the one of clients, is behind a relay. Returns the ports that clients dial, by node."""
    spec = local.spec()
    nodes, of_clients = spec.nodes, spec.client_listener
    taken = {port for n in nodes for port in (n.client_port, n.controller_port, n.http_port)}
    voters = [f"{n.id}@127.0.0.1:{relays.relay(n.id, n.controller_port)}" for n in nodes]
    dialled = {
        n.id: relays.relay(n.id, n.client_port, clients=True) if clients else n.client_port for n in nodes
    }
    for node, port in zip(nodes, free_ports(len(nodes), avoid=taken), strict=True):
        listeners = (
            f"{of_clients}://127.0.0.1:{node.client_port},{REPLICATION}://127.0.0.1:{port}"
            f",CONTROLLER://127.0.0.1:{node.controller_port}"
        )
        replication = relays.relay(node.id, port)
        advertised = f"{of_clients}://127.0.0.1:{dialled[node.id]},{REPLICATION}://127.0.0.1:{replication}"
        changes = {
            "controller.quorum.voters": ",".join(voters),
            "listeners": listeners,
            "advertised.listeners": advertised,
            **_among_brokers(spec.identities),
        }
        _configure(local, node.id, changes)
    return dialled


def _among_brokers(identities: Identities | None) -> dict[str, str]:
    """What says how brokers meet at their own listener."""
    if identities is None:
        protocols = f"PLAINTEXT:PLAINTEXT,{REPLICATION}:PLAINTEXT,CONTROLLER:PLAINTEXT"
        login = {}
    else:
        protocols = f"{LISTENER}:SASL_SSL,{REPLICATION}:SASL_SSL,CONTROLLER:SSL"
        login = identities.broker_login(REPLICATION)
    return {"listener.security.protocol.map": protocols, "inter.broker.listener.name": REPLICATION, **login}


def _configure(local: LocalCluster, node_id: int, changes: Mapping[str, str]) -> None:
    """Rewrites the configuration of a node that has not been started."""
    file = node_config(local.directory, node_id)
    lines = dict(line.split("=", 1) for line in file.read_text().splitlines())
    file.write_text("".join(f"{key}={value}\n" for key, value in {**lines, **changes}.items()))


def put_into_namespaces(local: LocalCluster, namespaces: Namespaces) -> None:
    """Has each node, which has not been started, run in a network namespace, and listen on its address there."""
    spec = local.spec()
    nodes = spec.nodes
    hosts = {node.id: namespaces.address(node.id) for node in nodes}
    voters = ",".join(f"{node.id}@{hosts[node.id]}:{node.controller_port}" for node in nodes)
    if spec.identities is not None:
        local.certify(hosts.values())
    for node in nodes:
        host = hosts[node.id]
        changes = {
            "controller.quorum.voters": voters,
            "listeners": f"{spec.client_listener}://{host}:{node.client_port},CONTROLLER://{host}:{node.controller_port}",
            "http.listener": f"{host}:{node.http_port}",
            "http.authentication": "none",
        }
        _configure(local, node.id, changes)
    entering = {node: namespaces.entering(node) for node in hosts}
    local.placement = Placement(hosts, entering, namespaces.watcher)


class ChaosCluster:
    """The nodes of an experiment. Close it, whatever happens."""

    def __init__(
        self,
        directory: Path,
        nodes: int,
        settings: Mapping[str, str],
        *,
        disk_bytes: int | None = None,
        with_doors: bool = False,
        namespaces_noted_in: Path | None = None,
        seed: int | None = None,
        secure: bool = False,
    ) -> None:
        """Configures, does not start. With `disk_bytes` each node's disk is a file system of that size, which needs
        root; with `with_doors` the nodes take faults of their disks and clocks from `doors`. With
        `namespaces_noted_in`, the folder for notes of what has to be removed, nodes are in network namespaces and not
        behind relays, which needs root, too. `secure`: as `kraft cluster start --secure`. Raises UserError."""
        self.local = LocalCluster(directory)
        self.has_disks = disk_bytes is not None
        self.doors: Doors | None = None
        if disk_bytes is not None:
            for node_id in range(1, nodes + 1):
                mount_disk(self.data_dir(node_id), disk_bytes)
        self._spec: ClusterSpec = self.local.create(
            nodes, free_port_range(nodes), dict(settings), secure=secure
        )
        self.relays = Relays(self.local.pid, self.node_ids, seed=seed)
        self.namespaces: Namespaces | None = None
        try:
            if namespaces_noted_in is not None:
                self.namespaces = Namespaces(self.node_ids, namespaces_noted_in)
                put_into_namespaces(self.local, self.namespaces)
                self._dialled = {node.id: node.client_port for node in self._spec.nodes}
            else:
                self._dialled = put_behind_relays(self.local, self.relays, clients=True)
            if with_doors:
                self.doors = open_doors(self.local)
        except BaseException:
            self._close_network()
            raise
        self.brokers = self._reached()
        security = self.brokers.security
        self._introduction = Introduction(security.context(), security.credentials) if secure else UNKNOWN
        self._known_before = connections_around(self.relays.node_ports)
        self._pool = ThreadPoolExecutor(nodes, thread_name_prefix="chaos-ask")

    def close(self) -> None:
        """Ends processes and relays; the files stay, and mounts are gone."""
        try:
            self.kill_nodes()
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._close_network()
            if self.doors is not None:
                self.doors.close()
            unmount_below(self.local.directory)

    def _close_network(self) -> None:
        self.relays.close()
        if self.namespaces is not None:
            self.namespaces.close()

    def kill_nodes(self) -> None:
        """SIGKILL for every node. Raises UserError if one is not gone."""
        for node_id in self.node_ids:
            self.local.kill(node_id)

    @property
    def node_ids(self) -> list[int]:
        return [node.id for node in self._spec.nodes]

    @property
    def cluster_id(self) -> str:
        return self._spec.cluster_id

    def _reached(self) -> Brokers:
        """For clients: through the relays, or the switch between namespaces. The files for them say the same."""
        servers = ",".join(f"{self.host(node)}:{port}" for node, port in self._dialled.items())
        identities, directory = self._spec.identities, self.local.directory
        if identities is None:
            return Brokers(servers)
        write_client_files(identities, directory, servers)
        security = Security(
            encrypted=True,
            trusted_file=str(directory / AUTHORITY_FILE),
            credentials=identities.admin_credentials,
        )
        return Brokers(servers, security, directory / CLIENT_FILE)

    def host(self, node_id: int) -> str:
        """The address of a node's listeners."""
        return LOCALHOST if self.namespaces is None else self.namespaces.address(node_id)

    def data_dir(self, node_id: int) -> Path:
        return self.local.node_dir(node_id) / "data"

    def log_text(self, node_id: int) -> str:
        """Everything that the node's processes have printed."""
        file = self.local.node_dir(node_id) / "server.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def is_paused(self, node_id: int) -> bool:
        """Whether it is stopped by SIGSTOP."""
        pid = self.local.pid(node_id)
        stat = None if pid is None else process_stat(pid)
        return stat is not None and stat.state == "T"

    def answering(self) -> list[int]:
        """The nodes that have a process that runs."""
        return [
            node for node in self.node_ids if self.local.pid(node) is not None and not self.is_paused(node)
        ]

    def bypasses(self) -> list[str]:
        """Connections that clients or nodes made around the relays since the cluster was configured, in words. Around
        the switch between namespaces there is no way."""
        found = connections_around(self.relays.node_ports) - self._known_before
        return [f"port {far} of this host to port {near} of a node" for near, far in sorted(found)]

    # -- what it looks like

    def health(self) -> Health:
        """Asks all nodes at once."""
        answering = self.answering()
        documents = self._pool.map(
            lambda node: self.local.http_json(node, "/api/cluster", QUESTION_S), answering
        )
        told = [document for document in documents if document and "metadata_offset" in document]
        down = tuple(node for node in self.node_ids if node not in answering)
        if not told:
            return Health(down=down)
        best = max(told, key=lambda document: int(document["metadata_offset"]))
        epoch, controller = max((_ruler(document) for document in told), default=(NO_NODE, NO_NODE))
        return Health(
            offset=best["metadata_offset"],
            controller=NO_NODE if controller in down else controller,
            controller_epoch=epoch,
            fenced=tuple(broker["id"] for broker in best["brokers"] if broker["fenced"]),
            down=down,
            under_replicated=best["under_replicated"],
            leaderless=best["leaderless_count"],
            is_known=True,
        )

    def view(
        self,
        topics: Iterable[str],
        groups: Iterable[str] = (),
        transactional_ids: Iterable[str] = (),
    ) -> MetadataView:
        """Who has which role now. Raises NoAnswerError if no node tells."""
        answer = self._topics(topics)
        health = self.health()
        partitions = {
            (topic.name, one.partition_index): PartitionView(
                one.leader_id,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                tuple(one.eligible_leader_replicas or ()),
                one.leader_epoch,
            )
            for topic in answer.topics
            if topic.error_code == ErrorCode.NONE
            for one in topic.partitions
        }
        return MetadataView(
            nodes=tuple(self.node_ids),
            running=frozenset(self.answering()),
            controller=None if health.controller == NO_NODE else health.controller,
            partitions=partitions,
            groups=self._coordinators(CoordinatorType.GROUP, groups),
            transactions=self._coordinators(CoordinatorType.TRANSACTION, transactional_ids),
        )

    def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        """By name. Raises NoAnswerError if no node tells."""
        return {topic.name: topic.topic_id for topic in self._topics(topics).topics}

    def leader_end(self, topic: str, partition: int) -> int | None:
        """Where the log of a partition's leader ends, which may be behind its high watermark; None if nobody tells."""
        try:
            view = self.view([topic]).partitions.get((topic, partition))
            if view is None or view.leader == NO_NODE:
                return None
            wanted = ListOffsetsPartition(partition_index=partition, timestamp=LATEST_TIMESTAMP)
            request = ListOffsetsRequest(
                replica_id=DEBUGGING_REPLICA_ID,
                topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
            )
            answer = self._ask(view.leader, request, LIST_OFFSETS_VERSION)
        except NoAnswerError:
            return None
        told = answer.topics[0].partitions[0]
        return int(told.offset) if told.error_code == ErrorCode.NONE else None

    def _coordinators(self, kind: CoordinatorType, keys: Iterable[str]) -> dict[str, int]:
        found = {key: self.coordinator(kind, key) for key in keys}
        return {key: node for key, node in found.items() if node != NO_NODE}

    def _topics(self, topics: Iterable[str]) -> Any:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic) for topic in topics])
        return self._best_answer(request)

    def _best_answer(self, request: DescribeTopicPartitionsRequest) -> Any:
        """Of the nodes' answers the one with the newest leader epochs."""

        def epochs(answer: Any) -> int:
            return sum(one.leader_epoch for topic in answer.topics for one in topic.partitions)

        answers = self._answers(request, DESCRIBE_VERSION)
        if not answers:
            raise NoAnswerError("no node tells of its topics")
        return max(answers, key=epochs)

    def _ask(self, node_id: int, request: Message, version: int) -> Any:
        """Past all faults of the network. Raises NoAnswerError."""
        port = next(node.client_port for node in self._spec.nodes if node.id == node_id)
        asked_from = WATCHER_HOST if self.namespaces is None else self.namespaces.watcher
        return ask(
            port,
            request,
            version,
            QUESTION_S,
            asked_from=asked_from,
            host=self.host(node_id),
            introduction=self._introduction,
        )

    def _answers(self, request: Message, version: int) -> list[Any]:
        def answer(node_id: int) -> Any:
            try:
                return self._ask(node_id, request, version)
            except NoAnswerError:
                return None

        answers = self._pool.map(answer, self.answering())
        return [one for one in answers if one is not None]

    def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """Who coordinates a group or a transactional id; -1 if nobody tells."""
        request = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=[key])
        for answer in self._answers(request, FIND_COORDINATOR_VERSION):
            for found in answer.coordinators:
                if found.error_code == ErrorCode.NONE:
                    return int(found.node_id)
        return NO_NODE

    def answers_clients(self, node_id: int) -> bool:
        """Whether a node answers one who asks as a client does, where clients dial."""
        asked_from = LOCALHOST if self.namespaces is None else self.namespaces.address(CLIENTS)
        question, port, host = ApiVersionsRequest(), self._dialled[node_id], self.host(node_id)
        try:
            ask(
                port,
                question,
                0,
                QUESTION_S,
                asked_from=asked_from,
                host=host,
                introduction=self._introduction,
            )
        except NoAnswerError:
            return False
        return True

    def listens(self, node_id: int) -> bool:
        """Whether somebody listens on the node's port for clients."""
        port = self.local.node(node_id).client_port
        if self.namespaces is None:
            return not is_free(port)
        with socket.socket() as probe:
            probe.settimeout(QUESTION_S)
            probe.bind((self.namespaces.watcher, 0))
            return probe.connect_ex((self.host(node_id), port)) == 0

    # -- waits

    def start(self) -> None:
        """Starts all nodes; returns when all brokers are unfenced."""
        self.local.start_all()

    def await_whole(self, timeout_s: float) -> None:
        """Returns when all nodes run, no broker is fenced and every ISR is full. Raises NotWholeError."""
        health = self.await_that(lambda health: not health.ailments, timeout_s)
        if health.ailments:
            raise NotWholeError(f"not whole after {timeout_s:g} s: {'; '.join(health.ailments)}")

    def await_that(self, is_true: Callable[[Health], bool], timeout_s: float) -> Health:
        """Looks until it is true or the time is over; returns the last look."""
        end_s = time.monotonic() + timeout_s
        while True:
            health = self.health()
            if is_true(health) or time.monotonic() >= end_s:
                return health
            time.sleep(POLL_S)

    def restore(self) -> None:
        """Resumes and starts whatever does not run; returns when all brokers are unfenced. Raises UserError."""
        self.relays.heal()
        for node_id in self.node_ids:
            self.local.resume(node_id)
        self.local.start_all()


def _ruler(document: Mapping[str, Any]) -> tuple[int, int]:
    """The newest epoch that a node knows of, and the controller of that epoch; -1 if it knows of none."""
    quorum = document.get("quorum") or {}
    leader = quorum.get("leader_id")
    return int(quorum.get("epoch", NO_NODE)), NO_NODE if leader is None else int(leader)


# -- disks of their own


def can_mount() -> bool:
    """Whether this process may mount file systems; root in a container often may not."""
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> CAP_SYS_ADMIN & 1)


def mount_disk(directory: Path, size_bytes: int) -> None:
    """A file system of a size of its own, in memory. Raises UserError where that cannot be."""
    directory.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "kraft-chaos", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise UserError(f"this host mounts no tmpfs, which a disk of its own needs: {made.stderr.strip()}")


def unmount_below(directory: Path) -> None:
    """Unmounts all that is mounted below a folder."""
    root = f"{directory.absolute()}/"
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        place = line.split()[1].encode().decode("unicode_escape")
        if place.startswith(root):
            subprocess.run(["umount", "-l", place], capture_output=True, check=False)


def end_group(pid: int) -> None:
    """SIGKILL for a process that leads a group, and for all of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
