"""A voter on a new disk is a learner under its old number, until the others admit it (KIP-853)."""

import base64

from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from quorum.raft.events import NOT_COMMITTED, PeerDisconnected, VoterDirectories, VoterStanding
from quorum.raft.messages import PROPOSAL
from quorum.raft.voter_watch import FAR_BEHIND_ENTRIES
from tests.support.chain_machine import encode_directories
from tests.support.scripted_voter import DIRECTORY, SESSION, ScriptedVoter, formatted_storage, simulated_disk

ONE, TWO, THREE, NEW = (name.ljust(16) for name in (b"one", b"two", b"three", b"new"))
ALL = {1: ONE, 2: TWO, 3: THREE}


def storage_of(directory_id=ONE):
    storage = formatted_storage()
    text = base64.urlsafe_b64encode(directory_id).decode().rstrip("=")
    write_meta_properties(simulated_disk(storage), DIRECTORY, MetaProperties("cluster", 1, text))
    storage.sync_everything()
    return storage


def new_voter(voters=3, storage=None, **settings):
    return ScriptedVoter(voters=voters, storage=storage or storage_of(), directory_id=ONE, **settings)


def told(voter, kind):
    found = [effect for effect in voter.effects if isinstance(effect, kind)]
    return found[-1] if found else None


def leader(**settings):
    """Node 1 leads a quorum whose voters are recorded: (voter, term)."""
    voter = new_voter(**settings)
    voter.connect(2, 3, directories=ALL)
    term = elect(voter)
    voter.propose(1, encode_directories(ALL))
    acknowledge(voter, 2, term)
    return voter, term


def elect(voter):
    question = voter.wait_for_pre_vote()
    for peer in (2, 3):
        voter.says(peer, "response_pre_vote", term=question["term"], round=question["round"], granted=True)
    term = question["term"] + 1
    for peer in (2, 3):
        voter.says(peer, "response_vote", term=term)
    acknowledge(voter, 2, term)
    assert voter.leadership.active
    return term


def acknowledge(voter, peer, term):
    voter.acknowledges(peer, term, voter.driver_end() + 1)
    return voter.effects


def follower_of(peer, term, *proposals, voter=None, commit=None):
    """A follower that holds these proposals after its first entry, committed unless said otherwise."""
    voter = voter or new_voter()
    voter.connect(2, 3, directories=ALL)
    entries = [(PROPOSAL + data, index, term) for index, data in enumerate(proposals, start=2)]
    voter.says(
        peer,
        "append_entries",
        term=term,
        commit_index=len(proposals) + 1 if commit is None else commit,
        entries=entries,
        prevLogIdx=1,
        prevLogTerm=0,
    )
    return voter


# -- a new quorum


def test_a_new_quorum_elects_its_first_leader_with_all_votes():
    voter = new_voter()
    voter.connect(2, 3, directories=ALL)
    question = voter.wait_for_pre_vote()
    voter.says(2, "response_pre_vote", term=question["term"], round=question["round"], granted=True)
    assert "request_vote" not in voter.heard_kinds()
    voter.says(3, "response_pre_vote", term=question["term"], round=question["round"], granted=True)
    assert "request_vote" in voter.heard_kinds()
    voter.says(2, "response_vote", term=1)
    assert not voter.driver._node.is_leader()
    voter.says(3, "response_vote", term=1)
    assert voter.driver._node.is_leader()


def test_what_the_first_leader_wants_recorded_is_who_voted_for_it():
    voter = new_voter()
    voter.connect(2, 3, directories=ALL)
    elect(voter)
    assert told(voter, VoterDirectories) == VoterDirectories(1, ALL)


def test_a_disk_that_was_lost_after_its_vote_is_not_founded_with():
    voter = new_voter()
    voter.connect(2, 3, directories=ALL)
    voter.connect(3, session=2, directories={3: NEW})
    question = voter.wait_for_pre_vote()
    voter.says(2, "response_pre_vote", term=question["term"], round=question["round"], granted=True)
    voter.step(
        voter.message(
            3, "response_pre_vote", session=2, term=question["term"], round=question["round"], granted=True
        )
    )
    voter.step(voter.message(3, "response_vote", session=2, term=1))
    voter.connect(3, session=3, directories={3: THREE})
    voter.says(2, "response_vote", term=1)
    acknowledge(voter, 2, 1)
    assert told(voter, VoterDirectories).directories[3] == NEW


def test_a_single_voter_founds_its_quorum_alone():
    voter = new_voter(voters=1)
    voter.step()
    assert voter.leadership.active
    assert told(voter, VoterDirectories) == VoterDirectories(1, {1: ONE})
    voter.propose(1, encode_directories({1: ONE}))
    assert told(voter, VoterStanding) == VoterStanding()


def test_until_the_quorum_is_founded_it_is_told_who_is_missing():
    voter = new_voter()
    voter.connect(2, directories=ALL)
    assert told(voter, VoterStanding) == VoterStanding(is_founded=False, unseen=(3,))


def test_once_founded_a_majority_elects():
    voter = follower_of(2, 1, encode_directories(ALL))
    question = voter.wait_for_pre_vote()
    voter.says(3, "response_pre_vote", term=question["term"], round=question["round"], granted=True)
    voter.says(3, "response_vote", term=2)
    assert voter.driver._node.is_leader()


# -- a peer on a new disk


def test_the_acknowledgements_of_a_new_disk_commit_nothing():
    voter, term = leader()
    voter.step(PeerDisconnected(3, SESSION))
    voter.connect(3, session=2, directories={3: NEW})
    voter.propose(2)
    end = voter.driver_end()
    voter.acknowledges(3, term, end + 1, session=2)
    voter.advance(0.1)
    assert voter.driver._node.commit_index() < end
    acknowledge(voter, 2, term)
    assert voter.driver._node.commit_index() == end


def test_a_new_disk_is_sent_the_log_from_its_beginning():
    voter, term = leader()
    voter.step(PeerDisconnected(3, SESSION))
    voter.acknowledges(2, term, voter.driver_end() + 1)
    voter.connect(3, session=2, directories={3: NEW})
    voter.acknowledges(3, term, 2, session=2, success=False, reset=True, log_end=1)
    voter.advance(0.1)
    append = voter.last_heard(3, "append_entries")
    assert (append["prevLogIdx"], len(append["entries"])) == (1, voter.driver_end() - 1)


def caught_up_learner():
    """A leader whose voter 3 came back with a new disk and holds everything: (voter, term)."""
    voter, term = leader()
    voter.connect(3, session=2, directories={3: NEW})
    end = voter.driver_end()
    voter.acknowledges(3, term, end + 1, session=2)
    return voter, term


def test_a_new_disk_that_has_caught_up_is_to_be_recorded():
    voter, term = caught_up_learner()
    assert told(voter, VoterDirectories) == VoterDirectories(term, {**ALL, 3: NEW})


def test_one_that_has_not_is_not_yet():
    voter, term = leader()
    voter.connect(3, session=2, directories={3: NEW})
    voter.acknowledges(3, term, voter.driver_end(), session=2)
    assert told(voter, VoterDirectories) is None


def test_its_admission_is_committed_without_it_and_then_it_counts():
    voter, term = caught_up_learner()
    voter.propose(2, encode_directories({3: NEW}))
    end = voter.driver_end()

    def acknowledged_by_three(index):
        voter.acknowledges(3, term, index + 1, session=2)
        voter.advance(0.01)

    acknowledged_by_three(end)
    assert voter.driver._node.commit_index() < end
    acknowledge(voter, 2, term)
    voter.advance(0.01)
    assert voter.driver._node.commit_index() == end
    voter.propose(3)
    acknowledged_by_three(end + 1)
    assert voter.driver._node.commit_index() == end + 1


def test_the_vote_of_a_new_disk_does_not_count():
    voter = follower_of(2, 1, encode_directories(ALL))
    question = voter.wait_for_pre_vote()
    grant = {"term": question["term"], "round": question["round"], "granted": True}
    voter.connect(3, session=2, directories={3: NEW})
    voter.step(voter.message(3, "response_pre_vote", session=2, **grant))
    assert "request_vote" not in voter.heard_kinds()
    voter.says(2, "response_pre_vote", **grant)
    assert "request_vote" in voter.heard_kinds()
    voter.step(voter.message(3, "response_vote", session=2, term=2))
    assert not voter.driver._node.is_leader()
    voter.says(2, "response_vote", term=2)
    assert voter.driver._node.is_leader()


def test_directories_that_the_leader_has_not_seen_are_never_recorded():
    voter, _ = leader()
    voter.propose(7, encode_directories({3: NEW}))
    assert (voter.outcomes[-1].request_id, voter.outcomes[-1].error) == (7, NOT_COMMITTED)


# -- a voter that is on a new disk itself


def learner():
    return follower_of(2, 1, encode_directories({**ALL, 1: NEW}))


def test_a_voter_on_a_new_disk_says_so():
    voter = learner()
    assert told(voter, VoterStanding) == VoterStanding(counts=False, replaced=(1,))


def test_it_votes_since_whoever_stands_knows_whether_that_counts():
    voter = learner()
    voter.advance(2.0)  # its leader is silent
    voter.says(3, "pre_vote", term=1, round=1, last_log_index=9, last_log_term=1)
    assert voter.last_heard(3, "response_pre_vote")["granted"]
    voter.says(3, "request_vote", term=5, last_log_index=9, last_log_term=1)
    assert voter.last_heard(3, "response_vote")["term"] == 5


def test_it_never_stands_not_even_on_order():
    voter = learner()
    for _ in range(5):
        voter.advance(1.0)
        assert voter.heard_kinds() <= {"next_node_idx"}
    voter.says(2, "append_entries", term=1, commit_index=2, entries=(), prevLogIdx=2, prevLogTerm=1)
    voter.says(2, "take_leadership", term=1)
    assert "request_vote" not in voter.heard_kinds()


def test_it_stands_again_once_it_is_recorded():
    voter = follower_of(2, 1, encode_directories({**ALL, 1: NEW}), encode_directories({1: ONE}))
    assert told(voter, VoterStanding) == VoterStanding()
    voter.advance(2.0)
    assert "pre_vote" in voter.heard_kinds()


def test_while_its_admission_is_not_known_to_be_committed_it_votes_and_does_not_stand():
    voter = follower_of(2, 1, encode_directories({**ALL, 1: NEW}), encode_directories({1: ONE}), commit=2)
    voter.advance(1.0)
    assert voter.heard_kinds() <= {"next_node_idx"}
    voter.says(3, "request_vote", term=5, last_log_index=9, last_log_term=1)
    assert voter.last_heard(3, "response_vote") is not None


# -- what outlives a restart


def test_the_directories_in_force_are_known_after_a_power_loss():
    voter = follower_of(2, 1, encode_directories({**ALL, 1: NEW}), encode_directories({1: ONE}))
    voter.storage.lose_power()
    again = new_voter(storage=voter.storage)
    assert again.driver._book.in_force == ALL
    again.connect(2, 3, directories=ALL)
    again.says(3, "request_vote", term=5, last_log_index=9, last_log_term=1)
    assert again.last_heard(3, "response_vote") is not None


def test_a_snapshot_carries_the_directories():
    voter, term = leader(snapshot_every_entries=4)
    for request_id in range(2, 8):
        voter.propose(request_id)
        acknowledge(voter, 2, term)
    snapshot = voter.driver._snapshots.newest
    assert dict(snapshot.directories) == ALL


# -- what is told


def on_its_own_among_new_disks():
    """A voter that knows everything that was committed once, and finds new disks behind both other numbers:
    (voter, its question)."""
    voter = follower_of(2, 1, encode_directories(ALL))
    for peer in (2, 3):
        voter.step(PeerDisconnected(peer, SESSION))
    voter.connect(2, 3, session=2, directories={2: NEW, 3: NEW})
    assert not told(voter, VoterStanding).is_lost
    return voter, voter.wait_for_pre_vote()


def says_of_its_log(voter, peer, question, *, not_ahead):
    answer = {"term": question["term"], "round": question["round"], "granted": not_ahead}
    voter.step(voter.message(peer, "response_pre_vote", session=2, **answer))


def test_a_majority_on_new_disks_that_know_nothing_is_told_to_be_lost():
    voter, question = on_its_own_among_new_disks()
    says_of_its_log(voter, 2, question, not_ahead=True)
    assert told(voter, VoterStanding) is None, "3 may have admitted 2"
    says_of_its_log(voter, 3, question, not_ahead=True)
    assert told(voter, VoterStanding) == VoterStanding(replaced=(2, 3), is_lost=True)
    voter.advance(1.0)
    assert told(voter, VoterStanding) is None, "another round changes nothing in it"


def test_a_voter_that_was_away_while_the_others_were_replaced_raises_no_alarm():
    """Their logs are ahead, or they have a leader: it is this one that does not know of their admission yet."""
    voter, question = on_its_own_among_new_disks()
    says_of_its_log(voter, 2, question, not_ahead=False)
    says_of_its_log(voter, 3, question, not_ahead=True)
    assert told(voter, VoterStanding) is None
    again = voter.wait_for_pre_vote()
    says_of_its_log(voter, 2, again, not_ahead=True)
    assert told(voter, VoterStanding).is_lost
    voter.step(
        voter.message(
            2,
            "append_entries",
            session=2,
            term=2,
            commit_index=2,
            entries=((PROPOSAL + encode_directories({2: NEW, 3: NEW}), 3, 2),),
            prevLogIdx=2,
            prevLogTerm=1,
        )
    )
    assert not told(voter, VoterStanding).is_lost


def test_one_new_disk_is_told_but_loses_nothing():
    voter, _ = leader()
    voter.connect(3, session=2, directories={3: NEW})
    assert told(voter, VoterStanding) == VoterStanding(replaced=(3,))


def test_a_voter_far_behind_its_leader_is_told():
    voter = follower_of(2, 1, encode_directories(ALL))
    far = FAR_BEHIND_ENTRIES + 3
    voter.says(2, "append_entries", term=1, commit_index=far, entries=(), prevLogIdx=2, prevLogTerm=1)
    assert told(voter, VoterStanding).is_far_behind


def test_what_another_directory_had_acknowledged_is_not_asked_of_a_new_one():
    voter, term = leader()
    acknowledge(voter, 3, term)
    voter.step(PeerDisconnected(3, SESSION))
    voter.connect(3, session=2, directories={3: NEW})
    voter.acknowledges(3, term, 2, success=False, reset=True, log_end=1, session=2)
    assert voter.last_heard(3, "forgotten") is None
