"""Whose voice counts, by what the log records of the voters."""

import pytest

from quorum.raft.messages import BARRIER, PROPOSAL
from quorum.raft.progress import Progress
from quorum.raft.voters import VoterBook
from tests.support.chain_machine import decode_directories, encode_directories

OLD, NEW, NEWER = b"old".ljust(16), b"new".ljust(16), b"newer".ljust(16)
FIRST = (BARRIER, 1, 0)
FOUNDING = {1: OLD, 2: OLD, 3: OLD}


def book(voters=(1, 2, 3), directory_id=OLD):
    return VoterBook(1, voters, directory_id, decode_directories)


def entry(index, term, directories=None):
    data = b"a proposal" if directories is None else encode_directories(directories)
    return (PROPOSAL + data, index, term)


def founded(*more):
    """A book whose first entry after the barrier is the founding one, committed; `more` is pending."""
    voters = book()
    log = [FIRST, entry(2, 1, FOUNDING), *more]
    voters.follow(log)
    voters.commit_through(2)
    return voters, log


def test_before_anything_is_recorded_all_votes_are_needed_and_any_directory_counts():
    voters = book()
    voters.follow([FIRST, entry(2, 1)])
    assert (voters.is_founded, voters.quorum) == (False, 3)
    assert voters.counts(2, OLD)
    assert voters.counts(2, NEW)


def test_a_majority_suffices_as_soon_as_the_founding_entry_is_in_the_log():
    voters = book()
    voters.follow([FIRST, entry(2, 1, FOUNDING)])
    assert (voters.is_founded, voters.quorum) == (True, 2)
    assert voters.counts(2, OLD)
    assert not voters.counts(2, NEW)


def test_one_voter_is_always_unanimous():
    assert book(voters=(1,)).quorum == 1


def test_voters_that_are_known_by_number_alone_need_nothing_recorded():
    voters = book(directory_id=None)
    voters.follow([FIRST, entry(2, 1, FOUNDING)])
    assert (voters.is_founded, voters.quorum) == (True, 2)
    assert voters.counts(3, NEW)
    assert voters.counts_me


def test_while_an_admission_is_in_flight_neither_directory_counts():
    voters, _ = founded(entry(3, 1, {3: NEW}))
    assert not voters.counts(3, OLD)
    assert not voters.counts(3, NEW)
    assert voters.counts(2, OLD)


def test_an_admission_counts_once_it_is_committed():
    voters, _ = founded(entry(3, 1, {3: NEW}))
    assert voters.commit_through(3)
    assert voters.counts(3, NEW)
    assert not voters.counts(3, OLD)


def test_a_disk_that_is_lost_while_its_admission_is_in_flight_does_not_count():
    voters, _ = founded(entry(3, 1, {3: NEW}))
    voters.commit_through(3)
    assert not voters.counts(3, NEWER)


def test_an_entry_that_is_cut_from_the_log_is_forgotten():
    voters, log = founded(entry(3, 1, {3: NEW}))
    voters.follow([*log[:2], entry(3, 2)])
    assert voters.counts(3, OLD)
    voters.follow([*log[:2]])
    voters.follow([*log[:2], entry(3, 3, {2: NEW})])
    assert not voters.counts(2, OLD)


def test_a_founding_entry_that_is_cut_leaves_nothing_recorded():
    voters = book()
    voters.follow([FIRST, entry(2, 1, FOUNDING)])
    voters.follow([FIRST, entry(2, 2)])
    assert voters.quorum == 3


def test_the_log_is_followed_behind_a_window_that_moves_on():
    voters, log = founded(entry(3, 1), entry(4, 1))
    voters.commit_through(4)
    voters.follow([*log[2:], entry(5, 1, {2: NEW})])
    assert not voters.counts(2, NEW)
    voters.commit_through(5)
    assert voters.counts(2, NEW)


def test_after_a_restart_what_was_known_to_be_committed_is_not_pending_again():
    voters = book()
    voters.restore(3, {**FOUNDING, 3: NEW})
    voters.follow([FIRST, entry(2, 1, FOUNDING), entry(3, 1, {3: NEW}), entry(4, 1, {2: NEW})])
    assert voters.counts(3, NEW)
    assert not voters.counts(2, OLD)


def test_a_snapshot_older_than_what_is_known_changes_nothing():
    voters = book()
    voters.restore(9, {**FOUNDING, 3: NEW})
    voters.restore(5, FOUNDING)
    assert voters.counts(3, NEW)


def test_a_snapshot_puts_its_directories_in_force():
    voters, _ = founded(entry(3, 1, {3: NEW}))
    voters.restore(7, {**FOUNDING, 2: NEW, 3: NEWER})
    assert voters.counts(2, NEW)
    assert voters.counts(3, NEWER)


def test_a_voter_whose_own_directory_is_replaced_does_not_count():
    voters = book(directory_id=NEW)
    assert voters.counts_me
    voters.follow([FIRST, entry(2, 1, FOUNDING)])
    assert not voters.counts_me


# -- what a peer has acknowledged


def test_what_a_lost_disk_acknowledged_is_not_what_the_new_one_holds():
    voters, _ = founded()
    progress = Progress(voters)
    progress.acknowledged(1, 3, OLD, 50)
    assert progress.match(1, 3, NEW) == 0
    progress.acknowledged(1, 3, NEW, 7)
    assert (progress.match(1, 3, NEW), progress.counted(1, 3)) == (7, 0)


@pytest.mark.parametrize(("index", "match"), [(40, 50), (60, 60)])
def test_what_is_acknowledged_only_grows_within_a_term(index, match):
    progress = Progress(founded()[0])
    progress.acknowledged(1, 3, OLD, 50)
    progress.acknowledged(1, 3, OLD, index)
    assert progress.counted(1, 3) == match


def test_another_term_begins_with_nothing():
    progress = Progress(founded()[0])
    progress.acknowledged(1, 3, OLD, 50)
    assert progress.counted(2, 3) == 0
    progress.acknowledged(2, 2, OLD, 4)
    assert progress.match(2, 3, OLD) == 0


def test_acknowledgements_are_taken_back_when_the_directory_counts_no_more():
    voters, log = founded()
    progress = Progress(voters)
    progress.acknowledged(1, 3, OLD, 2)
    voters.follow([*log, entry(3, 1, {3: NEW})])
    assert progress.counted(1, 3) == 0
