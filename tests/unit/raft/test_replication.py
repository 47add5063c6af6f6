"""The log between voters: what is acknowledged, committed, kept and refused."""

import pytest

from quorum.raft.config import MAX_PROPOSAL_BYTES
from quorum.raft.events import (
    NOT_COMMITTED,
    UNKNOWN,
    PeerConnected,
    PeerDisconnected,
    PeerMessage,
    Propose,
    QuorumReport,
    ReportQuorum,
)
from quorum.raft.messages import PROPOSAL, encode_message
from tests.support.scripted_voter import ScriptedVoter, formatted_storage


def follower():
    voter = ScriptedVoter()
    voter.connect(2, 3)
    return voter


def leader():
    voter = follower()
    return voter, voter.become_leader()


def test_entries_are_durable_before_they_are_acknowledged():
    storage = formatted_storage()
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    voter.appends(2, 3, (1, 0), 3, 3)
    assert voter.last_heard(2, "next_node_idx")["next_node_idx"] == 4
    storage.lose_power()
    assert ScriptedVoter(storage=storage).entries() == [(1, 0), (2, 3), (3, 3)]


def test_an_acknowledgement_carries_its_term():
    voter = follower()
    voter.appends(2, 3, (1, 0), 3)
    assert voter.last_heard(2, "next_node_idx")["term"] == 3


def test_entries_that_match_are_never_deleted_by_an_older_message():
    voter = follower()
    voter.appends(2, 1, (1, 0), 1, 1, 1)
    voter.appends(2, 1, (1, 0), 1)
    assert voter.entries()[-1] == (4, 1)
    assert voter.last_heard(2, "next_node_idx")["next_node_idx"] == 3


def test_entries_that_conflict_go_with_all_behind_them():
    voter = follower()
    voter.appends(2, 1, (1, 0), 1, 1, 1)
    voter.appends(3, 2, (2, 1), 2)
    assert voter.entries() == [(1, 0), (2, 1), (3, 2)]


def test_a_committed_entry_that_is_contradicted_halts_the_voter():
    voter = follower()
    voter.appends(2, 1, (1, 0), 1, 1, commit=3)
    voter.appends(3, 2, (2, 1), 2)
    assert "contradicts committed entry 3" in voter.halted


def test_a_gap_is_asked_for_from_the_committed_end():
    voter = follower()
    voter.appends(2, 1, (1, 0), 1, 1, commit=2)
    voter.appends(2, 1, (7, 1), 1)
    answer = voter.last_heard(2, "next_node_idx")
    assert (answer["reset"], answer["success"], answer["next_node_idx"]) == (True, False, 3)


def test_the_commit_index_goes_no_further_than_the_message_proves():
    voter = follower()
    voter.appends(2, 1, (1, 0), 1, 1, 1)
    voter.appends(3, 2, (2, 1), commit=4)
    assert voter.committed == [(2, 1)]


def test_an_acknowledgement_of_an_older_term_commits_nothing():
    voter, term = leader()
    voter.propose(1)
    end = voter.driver_end()
    voter.acknowledges(2, term - 1, end + 1)
    assert voter.outcomes == []
    voter.acknowledges(2, term, end + 1)
    assert [outcome.offset for outcome in voter.outcomes] == [end]


def test_an_acknowledgement_beyond_the_log_is_refused():
    voter, term = leader()
    voter.propose(1)
    voter.acknowledges(2, term, voter.driver_end() + 2)
    assert voter.outcomes == []
    assert voter.halted is None


def test_a_request_to_resend_does_not_go_back_behind_what_was_acknowledged():
    voter, term = leader()
    end = voter.driver_end()
    voter.acknowledges(2, term, 1, success=False, reset=True)
    voter.advance(0.1)
    assert voter.last_heard(2, "append_entries")["prevLogIdx"] == end


def test_an_older_acknowledgement_does_not_send_again_what_is_in_flight():
    voter, term = leader()
    first = voter.driver_end() + 1
    voter.propose(1)
    voter.propose(2)
    voter.acknowledges(2, term, first + 1)
    entries = [entry for peer, m in voter.heard if peer == 2 for entry in m.get("entries", ())]
    assert entries == []


def test_a_proposal_leaves_at_once_and_all_of_a_step_in_one_message():
    voter, _ = leader()
    voter.step(*(Propose(number, b"p%d" % number) for number in range(5)))
    assert [len(message["entries"]) for _, message in voter.heard] == [5, 5]


def test_the_new_commit_index_leaves_in_the_step_that_found_it():
    voter, term = leader()
    voter.propose(1)
    end = voter.driver_end()
    voter.acknowledges(2, term, end + 1)
    assert voter.last_heard(3, "append_entries")["commit_index"] == end


def test_a_leaders_own_copy_is_durable_before_it_counts():
    storage = formatted_storage()
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    term = voter.become_leader()
    voter.propose(1)
    assert voter.driver.tick_interval_s == 0.0
    end = voter.driver_end()
    voter.acknowledges(2, term, end + 1)
    assert voter.outcomes[-1].offset == end
    storage.lose_power()
    assert ScriptedVoter(storage=storage).entries()[-1] == (end, term)


def test_a_leader_that_waits_for_its_peers_syncs_its_own_copy_meanwhile():
    storage = formatted_storage()
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    term = voter.become_leader()
    voter.propose(1)
    voter.step()
    assert voter.driver.tick_interval_s > 0.0
    storage.lose_power()
    assert ScriptedVoter(storage=storage).entries()[-1] == (voter.driver_end(), term)


def test_only_an_active_leader_takes_proposals():
    voter = follower()
    voter.propose(1)
    term = voter.stand_for_election()
    voter.says(2, "response_vote", term=term)
    voter.propose(2)
    assert [(o.request_id, o.error) for o in voter.outcomes] == [(1, NOT_COMMITTED), (2, NOT_COMMITTED)]


def test_a_proposal_that_is_too_large_or_one_too_many_is_not_committed():
    voter = ScriptedVoter(max_pending_proposals=2)
    voter.connect(2, 3)
    voter.become_leader()
    voter.propose(1, bytes(MAX_PROPOSAL_BYTES + 1))
    for request_id in (2, 3, 4):
        voter.propose(request_id)
    assert [(o.request_id, o.error) for o in voter.outcomes] == [(1, NOT_COMMITTED), (4, NOT_COMMITTED)]


def test_what_a_deposed_leader_had_in_flight_is_unknown():
    voter, term = leader()
    voter.propose(1)
    voter.says(3, "request_vote", term=term + 1, last_log_index=9, last_log_term=term + 1)
    assert [(o.request_id, o.error) for o in voter.outcomes] == [(1, UNKNOWN)]


def test_committed_entries_come_once_and_in_order_over_a_restart():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage)
    voter.step()
    for request_id in range(3):
        voter.propose(request_id)
    voter.driver.close()
    again = ScriptedVoter(voters=1, storage=storage)
    again.step()
    assert [offset for offset, _ in again.committed] == [2, 3, 4, 5, 6]
    assert again.machine.offset == 6


# -- sessions


def test_messages_of_an_older_session_are_dropped():
    voter = follower()
    late = voter.message(2, "append_entries", term=1, commit_index=1, entries=[], prevLogIdx=1, prevLogTerm=0)
    voter.connect(2, session=2)
    voter.step(late)
    assert voter.leadership.leader_id is None


def test_an_older_session_never_comes_back():
    voter = follower()
    voter.connect(2, session=5)
    voter.step(PeerDisconnected(2, 5), PeerConnected(2, 4))
    voter.step(voter.message(2, "pre_vote", session=4, term=0, round=1, last_log_index=1, last_log_term=0))
    assert voter.heard == []


def test_duplicates_and_stragglers_are_dropped():
    voter = follower()
    request = {"type": "pre_vote", "term": 0, "round": 1, "last_log_index": 1, "last_log_term": 0}
    for sequence, answered in ((2, True), (2, False), (1, False), (3, True)):
        voter.step(PeerMessage(2, 1, encode_message(sequence, request)))
        assert bool(voter.heard) is answered


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x01.", b"\x92\x01\x80", b"\xc1", bytes(100)])
def test_bytes_that_are_no_message_change_nothing(data):
    voter = follower()
    voter.step(PeerMessage(2, 1, data))
    assert voter.halted is None
    assert voter.heard == []


# What DescribeQuorum asks for


def report_of(voter):
    (report,) = [effect for effect in voter.step(ReportQuorum(5)) if isinstance(effect, QuorumReport)]
    assert report.request_id == 5
    return report


def test_a_leader_reports_how_far_its_followers_are():
    voter, term = leader()
    voter.propose(1)
    voter.acknowledges(2, term, voter.driver_end() + 1)
    report = report_of(voter)
    end = voter.driver_end() + 1
    assert (report.leads, report.epoch, report.log_end_offset, report.high_watermark) == (
        True,
        term,
        end,
        end,
    )
    ahead, behind = report.followers
    assert (ahead.replica_id, ahead.log_end_offset) == (2, end)
    assert (behind.replica_id, behind.log_end_offset) == (3, end - 1)
    assert ahead.last_caught_up_ms == ahead.last_fetch_ms == 1_700_000_000_000


def test_a_follower_has_nothing_to_report():
    assert report_of(follower()) == QuorumReport(5, leads=False)


def test_a_new_leader_knows_nothing_of_its_followers():
    voter, term = leader()
    voter.says(2, "append_entries", term=term + 1, commit_index=0, entries=[], prevLogIdx=1, prevLogTerm=0)
    term = voter.stand_for_election()
    voter.says(2, "response_vote", term=term)
    voter.acknowledges(2, term, voter.driver_end() + 1)
    known, unknown = report_of(voter).followers
    assert known.log_end_offset == voter.driver_end() + 1
    assert (unknown.log_end_offset, unknown.last_fetch_ms, unknown.last_caught_up_ms) == (-1, -1, -1)


def test_much_that_is_committed_is_applied_over_several_steps():
    """A leader that applied it all at once would be silent for longer than its followers wait."""
    voter = ScriptedVoter(apply_bytes=1)
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1, 1, 1, 1, commit=5)
    library = voter.driver._node
    before = library.last_applied()
    assert before < library.commit_index() == 5
    assert voter.driver.tick_interval_s == 0.0
    steps = 0
    while library.last_applied() < 5:
        voter.step()
        steps += 1
    assert steps == 5 - before
    assert voter.driver.tick_interval_s > 0.0


def large_entries(pauses):
    voter = ScriptedVoter(apply_bytes=4)
    voter.connect(2, 3)
    voter.machine.pauses = pauses
    return voter


def append_commands(voter, *commands, commit):
    entries = [(PROPOSAL + command, 2 + number, 1) for number, command in enumerate(commands)]
    message = {"term": 1, "commit_index": commit, "entries": entries, "prevLogIdx": 1, "prevLogTerm": 0}
    voter.says(2, "append_entries", **message)


def test_an_entry_too_large_for_one_step_is_applied_in_several():
    voter = large_entries(pauses=3)
    append_commands(voter, b"", b"large", b"", b"", commit=5)
    library, applied = voter.driver._node, []
    for _ in range(6):
        applied.append(library.last_applied())
        assert voter.driver.tick_interval_s == 0.0 or library.last_applied() == 5
        voter.step()
    # The small one before it, three steps of it, its last, and what is behind it.
    assert applied == [2, 2, 2, 2, 3, 5]
    assert [offset for offset, _ in voter.committed] == [2, 3, 4, 5]
