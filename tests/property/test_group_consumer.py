"""A group of KIP-848 under random members, topics, losses and changes of coordinator.

The members are honest: each says what it has, gives up what it is no longer told some time later, and knows only what
reached it. The judge knows what each was told and has not given up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.coordinator.groups.context import GroupSettings
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.support.consumer_group_world import GROUP_ID, GroupWorld, state_of
from tests.support.examples import examples

TOPICS = ("t-a", "t-b", "u-a")
SUBSCRIPTIONS = (
    (["t-a"], ""),
    (["t-a", "t-b"], ""),
    (["t-a", "t-b"], ""),
    (["u-a"], "t-.*"),
    ([], ".*"),
    ([], ""),
)
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
MEMBERS = 4
REBALANCE_TIMEOUT_MS = 20_000


@dataclass
class Consumer:
    """A member as a client library runs it."""

    name: str
    instance_id: str | None
    incarnation: int = 0
    epoch: int = 0
    runs: bool = False
    names: list[str] = field(default_factory=lambda: ["t-a"])
    regex: str = ""
    assignor: str | None = None
    told: set[tuple[bytes, int]] = field(default_factory=set)
    has: set[tuple[bytes, int]] = field(default_factory=set)
    said: set[tuple[bytes, int]] = field(default_factory=set)
    """What it had when it was heard last: it says only what changed."""
    says_all: bool = True
    """Whether its next heartbeat is a full one: the answer to the last one did not arrive."""

    @property
    def member_id(self) -> str:
        return f"{self.name}.{self.incarnation}"

    def request(self, world: GroupWorld) -> ConsumerGroupHeartbeatRequest:
        says_all = self.says_all or self.epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if says_all else -1,
            subscribed_topic_names=self.names if says_all else None,
            subscribed_topic_regex=self.regex if says_all else None,
            server_assignor=self.assignor if says_all else None,
            topic_partitions=world.owned_topics(self.has) if says_all or self.has != self.said else None,
        )

    def hear(self, world: GroupWorld, response: ConsumerGroupHeartbeatResponse) -> None:
        error = ErrorCode(response.error_code)
        if error in FENCED:
            self.has.clear()
            self.told.clear()
            self.epoch, self.says_all = 0, True
        elif error is ErrorCode.NONE:
            self.said = set(self.has)
            self.epoch, self.says_all = response.member_epoch, False
            assigned = world.assigned(response)
            if assigned is not None:
                self.told = assigned
                self.has |= assigned
        else:
            assert error in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED), response

    def give_up(self) -> None:
        self.has &= self.told


class Simulation:
    def __init__(self) -> None:
        self.world = GroupWorld(GroupSettings(consumer_max_size=3))
        self.consumers = [
            Consumer(f"c{place}", instance_id=f"i{place}" if place < 2 else None) for place in range(MEMBERS)
        ]
        self.group_epoch = 0
        self.member_epochs: dict[str, int] = {}

    def beat(self, consumer: Consumer, *, request_lost: bool = False, answer_lost: bool = False) -> None:
        if request_lost:
            consumer.says_all = True
            return
        response = self.world.heartbeat(consumer.request(self.world))
        if answer_lost:
            consumer.says_all = True
        else:
            consumer.hear(self.world, response)

    def leave(self, consumer: Consumer, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=consumer.member_id,
            member_epoch=epoch,
            instance_id=consumer.instance_id,
        )
        self.world.heartbeat(request)
        self.stop(consumer)

    def stop(self, consumer: Consumer) -> None:
        """Its process is gone, and what it had with it."""
        consumer.runs = False
        consumer.has.clear()
        consumer.told.clear()

    def start(self, consumer: Consumer) -> None:
        consumer.incarnation += 1
        consumer.runs, consumer.epoch, consumer.says_all = True, 0, True

    def check(self) -> None:
        group = self.world.group
        members = {member.member_id: member for member in group.describe().members}
        owners: dict[tuple[bytes, int], str] = {}
        for consumer in self.consumers:
            if consumer.runs and consumer.member_id in members:
                for partition in consumer.has:
                    other = owners.setdefault(partition, consumer.member_id)
                    assert other == consumer.member_id, f"{partition} is {other}'s and {consumer.member_id}'s"
        assert group.group_epoch >= self.group_epoch
        self.group_epoch = group.group_epoch
        for member_id, member in members.items():
            if member.member_epoch > 0:
                assert member.member_epoch >= self.member_epochs.get(member_id, 0)
                self.member_epochs[member_id] = member.member_epoch
        assert len(members) <= self.world.settings.consumer_max_size

    def check_replay(self) -> None:
        """The whole log, and the log after compaction, give the same group."""
        known = state_of(self.world.group)
        assert state_of(self.world.replayed(compacted=False)) == known
        self.world.load()
        assert state_of(self.world.group) == known

    def settle(self) -> None:
        """Faults end. Who does not fit into the group gives up joining."""
        for _ in range(12):
            for consumer in self.consumers:
                if consumer.runs:
                    consumer.give_up()
                    self.beat(consumer)
                    self.check()
            self.world.tick(5_000)
        members = {member.member_id for member in self.world.group.describe().members}
        consumers = [consumer for consumer in self.consumers if consumer.member_id in members]
        assert {consumer.member_id for consumer in consumers} == members
        assert self.world.group.state == ("Stable" if members else "Empty")
        owned = [partition for consumer in consumers for partition in consumer.has]
        assert len(owned) == len(set(owned))
        assert set(owned) == self.readable(consumers)
        for consumer in consumers:
            assert {topic_id for topic_id, _ in consumer.has} <= {t for t, _ in self.readable([consumer])}

    def readable(self, consumers: list[Consumer]) -> set[tuple[bytes, int]]:
        names = set()
        for consumer in consumers:
            names |= set(consumer.names)
            if consumer.regex:
                prefix = consumer.regex.removesuffix(".*")
                matching = {name for name in self.world.topics.names() if name.startswith(prefix)}
                names |= matching - self.world.hidden_from(consumer.member_id)
        topics = [topic for name in names if (topic := self.world.topics.named(name)) is not None]
        return {(topic.topic_id, partition) for topic in topics for partition in range(topic.partitions)}


WHO = st.integers(0, MEMBERS - 1)
BEATS = st.tuples(
    st.just("beats"),
    st.lists(st.tuples(WHO, st.sampled_from(["", "", "", "", "request", "answer"])), min_size=2, max_size=6),
)
STEPS = st.one_of(
    BEATS,
    BEATS,
    BEATS,
    BEATS,
    BEATS,
    BEATS,
    st.tuples(st.just("give up"), WHO),
    st.tuples(st.just("give up"), WHO),
    st.tuples(st.just("subscribe"), WHO, st.sampled_from(SUBSCRIPTIONS), st.sampled_from([None, "range"])),
    st.tuples(st.just("leave"), WHO, st.sampled_from([-1, -2])),
    st.tuples(st.just("crash"), WHO),
    st.tuples(st.just("topic"), st.sampled_from(TOPICS), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("hide"), st.frozensets(st.sampled_from(TOPICS))),
    st.tuples(st.just("tick"), st.sampled_from([1_000, 5_000, 5_000, 21_000])),
    st.tuples(st.just("load"), st.sampled_from(["", *TOPICS])),
)
"""What happens, most often heartbeats: of whom, and what is lost of each."""


def play(simulation: Simulation, step: tuple[object, ...]) -> None:
    world = simulation.world
    match step:
        case "topic", str(name), int(partitions), bool(is_deleted):
            change_topic(world, name, 0 if is_deleted else partitions)
            world.change_topics(name)
        case "hide", frozenset(hidden):
            if world.hidden is not None:
                world.hide({"*": hidden})
        case "tick", int(ms):
            world.tick(ms)
        case "load", str(name):
            simulation.check_replay()
            if name:  # it changed while nobody looked
                change_topic(world, name, 4)
                world.load()
        case "beats", list(beats):
            for place, lost in beats:
                beat(simulation, simulation.consumers[place], lost)
        case _, int(place), *_:
            play_with(simulation, simulation.consumers[place], step)


def beat(simulation: Simulation, consumer: Consumer, lost: str) -> None:
    if not consumer.runs:
        simulation.start(consumer)
    simulation.beat(consumer, request_lost=lost == "request", answer_lost=lost == "answer")
    simulation.check()


def change_topic(world: GroupWorld, name: str, partitions: int) -> None:
    known = world.topics.named(name)
    if partitions:
        world.topics.put(name, max(partitions, known.partitions if known else 0))
    elif known is not None:
        world.topics.delete(name)


def play_with(simulation: Simulation, consumer: Consumer, step: tuple[object, ...]) -> None:
    match step:
        case "give up", _:
            consumer.give_up()
        case "subscribe", _, (list(names), str(regex)), assignor:
            consumer.names, consumer.regex, consumer.assignor = names, regex, assignor  # type: ignore[assignment]
            consumer.says_all = True
        case "leave", _, int(epoch):
            if consumer.runs:
                simulation.leave(consumer, epoch if consumer.instance_id else -1)
        case "crash", _:
            simulation.stop(consumer)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(STEPS, min_size=20, max_size=60), st.booleans())
def test_every_partition_has_one_owner_in_the_end_and_never_two(
    steps: list[tuple[object, ...]], has_authorizer: bool
) -> None:
    simulation = Simulation()
    if has_authorizer:
        simulation.world.hide({"*": frozenset()})
    simulation.world.topics.put("t-a", 3)
    for step in steps:
        play(simulation, step)
        simulation.check()
    simulation.check_replay()
    simulation.settle()
    simulation.check_replay()
