"""One request that changes the configs of several resources: partitions go by what comes of all of them."""

from __future__ import annotations

import pytest

from partitions.log.config import LogConfig
from quorum.metadata.image import PartitionImage
from quorum.rpc import messages as m
from tests.support.controller_world import World


def change(kind: str, name: str, key: str, value: str | None) -> m.ConfigResourceChange:
    return m.ConfigResourceChange(
        kind, name, (m.ConfigChange(key, value, m.DELETE if value is None else m.SET),)
    )


def alter(world: World, *resources: m.ConfigResourceChange, validate_only: bool = False) -> None:
    response = world.call(m.AlterConfigsRequest(resources, validate_only))
    assert isinstance(response, m.AlterConfigsResponse)
    assert [result.error for result in response.resources] == ["NONE"] * len(resources)


def only_partition(world: World) -> PartitionImage:
    topic = world.image.topic("t")
    assert topic is not None
    return topic.partitions[0]


def with_elr() -> World:
    """Topic t wants 3 in sync, of its own and by the cluster's default; broker 3 of 3 is silent."""
    world = World()
    world.start(1, 2, 3)
    replicas = (m.PartitionAssignment(0, (1, 2, 3)),)
    configs = (("min.insync.replicas", "3"),)
    world.call(m.CreateTopicsRequest((m.NewTopic("t", -1, -1, replicas, configs),)))
    alter(world, change("broker", "", "min.insync.replicas", "3"))
    world.heartbeat(3, fence=True)
    assert (only_partition(world).isr, only_partition(world).elr) == ((1, 2), (3,))
    return world


MIN_ISR = (
    change("broker", "", "min.insync.replicas", "1"),
    change("topic", "t", "min.insync.replicas", None),
)
UNCLEAN = (
    change("broker", "", "unclean.leader.election.enable", "true"),
    change("topic", "t", "unclean.leader.election.enable", None),
)


@pytest.mark.parametrize("order", [1, -1])
def test_an_elr_is_given_up_when_two_resources_together_lower_min_isr(order: int) -> None:
    world = with_elr()
    alter(world, MIN_ISR[0])
    assert only_partition(world).elr == (3,), "the topic's own value goes first"
    world = with_elr()
    alter(world, MIN_ISR[1])
    assert only_partition(world).elr == (3,), "the cluster's value is as high"
    world = with_elr()
    alter(world, *MIN_ISR[::order], validate_only=True)
    assert only_partition(world).elr == (3,)
    alter(world, *MIN_ISR[::order])
    assert (only_partition(world).isr, only_partition(world).elr) == ((1, 2), ())
    assert only_partition(world).partition_epoch == 2, "one change, whatever caused it"


def test_an_elr_stays_when_another_resource_of_the_request_keeps_min_isr_high() -> None:
    world = with_elr()
    alter(world, change("topic", "t", "min.insync.replicas", None))
    alter(world, MIN_ISR[0], change("topic", "t", "min.insync.replicas", "3"))
    assert only_partition(world).elr == (3,)


def test_an_elr_is_given_up_when_the_cluster_wide_value_is_removed() -> None:
    world = with_elr()
    alter(world, MIN_ISR[1])
    alter(world, change("broker", "", "min.insync.replicas", None))
    assert only_partition(world).elr == ()


@pytest.mark.parametrize("order", [1, -1])
def test_two_resources_together_allow_an_unclean_leader(order: int) -> None:
    world = World()
    world.start(1, 2)
    replicas = (m.PartitionAssignment(0, (1, 2)),)
    configs = (("unclean.leader.election.enable", "false"),)
    world.call(m.CreateTopicsRequest((m.NewTopic("t", -1, -1, replicas, configs),)))
    world.heartbeat(2, fence=True)
    world.heartbeat(1, fence=True)
    world.heartbeat(2)
    world.heartbeat(2)  # the first time, broker 1 might have been about to come as well
    assert only_partition(world).leader == -1
    alter(world, *UNCLEAN[::order])
    assert (only_partition(world).leader, only_partition(world).isr) == (2, (2,))
    assert only_partition(world).leader_epoch == 2, "elected once"


def test_a_controller_whose_own_default_is_lower_gives_up_what_the_isr_does_without() -> None:
    world = World()
    world.topic_defaults = LogConfig(min_insync_replicas=3)
    world.lead()
    world.start(1, 2, 3)
    world.call(m.CreateTopicsRequest((m.NewTopic("t", 1, 3),)))
    world.heartbeat(3, fence=True)
    assert only_partition(world).elr == (3,)
    world.lead()
    assert only_partition(world).elr == (3,)
    world.topic_defaults = LogConfig(min_insync_replicas=2)
    world.lead()
    assert (only_partition(world).isr, only_partition(world).elr) == ((1, 2), ())
