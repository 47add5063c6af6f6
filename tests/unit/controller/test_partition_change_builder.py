"""One change of one partition: what becomes of ISR, ELR, last known leader, leader and recovery state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from quorum.controller.election import Election
from quorum.controller.partition_change_builder import PartitionChangeBuilder, TopicSettings
from quorum.metadata.delta import changed_partition
from quorum.metadata.image import PartitionImage
from quorum.metadata.records import NO_UNCLEAN_ELECTION, RECOVERED, RECOVERING, PartitionChange

KEY = (bytes(16), 0)
ALL = (1, 2, 3)


def partition(
    isr: tuple[int, ...] = ALL, leader: int = 1, elr: tuple[int, ...] = (), last_known: tuple[int, ...] = ()
) -> PartitionImage:
    state = PartitionImage(ALL, isr, leader, 4, 7, elr=elr, last_known_elr=last_known)
    state.check()
    return state


def builder(
    state: PartitionImage, alive: Collection[int] = ALL, *, min_isr: int = 2, elr: bool = True
) -> PartitionChangeBuilder:
    return PartitionChangeBuilder(
        KEY, state, lambda broker_id: broker_id in alive, TopicSettings(min_isr, elr_enabled=elr)
    )


def after(state: PartitionImage, record: PartitionChange | None) -> PartitionImage:
    assert record is not None
    changed = changed_partition(state, record)
    changed.check()
    return changed


def left(state: PartitionImage, *leaving: int, min_isr: int = 2, elr: bool = True) -> PartitionImage:
    """The partition after these brokers died."""
    alive = [broker_id for broker_id in ALL if broker_id not in leaving]
    return after(state, builder(state, alive, min_isr=min_isr, elr=elr).without(leaving).build())


def test_nothing_changes_without_need() -> None:
    assert builder(partition()).build() is None
    assert builder(partition((2,), 2, elr=(1, 3))).build() is None
    assert builder(partition((), -1, elr=(1,), last_known=(2,)), alive=(2, 3)).build() is None


@pytest.mark.parametrize(
    ("min_isr", "isr", "elr"),
    [(1, (2,), ()), (2, (2,), (1, 3)), (3, (2,), (1, 3)), (9, (2,), (1, 3))],
)
def test_who_leaves_below_min_isr_is_eligible(
    min_isr: int, isr: tuple[int, ...], elr: tuple[int, ...]
) -> None:
    changed = left(partition(), 1, 3, min_isr=min_isr)
    assert (changed.isr, changed.elr, changed.leader, changed.leader_epoch) == (isr, elr, 2, 5)


def test_min_isr_is_bounded_by_the_replication_factor() -> None:
    changed = left(partition((1, 2), 1, elr=(3,)), 2, min_isr=9)
    assert (changed.isr, changed.elr) == ((1,), (2, 3))
    builder_ = builder(changed, min_isr=9)
    builder_.target_isr = ALL
    assert after(changed, builder_.build()).elr == ()


def test_an_isr_that_is_large_enough_needs_no_elr() -> None:
    state = partition((1,), 1, elr=(2,))
    joining = builder(state)
    joining.target_isr = (1, 3)
    changed = after(state, joining.build())
    assert (changed.isr, changed.elr, changed.leader_epoch) == ((1, 3), (), 4)


def test_the_last_leader_is_remembered_when_nobody_is_in_sync() -> None:
    changed = left(partition((2,), 2, elr=(1,)), 1, 2, 3)
    assert (changed.isr, changed.leader, changed.elr, changed.last_known_elr) == ((), -1, (1, 2), (2,))


@pytest.mark.parametrize(
    ("alive", "leader", "elr"), [((2, 3), 2, (1,)), ((1, 2), 1, (2,)), ((3,), -1, (1, 2))]
)
def test_an_eligible_replica_that_is_alive_is_elected(
    alive: tuple[int, ...], leader: int, elr: tuple[int, ...]
) -> None:
    state = partition((), -1, elr=(1, 2), last_known=(3,))
    record = builder(state, alive).build()
    if leader < 0:
        assert record is None, "the last known leader does not come before who is eligible"
        return
    changed = after(state, record)
    assert (changed.isr, changed.leader, changed.elr) == ((leader,), leader, elr)
    assert (changed.last_known_elr, changed.leader_recovery_state) == ((), RECOVERED)


def test_electing_one_that_is_enough_gives_up_the_others() -> None:
    state = partition((), -1, elr=(1, 2), last_known=(2,))
    changed = after(state, builder(state, min_isr=1).build())
    assert (changed.isr, changed.elr) == ((1,), ())


def test_an_isr_member_comes_before_an_eligible_one() -> None:
    state = partition((3,), 3, elr=(1, 2))
    assert builder(state).build() is None
    assert left(state, 3).leader == 1


def test_an_unclean_stop_ends_membership() -> None:
    state = partition((), -1, elr=(1, 2), last_known=(2,))
    restarting = builder(state, alive=())
    restarting.unclean_shutdown_replicas = {1}
    assert after(state, restarting.build()).elr == (2,)
    state = partition((1, 2), 1)
    restarting = builder(state, alive=(2, 3))
    restarting.unclean_shutdown_replicas = {1}
    changed = after(state, restarting.build())
    assert (changed.isr, changed.elr, changed.leader) == ((2,), (), 2)


@pytest.mark.parametrize("alive", [(1,), (2,), (1, 3)])
def test_the_last_known_leader_leads_when_nobody_is_left(alive: tuple[int, ...]) -> None:
    state = partition((), -1, last_known=(1,))
    record = builder(state, alive).build()
    if 1 not in alive:
        assert record is None
        return
    changed = after(state, record)
    assert (changed.isr, changed.leader, changed.last_known_elr) == ((1,), 1, ())
    assert changed.leader_recovery_state == RECOVERING


def test_an_unclean_election_takes_anybody_and_says_so() -> None:
    state = partition((), -1, elr=(1,), last_known=(1,))
    electing = builder(state, alive=(3,))
    electing.election = Election.UNCLEAN
    record = electing.build()
    changed = after(state, record)
    assert (changed.isr, changed.leader, changed.elr, changed.last_known_elr) == ((3,), 3, (), ())
    assert changed.leader_recovery_state == RECOVERING
    assert changed.unclean_leader_epoch == changed.leader_epoch
    again = left(changed, 3)
    assert again.unclean_leader_epoch == changed.leader_epoch == again.leader_epoch - 1, "it is remembered"
    electing = builder(after(again, PartitionChange(*KEY, elr=())), alive=(2,))
    electing.election = Election.UNCLEAN
    record = electing.build()
    assert record is not None
    assert record.leader_recovery_state == RECOVERING, "also of a partition that is recovering already"
    assert record.unclean_leader_epoch == again.leader_epoch + 1


def test_an_unclean_election_prefers_who_has_everything() -> None:
    state = partition((), -1, elr=(3,), last_known=(1,))
    electing = builder(state)
    electing.election = Election.UNCLEAN
    changed = after(state, electing.build())
    assert (changed.leader, changed.leader_recovery_state) == (3, RECOVERED)
    assert changed.unclean_leader_epoch == NO_UNCLEAN_ELECTION


def test_a_preferred_leader_that_is_in_sync() -> None:
    for isr, alive, leader in (((2, 1), ALL, 1), ((2, 3), ALL, None), ((1, 2), (2, 3), None)):
        electing = builder(partition(isr, 2), alive)
        electing.election = Election.PREFERRED
        record = electing.build()
        assert (None if record is None else record.leader) == leader


def test_replicas_that_are_taken_away_are_not_eligible_and_the_leader_epoch_grows() -> None:
    state = partition((1,), 1, elr=(2, 3))
    moving = builder(state)
    moving.target_replicas = (1, 2)
    changed = after(state, moving.build())
    assert (changed.replicas, changed.elr, changed.leader, changed.leader_epoch) == ((1, 2), (2,), 1, 5)


def test_a_reassignment_is_complete_when_its_target_is_in_sync() -> None:
    state = PartitionImage((3, 4, 1, 2), (1, 2), 1, 4, 7, RECOVERED, (1, 2), (3, 4))
    joining = PartitionChangeBuilder(KEY, state, lambda broker_id: True, TopicSettings(2, elr_enabled=True))
    joining.target_isr = (3, 1, 2)
    halfway = after(state, joining.build())
    assert (halfway.replicas, halfway.adding_replicas) == (state.replicas, (3, 4))
    joining = PartitionChangeBuilder(KEY, halfway, lambda broker_id: True, TopicSettings(2, elr_enabled=True))
    joining.target_isr = (3, 4, 1, 2)
    done = after(halfway, joining.build())
    assert done == PartitionImage((3, 4), (3, 4), 3, 5, 9)


@pytest.mark.parametrize("last_known", [(), (4,)])
def test_a_reassignment_is_complete_when_its_whole_target_is_elected(last_known: tuple[int, ...]) -> None:
    """From 4 to 1, and 4 is gone: whoever leads uncleanly is all that was aimed at."""
    state = PartitionImage((1, 4), (), -1, 4, 7, RECOVERED, (4,), (1,), last_known, last_known)
    electing = PartitionChangeBuilder(KEY, state, lambda id_: id_ == 1, TopicSettings(2, elr_enabled=True))
    electing.election = Election.UNCLEAN
    assert after(state, electing.build()) == PartitionImage(
        (1,), (1,), 1, 5, 8, RECOVERING, unclean_leader_epoch=5
    )


def test_an_eligible_leader_that_is_the_whole_target_completes_a_reassignment() -> None:
    state = PartitionImage((1, 4), (), -1, 4, 7, RECOVERED, (4,), (1,), (1, 4), (4,))
    electing = PartitionChangeBuilder(KEY, state, lambda id_: id_ == 1, TopicSettings(2, elr_enabled=True))
    assert after(state, electing.build()) == PartitionImage((1,), (1,), 1, 5, 8)


@pytest.mark.parametrize(("isr", "last"), [((2,), 2), ((3, 1), 1)])
def test_who_was_kept_in_the_isr_without_the_feature_is_remembered_with_it(
    isr: tuple[int, ...], last: int
) -> None:
    state = partition(isr, -1)
    switching = builder(state, alive=())
    switching.target_isr = ()
    changed = after(state, switching.build())
    assert (changed.isr, changed.elr, changed.last_known_elr) == ((), tuple(sorted(isr)), (last,))


def test_without_the_feature_the_last_member_stays() -> None:
    changed = left(partition((1, 2), 2), 1, 2, 3, elr=False)
    assert (changed.isr, changed.leader, changed.elr, changed.last_known_elr) == ((2,), -1, (), ())
    assert builder(changed, alive=(1, 3), elr=False).build() is None
    back = after(changed, builder(changed, alive=(2,), elr=False).build())
    assert (back.isr, back.leader, back.leader_recovery_state) == ((2,), 2, RECOVERED)


def test_without_the_feature_any_more_an_elr_is_given_up() -> None:
    state = partition((1,), 1, elr=(2,))
    assert after(state, builder(state, elr=False).build()).elr == ()
    state = partition((), -1, elr=(3, 2)[::-1], last_known=(1,))
    changed = after(state, builder(state, alive=(), elr=False).build())
    assert (changed.isr, changed.elr, changed.last_known_elr) == ((2,), (), ())


def offline(
    isr: tuple[int, ...] = ALL,
    leader: int = 1,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    *,
    marked: tuple[int, ...],
) -> PartitionImage:
    return replace(partition(isr, leader, elr, last_known), offline_replicas=marked)


def damaged(state: PartitionImage, broker_id: int, alive: Collection[int] = ALL) -> PartitionImage:
    """The partition after this replica's log was found damaged."""
    marking = builder(state, alive).offline(broker_id)
    marking.damaged_replicas = (broker_id,)
    return after(state, marking.build())


def test_an_offline_replica_leaves_the_isr_and_is_eligible_by_the_usual_rule() -> None:
    changed = after(partition(), builder(partition()).offline(1).build())
    assert (changed.isr, changed.leader, changed.elr, changed.offline_replicas) == ((2, 3), 2, (), (1,))
    changed = after(changed, builder(changed).offline(3).build())
    assert (changed.isr, changed.leader, changed.elr, changed.offline_replicas) == ((2,), 2, (3,), (1, 3))
    changed = after(changed, builder(changed).offline(2).build())
    assert (changed.isr, changed.leader, changed.elr, changed.offline_replicas) == ((), -1, (2, 3), ALL)
    assert changed.last_known_elr == (2,)


def test_marks_are_in_the_order_of_the_replicas_and_are_set_once() -> None:
    state = offline((2,), 2, marked=(3,))
    changed = after(state, builder(state).offline(1).build())
    assert changed.offline_replicas == (1, 3)
    assert builder(changed).offline(3).offline(1).build() is None
    assert after(changed, builder(changed).online(1).build()).offline_replicas == (3,)


@pytest.mark.parametrize(
    ("isr", "elr", "left_isr", "left_elr", "leader"),
    [
        ((1, 2), (), (2,), (), 2),
        ((2,), (1,), (2,), (), 2),
        ((1,), (2, 3), (2,), (3,), 2),
        ((1,), (), (), (1,), -1),
    ],
)
def test_a_damaged_replica_is_not_eligible_unless_it_is_the_last_one(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    left_isr: tuple[int, ...],
    left_elr: tuple[int, ...],
    leader: int,
) -> None:
    changed = damaged(partition(isr, isr[0], elr), 1)
    assert (changed.isr, changed.elr, changed.leader) == (left_isr, left_elr, leader)


def test_a_damaged_replica_gives_way_to_eligible_ones_that_are_away() -> None:
    changed = damaged(partition((1,), 1, elr=(2,)), 1, alive=(1, 3))
    assert (changed.isr, changed.elr, changed.leader, changed.last_known_elr) == ((), (2,), -1, (1,))


def test_an_eligible_replica_is_not_elected_while_it_is_offline() -> None:
    state = offline((), -1, elr=(1, 2), last_known=(1,), marked=(1,))
    assert builder(state, alive=(1, 3)).build() is None
    changed = after(state, builder(state).build())
    assert (changed.isr, changed.leader, changed.offline_replicas) == ((2,), 2, (1,))
    back = after(state, builder(state, alive=(1, 3)).online(1).build())
    assert (back.isr, back.leader, back.offline_replicas) == ((1,), 1, ())


def test_the_last_known_leader_does_not_lead_while_it_is_offline() -> None:
    state = offline((), -1, last_known=(1,), marked=(1,))
    assert builder(state).build() is None
    back = after(state, builder(state).online(1).build())
    assert (back.isr, back.leader, back.leader_recovery_state) == ((1,), 1, RECOVERING)


def test_an_unclean_election_takes_nobody_who_is_offline() -> None:
    state = offline((), -1, elr=(1,), last_known=(1,), marked=(1, 2))
    electing = builder(state, alive=(1, 2))
    electing.election = Election.UNCLEAN
    assert electing.build() is None
    electing = builder(state)
    electing.election = Election.UNCLEAN
    changed = after(state, electing.build())
    assert (changed.leader, changed.isr, changed.elr) == (3, (3,), ())
    assert (changed.leader_recovery_state, changed.offline_replicas) == (RECOVERING, (1, 2))


def test_a_replica_that_is_taken_away_loses_its_mark() -> None:
    state = offline((2, 3), 2, marked=(1,))
    moving = builder(state)
    moving.target_replicas = (2, 3)
    assert after(state, moving.build()).offline_replicas == ()


def test_an_adding_replica_that_is_offline_does_not_complete_a_reassignment() -> None:
    state = PartitionImage((3, 4, 1), (1, 3), 1, 4, 7, RECOVERED, (1,), (3, 4), offline_replicas=(4,))
    joining = PartitionChangeBuilder(KEY, state, lambda broker_id: True, TopicSettings(2, elr_enabled=True))
    joining.target_isr = (3, 4, 1)
    changed = after(state, joining.build())
    assert (changed.replicas, changed.adding_replicas, changed.isr) == (state.replicas, (3, 4), (3, 1))


def test_without_the_feature_the_last_member_stays_though_offline() -> None:
    state = partition((1, 2), 1)
    changed = after(state, builder(state, elr=False).offline(1).build())
    assert (changed.isr, changed.leader, changed.elr) == ((2,), 2, ())
    changed = after(changed, builder(changed, elr=False).offline(2).build())
    assert (changed.isr, changed.leader, changed.last_known_elr) == ((2,), -1, ())
    assert builder(changed, elr=False).build() is None
    back = after(changed, builder(changed, elr=False).online(2).build())
    assert (back.isr, back.leader, back.leader_recovery_state) == ((2,), 2, RECOVERED)


@pytest.mark.parametrize(("marked", "isr"), [((1,), (3,)), ((1, 3), (1,)), ((), (1,))])
def test_without_the_feature_any_more_the_last_member_is_one_that_is_not_offline(
    marked: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    state = offline((), -1, elr=(1, 3), last_known=(1,), marked=marked)
    assert after(state, builder(state, alive=(), elr=False).build()).isr == isr
