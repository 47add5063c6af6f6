"""A cluster of real processes behind relays, and what it looks like now.

Every connection between nodes, and from clients to nodes, goes through `relays`; clients use `bootstrap`. Questions
about the cluster go past the relays (`ask`, and the nodes' HTTP listeners), so that they hurt nobody and nothing hurts
them. Everything blocks. Used by `kraft.chaos.real.run`, by its faults, and by tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraft.chaos.experiments.targets import MetadataView, PartitionView
from kraft.chaos.real.ask import NoAnswerError, ask
from kraft.chaos.real.relay import LOCALHOST, Relays, connections_around
from kraft.local_cluster.cluster import LocalCluster
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
from kraft.runtime.free_ports import free_port_range, free_ports
from kraft.user_error import UserError

QUESTION_S: Final = 1.0
POLL_S: Final = 0.05
DESCRIBE_VERSION: Final = 0
FIND_COORDINATOR_VERSION: Final = 4
LIST_OFFSETS_VERSION: Final = 5
NO_NODE: Final = -1


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
    nodes = local.spec().nodes
    taken = {port for n in nodes for port in (n.client_port, n.controller_port, n.http_port)}
    voters = [f"{n.id}@127.0.0.1:{relays.relay(n.id, n.controller_port)}" for n in nodes]
    dialled = {
        n.id: relays.relay(n.id, n.client_port, clients=True) if clients else n.client_port for n in nodes
    }
    for node, port in zip(nodes, free_ports(len(nodes), avoid=taken), strict=True):
        listeners = (
            f"PLAINTEXT://127.0.0.1:{node.client_port},REPLICATION://127.0.0.1:{port}"
            f",CONTROLLER://127.0.0.1:{node.controller_port}"
        )
        advertised = (
            f"PLAINTEXT://127.0.0.1:{dialled[node.id]},REPLICATION://127.0.0.1:{relays.relay(node.id, port)}"
        )
        changes = {
            "controller.quorum.voters": ",".join(voters),
            "listeners": listeners,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "REPLICATION",
        }
        file = node_config(local.directory, node.id)
        lines = dict(line.split("=", 1) for line in file.read_text().splitlines())
        file.write_text("".join(f"{key}={value}\n" for key, value in {**lines, **changes}.items()))
    return dialled


class ChaosCluster:
    """The nodes of an experiment. Close it, whatever happens."""

    def __init__(
        self,
        directory: Path,
        nodes: int,
        settings: Mapping[str, str],
        *,
        disk_bytes: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Configures, does not start. With `disk_bytes` each node's disk is a file system of that size, which needs
        root. Raises UserError."""
        self.local = LocalCluster(directory)
        self.disk_bytes = disk_bytes
        if disk_bytes is not None:
            for node_id in range(1, nodes + 1):
                mount_disk(self.data_dir(node_id), disk_bytes)
        self._spec: ClusterSpec = self.local.create(nodes, free_port_range(nodes), dict(settings))
        self.relays = Relays(self.local.pid, self.node_ids, seed=seed)
        try:
            self._dialled = put_behind_relays(self.local, self.relays, clients=True)
        except BaseException:
            self.relays.close()
            raise
        self._known_before = connections_around(self.relays.node_ports)
        self._pool = ThreadPoolExecutor(nodes, thread_name_prefix="chaos-ask")

    def close(self) -> None:
        """Ends processes and relays; the files stay, and mounts are gone."""
        try:
            self.kill_nodes()
        finally:
            self._pool.shutdown(cancel_futures=True)
            self.relays.close()
            unmount_below(self.local.directory)

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

    @property
    def bootstrap(self) -> str:
        """For clients: through the relays."""
        return ",".join(f"127.0.0.1:{port}" for port in self._dialled.values())

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
        """Connections that clients or nodes made around the relays since the cluster was configured, in words."""
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
            answer = ask(self.local.node(view.leader).client_port, request, LIST_OFFSETS_VERSION, QUESTION_S)
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

    def _answers(self, request: Message, version: int) -> list[Any]:
        ports = {node.id: node.client_port for node in self._spec.nodes}

        def answer(node_id: int) -> Any:
            try:
                return ask(ports[node_id], request, version, QUESTION_S)
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
        """Whether a node answers one who asks as a client does, through its relay."""
        try:
            ask(self._dialled[node_id], ApiVersionsRequest(), 0, QUESTION_S, host=LOCALHOST)
        except NoAnswerError:
            return False
        return True

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


def mount_disk(directory: Path, size_bytes: int) -> None:
    """A file system of a size of its own, in memory. Raises UserError where that cannot be."""
    if os.geteuid() != 0:
        raise UserError(
            "a disk of its own for each node (tmpfs) needs root; run as root, or leave `disk` out"
        )
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
