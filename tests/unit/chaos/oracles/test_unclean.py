"""Unclean elections that a topic asks for: what they lose, who is overruled, and that it is told."""

from __future__ import annotations

import pytest

from quorum.metadata.delta import changed_partition
from quorum.metadata.records import RECOVERING, PartitionChange
from tests.unit.chaos.oracles.model import KEY, NODES, TOPIC_ID, Model


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


def elect_one_that_is_behind_retention(model: Model, *, elects: bool = True) -> None:
    """Of two committed records replica 2 has expired both; replica 3, which has the first, is elected."""
    model.append(0, *NODES)
    model.append(1, 1, 2)
    model.raise_leader(1)
    model.change(isr=(1, 2))
    model.raise_leader(2, before=1, isr=(1, 2))
    model.replication.acknowledged(KEY, 0, [b"a"])
    model.replication.acknowledged(KEY, 1, [b"b"])
    model.replicas.start_raised(KEY, 2, 2, by_retention=True)
    if elects:
        elect(model)


def test_a_new_leader_that_ends_where_all_was_retained_gives_those_offsets_again() -> None:
    model = Model(unclean=True, min_isr=1)
    elect_one_that_is_behind_retention(model)
    committed = model.replication.partitions[KEY].committed
    assert (committed.retained_from, committed.high_watermark) == (1, 1)
    assert model.verdicts.excuses
    assert model.replication.has_excused_loss("orders", 0)
    model.replication.became_leader(KEY, 3, 1, 1)
    model.append(1, 3, epoch=1, value=b"new")
    model.raise_leader(2, node=3, before=1, isr=(3,), epoch=1)
    model.replication.acknowledged(KEY, 1, [b"new"])
    assert committed.high_watermark == 2
    assert model.replication.explains(KEY, 1, b"b")
    assert not model.replication.explains(KEY, 0, b"a")  # which the new leader has
    assert not model.replication.explains(KEY, 1, b"new")
    model.cut(3, 1)
    assert model.oracles == ["leader-candidate-completeness", "no-committed-record-lost"]


def test_a_new_leader_that_ends_no_earlier_than_retention_began_changes_nothing() -> None:
    model = Model(unclean=True, min_isr=1)
    model.committed(2)
    model.change(isr=(1, 2))
    model.replicas.start_raised(KEY, 2, 2, by_retention=True)
    elect(model)
    committed = model.replication.partitions[KEY].committed
    assert (committed.retained_from, committed.high_watermark) == (2, 2)
    assert not model.verdicts.excuses
    assert not model.replication.has_excused_loss("orders", 0)


def test_without_leave_offsets_that_retention_took_are_not_given_again() -> None:
    model = Model(min_isr=1)
    elect_one_that_is_behind_retention(model)
    assert model.replication.partitions[KEY].committed.high_watermark == 2
    assert not model.verdicts.excuses
    assert not model.replication.explains(KEY, 1, b"b")


@pytest.mark.parametrize("by_fault", [False, True])
def test_the_last_known_leader_lost_what_retention_took_elsewhere(by_fault: bool) -> None:
    """Without leave for unclean elections: all were switched off, and only a fault explains that its log is shorter."""
    model = Model(min_isr=1)
    model.append(0, *NODES)
    model.append(1, *NODES)
    model.raise_leader(2)
    model.replication.acknowledged(KEY, 1, [b"b"])
    model.replicas.start_raised(KEY, 2, 2, by_retention=True)
    if by_fault:
        model.lose(3, 1)
    else:
        model.replication.partitions[KEY].replicas[3].cut(1)
    model.change(isr=(3,), leader=3, recovering=RECOVERING)
    model.replication.became_leader(KEY, 3, model.state.leader_epoch, 1)
    committed = model.replication.partitions[KEY].committed
    assert bool(model.verdicts.excuses) == by_fault
    assert committed.high_watermark == (1 if by_fault else 2)
    assert model.replication.explains(KEY, 1, b"b") == by_fault


def test_a_client_hears_late_that_what_retention_took_was_committed() -> None:
    model = Model(unclean=True, min_isr=1)
    elect_one_that_is_behind_retention(model)
    model.replication.acknowledged(KEY, 1, [b"late"])
    assert model.oracles == []
    assert model.replication.explains(KEY, 1, b"late")
    model.replication.acknowledged(KEY, 2, [b"never there"])
    assert model.oracles == ["no-committed-record-lost"]


def test_who_follows_an_overruled_leader_knows_to_be_committed_what_retention_took() -> None:
    model = Model(unclean=True, min_isr=1)
    elect_one_that_is_behind_retention(model)
    model.replication.became_leader(KEY, 3, 1, 1)
    model.raise_follower(1, 2, before=1)
    model.replication.consumer_saw_at_follower(KEY, 1, 2)
    assert model.oracles == []


def test_a_new_leader_expired_other_records_than_what_was_committed_at_those_offsets() -> None:
    """Replica 3 led without the others, which took another one's history meanwhile, and leads again."""
    model = Model(unclean=True, min_isr=1)
    model.change(isr=(3,), leader=3)
    model.replication.became_leader(KEY, 3, 1, 0)
    for offset in range(4):
        model.append(offset, 3, epoch=1)
    model.raise_leader(4, node=3, isr=(3,), epoch=1)
    model.replicas.start_raised(KEY, 3, 2, by_retention=True)
    model.change(isr=(1,), leader=1, recovering=RECOVERING)
    model.replication.became_leader(KEY, 1, 2, 0)
    committed = model.replication.partitions[KEY].committed
    assert (committed.retained_from, committed.high_watermark) == (0, 0)
    for offset in range(3):
        model.append(offset, 1, epoch=2, value=b"w")
    model.raise_leader(3, isr=(1,), epoch=2)
    for offset in range(3):
        model.replication.acknowledged(KEY, offset, [b"w"])
    assert not model.replication.explains(KEY, 0, b"w")
    elect(model)
    assert model.oracles == []
    assert committed.batches == []
    assert all(model.replication.explains(KEY, offset, b"w") for offset in range(3))
    model.replication.became_leader(KEY, 3, 3, 2)
    model.raise_leader(4, node=3, before=2, isr=(3,), epoch=3)
    assert [batch.base for batch in committed.batches] == [2, 3]
    assert model.oracles == []


@pytest.mark.parametrize("is_partly_kept", [False, True])
def test_a_new_leader_has_other_records_than_those_that_retention_took(is_partly_kept: bool) -> None:
    """Replica 3 wrote on alone from offset 1 when it led; what was committed there by its successor has expired."""
    model = Model(unclean=True, min_isr=1)
    model.append(0, *NODES)
    model.raise_leader(1)
    for offset in range(1, 4):
        model.append(offset, 3, value=b"alone")
    model.change(isr=(1, 2), leader=1)
    for offset in range(1, 5):
        model.append(offset, 1, 2, epoch=1)
    model.raise_leader(5, before=1, isr=(1, 2), epoch=1)
    for offset in range(5):
        model.replication.acknowledged(KEY, offset, [b"w"])
    model.replicas.start_raised(KEY, 2, 3 if is_partly_kept else 5, by_retention=True)
    elect(model)
    committed = model.replication.partitions[KEY].committed
    assert (committed.retained_from, committed.high_watermark) == (1, 1)
    assert [model.replication.explains(KEY, offset, b"w") for offset in range(5)] == [False] + 4 * [True]
    model.replication.became_leader(KEY, 3, 2, 4)
    model.raise_leader(4, node=3, before=1, isr=(3,), epoch=2)
    assert [batch.base for batch in committed.batches] == [1, 2, 3]
    assert model.oracles == []


def test_an_unclean_election_that_nobody_heard_of_before_the_next_counts() -> None:
    """Controllers that come back commit several changes at once: the elected one was fenced, and is elected again."""
    model = Model(unclean=True, min_isr=1)
    elect_one_that_is_behind_retention(model, elects=False)
    election = PartitionChange(TOPIC_ID, 0, isr=(3,), leader=3, elr=(), leader_recovery_state=RECOVERING)
    fencing = PartitionChange(TOPIC_ID, 0, isr=(), leader=-1, elr=(3,))
    for change in (election, fencing):
        model.state = changed_partition(model.state, change)
    model.change(election, fencing, isr=(3,), leader=3, elr=())
    model.replication.became_leader(KEY, 3, model.state.leader_epoch, 1)
    assert model.oracles == []
    assert model.verdicts.excuses
    assert model.replication.partitions[KEY].committed.high_watermark == 1


@pytest.mark.parametrize("unclean", [False, True])
def test_what_is_lost_between_two_changes_is_lost_by_leave_alone(unclean: bool) -> None:
    """As above, with a record that retention did not take."""
    model = Model(unclean=unclean, min_isr=1)
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    election = PartitionChange(TOPIC_ID, 0, isr=(3,), leader=3, elr=(), leader_recovery_state=RECOVERING)
    fencing = PartitionChange(TOPIC_ID, 0, isr=(), leader=-1, elr=(3,))
    for change in (election, fencing):
        model.state = changed_partition(model.state, change)
    model.change(election, fencing, isr=(3,), leader=3, elr=())
    model.replication.became_leader(KEY, 3, model.state.leader_epoch, 0)
    assert ("leader-completeness" in model.oracles) == (not unclean)
    assert bool(model.verdicts.excuses) == unclean


def test_what_a_new_leader_expired_of_the_history_that_is_kept_is_no_loss() -> None:
    model = Model(unclean=True, min_isr=1)
    model.committed(3)
    model.change(isr=(1, 2))
    model.replicas.start_raised(KEY, 3, 2, by_retention=True)
    elect(model)
    assert not model.verdicts.excuses


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
