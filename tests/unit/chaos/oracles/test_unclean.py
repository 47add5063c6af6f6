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
