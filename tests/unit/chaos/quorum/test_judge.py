"""The judge of Raft: each promise, kept and broken, told step by step."""

import pytest

from kraft.chaos.quorum.judge import ORACLES, RaftJudge, Violation

BARRIER = b"\x01"


def log(*terms, start=1):
    return [(b"%d.%d" % (start + n, term), start + n, term) for n, term in enumerate(terms)]


@pytest.fixture
def judge():
    return RaftJudge()


def broken(oracle):
    assert oracle in ORACLES
    return pytest.raises(Violation, check=lambda violation: violation.oracle == oracle)


def test_a_vote_may_leave_twice_but_not_for_two(judge):
    judge.voted(1, 5, 2)
    judge.voted(1, 5, 2)
    judge.voted(1, 6, 3)
    with broken("vote-once"):
        judge.voted(1, 5, 3)


@pytest.mark.parametrize(("term", "vote"), [(4, 2), (5, None), (5, 3)])
def test_a_vote_is_still_there_after_a_restart(judge, term, vote):
    judge.voted(1, 5, 2)
    judge.restarted(1, 5, 2, log(0))
    judge.restarted(1, 6, None, log(0))
    with broken("durable-vote"):
        judge.restarted(1, term, vote, log(0))


def test_whoever_lost_its_disk_has_promised_nothing(judge):
    judge.voted(1, 5, 2)
    judge.promised(1, 2, log(0, 1))
    judge.forget(1)
    judge.restarted(1, 0, None, log(0))


def test_an_acknowledged_entry_is_still_there_after_a_restart(judge):
    judge.promised(1, 3, log(0, 1, 1))
    judge.restarted(1, 1, None, log(0, 1, 1, 1))
    judge.restarted(1, 1, None, log(1, 1, start=4))
    with broken("durable-acknowledgement"):
        judge.restarted(1, 1, None, log(0, 1))


def test_a_later_leaders_entry_in_the_place_of_an_acknowledged_one_voids_it_and_all_behind(judge):
    judge.promised(1, 3, log(0, 1, 1))
    judge.promised(1, 4, log(0, 1, 1, 1))
    judge.restarted(1, 2, None, log(0, 1, 2))
    with broken("durable-acknowledgement"):
        judge.promised(2, 3, log(0, 1, 2))
        judge.restarted(2, 2, None, log(0, 1, 1))


def test_a_leader_may_order_an_acknowledged_entry_away(judge):
    judge.looked_at(1, log(0, 1, 1))
    judge.promised(1, 3, log(0, 1, 1))
    assert judge.looked_at(1, log(0, 1, 2))
    judge.restarted(1, 2, None, log(0, 1))


def test_entries_go_only_where_something_contradicts_them(judge):
    mine = log(0, 1, 1, 1)
    assert not judge.looked_at(1, mine)
    assert judge.looked_at(1, [*mine[:2], (b"other", 3, 2)])
    with broken("no-needless-truncation"):
        judge.looked_at(1, mine[:2])


def test_a_step_that_was_cut_short_may_have_come_half_way(judge):
    judge.looked_at(1, log(0, 1, 1))
    assert judge.looked_at(1, log(0, 1), whole_step=False)


def test_standing_for_election_takes_a_majority(judge):
    judge.consented(2, 1, 4)
    judge.stood(1, 5, 2)
    with broken("consent-before-candidacy"):
        judge.stood(1, 6, 2)


def test_a_term_has_one_leader(judge):
    judge.led(1, 3, log(0))
    judge.led(1, 3, log(0))
    with broken("one-leader-per-term"):
        judge.led(2, 3, log(0))


def test_one_index_and_term_is_one_entry_after_one_history(judge):
    judge.looked_at(1, log(0, 1, 2))
    judge.looked_at(2, log(0, 1, 2))
    with broken("log-matching"):
        judge.looked_at(3, [(b"1.0", 1, 0), (b"2.1", 2, 1), (b"else", 3, 2)])
    with broken("log-matching"):
        judge.looked_at(4, [(b"1.0", 1, 0), (b"2.2", 2, 0), (b"3.2", 3, 2)])


def test_a_later_leader_has_what_was_committed(judge):
    judge.applied(1, 2, 1, b"2.1", 1)
    judge.led(2, 3, log(0, 1))
    judge.led(2, 5, log(1, 3, start=7))
    with broken("leader-completeness"):
        judge.led(3, 4, log(0, 3))


def test_also_a_leader_that_was_there_when_it_was_committed(judge):
    judge.led(3, 4, log(0))
    judge.applied(1, 2, 4, b"2.4", 4)
    with broken("leader-completeness"):
        judge.applied(1, 3, 1, b"3.1", 1)


def test_all_apply_the_same(judge):
    assert judge.applied(1, 2, 1, b"a", 1)
    assert not judge.applied(2, 2, 1, b"a", 1)
    with broken("applied-prefix"):
        judge.applied(3, 2, 1, b"b", 1)


def test_equal_prefixes_are_equal_states(judge):
    judge.state(1, 5, b"x")
    judge.state(2, 5, b"x")
    with broken("applied-prefix"):
        judge.state(3, 5, b"y")


def test_what_was_acknowledged_is_there(judge):
    judge.applied(1, 2, 1, b"a", 1)
    judge.told_committed(2, b"a")
    judge.check_end()
    with broken("acknowledged-survives"):
        judge.told_committed(3, b"b")


def test_what_was_refused_never_comes(judge):
    judge.told_refused(b"a")
    with broken("refused-stays-away"):
        judge.applied(1, 2, 1, b"a", 1)


def test_nor_had_it_come(judge):
    judge.applied(1, 2, 1, b"a", 1)
    with broken("refused-stays-away"):
        judge.told_refused(b"a")


def test_the_same_bytes_may_be_proposed_again(judge):
    judge.proposed(b"a")
    judge.told_refused(b"a")
    judge.proposed(b"a")
    judge.applied(1, 2, 1, b"a", 1)


def test_of_two_equal_proposals_one_may_be_refused_and_the_other_come(judge):
    judge.proposed(b"a")
    judge.applied(1, 2, 1, b"a", 1)
    judge.proposed(b"a")
    judge.told_refused(b"a")
    with broken("refused-stays-away"):
        judge.applied(1, 3, 1, b"a", 1)


def test_a_leader_sends_nothing_that_is_acknowledged(judge):
    judge.sent(1, 2, 5, 5)
    judge.sent(1, 2, 6, 5)
    with broken("no-needless-resend"):
        judge.sent(1, 2, 4, 5)
