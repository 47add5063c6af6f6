"""Unclean elections that a topic asks for: what they lose, who is overruled, and that it is told."""

from __future__ import annotations

import pytest

from quorum.metadata.records import RECOVERING
from tests.unit.chaos.oracles.model import KEY, Model


@pytest.fixture
def model() -> Model:
    """Two records are committed that node 3, which was not in sync, does not have; 1 and 2 are away."""
    model = Model(unclean=True)
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.append(1, 1, 2)
    model.raise_leader(2, isr=(1, 2))
    return model


def elect(model: Model) -> None:
    model.change(isr=(3,), leader=3, recovering=RECOVERING)


def test_what_the_new_leader_lacks_is_lost_and_excused(model: Model) -> None:
    elect(model)
    assert model.oracles == []
    assert model.verdicts.excuses
    assert model.replication.partitions[KEY].committed.high_watermark == 0
    assert not model.replication.explains(KEY, 2, b"v")


def test_who_was_overruled_commits_what_nobody_will_keep(model: Model) -> None:
    elect(model)
    model.append(2, 1)
    model.raise_leader(3, before=2, isr=(1,))
    assert model.oracles == []
    assert model.replication.explains(KEY, 2, b"v")
    assert model.replication.partitions[KEY].committed.high_watermark == 0


def test_who_was_overruled_and_its_followers_expire_what_they_believe_to_be_committed(model: Model) -> None:
    elect(model)
    model.append(2, 1, 2)
    model.raise_leader(3, before=2, isr=(1, 2))
    model.replicas.start_raised(KEY, 2, 2, by_retention=True)
    model.replicas.start_raised(KEY, 1, 3, by_retention=True)
    assert model.oracles == []
    assert model.replication.partitions[KEY].committed.retained_from == 0


def test_who_was_overruled_expires_nothing_that_it_did_not_commit(model: Model) -> None:
    elect(model)
    model.append(2, 1, 2)
    model.replicas.start_raised(KEY, 2, 3, by_retention=True)
    assert model.oracles == ["no-committed-record-lost"]


def test_retention_of_one_that_was_overruled_may_have_been_behind_that_of_others(model: Model) -> None:
    model.replicas.start_raised(KEY, 2, 1, by_retention=True)
    elect(model)
    model.replicas.start_raised(KEY, 1, 2, by_retention=True)
    assert model.oracles == []


def test_what_an_overruled_one_expires_excuses_nothing_of_the_history_that_took_its_place(
    model: Model,
) -> None:
    elect(model)
    model.replication.became_leader(KEY, 3, 1, 0)
    for offset in range(3):
        model.append(offset, 3, epoch=1)
    model.raise_leader(3, node=3, isr=(3,), epoch=1)
    model.replicas.start_raised(KEY, 1, 2, by_retention=True)
    assert model.replication.partitions[KEY].committed.retained_from == 0
    model.replicas.start_raised(KEY, 3, 1, by_retention=True)
    assert model.replication.partitions[KEY].committed.retained_from == 1


def test_what_both_histories_have_counts_as_expired() -> None:
    model = Model(unclean=True)
    model.committed(2)
    model.change(isr=(1, 2))
    model.append(2, 1, 2)
    model.raise_leader(3, before=2, isr=(1, 2))
    elect(model)
    model.replicas.start_raised(KEY, 1, 3, by_retention=True)
    assert model.oracles == []
    assert model.replication.partitions[KEY].committed.retained_from == 2


def test_without_leave_nothing_of_it_is_right() -> None:
    model = Model()
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    elect(model)
    assert "leader-completeness" in model.oracles


@pytest.mark.parametrize(
    ("reported", "oracles"),
    [
        ({("orders-0", 1): 0}, []),
        ({}, ["unclean-election-reported"]),
        ({("orders-0", 1): 2}, ["unclean-election-reported"]),
    ],
)
def test_who_leads_says_from_where_on_records_are_lost(
    model: Model, reported: dict[tuple[str, int], int], oracles: list[str]
) -> None:
    elect(model)
    model.replication.became_leader(KEY, 3, 1, 0)
    model.append(0, 3, epoch=1)
    model.raise_leader(1, node=3, isr=(3,), epoch=1)
    model.verdicts.violations.clear()  # of the ISR's size, which is not the point
    model.replication.judge_reports(reported)
    assert model.oracles == oracles
