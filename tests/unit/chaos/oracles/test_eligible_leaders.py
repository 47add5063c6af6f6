"""The oracle of eligible leader replicas: it fires, and not on the story next to it."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.metadata.records import Config, RegisterBroker
from tests.unit.chaos.oracles.model import NODES, Model, broker


@pytest.fixture
def model() -> Model:
    return Model()


def registers(model: Model, node: int, previous_broker_epoch: int = -1) -> RegisterBroker:
    """The record of a registration, which is in the next image."""
    model.brokers[node] = broker(node, epoch=50 + node)
    return RegisterBroker(node, bytes(16), (), None, (), True, previous_broker_epoch)


def test_who_leaves_a_small_isr_is_eligible(model: Model) -> None:
    model.change(isr=(1, 2))
    model.change(isr=(1,), elr=(2,))
    assert model.oracles == []
    assert model.verdicts.coverage["eligible leader replica"] == 1


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"isr": (1, 2), "elr": (3,)}, None),
        ({"isr": (1, 2)}, {"isr": (1,), "elr": ()}),
        ({"isr": (1, 2)}, {"isr": (1,), "elr": (2, 3)}),
        ({"isr": (1,), "elr": (2, 3)}, {"isr": (1, 2), "elr": (3,)}),
        ({"isr": (1,), "elr": (2, 3)}, {"isr": (), "leader": -1, "elr": (1, 2)}),
    ],
    ids=["enough", "forgotten", "never in sync", "not cleared", "dropped"],
)
def test_an_elr_that_is_not_what_the_rules_make_it(
    model: Model, first: dict[str, Any], then: dict[str, Any] | None
) -> None:
    model.change(**first)
    if then is not None:
        assert model.oracles == []
        if then.get("leader") == -1:
            model.fence(*NODES)
        model.change(**then)
    assert model.oracles == ["eligible-leaders"]


def test_without_the_feature_there_is_no_elr() -> None:
    model = Model()
    model.features = {}
    model.commit_metadata()
    model.change(isr=(1,), elr=())
    assert model.oracles == []
    model.fence(1)
    model.change(isr=(), leader=-1, elr=(1,))
    assert model.oracles == ["eligible-leaders"]


def test_rules_that_change_in_the_same_breath_are_not_judged(model: Model) -> None:
    model.change(isr=(1,), elr=(2, 3))
    model.change(Config("topic", "orders", "min.insync.replicas", "1"), elr=())
    assert model.oracles == []


def test_an_eligible_leader_replica_is_elected(model: Model) -> None:
    model.change(isr=(1,), elr=(2, 3))
    model.change(isr=(2,), leader=2, elr=(1, 3))
    assert model.oracles == []
    assert not model.metadata.elections.is_unclean((model.image().topics.popitem()[0], 0), 1)
    assert model.verdicts.coverage["leader elected from the ELR"] == 1


def test_after_an_unclean_stop_a_broker_is_eligible_no_longer(model: Model) -> None:
    model.change(isr=(1,), elr=(2, 3))
    model.change(registers(model, 2), elr=(3,))
    assert model.oracles == []


def test_after_a_clean_stop_it_is(model: Model) -> None:
    model.change(isr=(1,), elr=(2, 3))
    model.commit_metadata(registers(model, 2, previous_broker_epoch=2))
    assert model.oracles == []


@pytest.mark.parametrize("previous", [-1, 1])
def test_an_unclean_stop_that_nobody_minds(model: Model, previous: int) -> None:
    model.change(isr=(1,), elr=(2, 3))
    model.commit_metadata(registers(model, 2, previous_broker_epoch=previous))
    assert model.oracles == ["eligible-leaders"]


def test_the_last_known_leader_leads_when_nobody_is_left(model: Model) -> None:
    model.change(isr=(1,), elr=(2, 3))
    model.fence(*NODES)
    model.change(isr=(), leader=-1, elr=(1, 2, 3), last_known_elr=(1,))
    for node, elr in ((2, (1, 3)), (3, (1,)), (1, ())):
        registration = registers(model, node)
        model.fence(node)
        model.change(registration, elr=elr)
    model.unfence(1)
    model.change(isr=(1,), leader=1, recovering=1, last_known_elr=())
    assert model.oracles == []
    assert model.metadata.elections.is_unclean((model.image().topics.popitem()[0], 0), 2)
    assert model.verdicts.coverage["last known leader elected"] == 1


def test_it_may_lead_as_soon_as_the_last_eligible_one_is_none(model: Model) -> None:
    model.change(isr=(1,), elr=(2, 3))
    model.fence(*NODES)
    model.change(isr=(), leader=-1, elr=(1, 2, 3), last_known_elr=(1,))
    model.change(registers(model, 1), elr=(2, 3))
    model.change(registers(model, 2), elr=(3,))
    model.change(registers(model, 3), isr=(1,), leader=1, recovering=1, elr=(), last_known_elr=())
    assert model.oracles == []


@pytest.mark.parametrize("leader", [1, 2])
def test_it_does_not_while_somebody_is_eligible_and_nobody_else_ever_does(model: Model, leader: int) -> None:
    model.change(isr=(1,), elr=(2, 3))
    model.fence(*NODES)
    model.change(isr=(), leader=-1, elr=(1, 2, 3), last_known_elr=(1,))
    model.change(registers(model, 1), elr=(2, 3))
    model.change(registers(model, 2), elr=(3,))
    model.change(isr=(leader,), leader=leader, recovering=1, last_known_elr=())
    assert model.oracles == ["leader-completeness"]


MOVING = {"replicas": (3, 1, 2), "adding_replicas": (3,), "removing_replicas": (1,)}
MOVED = {"replicas": (3, 2), "adding_replicas": (), "removing_replicas": ()}


def test_a_reassignment_ends_with_the_replica_that_its_leader_just_took_in(model: Model) -> None:
    model.change(isr=(1, 2), **MOVING)
    model.change(isr=(3, 2), leader=3, **MOVED)
    assert model.oracles == []


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"isr": (1, 2), **MOVING}, {"isr": (3, 2), "leader": 3}),
        ({"isr": (1, 2), **MOVING}, {"isr": (3, 2), "leader": 3, "recovering": 1, **MOVED}),
        ({"isr": (1, 2)}, {"isr": (3, 2), "leader": 3, **MOVED}),
    ],
    ids=["goes on", "uncleanly", "none"],
)
def test_elsewise_a_replica_from_outside_does_not_lead(
    model: Model, first: dict[str, Any], then: dict[str, Any]
) -> None:
    model.change(**first)
    model.change(**then)
    assert "leader-completeness" in model.oracles
