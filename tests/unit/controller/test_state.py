"""Sequencing: bounds, batches, failures and the way back into office."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from partitions.log.config import LogConfig
from quorum.controller.decision import ControllerConfig
from quorum.controller.proposal import FIRST_SEQUENCE, MAX_PROPOSAL_BYTES
from quorum.controller.state import Complete, ControllerState, Propose, Renounced
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.errors import ControllerError
from quorum.metadata.features import (
    ELR_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    new_cluster_records,
)
from quorum.metadata.image import EMPTY
from quorum.metadata.records import NO_LEADER, RECOVERING
from quorum.rpc.messages import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopic,
    BrokerState,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    HeartbeatRequest,
    MorePartitions,
    NewTopic,
    PartitionAssignment,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from tests.support.controller_world import World, registration


def topic(name: str, partitions: int = 1, factor: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest((NewTopic(name, partitions, factor),))


def test_an_inactive_controller_sends_everybody_away() -> None:
    state = ControllerState(ControllerConfig("c"), LogTopicConfigs(LogConfig()), random.Random(1))
    (complete,) = state.handle(1, topic("a"), 0)
    assert isinstance(complete, Complete)
    assert complete.error is not None
    assert complete.error.code == "NOT_CONTROLLER"
    assert state.tick(10**9) == []
    assert state.next_tick_ms() is None


def test_the_failure_of_one_broker_is_a_handful_of_proposals() -> None:
    world = World()
    world.start(1, 2, 3)
    for name in ("a", "b", "c"):
        world.send(topic(name, 10_000, 3))
    before = len(world.proposed)
    world.now_ms = 8999
    world.heartbeat(2)
    world.heartbeat(3)
    world.advance(1)
    proposals = world.proposed[before:]
    assert 1 < len(proposals) <= 3
    assert all(len(proposal.data) <= MAX_PROPOSAL_BYTES for proposal in proposals)
    assert world.image.brokers[1].fenced
    for image in world.image.topics.values():
        assert all(1 not in p.isr and p.leader in (2, 3) for p in image.partitions)
    assert world.replay() == world.image == world.controller.image


def test_a_controller_lost_half_way_through_an_unfencing_is_healed_by_the_next() -> None:
    world = World()
    world.start(1)
    for name in ("a", "b", "c"):
        world.send(topic(name, 10_000, 1))
    world.heartbeat(1, fence=True)
    before = len(world.proposed)
    world.holding = True
    epoch = world.controller.image.brokers[1].epoch
    world.send(HeartbeatRequest(1, epoch, world.image.offset))
    assert len(world.proposed) - before == 2
    world.commit_one()
    half = [p.leader for image in world.image.topics.values() for p in image.partitions]
    assert set(half) == {1, NO_LEADER}
    world.holding = False
    world.lead()
    led = [p.leader for image in world.image.topics.values() for p in image.partitions]
    assert NO_LEADER not in led
    assert not world.image.brokers[1].fenced


def test_too_much_at_once_is_refused_with_a_sentence() -> None:
    world = World()
    world.start(*range(1, 41))
    error = world.call(topic("wide", 10_001, 1))
    assert isinstance(error, ControllerError)
    assert error.code == "POLICY_VIOLATION"
    response = world.call(topic("wide", 10_000, 40))
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error == "POLICY_VIOLATION"
    assert "at most" in (response.topics[0].message or "")
    assert not world.image.topics
    more = world.call(CreatePartitionsRequest((MorePartitions("wide", 10_001),)))
    assert isinstance(more, ControllerError)


def test_waiting_requests_are_bounded_but_a_heartbeat_still_counts() -> None:
    world = World(max_pending_requests=2, session_timeout_ms=1000)
    world.start(1)
    world.holding = True
    world.send(topic("a"))
    world.send(topic("b"))
    refused = world.call(topic("c"))
    assert isinstance(refused, ControllerError)
    assert refused.code == "THROTTLING_QUOTA_EXCEEDED"
    world.now_ms = 900
    assert isinstance(world.heartbeat(1), ControllerError)
    before = len(world.proposed)
    world.advance(200)
    assert len(world.proposed) == before  # not fenced: it was heard of at 900
    world.commit()
    world.holding = False
    assert isinstance(world.call(topic("c")), CreateTopicsResponse)


def test_a_batch_of_topics_is_one_proposal_and_each_topic_stands_alone() -> None:
    world = World()
    world.start(1)
    before = len(world.proposed)
    response = world.call(
        CreateTopicsRequest((NewTopic("a", 2, 1), NewTopic("b", 2, 9), NewTopic("c.d"), NewTopic("c_d")))
    )
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error for result in response.topics] == [
        "NONE",
        "INVALID_REPLICATION_FACTOR",
        "NONE",
        "INVALID_TOPIC_EXCEPTION",
    ]
    assert len(world.proposed) == before + 1
    assert sorted(world.image.topic_ids) == ["a", "c.d"]
    created = response.topics[0]
    assert (created.partitions, created.replication_factor) == (2, 1)
    assert world.image.topic_ids["a"] == created.topic_id


def test_a_topic_named_twice_is_created_not_even_once() -> None:
    world = World()
    world.start(1)
    response = world.call(CreateTopicsRequest((NewTopic("a"), NewTopic("a"))))
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error for result in response.topics] == ["INVALID_REQUEST"] * 2
    assert not world.image.topics


@pytest.mark.parametrize(
    "partitions",
    [((0, (1,)), (0, (2,))), ((0, (1,)), (2, (2,))), ((0, ()),)],
)
def test_manual_assignments_are_complete(partitions: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
    world = World()
    world.start(1, 2)
    assignments = tuple(PartitionAssignment(*partition) for partition in partitions)
    response = world.call(CreateTopicsRequest((NewTopic("a", assignments=assignments),)))
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error == "INVALID_REPLICA_ASSIGNMENT"


def test_defaults_come_from_the_configuration() -> None:
    world = World(default_partitions=4, default_replication_factor=2)
    world.start(1, 2)
    response = world.call(CreateTopicsRequest((NewTopic("a"),)))
    assert isinstance(response, CreateTopicsResponse)
    assert (response.topics[0].partitions, response.topics[0].replication_factor) == (4, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"broker_id": -1},
        {"broker_id": 2**31},
        {"incarnation_id": b"short"},
        {"listeners": ()},
        {"rack": "r" * 256},
        {"log_dirs": (b"x",)},
    ],
)
def test_a_registration_that_could_not_be_stored_is_refused(change: dict[str, object]) -> None:
    world = World()
    before = list(world.proposed)
    good = registration(1)
    fields = {name: getattr(good, name) for name in good.__slots__}
    error = world.call(RegisterBrokerRequest(**{**fields, **change}))
    assert isinstance(error, ControllerError)
    assert error.code == "INVALID_REGISTRATION"
    assert world.proposed == before


def test_an_epoch_is_led_again_only_when_every_outcome_is_known() -> None:
    world = World()
    world.start(1)
    world.holding = True
    world.send(topic("a"))
    world.send(topic("b"))
    state, image = world.controller, world.image
    lost, straggler = world.queue
    effects = state.on_proposal_failed(1, lost.sequence, "NOT_COMMITTED")
    assert isinstance(effects[0], Renounced)
    assert [type(effect) for effect in effects[1:]] == [Complete, Complete]
    assert not state.can_become_active(1)
    assert state.can_become_active(2)
    state.on_committed(image.offset + 1, 1, straggler.sequence, accepted=False)
    assert state.can_become_active(1)
    assert not state.can_become_active(0)
    state.become_active(1, image.at(image.offset + 1, 1), 0, next_sequence=lost.sequence)
    (proposal,) = (e for e in state.handle(99, topic("a"), 0) if isinstance(e, Propose))
    assert proposal.sequence == lost.sequence


def test_a_new_cluster_starts_at_the_levels_that_were_chosen_and_no_other_does() -> None:
    levels = new_cluster_records({GROUP_VERSION: 0, METADATA_VERSION: 25})
    config = ControllerConfig("c", new_cluster_features=levels)
    for image, expected in (
        (EMPTY.at(0, 1), {ELR_VERSION: 1, METADATA_VERSION: 25, TRANSACTION_VERSION: 2}),
        (replace(EMPTY, next_producer_id=1), {}),
        (replace(EMPTY, features={METADATA_VERSION: 26}), {METADATA_VERSION: 26}),
    ):
        state = ControllerState(config, LogTopicConfigs(LogConfig()), random.Random(1))
        effects = state.become_active(1, image, 0)
        assert state.image.features == expected
        assert len(effects) == (state.image is not image)


def test_an_offset_that_was_not_foreseen_voids_what_came_after_it() -> None:
    state = ControllerState(ControllerConfig("test-cluster"), LogTopicConfigs(LogConfig()), random.Random(1))
    state.become_active(1, EMPTY.at(0, 1), 0)
    state.handle(1, registration(1), 0)
    state.handle(2, registration(2), 0)
    state.on_committed(1, 1, FIRST_SEQUENCE)  # the features of a new cluster
    first, renounced, second = state.on_committed(5, 1, FIRST_SEQUENCE + 1)
    assert isinstance(first, Complete)
    assert first.response == RegisterBrokerResponse(5)  # what was committed is answered as it is
    assert isinstance(renounced, Renounced)
    assert isinstance(second, Complete)
    assert second.error is not None
    assert not state.is_active


def test_outcomes_of_an_earlier_epoch_are_ignored() -> None:
    world = World()
    world.holding = True
    world.send(registration(1))
    stale = world.queue[0]
    state = world.controller
    state.renounce("lost")
    state.become_active(2, world.image.at(1, 2), 0)
    assert state.on_committed(1, 1, stale.sequence) == []
    assert state.on_proposal_failed(1, stale.sequence, "UNKNOWN") == []
    assert state.is_active


def test_a_commit_out_of_order_is_a_bug_that_shows() -> None:
    world = World()
    world.holding = True
    world.send(registration(1))
    world.send(registration(2))
    with pytest.raises(AssertionError, match="sequence 2 was committed before 1"):
        world.controller.on_committed(3, 1, 2)


def test_next_tick_follows_the_heartbeats() -> None:
    world = World(session_timeout_ms=1000)
    world.start(1)
    assert world.controller.next_tick_ms() == 1000
    world.now_ms = 700
    world.heartbeat(1)
    assert world.controller.next_tick_ms() == 1700


def alter(world: World, *items: AlterPartitionItem) -> tuple[AlterPartitionResult, ...]:
    (topic_id,) = world.image.topics
    request = AlterPartitionRequest(1, world.image.brokers[1].epoch, (AlterPartitionTopic(topic_id, items),))
    response = world.call(request)
    assert isinstance(response, AlterPartitionResponse)
    return response.topics[0].partitions


def test_a_partition_named_twice_in_one_request_changes_once() -> None:
    world = World()
    world.start(1, 2)
    assignments = (PartitionAssignment(0, (1, 2)),)
    world.call(CreateTopicsRequest((NewTopic("a", assignments=assignments),)))
    item = AlterPartitionItem(0, 0, (BrokerState(1, world.image.brokers[1].epoch),), 0)
    first, second = alter(world, item, item)
    assert (first.error, first.isr, first.partition_epoch) == ("NONE", (1,), 1)
    assert second.error == "INVALID_UPDATE_VERSION"
    (topic,) = world.image.topics.values()
    assert topic.partitions[0].partition_epoch == 1


def test_a_recovered_partition_does_not_go_back_to_recovering() -> None:
    world = World()
    world.start(1, 2)
    world.call(CreateTopicsRequest((NewTopic("a", assignments=(PartitionAssignment(0, (1, 2)),)),)))
    members = (BrokerState(1, world.image.brokers[1].epoch),)
    for state in (RECOVERING, 7):
        (result,) = alter(world, AlterPartitionItem(0, 0, members, 0, leader_recovery_state=state))
        assert result.error == "INVALID_REQUEST"
    (result,) = alter(world, AlterPartitionItem(0, 0, (*members, *members), 0))
    assert result.error == "INVALID_REQUEST"


def test_a_refusal_is_short_whatever_it_quotes() -> None:
    whole, cut = "x" * 1_000, "x" * 999 + "…"
    assert ControllerError("INVALID_REQUEST", whole).message == whole
    error = ControllerError("INVALID_REQUEST", "x" * 1_001)
    assert (error.message, str(error)) == (cut, f"INVALID_REQUEST: {cut}")
