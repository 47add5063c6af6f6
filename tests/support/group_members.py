"""Members of consumer groups as processes of real clients, and what tests ask of a group of them.

The programs are in `tests/clients/members` and `tests/clients/java`; they tell a line for each thing that befalls them.
No client is told more than its users tell it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kraft.coordinator.groups import group_metadata
from kraft.coordinator.groups.partitioning import group_partition
from kraft.protocol.errors import ProtocolError
from kraft.protocol.schemas.consumer_groups import ConsumerGroupDescribeRequest
from tests.support.java_programs import FLAGS
from tests.support.node_processes import WAIT_S, NodeProcesses, until
from tests.support.raw_client import RawConnection
from tests.support.real_clients import CLIENTS, confluent_consumer
from tests.support.real_clients import How as HowToSend

MEMBERS = Path(__file__).parent.parent / "clients" / "members"
OFFSETS_TOPIC = "__consumer_offsets"
SESSION_MS = 10_000
"""Of members who may die: nobody is taken for dead because a machine stalls."""
LONG_SESSION_MS = 30_000
"""Of members with an instance id, who come back in time, even a Java on a busy machine; and of those who go on when
their coordinator dies, which is noticed, and another one found, before they give their sessions up."""
HEARTBEAT_MS = 500
COMMIT_MS = 300
GROUP_SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
"""Of a cluster whose groups notice soon what became of their members; its internal topics are small."""


class How(NamedTuple):
    """How a group's members join."""

    assignor: str
    """As the client calls it on the wire: range, roundrobin, sticky, cooperative-sticky; uniform, range of KIP-848."""
    protocol: str = "classic"


class Who(NamedTuple):
    """Whom a member joins."""

    bootstrap: str
    group: str
    session_ms: int
    instance_id: str | None = None


class Library(NamedTuple):
    """A client library whose consumers can be members."""

    name: str
    command: Callable[[str, Who, How], Sequence[str]]
    """The topic, the group, how."""
    environment: Mapping[str, str] | None = None


def _python(client: str, topic: str, settings: Mapping[str, Any]) -> list[str]:
    return [sys.executable, str(MEMBERS / "python_member.py"), client, topic, json.dumps(settings)]


def _properties(who: Who, how: How, assignor: str) -> dict[str, str]:
    """As librdkafka and Java call them."""
    properties = {
        "bootstrap.servers": who.bootstrap,
        "group.id": who.group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": str(COMMIT_MS),
        "group.protocol": how.protocol,
    }
    if how.protocol == "consumer":
        properties["group.remote.assignor"] = how.assignor
    else:
        properties["partition.assignment.strategy"] = assignor
        properties["session.timeout.ms"] = str(who.session_ms)
        properties["heartbeat.interval.ms"] = str(HEARTBEAT_MS)
    if who.instance_id is not None:
        properties["group.instance.id"] = who.instance_id
    return properties


def _confluent(topic: str, who: Who, how: How) -> Sequence[str]:
    return _python("confluent", topic, {**_properties(who, how, how.assignor), "log_level": 0})


_PYTHON_ASSIGNORS = {
    "range": "range:RangePartitionAssignor",
    "roundrobin": "roundrobin:RoundRobinPartitionAssignor",
    "sticky": "sticky.sticky_assignor:StickyPartitionAssignor",
    "cooperative-sticky": "cooperative_sticky:CooperativeStickyAssignor",
}


def _python_settings(who: Who, how: How) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": who.bootstrap.split(","),
        "group_id": who.group,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": COMMIT_MS,
        "session_timeout_ms": who.session_ms,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "assignor": _PYTHON_ASSIGNORS[how.assignor],
    }
    if who.instance_id is not None:
        settings["group_instance_id"] = who.instance_id
    return settings


def _kafka_python(topic: str, who: Who, how: How) -> Sequence[str]:
    return _python("kafka_python", topic, _python_settings(who, how))


def _aio_kafka(topic: str, who: Who, how: How) -> Sequence[str]:
    return _python("aio_kafka", topic, _python_settings(who, how))


CONFLUENT = Library("confluent-kafka", _confluent)
KAFKA_PYTHON = Library("kafka-python", _kafka_python)
AIOKAFKA = Library("aiokafka", _aio_kafka)


def kafkajs(node_modules: Path) -> Library:
    """kafkajs, which was installed there. Its one assignor is round robin."""

    def command(topic: str, who: Who, how: How) -> Sequence[str]:
        settings = {
            "client": {"brokers": who.bootstrap.split(",")},
            "consumer": {
                "groupId": who.group,
                "sessionTimeout": who.session_ms,
                "heartbeatInterval": HEARTBEAT_MS,
                "maxWaitTimeInMs": HEARTBEAT_MS,
            },
            "commitIntervalMs": COMMIT_MS,
        }
        return ["node", str(MEMBERS / "kafkajs_member.js"), topic, json.dumps(settings)]

    return Library("kafkajs", command, {"NODE_PATH": str(node_modules)})


_JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def java(classpath: str) -> Library:
    """Java's own consumer; its class path has the compiled GroupMember."""

    def command(topic: str, who: Who, how: How) -> Sequence[str]:
        assignor = f"org.apache.kafka.clients.consumer.{_JAVA_ASSIGNORS.get(how.assignor)}"
        pairs = [f"{key}={value}" for key, value in _properties(who, how, assignor).items()]
        return ["java", *FLAGS, "-cp", classpath, "GroupMember", topic, *pairs]

    return Library("java", command)


class Member:
    """One process."""

    def __init__(self, library: Library, topic: str, who: Who, how: How) -> None:
        self._told = tempfile.NamedTemporaryFile()  # noqa: SIM115  # closed by `end`
        self._errors = tempfile.NamedTemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            library.command(topic, who, how),
            stdout=self._told,
            stderr=self._errors,
            env=None if library.environment is None else {**os.environ, **library.environment},
        )

    def _lines(self) -> list[list[str]]:
        text = Path(self._told.name).read_text()
        return [line.split(" ") for line in text[: text.rfind("\n") + 1].splitlines()]

    def require_alive(self) -> None:
        assert self.process.poll() is None, f"a member ended by itself: {self.errors}"

    @property
    def errors(self) -> str:
        return Path(self._errors.name).read_text(errors="replace")

    @property
    def owned(self) -> list[int]:
        """Its partitions of the topic, as it last told."""
        told = [words[1] for words in self._lines() if words[0] == "owns"]
        return [int(number) for number in told[-1].split(",") if number] if told else []

    @property
    def assignments(self) -> int:
        """How many it was given."""
        return sum(1 for words in self._lines() if words[0] == "rebalanced")

    @property
    def read(self) -> list[str]:
        return [words[3] for words in self._lines() if words[0] == "read"]

    def kill(self) -> None:
        """At once, without a word to the group."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def leave(self) -> None:
        """As an application ends in order; returns when it has."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_S)
        assert self._lines()[-1] == ["left"], f"a member did not end in order: {self.errors}"

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._told.close()
        self._errors.close()


class GroupOfMembers:
    """A group that reads one topic, and its processes. Used as `with GroupOfMembers(…) as group`."""

    def __init__(
        self,
        cluster: NodeProcesses,
        library: Library,
        how: How,
        topic: str,
        *,
        group: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        self._cluster = cluster
        self._session_ms = session_ms
        self._library = library
        self._how = how
        self.topic = topic
        self.partitions = len(cluster.partitions(topic))
        self.id = cluster.new_name(f"{library.name}-{how.assignor}") if group is None else group
        self.members: list[Member] = []
        """Those that live."""
        self._ended: list[Member] = []

    def __enter__(self) -> GroupOfMembers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in [*self.members, *self._ended]:
            if error is not None and (words := member.errors):
                error.add_note(f"a member of {self.id} said: {words[-2_000:]}")
            member.end()

    def start(self, count: int = 1, *, instance_ids: Sequence[str | None] = ()) -> None:
        """Members join."""
        if self._session_ms != SESSION_MS and self._how.protocol == "consumer":
            self._hold_sessions_open()
        for instance_id in instance_ids or [None] * count:
            who = Who(self._cluster.bootstrap, self.id, self._session_ms, instance_id)
            self.members.append(Member(self._library, self.topic, who, self._how))

    def _hold_sessions_open(self) -> None:
        """As `Who.session_ms` does; in KIP-848 the group says how long sessions are."""
        session = ConfigEntry(
            "consumer.session.timeout.ms",
            str(self._session_ms),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.GROUP, self.id, incremental_configs=[session])
        self._cluster.admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def lose(self, member: Member, *, leaves: bool = False) -> None:
        """A member is killed, or leaves."""
        self.members.remove(member)
        self._ended.append(member)
        if leaves:
            member.leave()
        else:
            member.kill()

    # -- what it has come to

    @property
    def owned(self) -> list[list[int]]:
        """What each member has."""
        return [member.owned for member in self.members]

    def is_shared(self) -> bool:
        """Whether each partition has one owner among the living, and all have nearly as many."""
        for member in self.members:
            member.require_alive()
        owned = self.owned
        sizes = {len(one) for one in owned}
        every = sorted(number for one in owned for number in one)
        return every == list(range(self.partitions)) and max(sizes) - min(sizes) <= 1

    def await_shared(self) -> None:
        until(self.is_shared, f"the {len(self.members)} members of {self.id} share {self.topic}")

    def read(self) -> list[str]:
        """All that members have read, the dead among them."""
        return [value for member in [*self.members, *self._ended] for value in member.read]

    def await_read(self, values: set[str]) -> None:
        until(lambda: values <= set(self.read()), f"{self.id} reads everything")

    def committed(self) -> dict[int, int]:
        """By partition, as the coordinator tells."""
        wanted = [ConsumerGroupTopicPartitions(self.id)]
        told = self._cluster.admin.list_consumer_group_offsets(wanted, request_timeout=WAIT_S)
        found: Sequence[TopicPartition] = told[self.id].result(WAIT_S).topic_partitions or []
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def await_committed(self, count: int) -> None:
        """Of every partition."""
        wanted = dict.fromkeys(range(self.partitions), count)
        until(lambda: self.committed() == wanted, f"{self.id} commits {count} of each partition")

    def await_state(self, state: ConsumerGroupState) -> Any:
        """How the group is described once it has come to that: members know their parts before its coordinator knows
        that they do."""

        def described() -> Any:
            told = self._cluster.admin.describe_consumer_groups([self.id], request_timeout=WAIT_S)
            found = told[self.id].result(WAIT_S)
            return found if found.state == state else None

        return until(described, f"{self.id} is {state.name}")

    def generation(self) -> int:
        """The generation, or the epoch of a group of KIP-848, as the coordinator keeps it."""
        if self._how.protocol == "consumer":
            with RawConnection(self._cluster.address(coordinator(self._cluster, self.id))) as connection:
                answer = connection.call(ConsumerGroupDescribeRequest(group_ids=[self.id]), 1)
            return int(answer.groups[0].group_epoch)
        return stored_generations(self._cluster, self.id)[-1]

    def assignments(self) -> list[int]:
        """How many each member was given."""
        return [member.assignments for member in self.members]


def coordinator(cluster: NodeProcesses, group: str) -> int:
    """The broker that coordinates a group."""
    return cluster.leader(
        OFFSETS_TOPIC, group_partition(group, int(GROUP_SETTINGS["offsets.topic.num.partitions"]))
    )


def stored_generations(cluster: NodeProcesses, group: str) -> list[int]:
    """The generations of a classic group that __consumer_offsets holds, in their order: any client may read it."""
    number = group_partition(group, int(GROUP_SETTINGS["offsets.topic.num.partitions"]))
    consumer = confluent_consumer(cluster.bootstrap)
    found: list[int] = []
    try:
        place = TopicPartition(OFFSETS_TOPIC, number)
        _, end = consumer.get_watermark_offsets(place, WAIT_S)
        consumer.assign([TopicPartition(OFFSETS_TOPIC, number, 0)])
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found += _generation(group, message.key(), message.value())
            position = consumer.position([place])[0].offset
            if position >= end:
                break
    finally:
        consumer.close()
    assert all(earlier <= later for earlier, later in pairwise(found)), "generations only grow"
    return found


def _generation(group: str, key: bytes, value: bytes | None) -> list[int]:
    try:
        named = group_metadata.KEY.decode(key).group
    except ProtocolError:
        return []  # of an offset, or of a group of KIP-848
    return [] if named != group or value is None else [group_metadata.VALUE.decode(value).generation]


class Records:
    """What a test writes to a topic: the same number to each partition, in rounds, no value twice."""

    def __init__(self, cluster: NodeProcesses, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.values: set[str] = set()
        self.of_each_partition = 0

    def write(self, count: int = 10) -> None:
        start, end = self.of_each_partition, self.of_each_partition + count
        lines = {
            partition: [f"{partition}-{number}" for number in range(start, end)]
            for partition in self._cluster.partitions(self._topic)
        }
        self.of_each_partition = end
        self.values.update(value for values in lines.values() for value in values)
        encoded = {partition: [value.encode() for value in values] for partition, values in lines.items()}
        CLIENTS[0].produce(self._cluster.bootstrap, self._topic, encoded, HowToSend(idempotent=True))
