"""Who may lead, and what a vote costs."""

import pytest

from quorum.raft.events import PeerConnected, PeerDisconnected, Propose, TransferLeadership
from tests.support.scripted_voter import SESSION, ScriptedVoter, formatted_storage


def test_a_single_voter_elects_itself_at_once_and_commits():
    voter = ScriptedVoter(voters=1)
    voter.step()
    assert (voter.leadership.leader_id, voter.leadership.active) == (1, True)
    voter.propose(7)
    assert [(outcome.request_id, outcome.error) for outcome in voter.outcomes] == [(7, None)]


def test_no_election_without_a_majority_that_is_connected():
    voter = ScriptedVoter()
    voter.advance(1.0)
    voter.advance(1.0)
    assert voter.leadership.epoch == 0


def test_an_expired_timeout_asks_before_it_raises_the_term():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.wait_for_pre_vote()
    assert voter.heard_kinds() == {"pre_vote"}
    assert voter.leadership.epoch == 0


@pytest.mark.parametrize("late_s", [-1e-4, -3e-5, -1e-5, -1e-9, 0.0, 1e-9, 1e-5])
def test_no_instant_lets_an_election_slip_past_the_question(late_s):
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.advance(voter.driver._node.next_due_s(voter.now_s) + late_s)
    assert "request_vote" not in voter.heard_kinds()
    voter.advance(0.001)
    assert "request_vote" not in voter.heard_kinds()
    assert voter.leadership.epoch == 0


def test_one_consent_of_three_starts_the_election_in_the_same_step():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    assert voter.stand_for_election() == 1
    assert voter.leadership.epoch == 1


def test_a_voter_that_is_linked_in_the_midst_of_a_round_is_asked_at_once():
    voter = ScriptedVoter()
    voter.advance(1.0)  # the round begins, and nobody is there to hear of it
    voter.connect(3)
    question = voter.last_heard(3, "pre_vote")
    assert question is not None
    voter.says(3, "response_pre_vote", term=question["term"], round=question["round"], granted=True)
    assert voter.last_heard(3, "request_vote")["term"] == 1


@pytest.mark.parametrize(("its_end", "stands"), [((9, 1), False), ((1, 0), True)], ids=["as good", "worse"])
def test_of_two_that_ask_each_other_one_stands(its_end, stands):
    """Voter 1 gives way to a higher id, if that one can win at all."""
    voter = ScriptedVoter()
    voter.connect(2)
    voter.appends(2, 1, (1, 0), 1)
    voter.step(PeerDisconnected(2, 1))
    voter.connect(3)
    voter.advance(1.0)
    question = voter.last_heard(3, "pre_vote")
    index, term = its_end
    voter.says(3, "pre_vote", term=1, round=1, last_log_index=index, last_log_term=term)
    assert voter.last_heard(3, "response_pre_vote")["granted"] is not stands
    voter.says(3, "response_pre_vote", term=1, round=question["round"], granted=True)
    assert ("request_vote" in voter.heard_kinds()) is stands


def test_a_voter_that_is_linked_while_nobody_waits_is_not_asked():
    voter = ScriptedVoter()
    voter.connect(2)
    assert voter.heard == []
    voter.become_leader()
    voter.connect(3)
    assert "pre_vote" not in voter.heard_kinds()
    follower = ScriptedVoter()
    follower.connect(2)
    follower.advance(1.0)
    follower.appends(2, 1, (1, 0), 1)  # the round is over: there is a leader
    follower.connect(3)
    assert "pre_vote" not in follower.heard_kinds()


def test_a_refused_or_outdated_consent_starts_nothing():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    question = voter.wait_for_pre_vote()
    voter.says(2, "response_pre_vote", term=0, round=question["round"], granted=False)
    voter.says(3, "response_pre_vote", term=0, round=question["round"] - 1, granted=True)
    assert voter.leadership.epoch == 0


def test_a_voter_with_a_live_leader_refuses_the_pre_vote():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1)
    voter.says(3, "pre_vote", term=1, round=1, last_log_index=9, last_log_term=1)
    assert voter.last_heard(3, "response_pre_vote") == {
        "type": "response_pre_vote",
        "term": 1,
        "round": 1,
        "granted": False,
    }


def test_a_broken_link_to_the_leader_frees_the_pre_vote():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1)
    voter.step(PeerDisconnected(2, 1))
    voter.says(3, "pre_vote", term=1, round=1, last_log_index=9, last_log_term=1)
    assert voter.last_heard(3, "response_pre_vote")["granted"]


def test_a_pre_vote_is_refused_to_a_shorter_log():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1, 1)
    voter.advance(0.4)
    voter.says(3, "pre_vote", term=1, round=1, last_log_index=2, last_log_term=1)
    assert not voter.last_heard(3, "response_pre_vote")["granted"]


def test_a_vote_is_durable_before_it_is_heard():
    storage = formatted_storage()
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    voter.says(2, "request_vote", term=5, last_log_index=1, last_log_term=0)
    assert voter.last_heard(2, "response_vote") == {"type": "response_vote", "term": 5}
    storage.lose_power()
    again = ScriptedVoter(storage=storage)
    again.connect(2, 3)
    again.says(3, "request_vote", term=5, last_log_index=9, last_log_term=4)
    assert again.last_heard(3, "response_vote") is None


def test_one_voter_counts_once_however_often_it_says_yes():
    voter = ScriptedVoter(voters=5)
    voter.connect(2, 3, 4, 5)
    term = voter.stand_for_election()
    voter.says(2, "response_vote", term=term)
    voter.says(2, "response_vote", term=term)
    assert voter.leadership.leader_id is None
    voter.says(3, "response_vote", term=term)
    assert voter.leadership.leader_id == 1


def test_a_vote_of_an_older_term_does_not_make_room_for_a_double():
    voter = ScriptedVoter(voters=5)
    voter.connect(2, 3, 4, 5)
    term = voter.stand_for_election()
    voter.says(2, "response_vote", term=term)
    voter.says(3, "response_vote", term=term - 1)
    voter.says(2, "response_vote", term=term)
    assert voter.leadership.leader_id is None


def test_a_leader_is_active_only_once_its_own_barrier_is_committed():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    term = voter.stand_for_election()
    voter.says(2, "response_vote", term=term)
    assert (voter.leadership.leader_id, voter.leadership.active) == (1, False)
    voter.acknowledges(2, term, voter.driver_end() + 1)
    assert voter.leadership.active
    assert voter.committed == [(2, term)]


def test_a_later_term_in_an_acknowledgement_deposes_the_leader():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    term = voter.become_leader()
    voter.acknowledges(3, term + 3, 2)
    assert (voter.leadership.leader_id, voter.leadership.epoch) == (None, term + 3)


def test_a_leader_of_an_older_term_is_told_the_term_it_missed():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.appends(2, 4, (1, 0), 4)
    voter.appends(3, 3, (1, 0), 3)
    answer = voter.last_heard(3, "next_node_idx")
    assert (answer["term"], answer["success"]) == (4, False)
    assert voter.leadership.leader_id == 2


def test_a_leader_cut_off_from_its_majority_steps_down():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.become_leader()
    for _ in range(10):
        voter.advance(0.1)
    assert voter.leadership.leader_id is None


def test_two_leaders_in_one_term_halt_the_voter():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    term = voter.become_leader()
    voter.appends(2, term, (1, 0), term)
    assert "both lead in epoch 1" in voter.halted
    assert voter.step() == []


def test_a_leader_hands_over_to_a_peer_that_has_caught_up():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    term = voter.become_leader()
    voter.step(TransferLeadership())
    assert voter.heard == [(2, {"type": "take_leadership", "term": term})]


def test_a_leader_keeps_the_lead_while_no_peer_has_caught_up():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.become_leader()
    voter.step(Propose(1, b"new"), TransferLeadership())
    assert "take_leadership" not in voter.heard_kinds()


@pytest.mark.parametrize(("peer", "stands"), [(2, True), (3, False)])
def test_only_the_leader_can_order_an_election(peer, stands):
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1)
    voter.says(peer, "take_leadership", term=1)
    assert ("request_vote" in voter.heard_kinds()) is stands


def test_an_order_to_stand_survives_a_heartbeat_in_the_same_step():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1)
    order = voter.message(2, "take_leadership", term=1)
    beat = voter.message(2, "append_entries", term=1, commit_index=1, entries=[], prevLogIdx=2, prevLogTerm=1)
    voter.step(order, beat)
    assert "request_vote" in voter.heard_kinds()


def test_an_order_to_stand_ends_with_its_term():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1)
    order = voter.message(2, "take_leadership", term=1)
    later = voter.message(
        3, "append_entries", term=2, commit_index=1, entries=[], prevLogIdx=2, prevLogTerm=1
    )
    voter.step(order, later)
    assert "request_vote" not in voter.heard_kinds()


def test_an_order_that_finds_nobody_connected_is_not_taken_up_later():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1)
    voter.step(
        voter.message(2, "take_leadership", term=1),
        PeerDisconnected(2, SESSION),
        PeerDisconnected(3, SESSION),
    )
    assert "request_vote" not in voter.heard_kinds()
    voter.connect(3)
    assert "request_vote" not in voter.heard_kinds()


def test_links_of_strangers_are_ignored():
    voter = ScriptedVoter()
    voter.step(PeerConnected(9, 1))
    assert voter.halted is None
