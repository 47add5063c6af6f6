"""Where new replicas go."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from quorum.controller.placement import UsableBroker, place
from quorum.errors import ControllerError


def brokers(*ids: int, rack: str | None = None, fenced: bool = False) -> list[UsableBroker]:
    return [UsableBroker(broker_id, rack, fenced) for broker_id in ids]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [1, 2, 3, 5])
def test_leaders_and_replicas_are_spread_evenly(seed: int, factor: int) -> None:
    placed = place(brokers(1, 2, 3, 4, 5), 50, factor, random.Random(seed))
    assert all(len(set(replicas)) == factor for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(b for replicas in placed for b in replicas).values()) == {10 * factor}


@pytest.mark.parametrize("seed", range(5))
def test_every_rack_gets_a_replica(seed: int) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    usable = [UsableBroker(broker_id, rack, False) for broker_id, rack in racks.items()]
    placed = place(usable, 60, 3, random.Random(seed))
    assert all({racks[b] for b in replicas} == {"a", "b", "c"} for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(b for replicas in placed for b in replicas).values()) == {30}
    assert len(set(placed)) > 6  # neighbours differ


def test_more_replicas_than_racks_use_a_rack_twice_last() -> None:
    usable = [*brokers(1, 2, rack="a"), *brokers(3, 4, rack="b")]
    for replicas in place(usable, 20, 4, random.Random(3)):
        assert set(replicas) == {1, 2, 3, 4}
        assert {replicas[0] <= 2, replicas[1] <= 2} == {True, False}


def test_racks_count_only_when_every_broker_has_one() -> None:
    usable = [*brokers(1, rack="a"), *brokers(2, 3)]
    placed = place(usable, 30, 1, random.Random(1))
    assert set(Counter(placed).values()) == {10}


def test_fenced_brokers_come_last_and_never_lead() -> None:
    usable = [*brokers(1, 2), *brokers(3, 4, fenced=True)]
    for replicas in place(usable, 20, 2, random.Random(1)):
        assert set(replicas) == {1, 2}
    for replicas in place(usable, 20, 3, random.Random(1)):
        assert replicas[0] in (1, 2)
        assert set(replicas[:2]) == {1, 2}


def test_a_rack_of_fenced_brokers_still_counts_as_a_rack() -> None:
    usable = [*brokers(1, 2, rack="a"), *brokers(3, rack="b", fenced=True)]
    for replicas in place(usable, 10, 2, random.Random(1)):
        assert replicas[0] in (1, 2)
        assert replicas[1] == 3


@pytest.mark.parametrize(
    ("usable", "factor", "sentence"),
    [
        ([], 1, "All brokers are currently fenced"),
        (brokers(1, fenced=True), 1, "All brokers are currently fenced"),
        (brokers(1, 2), 3, "only 2 broker"),
    ],
)
def test_what_cannot_be_reached_is_said(usable: list[UsableBroker], factor: int, sentence: str) -> None:
    with pytest.raises(ControllerError, match=sentence) as caught:
        place(usable, 1, factor, random.Random(1))
    assert caught.value.code == "INVALID_REPLICATION_FACTOR"


def test_the_same_randomness_places_alike() -> None:
    usable = brokers(1, 2, 3, 4, 5)
    assert place(usable, 30, 3, random.Random(7)) == place(usable[::-1], 30, 3, random.Random(7))
