"""The set of voters and the directory of a voter do not change from one start to the next."""

import base64

import pytest

from partitions.log.node_logs.meta_properties import MetaProperties
from quorum.raft.config import RaftConfig
from quorum.raft.membership import MembershipError, check_membership, directory_id_bytes
from quorum.raft.quorum_state import QuorumState
from quorum.raft.storage import RaftStorageError
from tests.support.scripted_voter import JOURNAL, ScriptedVoter, formatted_storage, simulated_disk

STATE = f"{JOURNAL}/quorum-state"
DIRECTORY_ID = bytes(range(16))
TEXT = base64.urlsafe_b64encode(DIRECTORY_ID).decode().rstrip("=")


def refusal(storage, voters):
    with pytest.raises(RaftStorageError) as caught:
        ScriptedVoter(voters=voters, storage=storage)
    return str(caught.value)


@pytest.mark.parametrize(("now", "listed"), [(5, "1, 2, 3, 4, 5"), (2, "1, 2"), (1, "1")])
def test_a_changed_list_is_refused_with_both_lists(now, listed):
    storage = formatted_storage()
    ScriptedVoter(voters=3, storage=storage).driver.close()
    text = refusal(storage, now)
    assert f"names the voters {listed}, but this quorum was formed by the voters 1, 2, 3" in text
    assert "give controller.quorum.voters the old ids again" in text


def test_the_list_is_known_from_the_first_start_on_whatever_is_lost_then():
    storage = formatted_storage()
    ScriptedVoter(voters=3, storage=storage)
    storage.lose_power()
    assert "formed by the voters 1, 2, 3" in refusal(storage, 5)


def test_a_journal_of_an_older_version_takes_the_list_from_its_snapshot():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=3, storage=storage, snapshot_every_entries=2)
    voter.connect(2, 3)
    term = voter.become_leader()
    for request_id in range(1, 4):
        voter.propose(request_id)
        voter.acknowledges(2, term, voter.driver_end() + 1)
    voter.driver.close()
    owner = MetaProperties("cluster", 1, "directory")
    state = QuorumState.load(simulated_disk(storage), JOURNAL, owner)
    state.voters = ()
    state.save()
    assert "formed by the voters 1, 2, 3" in refusal(storage, 5)


def test_new_addresses_are_no_new_list():
    storage = formatted_storage()
    ScriptedVoter(storage=storage, domain=".old").driver.close()
    again = ScriptedVoter(storage=storage, domain=".new")
    again.driver.close()
    assert again.halted is None


# -- the directory


def config(directory_id):
    return RaftConfig(
        node_id=1, voters={1: ""}, cluster_id="cluster", directory="/data", directory_id=directory_id
    )


def test_a_directory_id_is_16_bytes_of_base64():
    assert directory_id_bytes(TEXT) == DIRECTORY_ID


@pytest.mark.parametrize("text", ["directory", "", "not base64 at all!", TEXT[:-4]])
def test_what_is_no_directory_id_is_refused_with_what_to_do(text):
    with pytest.raises(MembershipError, match="restore the file from a copy"):
        directory_id_bytes(text)


def test_the_directory_is_the_one_that_the_node_introduces_itself_by():
    check_membership(config(DIRECTORY_ID), TEXT, None, None)
    with pytest.raises(MembershipError, match="start the node again"):
        check_membership(config(bytes(16)), TEXT, None, None)


def test_a_directory_that_nobody_is_known_by_is_not_looked_at():
    check_membership(config(None), "anything", None, None)
