"""Groups of real consumers: members that come, die and come back, by every client, protocol and assignor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import ConsumerGroupState

from kraft.coordinator.groups.partitioning import group_partition
from tests.support.group_members import (
    AIOKAFKA,
    CONFLUENT,
    GROUP_SETTINGS,
    KAFKA_PYTHON,
    LONG_SESSION_MS,
    GroupOfMembers,
    How,
    Library,
    Records,
    coordinator,
    java,
    kafkajs,
)
from tests.support.java_programs import compiled
from tests.support.node_processes import NodeProcesses, until

PARTITIONS = 6

Libraries = Callable[[str], Library]


@pytest.fixture(scope="session")
def java_member(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the compiled GroupMember."""
    return compiled(tmp_path_factory, java_classpath, "GroupMember")


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Libraries:
    """A client library by its name; skips the test where it is not to be had."""

    def named(name: str) -> Library:
        if name == "kafkajs":
            return kafkajs(request.getfixturevalue("node_modules"))
        if name == "java":
            return java(request.getfixturevalue("java_member"))
        return {one.name: one for one in (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)}[name]

    return named


RANGE, ROUND_ROBIN, STICKY = How("range"), How("roundrobin"), How("sticky")
COOPERATIVE = How("cooperative-sticky")
UNIFORM_848, RANGE_848 = How("uniform", "consumer"), How("range", "consumer")
WAYS = {
    "confluent-kafka": (RANGE, ROUND_ROBIN, COOPERATIVE, UNIFORM_848, RANGE_848),
    "kafka-python": (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE),
    "aiokafka": (RANGE, ROUND_ROBIN, STICKY),
    "kafkajs": (ROUND_ROBIN,),
    "java": (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE, UNIFORM_848, RANGE_848),
}
ASSIGNOR_NAMES = {("kafkajs", "roundrobin"): "RoundRobinAssigner"}
"""On the wire, where a client has its own."""


def _id(value: object) -> str:
    return f"{value.protocol}-{value.assignor}" if isinstance(value, How) else str(value)


@pytest.mark.parametrize(
    ("client", "how"), [(client, how) for client, ways in WAYS.items() for how in ways], ids=_id
)
def test_a_group_of_three_one_killed_and_one_joining(
    client: str, how: How, cluster: NodeProcesses, library: Libraries
) -> None:
    topic = cluster.create_topic("members", PARTITIONS)
    records = Records(cluster, topic)
    with GroupOfMembers(cluster, library(client), how, topic) as group:
        group.start(3)
        group.await_shared()
        described = group.await_state(ConsumerGroupState.STABLE)
        assert described.partition_assignor == ASSIGNOR_NAMES.get((client, how.assignor), how.assignor)
        assert len({member.member_id for member in described.members}) == 3
        records.write()
        group.await_read(records.values)
        group.await_committed(records.of_each_partition)

        group.lose(group.members[0])
        group.await_shared()
        records.write()
        group.await_read(records.values)
        group.await_committed(records.of_each_partition)

        group.start()
        group.await_shared()
        records.write()
        group.await_read(records.values)
        group.await_committed(records.of_each_partition)
        assert Counter(group.read()).most_common(1)[0][1] == 1, "all was committed before each change"

        for member in list(group.members):
            group.lose(member, leaves=True)
        assert group.await_state(ConsumerGroupState.EMPTY).members == []


@pytest.mark.parametrize(
    ("client", "how"),
    [
        ("confluent-kafka", RANGE),
        ("kafka-python", RANGE),
        ("aiokafka", RANGE),
        ("java", RANGE),
        ("confluent-kafka", UNIFORM_848),
        ("java", UNIFORM_848),
    ],
    ids=_id,
)
def test_a_static_member_that_comes_back_has_its_partitions_again(
    client: str, how: How, cluster: NodeProcesses, library: Libraries
) -> None:
    """Killed and back within its session. KIP-848 lets a newcomer in only when the holder of the id has said that
    it goes for a while, which a consumer with an instance id says when it is closed."""
    topic = cluster.create_topic("static", PARTITIONS)
    records = Records(cluster, topic)
    with GroupOfMembers(cluster, library(client), how, topic, session_ms=LONG_SESSION_MS) as group:
        group.start(instance_ids=["one", "two", "three"])
        group.await_shared()
        records.write()
        group.await_read(records.values)
        group.await_committed(records.of_each_partition)
        first, *others = group.members
        had, generation = first.owned, group.generation()
        given = [member.assignments for member in others]

        group.lose(first, leaves=how.protocol == "consumer")
        group.start(instance_ids=["one"])
        group.await_shared()
        assert group.members[-1].owned == had
        records.write()
        group.await_read(records.values)
        group.await_committed(records.of_each_partition)
        assert [member.assignments for member in others] == given, "nobody else noticed"
        assert group.generation() == generation
        members = group.await_state(ConsumerGroupState.STABLE).members
        assert {member.group_instance_id for member in members} == {"one", "two", "three"}


def test_clients_of_one_group_share_a_queue_and_every_group_hears_everything(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("queue", PARTITIONS)
    records = Records(cluster, topic)
    libraries = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
    with ExitStack() as stack:
        name = cluster.new_name("mixed")
        queue = [
            stack.enter_context(GroupOfMembers(cluster, one, RANGE, topic, group=name)) for one in libraries
        ]
        broadcast = [stack.enter_context(GroupOfMembers(cluster, one, RANGE, topic)) for one in libraries]
        for group in (*queue, *broadcast):
            group.start()
        until(
            lambda: sorted(group.owned[0] for group in queue) == [[0, 1], [2, 3], [4, 5]],
            "three clients share a topic",
        )
        for group in broadcast:
            group.await_shared()
        records.write(50)
        until(lambda: sum(len(group.read()) for group in queue) >= len(records.values), "the queue is read")
        assert sorted(value for group in queue for value in group.read()) == sorted(records.values)
        for group in broadcast:
            group.await_read(records.values)
            assert sorted(group.read()) == sorted(records.values)


def same_coordinator(cluster: NodeProcesses, count: int) -> list[str]:
    """Names of new groups that are kept in one partition."""
    partitions = int(GROUP_SETTINGS["offsets.topic.num.partitions"])
    names: list[str] = []
    while len(names) < count:
        name = cluster.new_name("coordinated")
        if group_partition(name, partitions) == 0:
            names.append(name)
    return names


def test_members_go_on_in_the_same_generation_when_their_coordinator_is_killed(
    fragile_cluster: NodeProcesses, library: Libraries
) -> None:
    cluster = fragile_cluster
    ways = [
        (CONFLUENT, RANGE),
        (CONFLUENT, UNIFORM_848),
        (KAFKA_PYTHON, RANGE),
        (AIOKAFKA, RANGE),
    ]
    topics = [cluster.create_topic("coordinated", PARTITIONS) for _ in ways]
    names = same_coordinator(cluster, len(ways))
    with ExitStack() as stack:
        groups = [
            stack.enter_context(
                GroupOfMembers(cluster, one, how, topic, group=name, session_ms=LONG_SESSION_MS)
            )
            for (one, how), topic, name in zip(ways, topics, names, strict=True)
        ]
        for group in groups:
            group.start(2)
        _killed_under(cluster, groups)


def test_java_members_go_on_when_their_coordinator_is_killed(
    fragile_cluster: NodeProcesses, library: Libraries
) -> None:
    cluster, one = fragile_cluster, library("java")
    ways = [COOPERATIVE, UNIFORM_848]
    topics = [cluster.create_topic("coordinated", PARTITIONS) for _ in ways]
    names = same_coordinator(cluster, len(ways))
    with ExitStack() as stack:
        groups = [
            stack.enter_context(
                GroupOfMembers(cluster, one, how, topic, group=name, session_ms=LONG_SESSION_MS)
            )
            for how, topic, name in zip(ways, topics, names, strict=True)
        ]
        for group in groups:
            group.start(2)
        _killed_under(cluster, groups)


def _killed_under(cluster: NodeProcesses, groups: list[GroupOfMembers]) -> None:
    """Kills the coordinator of all these groups once they are stable: each goes on as it was."""
    records = [Records(cluster, group.topic) for group in groups]
    before = []
    for group, written in zip(groups, records, strict=True):
        group.await_shared()
        written.write()
        group.await_read(written.values)
        group.await_committed(written.of_each_partition)
    for group in groups:
        before.append((group.owned, group.assignments(), group.generation()))
    killed = coordinator(cluster, groups[0].id)
    cluster.local.kill(killed)
    until(lambda: coordinator(cluster, groups[0].id) != killed, "another broker coordinates")
    cluster.connect_anew()
    for group, written in zip(groups, records, strict=True):
        written.write()
        group.await_read(written.values)
        group.await_committed(written.of_each_partition)
    after = [(group.owned, group.assignments(), group.generation()) for group in groups]
    assert after == before
