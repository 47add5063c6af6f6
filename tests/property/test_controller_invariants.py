"""Random lives of a cluster: whatever happens, the metadata keeps its promises.

Hypothesis plays brokers, clients, time, and a Raft that delays, loses and cuts off proposals. After
every step the committed and the speculative image are checked against the promises of the controller.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partitions.log.config import LogConfig
from quorum.controller.cluster_index import ClusterIndex
from quorum.controller.state import Propose
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.features import ELR_VERSION, elr_enabled
from quorum.metadata.image import MetadataImage, PartitionImage
from quorum.metadata.records import RECOVERING
from quorum.rpc import messages as m
from quorum.rpc.messages import (
    DAMAGED,
    DIRECTORY,
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from tests.support.controller_world import World, registration
from tests.support.examples import examples

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c.x", "c_x")
broker_ids = st.sampled_from(BROKERS)
topic_names = st.sampled_from(TOPICS)
min_isrs = st.sampled_from(["1", "2", "2", "3"])


def min_isr(image: MetadataImage, topic: str) -> int:
    """The topic's effective min.insync.replicas."""
    return LogTopicConfigs(LogConfig()).min_insync_replicas(
        image.config("topic", topic), image.config("broker", "")
    )


class ControllerLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(session_timeout_ms=9000)
        self.asked = 0
        self.last: MetadataImage = self.world.image
        self.producer_ids: list[int] = []

    def ask(self, request: m.ControllerRequest) -> None:
        self.asked += 1
        before, epoch = self.world.controller.image, self.world.controller.epoch
        self.world.send(request)
        if self.world.controller.is_active and self.world.controller.epoch == epoch:
            self.marks_go_for_a_reason(request, before, self.world.controller.image)

    def marks_go_for_a_reason(
        self, request: m.ControllerRequest, before: MetadataImage, after: MetadataImage
    ) -> None:
        """A replica is online again when its broker says so, registers anew or leaves; or it is none any more."""
        speaks = (m.RegisterBrokerRequest, m.ReplicaStatesRequest, UnregisterBrokerRequest)
        speaker = request.broker_id if isinstance(request, speaks) else None
        for topic_id, topic in before.topics.items():
            for number, old in enumerate(topic.partitions):
                new = after.partition(topic_id, number)
                if new is None or new is old:
                    continue
                gone = set(old.offline_replicas) & set(new.replicas) - set(new.offline_replicas)
                assert gone <= {speaker}
                come = set(new.offline_replicas) - set(old.offline_replicas)
                assert not come or (come == {speaker} and isinstance(request, m.ReplicaStatesRequest))
                if new.has_leader and new.leader in old.offline_replicas:
                    assert new.leader == speaker, "elected while it was offline"

    @initialize()
    def begin(self) -> None:
        for broker_id in BROKERS:
            self.ask(registration(broker_id, rack="ab"[broker_id % 2]))
            self.beat(broker_id, behind=0, want=(False, False))

    # Brokers

    @rule(broker_id=broker_ids, incarnation=st.integers(1, 3), cleanly=st.booleans())
    def register(self, broker_id: int, incarnation: int, cleanly: bool) -> None:
        known = self.world.controller.image.brokers.get(broker_id)
        previous = known.epoch if known is not None and cleanly else -1
        request = registration(broker_id, incarnation=incarnation, rack="ab"[broker_id % 2])
        self.ask(replace(request, previous_broker_epoch=previous))
        now = self.world.controller.image.brokers.get(broker_id)
        image = self.world.controller.image
        if known is not None and now is not None and now.epoch != known.epoch and elr_enabled(image.features):
            for topic in image.topics.values():
                for partition in topic.partitions:
                    assert broker_id not in partition.isr
                    assert cleanly or broker_id not in partition.elr

        if known is not None and now is not None and now.epoch != known.epoch:
            for topic in image.topics.values():
                assert all(broker_id not in partition.offline_replicas for partition in topic.partitions)

    @rule(
        broker_id=broker_ids,
        kinds=st.lists(st.sampled_from([DAMAGED, DAMAGED, DIRECTORY, None]), min_size=1, max_size=4),
        first=st.integers(0, 15),
        stale=st.sampled_from([0, 0, 0, 0, 1]),
    )
    def report(self, broker_id: int, kinds: list[str | None], first: int, stale: int) -> None:
        """The broker says of some of its replicas, from the first one on, that they are offline, or online."""
        image = self.world.controller.image
        broker = image.brokers.get(broker_id)
        own = sorted(
            (topic.topic_id, number)
            for topic in image.topics.values()
            for number, partition in enumerate(topic.partitions)
            if broker_id in partition.replicas
        )
        told = list(zip(own[first % (len(own) + 1) :], kinds, strict=False))
        offline = tuple((*key, kind) for key, kind in told if kind is not None)
        online = tuple(key for key, kind in told if kind is None)
        epoch = broker.epoch if broker else 0
        self.ask(m.ReplicaStatesRequest(broker_id, epoch - stale, offline, online))
        after = self.world.controller.image
        if broker is None or stale or not self.world.controller.is_active:
            return
        for (topic_id, number), kind in told:
            partition = after.topics[topic_id].partitions[number]
            assert (broker_id in partition.offline_replicas) == (kind is not None)
            if kind == DAMAGED and broker_id in partition.elr:
                assert (partition.isr, partition.elr) == ((), (broker_id,)), "it is not the last one"
            had = image.topics[topic_id].partitions[number]
            if {broker_id} == set(had.isr) | set(had.elr):
                assert {broker_id} == set(partition.isr) | set(partition.elr) or (
                    partition.leader_recovery_state == RECOVERING
                ), "the last one is forgotten"

    def beat(self, broker_id: int, behind: int, want: tuple[bool, bool]) -> None:
        broker = self.world.controller.image.brokers.get(broker_id)
        epoch = broker.epoch if broker else 0
        offset = max(0, self.world.image.offset - behind)
        self.ask(m.HeartbeatRequest(broker_id, epoch, offset, *want))

    @rule(alive=st.sets(broker_ids))
    def time_passes(self, alive: set[int]) -> None:
        for step in (4000, 4000, 1000):
            self.world.now_ms += step
            for broker_id in sorted(alive):
                self.beat(broker_id, 0, (False, False))
        self.world.advance(0)

    @rule(
        broker_id=broker_ids,
        behind=st.sampled_from([0, 0, 0, 3, 100]),
        want=st.sampled_from([(False, False)] * 4 + [(True, False), (False, True), (True, True)]),
    )
    def heartbeat(self, broker_id: int, behind: int, want: tuple[bool, bool]) -> None:
        self.beat(broker_id, behind, want)

    @rule(
        name=topic_names,
        isr=st.sets(broker_ids, min_size=1),
        partition=st.integers(0, 3),
        skew=st.sampled_from([(0, 0, 0)] * 5 + [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1)]),
    )
    def alter_partition(self, name: str, isr: set[int], partition: int, skew: tuple[int, int, int]) -> None:
        image = self.world.controller.image
        topic = image.topic(name)
        state = image.partition(topic.topic_id, partition) if topic else None
        if topic is None or state is None or not image.brokers:
            return
        sender = state.leader if state.has_leader else state.replicas[0]
        if sender not in image.brokers:
            return
        members = tuple(
            m.BrokerState(broker_id, image.brokers[broker_id].epoch + skew[2])
            for broker_id in state.replicas
            if broker_id in image.brokers and (broker_id in isr or broker_id == sender)
        )
        item = m.AlterPartitionItem(
            partition, state.leader_epoch + skew[0], members, state.partition_epoch + skew[1]
        )
        topics = (m.AlterPartitionTopic(topic.topic_id, (item, item)),)
        self.ask(m.AlterPartitionRequest(sender, image.brokers[sender].epoch, topics))

    @rule(broker_id=broker_ids)
    def producer_ids(self, broker_id: int) -> None:
        broker = self.world.controller.image.brokers.get(broker_id)
        self.ask(m.AllocateProducerIdsRequest(broker_id, broker.epoch if broker else 0))

    # Clients

    @rule(
        name=topic_names,
        partitions=st.integers(1, 4),
        factor=st.integers(1, 4),
        unclean=st.sampled_from([False, False, True]),
        min_isr=min_isrs,
    )
    def create_topic(self, name: str, partitions: int, factor: int, unclean: bool, min_isr: str) -> None:
        configs = (
            ("unclean.leader.election.enable", str(unclean).lower()),
            ("min.insync.replicas", min_isr),
        )
        self.ask(m.CreateTopicsRequest((m.NewTopic(name, partitions, factor, None, configs),)))

    @rule(names=st.lists(topic_names, min_size=1, max_size=2))
    def delete_topics(self, names: list[str]) -> None:
        self.ask(m.DeleteTopicsRequest(tuple(m.TopicToDelete(name=name) for name in names)))

    @rule(name=topic_names, count=st.integers(1, 5))
    def create_partitions(self, name: str, count: int) -> None:
        self.ask(m.CreatePartitionsRequest((m.MorePartitions(name, count),)))

    @rule(name=topic_names, value=st.sampled_from(["true", "false", None, "perhaps"]))
    def alter_configs(self, name: str, value: str | None) -> None:
        change = m.ConfigChange("unclean.leader.election.enable", value)
        self.ask(m.AlterConfigsRequest((m.ConfigResourceChange("topic", name, (change,)),)))

    @rule(name=topic_names, value=st.none() | min_isrs)
    def alter_min_isr(self, name: str, value: str | None) -> None:
        change = m.ConfigChange("min.insync.replicas", value, m.SET if value else m.DELETE)
        self.ask(m.AlterConfigsRequest((m.ConfigResourceChange("topic", name, (change,)),)))

    @rule(level=st.integers(0, 1))
    def switch_elr(self, level: int) -> None:
        upgrade_type = UPGRADE if level else SAFE_DOWNGRADE
        self.ask(UpdateFeaturesRequest((FeatureUpdate(ELR_VERSION, level, upgrade_type),)))

    # Raft

    @rule()
    def commits_are_slow(self) -> None:
        self.world.holding = True

    @precondition(lambda self: self.world.queue)
    @rule()
    def one_commits(self) -> None:
        self.world.commit_one()

    @rule()
    def all_commit(self) -> None:
        self.world.holding = False
        self.world.commit()

    @precondition(lambda self: self.world.queue)
    @rule()
    def one_is_lost_unnoticed(self) -> None:
        """The next proposal vanishes; what follows it reaches the log and is refused there."""
        self.world.drop_one()
        self.world.commit()
        self.start_over()

    @precondition(lambda self: self.world.queue)
    @rule()
    def one_fails(self) -> None:
        self.world.fail_one()
        self.world.commit()
        self.start_over()

    @precondition(lambda self: not self.world.queue)
    @rule()
    def a_new_controller(self) -> None:
        self.world.lead()

    @precondition(lambda self: self.world.queue)
    @rule()
    def a_new_controller_in_the_middle(self) -> None:
        self.world.lead()

    def start_over(self) -> None:
        """As the node does after a failure: in the same epoch if it may, else in a new one."""
        world = self.world
        if world.controller.is_active or not world.controller.can_become_active(world.term):
            world.lead()
            return
        next_sequence = world.fence.expected_sequence(world.term)
        world.run(
            world.controller.become_active(world.term, world.image, world.now_ms, next_sequence=next_sequence)
        )

    # Promises

    @invariant()
    def images_keep_their_invariants(self) -> None:
        for image in (self.world.image, self.world.controller.image):
            for topic in image.topics.values():
                for partition in topic.partitions:
                    self.check_partition(image, topic.name, partition)
            assert {topic.name: topic.topic_id for topic in image.topics.values()} == image.topic_ids
            assert not {"c.x", "c_x"} <= set(image.topic_ids)

    def check_partition(self, image: MetadataImage, name: str, partition: PartitionImage) -> None:
        partition.check()
        active = {broker.broker_id for broker in image.brokers.values() if broker.is_active}
        offline = set(partition.offline_replicas)
        if partition.has_leader:
            assert partition.leader in active
            assert partition.leader not in offline
        else:
            active -= offline
        if partition.has_leader or elr_enabled(image.features):
            assert offline.isdisjoint(partition.isr), "an offline replica in an ISR"
        if elr_enabled(image.features):
            assert active.issuperset(partition.isr), "a fenced broker in an ISR"
            if partition.elr:
                assert len(partition.isr) < min(min_isr(image, name), len(partition.replicas))
        else:
            assert not partition.elr
            assert active.issuperset(partition.isr) or (len(partition.isr) == 1 and not partition.has_leader)
        if not partition.has_leader and not self.world.holding and not self.world.queue:
            candidates = partition.isr or partition.elr
            assert active.isdisjoint(candidates), "no leader although somebody with all records is there"

    @invariant()
    def epochs_only_grow(self) -> None:
        before, after = self.last, self.world.image
        assert after.offset >= before.offset
        assert after.next_producer_id >= before.next_producer_id
        for broker_id, broker in before.brokers.items():
            assert broker_id not in after.brokers or after.brokers[broker_id].epoch >= broker.epoch
        for topic_id, topic in before.topics.items():
            if topic_id not in after.topics:
                continue
            for old, new in zip(topic.partitions, after.topics[topic_id].partitions, strict=False):
                assert new.leader_epoch >= old.leader_epoch
                assert new.partition_epoch >= old.partition_epoch
                assert (new == old) == (new.partition_epoch == old.partition_epoch)
                if new.leader != old.leader:
                    assert new.leader_epoch > old.leader_epoch
        self.last = after

    @invariant()
    def all_nodes_see_the_same(self) -> None:
        committed = self.world.image
        assert MetadataImage.decode(committed.encode()) == committed
        if self.world.controller.is_active and not self.world.queue:
            assert self.world.controller.image == committed

    @invariant()
    def the_index_mirrors_the_image(self) -> None:
        controller = self.world.controller
        if not controller.is_active:
            return
        index, fresh = controller._index, ClusterIndex(controller.image)
        assert vars(index).keys() == vars(fresh).keys()
        for name, value in vars(fresh).items():
            assert getattr(index, name) == value

    @invariant()
    def every_request_is_answered_once(self) -> None:
        answered = [complete.request_id for complete in self.world.completed]
        assert len(answered) == len(set(answered))
        assert len(answered) + self.world.controller._waiting == self.asked
        if not self.world.queue:
            assert len(answered) == self.asked

    @invariant()
    def producer_ids_are_handed_out_once(self) -> None:
        firsts = [
            complete.response.first
            for complete in self.world.completed
            if isinstance(complete.response, m.AllocateProducerIdsResponse)
        ]
        assert len(firsts) == len(set(firsts))

    def teardown(self) -> None:
        self.world.commit()
        assert self.world.replay().encode() == self.world.image.encode()
        assert all(isinstance(proposal, Propose) for proposal in self.world.proposed)


TestControllerLife = ControllerLife.TestCase
TestControllerLife.settings = settings(max_examples=examples(150), stateful_step_count=50, deadline=None)
