"""The life of an AlterPartition proposal, answer by answer."""

from __future__ import annotations

import pytest

from partitions.isr import AlterPartitionFailed, IsrChange, IsrCommitted, IsrState, Outcome

OUT_OF_DATE = (
    "FENCED_LEADER_EPOCH",
    "INVALID_REQUEST",
    "INVALID_UPDATE_VERSION",
    "NEW_LEADER_ELECTED",
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_TOPIC_OR_PARTITION",
)
NOT_APPLIED = ("INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED")
UNKNOWN = (
    "NOT_CONTROLLER",
    "REQUEST_TIMED_OUT",
    "STALE_BROKER_EPOCH",
    "NETWORK_EXCEPTION",
    "UNKNOWN_SERVER_ERROR",
)


def state(*isr: int) -> IsrState:
    return IsrState(isr=isr, leader_epoch=4, partition_epoch=9, epoch_of=lambda broker_id: 100 + broker_id)


def test_a_proposal_names_the_members_with_their_broker_epochs() -> None:
    proposal = state(1, 2).expand(3)
    assert proposal.change is IsrChange.EXPAND
    assert (proposal.leader_epoch, proposal.partition_epoch) == (4, 9)
    assert proposal.new_isr_with_epochs == ((1, 101), (2, 102), (3, 103))
    assert proposal.new_isr == (1, 2, 3)


def test_an_expand_counts_at_once_and_a_shrink_only_when_committed() -> None:
    expanding, shrinking = state(1, 2), state(1, 2)
    expanding.expand(3)
    shrinking.shrink([2])
    assert (expanding.committed, expanding.maximal) == ((1, 2), (1, 2, 3))
    assert (shrinking.committed, shrinking.maximal) == ((1, 2), (1, 2))


def test_an_expand_that_was_never_sent_can_name_more() -> None:
    isr = state(1)
    narrow = isr.expand(2)
    wide = isr.widen([3])
    assert (wide.change, wide.new_isr, isr.maximal) == (IsrChange.EXPAND, (1, 2, 3), (1, 2, 3))
    assert (isr.in_flight, isr.committed) == (wide, (1,))
    assert isr.resolve(narrow, IsrCommitted(4, 10, (1, 2))).outcome is Outcome.IGNORED
    assert isr.resolve(wide, AlterPartitionFailed("INELIGIBLE_REPLICA")).outcome is Outcome.ROLLED_BACK
    assert isr.maximal == (1,)


def test_an_expand_of_which_a_copy_may_be_accepted_is_not_widened() -> None:
    isr = state(1)
    isr.resolve(isr.expand(2), AlterPartitionFailed("REQUEST_TIMED_OUT"))
    with pytest.raises(AssertionError, match="never sent"):
        isr.widen([3])


def test_a_shrink_is_not_widened() -> None:
    isr = state(1, 2)
    isr.shrink([2])
    with pytest.raises(AssertionError, match="only an expand"):
        isr.widen([3])


def test_after_several_were_refused_the_next_go_one_by_one() -> None:
    isr = state(1)
    isr.expand(2)
    isr.resolve(isr.widen([3]), AlterPartitionFailed("INELIGIBLE_REPLICA"))
    isr.expand(2)
    assert not isr.may_widen
    with pytest.raises(AssertionError, match="does well with others"):
        isr.widen([3])
    isr.adopt((1, 2), (), 11)
    isr.expand(3)
    assert isr.may_widen


@pytest.mark.parametrize("code", ["INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED"])
def test_one_that_is_refused_alone_or_not_for_its_members_may_go_with_others_next(code: str) -> None:
    isr = state(1)
    proposal = isr.expand(2)
    if code == "OPERATION_NOT_ATTEMPTED":
        proposal = isr.widen([3])
    isr.resolve(proposal, AlterPartitionFailed(code))
    isr.expand(2)
    assert isr.may_widen


def test_one_proposal_at_a_time() -> None:
    isr = state(1, 2)
    isr.expand(3)
    with pytest.raises(AssertionError, match="in flight"):
        isr.shrink([2])


@pytest.mark.parametrize("partition_epoch", [9, 10])
def test_success_takes_the_controllers_word(partition_epoch: int) -> None:
    isr = state(1, 2)
    resolution = isr.resolve(isr.expand(3), IsrCommitted(4, partition_epoch, (1, 3)))
    assert resolution.outcome is Outcome.COMMITTED
    assert (isr.committed, isr.maximal, isr.partition_epoch) == ((1, 3), (1, 3), partition_epoch)
    assert isr.in_flight is None


@pytest.mark.parametrize("result", [IsrCommitted(5, 10, (1, 2, 3)), IsrCommitted(4, 8, (1, 2, 3))])
def test_a_success_of_another_epoch_waits_for_metadata(result: IsrCommitted) -> None:
    isr = state(1, 2)
    proposal = isr.expand(3)
    assert isr.resolve(proposal, result).outcome is Outcome.AWAITS_METADATA
    assert isr.in_flight == proposal
    assert isr.maximal == (1, 2, 3)


@pytest.mark.parametrize("code", OUT_OF_DATE)
def test_out_of_date_waits_for_metadata_which_clears_it(code: str) -> None:
    isr = state(1, 2)
    proposal = isr.expand(3)
    assert isr.resolve(proposal, AlterPartitionFailed(code)) == (Outcome.AWAITS_METADATA, None)
    assert isr.in_flight == proposal
    isr.adopt((1,), (2,), 11)
    assert (isr.committed, isr.maximal, isr.in_flight) == ((1,), (1,), None)
    assert isr.resolve(proposal, IsrCommitted(4, 12, (1, 2, 3))).outcome is Outcome.IGNORED


@pytest.mark.parametrize("code", NOT_APPLIED)
def test_refused_for_certain_rolls_back(code: str) -> None:
    expanding, shrinking = state(1, 2), state(1, 2)
    for isr, proposal in ((expanding, expanding.expand(3)), (shrinking, shrinking.shrink([2]))):
        assert isr.resolve(proposal, AlterPartitionFailed(code)) == (Outcome.ROLLED_BACK, None)
        assert (isr.committed, isr.maximal, isr.in_flight) == ((1, 2), (1, 2), None)


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_outcome_is_proposed_again(code: str) -> None:
    isr = state(1, 2)
    proposal = isr.expand(3)
    assert isr.resolve(proposal, AlterPartitionFailed(code)) == (Outcome.RETRY, proposal)
    assert isr.maximal == (1, 2, 3)


@pytest.mark.parametrize("code", NOT_APPLIED)
def test_after_an_unknown_outcome_an_expand_is_withdrawn_and_not_forgotten(code: str) -> None:
    isr = state(1, 2)
    proposal = isr.expand(3)
    isr.resolve(proposal, AlterPartitionFailed("REQUEST_TIMED_OUT"))
    outcome, withdrawal = isr.resolve(proposal, AlterPartitionFailed(code))
    assert outcome is Outcome.RETRY
    assert withdrawal is not None
    assert withdrawal.change is IsrChange.WITHDRAW
    assert (withdrawal.new_isr, withdrawal.partition_epoch) == ((1, 2), 9)
    assert isr.maximal == (1, 2, 3), "a delayed copy of the expand may still be accepted"

    # Refused as well, because a member has gone: the controller will say so; until then it is repeated.
    outcome, again = isr.resolve(withdrawal, AlterPartitionFailed("INELIGIBLE_REPLICA"))
    assert outcome is Outcome.RETRY
    assert again is not None
    assert again.change is IsrChange.WITHDRAW
    assert isr.resolve(again, IsrCommitted(4, 10, (1, 2))).outcome is Outcome.COMMITTED
    assert (isr.maximal, isr.partition_epoch) == ((1, 2), 10)


def test_a_shrink_is_rolled_back_even_after_an_unknown_outcome() -> None:
    """Should a copy of it still be accepted, the leader has waited for too many, which harms nobody."""
    isr = state(1, 2, 3)
    proposal = isr.shrink([3])
    isr.resolve(proposal, AlterPartitionFailed("REQUEST_TIMED_OUT"))
    assert isr.resolve(proposal, AlterPartitionFailed("INELIGIBLE_REPLICA")).outcome is Outcome.ROLLED_BACK


def test_a_late_answer_is_not_taken_for_that_of_a_younger_proposal() -> None:
    isr = state(1, 2)
    old = isr.expand(3)
    isr.resolve(old, AlterPartitionFailed("INELIGIBLE_REPLICA"))
    young = isr.expand(3)
    assert young.new_isr_with_epochs == old.new_isr_with_epochs
    assert isr.resolve(old, AlterPartitionFailed("INELIGIBLE_REPLICA")).outcome is Outcome.IGNORED
    assert isr.in_flight == young
