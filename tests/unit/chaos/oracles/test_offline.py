"""Replicas whose brokers cannot serve them: who may be elected, who may stay, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.chaos.oracles import events
from tests.unit.chaos.oracles.model import KEY, Model


@pytest.fixture
def model() -> Model:
    model = Model(min_isr=2)
    model.committed(3)
    return model


def test_a_damaged_replica_leaves_and_comes_back(model: Model) -> None:
    model.rot(2, 1)
    model.change(isr=(1, 3), offline_replicas=(2,))
    model.change(offline_replicas=())
    model.append(3, 1, 3)
    assert model.verdicts.coverage[events.REPLICA_REPAIRED] == 0
    model.replicas.deleted(2, "/data/2")
    log = model.replication.partitions[KEY].replicas[1]
    model.replicas.appended(KEY, 2, log.batches, "/data/2")
    model.change(isr=(1, 2, 3))
    assert model.oracles == []
    assert model.verdicts.coverage[events.REPLICA_OFFLINE] == 1
    assert model.verdicts.coverage[events.REPLICA_REPAIRED] == 1


@pytest.mark.parametrize(
    "change",
    [{"offline_replicas": (1,)}, {"offline_replicas": (2,)}, {"leader": 2, "offline_replicas": (2,)}],
    ids=["a leader", "a member", "elected"],
)
def test_an_offline_replica_leads_nothing_and_is_in_no_isr(model: Model, change: dict[str, Any]) -> None:
    model.change(**change)
    assert model.oracles == ["offline-not-in-isr"]


def test_the_last_member_of_an_isr_waits_in_it_offline(model: Model) -> None:
    model.features = {}
    model.change(isr=(1,), elr=())
    model.change(leader=-1, elr=(), offline_replicas=(1,))
    assert model.oracles == []


def test_a_damaged_replica_is_not_eligible(model: Model) -> None:
    model.change(isr=(1, 2))
    model.rot(2, 1)
    model.change(isr=(1,), elr=(2,), offline_replicas=(2,))
    assert model.oracles == ["leader-candidate-completeness"]


def test_a_damaged_replica_that_is_the_last_stays_eligible(model: Model) -> None:
    model.change(isr=(1, 2))
    model.rot(2, 1)
    model.change(isr=(1,), elr=(), offline_replicas=(2,))
    model.rot(1, 2)
    model.change(isr=(), elr=(1,), leader=-1, offline_replicas=(1, 2))
    assert model.oracles == []


def test_a_whole_replica_in_a_failed_directory_stays_eligible(model: Model) -> None:
    model.change(isr=(1, 2))
    model.change(isr=(1,), elr=(2,), offline_replicas=(2,))
    assert model.oracles == []


def test_others_of_the_elr_are_judged_as_ever(model: Model) -> None:
    model.change(isr=(1, 2))
    model.change(isr=(1,), elr=(2, 3), offline_replicas=(2,))
    assert model.oracles == ["eligible-leaders"]
