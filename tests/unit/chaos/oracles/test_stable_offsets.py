"""The model of open transactions in replicas' logs, and what it says of last stable offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.chaos.oracles.stable_offsets import (
    PASSED,
    WENT_BACK,
    Kind,
    OpenTransactions,
    StableOffsets,
    TransactionBatch,
)
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.simulation import Simulation

KEY, NODE, EPOCH = (b"t" * 16, 0), 1, 5


def data(offset: int, producer_id: int = 1) -> TransactionBatch:
    return TransactionBatch(offset, producer_id, Kind.DATA)


def marker(offset: int, producer_id: int = 1) -> TransactionBatch:
    return TransactionBatch(offset, producer_id, Kind.MARKER)


def log(*batches: TransactionBatch) -> OpenTransactions:
    model = OpenTransactions()
    model.appended(batches)
    return model


@pytest.mark.parametrize(
    ("batches", "high_watermark", "stable"),
    [
        ((), 7, 7),
        ((data(3),), 7, 3),
        ((data(3),), 2, 2),
        ((data(3), data(5)), 7, 3),
        ((data(3), marker(5)), 6, 6),
        ((data(3), marker(5)), 5, 3),
        ((data(3), data(4, 2), marker(5)), 7, 4),
        ((data(3), data(4, 2), marker(5, 2)), 7, 3),
        ((data(3), marker(5), data(6)), 8, 6),
        ((marker(3),), 7, 7),
    ],
)
def test_what_may_be_told_is_stable(
    batches: tuple[TransactionBatch, ...], high_watermark: int, stable: int
) -> None:
    assert log(*batches).stable_up_to(high_watermark) == stable


def test_a_cut_brings_an_open_transaction_back() -> None:
    model = log(data(3), marker(5))
    assert model.stable_up_to(6) == 6
    model.cut(5)
    assert model.stable_up_to(5) == 3
    model.cut(2)
    assert model.stable_up_to(2) == 2


@pytest.fixture
def verdicts() -> Iterator[Verdicts]:
    with Simulation(1) as simulation:
        yield Verdicts(simulation.scheduler)


def test_who_tells_what_is_stable_is_right(verdicts: Verdicts) -> None:
    stable = StableOffsets(verdicts)
    stable.appended(NODE, KEY, [data(3)])
    stable.told(NODE, KEY, EPOCH, 5, 3, "p")
    stable.appended(NODE, KEY, [marker(5)])
    stable.told(NODE, KEY, EPOCH, 6, 6, "p")
    stable.told(2, KEY, None, 2, 2, "p")
    stable.told(NODE, KEY, EPOCH + 1, 4, 3, "p")
    assert verdicts.violations == []


def test_an_open_transaction_is_passed(verdicts: Verdicts) -> None:
    stable = StableOffsets(verdicts)
    stable.appended(NODE, KEY, [data(3)])
    stable.told(NODE, KEY, EPOCH, 5, 4, "p")
    assert [violation.oracle for violation in verdicts.violations] == [PASSED]


def test_a_follower_passes_one(verdicts: Verdicts) -> None:
    stable = StableOffsets(verdicts)
    stable.appended(NODE, KEY, [data(3), marker(5)])
    stable.told(NODE, KEY, None, 5, 5, "p")
    assert [violation.oracle for violation in verdicts.violations] == [PASSED]


def test_it_goes_back_within_a_leader_epoch(verdicts: Verdicts) -> None:
    stable = StableOffsets(verdicts)
    stable.told(NODE, KEY, EPOCH, 5, 5, "p")
    stable.told(NODE, KEY, EPOCH, 5, 4, "p")
    assert [violation.oracle for violation in verdicts.violations] == [WENT_BACK]
