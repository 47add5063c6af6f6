"""What ten thousand partitions cost: proposals, memory, and timers that look at none of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

import pytest

from kraft.dynamic_configs import DynamicBrokerConfigs
from partitions.log.config import LogConfig
from quorum.controller.cluster_index import PARTITIONS_PER_STEP, ClusterIndex
from quorum.controller.decision import ClusterView, ControllerConfig
from quorum.controller.leader_rebalance import MAX_ELECTIONS_PER_STEP, LeaderRebalance
from quorum.controller.state import ControllerState
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.image import EMPTY, MetadataImage, PartitionId, PartitionImage
from quorum.metadata.records import BROKER_RESOURCE, PartitionChange
from quorum.rpc import messages as m
from quorum.steps import Steps, finished
from tests.support.controller_world import World

PARTITIONS = 10_000


def world_of(partitions: int, *, leader: int = 1) -> World:
    """Brokers 1 to 3 and a topic of so many partitions, all of which one broker leads."""
    world = World()
    world.start(1, 2, 3)
    replicas = (leader, *(broker_id for broker_id in (1, 2, 3) if broker_id != leader))
    chosen = tuple(m.PartitionAssignment(number, replicas) for number in range(partitions))
    world.call(m.CreateTopicsRequest((m.NewTopic("t", assignments=chosen),)))
    return world


def view_of(image: MetadataImage) -> ClusterView:
    defaults = LogConfig()
    return ClusterView(
        image,
        ClusterIndex(image),
        ControllerConfig("c"),
        LogTopicConfigs(defaults),
        {BROKER_RESOURCE: DynamicBrokerConfigs(defaults)},
    )


def test_ten_thousand_partitions_are_one_proposal() -> None:
    world = World()
    world.start(1, 2, 3)
    before = len(world.proposed)
    world.call(m.CreateTopicsRequest((m.NewTopic("t", PARTITIONS, 3),)))
    assert len(world.proposed) == before + 1
    assert len(world.image.topics) == 1


def test_an_image_and_its_index_take_less_than_2_kib_a_partition() -> None:
    encoded = world_of(PARTITIONS).image.encode()
    tracemalloc.start()
    try:
        image = MetadataImage.decode(encoded)
        index = ClusterIndex(image)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert index.led_by(1) == PARTITIONS
    assert taken < 2048 * PARTITIONS


def test_an_index_goes_over_to_another_image_in_steps() -> None:
    """From any to any: what is made, changed, grown and deleted; whether or not the steps before were done."""
    world = world_of(PARTITIONS)
    world.call(m.CreateTopicsRequest((m.NewTopic("a.b", 2, 3), m.NewTopic("gone", 1, 3))))
    first = world.image
    world.call(m.DeleteTopicsRequest((m.TopicToDelete("gone"),)))
    world.call(m.CreateTopicsRequest((m.NewTopic("gone", 3, 2),)))
    world.call(m.CreatePartitionsRequest((m.MorePartitions("a.b", 5),)))
    world.heartbeat(2, fence=True)
    second = world.image
    assert second.topic_ids["gone"] != first.topic_ids["gone"]
    assert all(2 not in one.isr for one in second.topics[second.topic_ids["t"]].partitions)
    index = ClusterIndex(second)
    finished(index.follow(EMPTY))
    assert vars(index) == vars(ClusterIndex())
    for image in (first, second, first):
        assert sum(1 for _ in index.follow(image)) >= PARTITIONS // PARTITIONS_PER_STEP
        assert vars(index) == vars(ClusterIndex(image))
    left = index.follow(second)
    next(left)
    assert sum(1 for _ in index.follow(first)) >= PARTITIONS // PARTITIONS_PER_STEP
    assert vars(index) == vars(ClusterIndex(first))
    assert next(left, None) is None, "it was ended by the next one"
    assert vars(index) == vars(ClusterIndex(first))


def test_a_controller_that_prepared_looks_only_at_what_changed_since(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(PARTITIONS)
    before = world.controller
    world.prepared = world.image
    world.call(m.CreateTopicsRequest((m.NewTopic("new", 3, 3),)))
    looked_at: list[PartitionId] = []
    add = ClusterIndex._add

    def counted(index: ClusterIndex, key: PartitionId, partition: PartitionImage) -> None:
        looked_at.append(key)
        add(index, key, partition)

    prepare = ControllerState.prepare
    monkeypatch.setattr(ClusterIndex, "_add", counted)
    monkeypatch.setattr(ControllerState, "prepare", lambda *of: _unseen(prepare(*of), looked_at))
    world.lead()
    assert looked_at == [(world.image.topic_ids["new"], number) for number in range(3)]
    before.become_active(world.term + 1, world.image, 0)
    assert len(looked_at) == 3, "who was active before knows them all"


def _unseen(steps: Steps[None], looked_at: list[PartitionId]) -> Steps[None]:
    """What was done before, in steps."""
    yield from steps
    looked_at.clear()


class Untouchable(Mapping[bytes, NoReturn]):
    """Topics that nobody may look at."""

    def __getitem__(self, key: bytes) -> NoReturn:
        raise AssertionError("a timer looked at a partition")

    def __iter__(self) -> NoReturn:
        raise AssertionError("a timer went over all topics")

    def __len__(self) -> NoReturn:
        raise AssertionError("a timer counted the topics")


def test_a_check_that_finds_nothing_out_of_balance_looks_at_no_partition() -> None:
    view = view_of(world_of(10).image)
    rebalance = LeaderRebalance(view.config, 0)
    view = replace(view, image=replace(view.image, topics=Untouchable()))
    assert rebalance.due(view, 300_000) == []
    assert rebalance.next_check_ms == 600_000


def test_a_step_moves_a_bounded_number_of_leaders_and_the_next_follows_at_once() -> None:
    world = world_of(2 * MAX_ELECTIONS_PER_STEP + 500, leader=1)
    for broker_id in (2, 3):
        world.heartbeat(broker_id)
    world.heartbeat(1, fence=True)
    world.heartbeat(1)
    topic_id, topic = next(iter(world.image.topics.items()))
    everybody = tuple(m.BrokerState(b, world.image.brokers[b].epoch) for b in (1, 2, 3))
    items = tuple(
        m.AlterPartitionItem(number, partition.leader_epoch, everybody, partition.partition_epoch)
        for number, partition in enumerate(topic.partitions)
    )
    leader = topic.partitions[0].leader
    request = m.AlterPartitionRequest(
        leader, world.image.brokers[leader].epoch, (m.AlterPartitionTopic(topic_id, items),)
    )
    world.call(request)
    view = view_of(world.image)
    rebalance = LeaderRebalance(view.config, 0)
    units = rebalance.due(view, 300_000)
    assert len(units) == MAX_ELECTIONS_PER_STEP
    assert rebalance.next_check_ms == 300_000, "more is to be done now"
    records = [record for unit in units for record in unit.records]
    assert all(isinstance(record, PartitionChange) and record.leader == 1 for record in records)


def test_a_controller_that_does_not_rebalance_has_no_timer() -> None:
    config = ControllerConfig("c", auto_leader_rebalance=False)
    rebalance = LeaderRebalance(config, 0)
    assert rebalance.next_check_ms is None
    assert rebalance.due(view_of(world_of(1).image), 10**12) == []
