"""What leaders tell clients of the ends of their logs."""

import pytest

from kraft.chaos.oracles.listed_offsets import ListedOffsets
from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tests.unit.chaos.oracles.model import KEY, NODES, TOPIC_ID, Model

NO_TIMESTAMP = -1


@pytest.fixture
def model() -> Model:
    """Five committed records, three of them in epoch 0 and two in epoch 1, which node 2 leads."""
    model = Model()
    model.committed(3)
    model.change(leader=2)
    model.replication.became_leader(KEY, 2, 1, 3)
    for offset in (3, 4):
        model.append(offset, *NODES, epoch=1)
    model.raise_leader(5, node=2, before=3, epoch=1)
    assert model.oracles == []
    return model


@pytest.fixture
def listed(model: Model) -> ListedOffsets:
    return ListedOffsets(model.verdicts, model.replication)


@pytest.mark.parametrize(
    ("epoch", "offset", "oracles"),
    [
        (1, 5, []),
        (1, 4, ["latest-below-committed"]),
        (2, 4, ["latest-below-committed"]),
        (0, 3, []),
        (0, 2, ["latest-below-committed"]),
        (1, 6, ["listed-not-committed"]),
    ],
)
def test_latest_is_not_below_what_was_reached_in_that_epoch_or_an_earlier_one(
    model: Model, listed: ListedOffsets, epoch: int, offset: int, oracles: list[str]
) -> None:
    listed.asked(KEY, LATEST_TIMESTAMP, 2)(offset, epoch, NO_TIMESTAMP)
    assert model.oracles == oracles


def test_what_is_reached_after_the_question_need_not_be_in_the_answer(
    model: Model, listed: ListedOffsets
) -> None:
    judge = listed.asked(KEY, LATEST_TIMESTAMP, 2)
    model.append(5, *NODES, epoch=1)
    model.raise_leader(6, node=2, before=5, epoch=1)
    judge(5, 1, NO_TIMESTAMP)
    assert model.oracles == []


def test_the_start_is_not_behind_that_of_the_leaders_own_log(model: Model, listed: ListedOffsets) -> None:
    judge = listed.asked(KEY, EARLIEST_TIMESTAMP, 2)
    judge(0, 1, NO_TIMESTAMP)
    model.replicas.start_raised(KEY, 3, 4, by_retention=True)
    model.replicas.start_raised(KEY, 2, 3, by_retention=True)
    for offset in (0, 2, 3):
        judge(offset, 1, NO_TIMESTAMP)
    assert model.oracles == []
    judge(4, 1, NO_TIMESTAMP)
    assert model.oracles == ["earliest-behind-log-start"]


def test_an_answer_may_be_of_a_log_that_is_gone_or_was_emptied(model: Model, listed: ListedOffsets) -> None:
    model.change(isr=(1, 2))
    model.replicas.start_raised(KEY, 3, 3, by_retention=True)
    judge = listed.asked(KEY, EARLIEST_TIMESTAMP, 3)
    model.lose(3, 0)
    model.restart(3)
    assert model.replication.partitions[KEY].replicas[3].start == 0
    judge(3, 1, NO_TIMESTAMP)
    model.replicas.deleted(3, "/data/3")
    judge(3, 1, NO_TIMESTAMP)
    assert model.oracles == []


def test_nothing_is_asked_of_the_start_of_a_topic_that_is_gone(model: Model, listed: ListedOffsets) -> None:
    judge = listed.asked(KEY, EARLIEST_TIMESTAMP, 2)
    model.replication.topic_gone(TOPIC_ID)
    model.replicas.start_raised(KEY, 2, 3, by_retention=True)
    judge(3, 1, NO_TIMESTAMP)
    assert model.oracles == []


def test_the_start_is_not_behind_what_is_committed(model: Model, listed: ListedOffsets) -> None:
    listed.asked(KEY, EARLIEST_TIMESTAMP, 2)(6, 1, NO_TIMESTAMP)
    assert model.oracles == ["earliest-behind-log-start", "listed-not-committed"]


@pytest.mark.parametrize(
    ("offset", "timestamp", "oracles"),
    [
        (4, 1000, []),
        (-1, -1, []),
        (5, 1000, ["listed-not-committed"]),
        (4, 999, ["listed-not-committed"]),
    ],
)
def test_a_time_has_a_committed_record_that_is_not_older(
    model: Model, listed: ListedOffsets, offset: int, timestamp: int, oracles: list[str]
) -> None:
    listed.asked(KEY, 1000, 2)(offset, 1, timestamp)
    assert model.oracles == oracles


def test_nothing_is_said_of_what_was_lost_with_an_excuse(model: Model, listed: ListedOffsets) -> None:
    judge = listed.asked(KEY, LATEST_TIMESTAMP, 2)
    committed = model.replication.partitions[KEY].committed
    committed.give_up(committed.between(4, 5))
    judge(4, 1, NO_TIMESTAMP)
    assert model.oracles == []
