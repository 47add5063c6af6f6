"""What a voter keeps on disk, and the directories it refuses to vote with."""

import errno
import os

import pytest

from kraft.chaos.world.storage import NAME_BYTES
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.records.batch import decode_records, iter_batches
from quorum.raft.quorum_state import QuorumState, QuorumStateError
from quorum.raft.storage import RaftStorageError
from tests.support.scripted_voter import DIRECTORY, JOURNAL, ScriptedVoter, formatted_storage, simulated_disk

OWNER = MetaProperties("cluster", 1, "directory")
STATE = f"{JOURNAL}/quorum-state"


def voted(storage):
    """A voter that has a term, a vote and some entries, closed."""
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    voter.appends(2, 3, (1, 0), 3, 3, 3)
    voter.says(3, "request_vote", term=4, last_log_index=9, last_log_term=3)
    voter.driver.close()
    return voter


def refusal(storage):
    with pytest.raises(RaftStorageError) as caught:
        ScriptedVoter(storage=storage)
    return str(caught.value)


def test_a_directory_that_was_never_formatted_is_refused():
    storage = formatted_storage()
    storage.remove_file(f"{DIRECTORY}/meta.properties")
    assert "is not formatted" in refusal(storage)


@pytest.mark.parametrize("identity", [("other", 1, "directory"), ("cluster", 2, "directory")])
def test_a_directory_of_another_cluster_or_node_is_refused(identity):
    storage = formatted_storage()
    write_meta_properties(simulated_disk(storage), DIRECTORY, MetaProperties(*identity))
    assert "belongs to" in refusal(storage)


def test_a_journal_copied_into_another_directory_is_refused():
    storage = formatted_storage()
    voted(storage)
    write_meta_properties(simulated_disk(storage), DIRECTORY, MetaProperties("cluster", 1, "new-directory"))
    assert "give each node its own directory" in refusal(storage)


def test_a_journal_without_its_vote_is_refused():
    storage = formatted_storage()
    voted(storage)
    storage.remove_file(STATE)
    assert "forgotten its vote" in refusal(storage)


def test_a_voter_whose_whole_journal_folder_is_gone_is_not_taken_for_a_new_one():
    storage = formatted_storage()
    voted(storage)
    simulated_disk(storage).remove_tree(JOURNAL)
    assert "remove everything in /data, and format the node anew" in refusal(storage).replace(
        DIRECTORY, "/data"
    )


@pytest.mark.parametrize("damage", ["state", "state gone", "journal folder gone", "snapshot", "log"])
@pytest.mark.parametrize("voters", [1, 3])
def test_only_a_voter_that_has_others_is_told_to_begin_anew(damage, voters):
    storage = formatted_storage()
    disk = simulated_disk(storage)
    voter = ScriptedVoter(voters=voters, storage=storage)
    if voters == 1:
        voter.step()
    voter.driver._journal.remember_end()
    voter.driver.close()
    if damage == "state gone":
        storage.remove_file(STATE)
    elif damage == "journal folder gone":
        disk.remove_tree(JOURNAL)
    elif damage == "snapshot":
        disk.open(f"{JOURNAL}/{5:020d}-{1:010d}.checkpoint", create=True).append([b"no snapshot"])
    elif damage == "state":
        disk.open(STATE).write_at(3, b"?")
    else:
        storage.remove_file(next(path for path in storage.files() if path.endswith(".log")))
    with pytest.raises(RaftStorageError) as caught:
        ScriptedVoter(voters=voters, storage=storage)
    assert ("format the node anew" in str(caught.value)) is (voters > 1)
    assert ("only voter" in str(caught.value)) is (voters == 1)


def test_a_vote_without_its_journal_is_refused():
    storage = formatted_storage()
    voted(storage)
    for path in storage.files():
        if path.startswith(JOURNAL) and path != STATE:
            storage.remove_file(path)
    assert "acknowledged entries are gone" in refusal(storage)


def test_damage_inside_the_journal_is_not_taken_for_a_torn_tail():
    storage = formatted_storage()
    voted(storage)
    path = next(path for path in storage.files() if path.endswith(".log"))
    simulated_disk(storage).open(path).write_at(200, b"\xff")
    assert path in refusal(storage)


def test_a_torn_tail_of_what_was_never_promised_is_cut():
    storage = formatted_storage()
    voted(storage)
    path = next(path for path in storage.files() if path.endswith(".log"))
    simulated_disk(storage).open(path).append([b"\0" * 40])
    assert ScriptedVoter(storage=storage).entries()[-1] == (4, 3)


def test_a_crash_in_the_first_start_leaves_a_directory_that_starts():
    for operation in range(60):
        storage = formatted_storage(seed=operation)
        left = operation

        def fail(kind, path):
            nonlocal left
            left -= kind not in ("read", "exists", "list")
            if left < 0:
                raise OSError("power cut")

        storage.before_operation = fail
        try:
            ScriptedVoter(storage=storage)
            finished = True
        except (OSError, RaftStorageError):
            finished = False
        storage.before_operation = None
        storage.lose_power()
        assert ScriptedVoter(storage=storage).entries() == [(1, 0)]
    assert finished


def test_an_entry_is_a_batch_that_says_what_it_is():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage)
    voter.step()
    voter.propose(1, b"records")
    data = next(content for path, content in storage.files().items() if path.endswith(".log"))
    rows = []
    for position, header in iter_batches(data):
        (record,) = decode_records(data, position, header, max_decompressed_bytes=100)
        rows.append((header.base_offset, header.partition_leader_epoch, header.is_control, record.value))
    assert rows == [(1, 0, True, b""), (2, 1, True, b""), (3, 1, False, b"records")]


def test_a_disk_that_fails_halts_the_voter_and_nothing_of_the_step_leaves_it():
    storage = formatted_storage()
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)

    def fail(kind, path):
        if kind == "sync":
            raise OSError(5, "input/output error")

    storage.before_operation = fail
    voter.appends(2, 3, (1, 0), 3)
    assert voter.halted
    assert voter.heard == []
    storage.before_operation = None
    assert voter.step() == []


JOURNAL_FULL = (
    f"The quorum's journal in {JOURNAL} cannot be written: No space left on device. Make room and start the node"
    " again; nothing acknowledged is lost."
)
STATE_FULL = JOURNAL_FULL.replace(f"The quorum's journal in {JOURNAL}", STATE)


@pytest.mark.parametrize(("what", "sentence"), [("quorum-state", STATE_FULL), ("journal", JOURNAL_FULL)])
def test_a_full_disk_is_told_in_a_sentence_that_names_what_could_not_be_written(what, sentence):
    storage = formatted_storage()
    voted(storage)
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    storage.free_bytes = 0
    if what == "quorum-state":
        voter.says(3, "request_vote", term=9, last_log_index=99, last_log_term=8)
    else:
        voter.appends(3, 4, (4, 3), *[4] * 200)
    assert voter.halted == sentence
    assert voter.heard == []
    storage.free_bytes = None
    again = ScriptedVoter(storage=storage)
    again.step()
    assert again.halted is None


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.EMFILE])
def test_a_disk_that_refuses_is_told_without_a_traceback(number):
    storage = formatted_storage()
    voted(storage)
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)

    def refuse(kind, path):
        if kind in ("open", "append") and "quorum-state" in path:
            raise OSError(number, os.strerror(number))

    storage.before_operation = refuse
    voter.says(3, "request_vote", term=9, last_log_index=99, last_log_term=8)
    assert voter.halted.startswith(f"{STATE} cannot be used: {os.strerror(number)}. ")
    assert "Traceback" not in voter.halted


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_voter_starts_without_room_for_what_its_files_say_already(number):
    storage = formatted_storage()
    voted(storage)
    before = storage.files()[STATE]

    def refuse(kind, path):
        if kind in ("open", "append") and path.endswith(".tmp"):
            raise OSError(number, os.strerror(number))

    storage.before_operation = refuse
    voter = ScriptedVoter(storage=storage)
    voter.step()
    assert voter.halted is None
    assert voter.driver._quorum_state.term == 4
    storage.before_operation = None
    storage.lose_power()
    assert storage.files()[STATE] == before


def test_a_voter_starts_on_a_full_disk_that_takes_empty_files():
    storage = formatted_storage()
    voted(storage)
    storage.free_bytes = NAME_BYTES
    voter = ScriptedVoter(storage=storage)
    voter.step()
    assert voter.halted is None


def test_a_voter_that_has_something_new_to_say_of_itself_does_not_start_without_room():
    storage = formatted_storage()
    storage.free_bytes = 0
    assert "No space left" in refusal(storage)


# -- quorum-state


def state_file(content=None):
    storage = formatted_storage()
    disk = simulated_disk(storage)
    disk.make_dirs(JOURNAL)
    if content is not None:
        disk.open(STATE, create=True).append([content])
    return disk, storage


def test_term_and_vote_come_back_after_a_power_loss():
    disk, storage = state_file()
    storage.sync_everything()
    state = QuorumState(disk, JOURNAL, OWNER)
    state.set(7, 3)
    state.save()
    storage.lose_power()
    again = QuorumState.load(simulated_disk(storage), JOURNAL, OWNER)
    assert (again.term, again.voted_for) == (7, 3)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x80\x04N.", b'{"leaderEpoch": 7}\n00000000\n'])
def test_a_damaged_state_is_never_taken_for_an_empty_one(content):
    disk, _ = state_file(content)
    with pytest.raises(QuorumStateError, match="vote"):
        QuorumState.load(disk, JOURNAL, OWNER)


def test_a_flipped_bit_in_the_term_is_found():
    disk, storage = state_file()
    state = QuorumState(disk, JOURNAL, OWNER)
    state.set(7, 3)
    state.save()
    data = storage.files()[STATE]
    disk.open(STATE).write_at(data.index(b"7"), b"6")
    with pytest.raises(QuorumStateError):
        QuorumState.load(disk, JOURNAL, OWNER)
