"""A voter whose folder was replaced by an older copy of itself: the leader notices, and it ends for good."""

import pytest

from quorum.raft.events import PeerDisconnected
from quorum.raft.storage import RaftStorageError
from tests.support.scripted_voter import SESSION, ScriptedVoter, formatted_storage


def leader_with_promises():
    """A leader to which voter 3 has acknowledged everything, and is linked anew: (voter, term, index)."""
    voter = ScriptedVoter()
    voter.connect(2, 3)
    term = voter.become_leader()
    voter.propose(1)
    promised = voter.driver_end()
    for peer in (2, 3):
        voter.acknowledges(peer, term, promised + 1)
    voter.step(PeerDisconnected(3, SESSION))
    voter.connect(3, session=2)
    return voter, term, promised


@pytest.mark.parametrize("asks_for", [2, 3])
def test_a_leader_tells_a_voter_whose_log_ends_before_what_it_has_acknowledged(asks_for):
    voter, term, promised = leader_with_promises()
    voter.acknowledges(3, term, asks_for, success=False, reset=True, log_end=promised - 1, session=2)
    assert voter.last_heard(3, "forgotten") == {"type": "forgotten", "term": term, "acknowledged": promised}


def test_one_that_has_everything_may_ask_for_it_anew():
    """It does not know any more how much of it is committed."""
    voter, term, promised = leader_with_promises()
    voter.acknowledges(3, term, 2, success=False, reset=True, log_end=promised, session=2)
    assert voter.last_heard(3, "forgotten") is None


def test_a_voter_that_has_forgotten_something_ends_for_good():
    storage = formatted_storage()
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), 1)
    voter.says(2, "forgotten", term=1, acknowledged=2)
    voter.says(3, "forgotten", term=1, acknowledged=9)
    voter.says(2, "forgotten", term=0, acknowledged=9)
    assert voter.halted is None, (
        "its log does not end before 2, 3 does not lead, nobody leads in epoch 0 any more"
    )
    voter.says(2, "forgotten", term=1, acknowledged=3)
    assert voter.halted is not None
    assert (
        "ends at offset 2, and voter 2, which leads in epoch 1, had its word through offset 3" in voter.halted
    )
    assert "remove everything in /data, format the node anew" in voter.halted
    storage.lose_power()
    with pytest.raises(RaftStorageError) as caught:
        ScriptedVoter(storage=storage)
    assert str(caught.value) == voter.halted
