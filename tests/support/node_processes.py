"""A cluster of real node processes for tests: `kraft.local_cluster.cluster` with what tests ask of it."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from kraft.local_cluster.cluster import LocalCluster
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kraft.runtime.free_ports import free_port_range
from partitions.records.batch import BatchHeader, iter_batches
from tests.support.raw_client import METADATA_VERSION, RawConnection

NODES = 3
WAIT_S = 90.0
"""What has not come about by then on a machine with more to do never will."""
ATTEMPT_S = 5.0
PATIENCE = {
    "broker.session.timeout.ms": "6000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}
"""Settings of a cluster beside which other processes begin at any time: a node that waits for the CPU, or for a slow
disk, is not dead."""
POLL_S = 0.05
NOT_SERVED_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._NOENT,  # no partition has a leader
)


class NodeProcesses:
    """A running cluster. Topics made with it have fresh names, so that tests cannot meet."""

    def __init__(
        self, directory: Path, nodes: int = NODES, settings: Mapping[str, str] | None = None
    ) -> None:
        self.local = LocalCluster(directory)
        self._spec = self.local.create(nodes, free_port_range(nodes), dict(settings or {}))
        self._numbers = itertools.count()
        try:
            self._prepare()
            self.local.start_all()
        except BaseException:
            self.close()
            raise
        self.connect_anew()

    def connect_anew(self) -> None:
        """librdkafka's admin client may wait for a group's coordinator that is dead, and ask for no other."""
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _prepare(self) -> None:
        """What a subclass does when the nodes are configured and not yet started."""

    def close(self) -> None:
        """Ends the processes and removes their files."""
        self.local.destroy()

    @property
    def bootstrap(self) -> str:
        return self._spec.bootstrap_servers()

    @property
    def node_ids(self) -> list[int]:
        return [node.id for node in self._spec.nodes]

    def address(self, node_id: int) -> tuple[str, int]:
        """Where a node's clients connect."""
        return "127.0.0.1", self.local.node(node_id).client_port

    def log_text(self, node_id: int) -> str:
        """Everything the node's processes have printed."""
        return (self.local.node_dir(node_id) / "server.log").read_text(errors="replace")

    # -- topics

    def new_name(self, word: str) -> str:
        return f"{word}-{next(self._numbers)}"

    def create_topic(
        self, word: str = "topic", partitions: int = 1, replication_factor: int = NODES, **config: str
    ) -> str:
        """Creates a topic; config keys are written with _ for the dots. Returns its name."""
        configs = {key.replace("_", "."): value for key, value in config.items()}
        name = created(
            self.admin,
            lambda: NewTopic(self.new_name(word), partitions, replication_factor, config=configs),
        )
        self._await_served(name, partitions)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """Adds partitions to a topic, up to this number."""
        self.admin.create_partitions([NewPartitions(topic, total)], request_timeout=WAIT_S)[topic].result(
            WAIT_S
        )
        self._await_served(topic, total)

    def _await_served(self, topic: str, partitions: int) -> None:
        """A topic is committed before all leaders have made their replicas, and before all brokers know of it; clients
        try again until then."""

        def is_served() -> bool:
            wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
            # One client keeps for a while what it knows of a topic.
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            answers = admin.list_offsets(wanted, request_timeout=WAIT_S).values()
            errors = [answer.exception(WAIT_S) for answer in answers]
            for error in errors:
                if error is not None and error.args[0].code() not in NOT_SERVED_YET:
                    raise error
            return not any(errors)

        until(is_served, f"all partitions of {topic} are served")
        for node_id in self.node_ids:
            if self.local.pid(node_id) is not None:
                self._await_known(node_id, topic, partitions)

    def _await_known(self, node_id: int, topic: str, partitions: int) -> None:
        """Any broker may be asked next."""
        wanted = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)

        def knows() -> bool:
            with contextlib.suppress(OSError), RawConnection(self.address(node_id)) as connection:
                return len(connection.call(wanted, METADATA_VERSION).topics[0].partitions) == partitions
            return False

        until(knows, f"node {node_id} knows {topic}")

    def partitions(self, topic: str) -> dict[int, Any]:
        """Partition → what Metadata says of it (`leader`, `isrs`, `replicas`)."""
        return dict(self._topics(topic)[topic].partitions)

    def _topics(self, *named: str) -> dict[str, Any]:
        return dict(metadata(self.admin, *named).topics)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The partition's leader; waits while there is none."""
        return until(lambda: self._leader(topic, partition), f"{topic}-{partition} has a leader")

    def _leader(self, topic: str, partition: int) -> int | None:
        state = self.partitions(topic)[partition]
        return state.leader if state.leader >= 0 and state.error is None else None

    def busiest_leader(self, topic: str) -> int:
        """The broker that leads most of the topic's partitions."""
        leaders = [self.leader(topic, partition) for partition in self.partitions(topic)]
        return max(self.node_ids, key=leaders.count)

    def controller(self) -> int:
        """The active controller; waits while there is none, or nobody tells."""
        return int(until(lambda: self.local.status()["controller_id"], "a controller is active"))

    def page(self, node_id: int) -> Any:
        """What a living node says of the cluster (`/api/cluster`)."""
        return until(lambda: self.local.http_json(node_id, "/api/cluster"), f"node {node_id} answers")

    # -- whole

    def restore(self) -> None:
        """Resumes and starts whatever a test stopped; returns when every ISR is full again."""
        for node_id in self.node_ids:
            self.local.resume(node_id)
        self.local.start_all()
        until(self._all_in_sync, "all replicas are in sync")

    def _all_in_sync(self) -> bool:
        return all(
            len(partition.isrs) == len(partition.replicas) and partition.leader >= 0
            for topic in self._topics().values()
            for partition in topic.partitions.values()
        )

    # -- disk

    def stored_batches(self, topic: str, partition: int) -> list[BatchHeader]:
        """The batches in the leader's log files, as they lie there."""
        folder = self.local.node_dir(self.leader(topic, partition)) / "data" / f"{topic}-{partition}"
        return [
            header for file in sorted(folder.glob("*.log")) for _, header in iter_batches(file.read_bytes())
        ]


def metadata(admin: AdminClient, *topic: str) -> Any:
    """What Metadata says. librdkafka keeps a question for a node that has just died: others are asked anew."""

    def ask() -> Any:
        try:
            return admin.list_topics(*topic, timeout=ATTEMPT_S)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise
            return None

    return until(ask, "a broker tells of the cluster")


def created(admin: AdminClient, wanted: Callable[[], NewTopic]) -> str:
    """Creates a topic, whose name is returned; another one where nobody knows whether the first was made."""

    def create() -> str | None:
        topic = wanted()
        try:
            admin.create_topics([topic], request_timeout=WAIT_S)[topic.topic].result(WAIT_S)
        except KafkaException as error:
            if error.args[0].name() not in ("REQUEST_TIMED_OUT", "_DESTROY_BROKER"):
                raise  # the latter: librdkafka has let go of a broker that metadata did not name for a moment
            return None
        return str(topic.topic)

    return str(until(create, "a topic is created"))


def until(probe: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Asks again and again until the answer is true; returns it."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer not in (None, False):
            return answer
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(POLL_S)
