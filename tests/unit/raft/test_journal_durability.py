"""What a voter's journal has promised is there after any crash; what it has not may be torn, and is cut."""

import errno

import pytest

from partitions.records.batch import iter_batches
from partitions.records.builder import build_opaque_batch
from quorum.raft.journal import END_AFTER_IDLE_S, END_AGAIN_AFTER_S, FIRST_ENTRY
from quorum.raft.quorum_state import journal_end_in
from quorum.raft.snapshot import Snapshot
from quorum.raft.storage import RaftStorageError
from tests.support.scripted_voter import JOURNAL, ScriptedVoter, formatted_storage, simulated_disk
from tests.support.voter_folder import VoterFolder, entry, open_again

STATE = f"{JOURNAL}/quorum-state"


def log_paths(storage):
    return [path for path in storage.files() if path.endswith(".log")]


def indexes(folder):
    return [index for _, index, _ in folder.served().entries]


def written_without_sync(folder, *indexes_and_terms):
    """Entries in the page cache, as a crash in the middle of a sync leaves them."""
    for index, term in indexes_and_terms:
        folder.journal.add(*entry(index, term))
    folder.journal._write()


def test_a_sound_batch_behind_a_torn_one_does_not_make_it_damage():
    """A power loss keeps any of the sectors that were not synced."""
    folder = VoterFolder()
    folder.append((2, 1), (3, 1))
    written_without_sync(folder, (4, 1), (5, 1), (6, 1))
    path = log_paths(folder.storage)[-1]
    content = folder.storage.files()[path]
    torn = content.index(b"proposal 4 of term 1")
    assert b"proposal 6 of term 1" in content[torn:]
    simulated_disk(folder.storage).open(path).write_at(torn, bytes(20))
    assert indexes(VoterFolder(folder.storage)) == [1, 2, 3]


def test_an_entry_that_was_written_later_proves_that_those_before_it_were_synced():
    folder = VoterFolder()
    folder.append((2, 1), (3, 1))
    written_without_sync(folder, (4, 1))
    path = log_paths(folder.storage)[0]
    position = folder.storage.files()[path].index(b"proposal 3 of term 1")
    simulated_disk(folder.storage).open(path).write_at(position, bytes(20))
    with pytest.raises(RaftStorageError, match=r"\.log is damaged at byte \d+: .*synced through 3"):
        VoterFolder(folder.storage)


def test_a_tail_that_was_cut_stays_cut():
    folder = VoterFolder()
    folder.append((2, 1))
    written_without_sync(folder, (3, 1), (4, 1))
    path = log_paths(folder.storage)[-1]
    file = simulated_disk(folder.storage).open(path)
    file.truncate(file.size() - 1)
    assert indexes(VoterFolder(folder.storage)) == [1, 2, 3]
    folder.storage.lose_power()
    assert indexes(VoterFolder(folder.storage)) == [1, 2, 3]


def test_a_tail_is_not_cut_where_a_rotten_entry_says():
    """The entry's header has rotted while the voter ran: by it, entry 3 reaches far beyond what is to be cut."""
    folder = VoterFolder()
    folder.append((2, 1), (3, 1), (4, 1), (5, 1))
    path = log_paths(folder.storage)[1]
    content = folder.storage.files()[path]
    at = next(position for position, header in iter_batches(content) if header.base_offset == 3)
    file = simulated_disk(folder.storage).open(path)
    file.write_at(at + 23, b"\x01")  # the highest byte of its last offset delta
    with pytest.raises(AssertionError, match="cannot be cut at entry 5"):
        folder.journal._cut(5)
    file.write_at(at + 23, b"\x00")
    assert indexes(VoterFolder(folder.storage)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(12))
def test_what_only_the_page_cache_has_is_made_durable_before_anything_is_promised_on_it(seed):
    """After a failed fsync every other one of that file succeeds and does nothing, until the next boot."""
    storage = formatted_storage(seed=seed)
    folder = VoterFolder(storage)
    folder.append((2, 1))
    storage.sync_failure = lambda path: errno.EIO if path.endswith(".log") else 0
    with pytest.raises(Exception, match="fsync"):
        folder.append((3, 1), (4, 1))
    storage.sync_failure = None
    again = VoterFolder(storage)
    assert indexes(again) == [1, 2, 3, 4]
    again.append((5, 1))
    storage.lose_power()
    assert indexes(VoterFolder(storage)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(8))
def test_a_vote_that_only_the_page_cache_has_is_written_anew(seed):
    storage = formatted_storage(seed=seed)
    folder = VoterFolder(storage)
    failed = []

    def cut_off(kind, path):
        if kind == "sync_dir" and not failed:
            failed.append(path)
            raise OSError(errno.EIO, "input/output error", path)

    storage.before_operation = cut_off
    with pytest.raises(OSError, match="input/output"):
        folder.vote(7, 2)
    storage.before_operation = None
    assert VoterFolder(storage).served().vote == (7, 2)
    storage.lose_power()
    assert VoterFolder(storage).served().vote == (7, 2)


@pytest.mark.parametrize("operation", range(40))
def test_a_crash_while_the_log_is_begun_anew_leaves_a_voter_that_starts(operation):
    """Segments go one by one, and a power loss may bring back any of them."""
    storage = formatted_storage(seed=operation)
    folder = VoterFolder(storage)
    for index in range(2, 14):
        folder.append((index, 1))
    snapshot = (entry(29, 3), entry(30, 3))
    left = operation

    def cut_off(kind, path):
        nonlocal left
        left -= kind not in ("read", "exists", "list")
        if left < 0:
            raise OSError("power cut")

    folder.snapshots.save(Snapshot(*snapshot, (1, 2, 3), b"state"))
    storage.before_operation = cut_off
    try:
        folder.journal.join(*snapshot)
    except Exception:  # noqa: BLE001 - whatever the power cut looks like from inside
        assert left < 0
    storage.before_operation = None
    storage.lose_power()
    assert VoterFolder(storage).served().entries == snapshot


@pytest.mark.parametrize("operation", range(30))
def test_a_crash_while_entries_are_cut_from_several_segments_leaves_no_hole(operation):
    storage = formatted_storage(seed=operation)
    folder = VoterFolder(storage)
    for index in range(2, 14):
        folder.append((index, 1))
    folder.journal.remember_end()
    assert len(log_paths(storage)) > 4
    left = operation

    def cut_off(kind, path):
        nonlocal left
        left -= kind not in ("read", "exists", "list")
        if left < 0:
            raise OSError("power cut")

    storage.before_operation = cut_off
    try:
        folder.append((4, 2))
    except Exception:  # noqa: BLE001 - as above
        assert left < 0
    storage.before_operation = None
    storage.lose_power()
    entries = VoterFolder(storage).served().entries
    assert entries[:3] == (FIRST_ENTRY, entry(2, 1), entry(3, 1))
    assert entries[3:] in (tuple(entry(n, 1) for n in range(4, len(entries) + 1)), (entry(4, 2),))


# -- the end marker


def test_the_end_marker_is_written_once_the_journal_is_idle_and_costs_no_commit_an_fsync():
    storage = formatted_storage()
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    voter.appends(2, 3, (1, 0), 3, 3)
    syncs = []
    storage.before_operation = lambda kind, path: syncs.append(path) if "sync" in kind else None
    voter.appends(2, 3, (3, 3), 3)
    assert [path.rpartition(".")[2] for path in syncs] == ["log"]
    assert voter.driver.tick_interval_s <= END_AFTER_IDLE_S
    voter.advance(END_AFTER_IDLE_S / 2)
    assert len(syncs) == 1
    voter.advance(END_AFTER_IDLE_S)
    voter.advance(END_AFTER_IDLE_S)
    assert any("quorum-state" in path for path in syncs)
    written = len(syncs)
    voter.advance(END_AFTER_IDLE_S)
    assert len(syncs) == written, "once"
    files = storage.files()
    path = max(path for path in files if path.endswith(".log"))
    position = files[path].rindex(b"4.3")
    simulated_disk(storage).open(path).write_at(position, b"5")
    with pytest.raises(RaftStorageError, match="damaged"):
        ScriptedVoter(storage=storage)


def idle_voter(storage, fail):
    """A voter whose end marker is due, on a disk that `fail` decides over from then on."""
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    voter.appends(2, 3, (1, 0), 3, 3)
    storage.before_operation = fail
    voter.advance(END_AFTER_IDLE_S)
    return voter


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("refused", ["open", "append"])
def test_the_end_marker_waits_for_room_and_halts_nobody(number, refused):
    storage = formatted_storage()
    tried = []

    def fail(kind, path):
        if kind == refused and "quorum-state" in path:
            tried.append(path)
            raise OSError(number, "no room")

    voter = idle_voter(storage, fail)
    before = storage.files()[STATE]
    voter.advance(END_AFTER_IDLE_S)
    voter.advance(END_AFTER_IDLE_S)
    assert len(tried) == 1, "not at once again"
    voter.appends(2, 3, (3, 3), 3)
    assert voter.last_heard(2, "next_node_idx")["next_node_idx"] == 5
    voter.advance(END_AFTER_IDLE_S)
    voter.advance(END_AFTER_IDLE_S)
    assert len(tried) == 2, "at the next idle moment"
    assert storage.files()[STATE] == before
    storage.before_operation = None
    voter.advance(END_AGAIN_AFTER_S)
    assert journal_end_in(storage.files()[STATE]) == 4
    assert voter.halted is None


def test_an_end_marker_that_was_not_written_takes_no_entry_with_it():
    """A voter that ends then, properly or not, starts as after a crash that came before its idle moment."""
    storage = formatted_storage()

    def fail(kind, path):
        if kind == "open" and "quorum-state" in path:
            raise OSError(errno.ENOSPC, "no room")

    voter = idle_voter(storage, fail)
    voter.driver.close()
    storage.before_operation = None
    storage.lose_power()
    assert ScriptedVoter(storage=storage).entries() == [(1, 0), (2, 3), (3, 3)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("refused", ["sync", "sync_dir"])
def test_an_fsync_of_the_end_marker_that_fails_halts_whatever_the_reason(number, refused):
    storage = formatted_storage()

    def fail(kind, path):
        if kind == refused and (refused == "sync_dir" or "quorum-state" in path):
            raise OSError(number, "no room")

    voter = idle_voter(storage, fail)
    voter.advance(END_AFTER_IDLE_S)
    assert f"{STATE} cannot be" in voter.halted


def test_an_end_marker_that_was_perhaps_written_is_lowered_before_entries_go():
    storage = formatted_storage()

    def fail(kind, path):
        if kind == "sync_dir":
            raise OSError(errno.EMFILE, "the folder cannot be opened")

    voter = idle_voter(storage, fail)
    voter.advance(END_AFTER_IDLE_S)
    assert voter.halted is None
    assert journal_end_in(storage.files()[STATE]) == 3
    storage.before_operation = None
    voter.appends(2, 4, (1, 0), 4)
    storage.lose_power()
    assert ScriptedVoter(storage=storage).entries() == [(1, 0), (2, 4)]


def test_indexes_and_other_derived_files_are_made_anew_whatever_they_say():
    folder = VoterFolder()
    for index in range(2, 10):
        folder.append((index, 1))
    folder.journal.close()
    files = folder.storage.files()
    derived = [path for path in files if path.endswith((".index", ".timeindex", "leader-epoch-checkpoint"))]
    assert len(derived) > 4
    before = open_again(files)
    for content in (b"", b"\xff" * 24, b"0\n1\n99 0\n"):
        assert open_again({**files, **dict.fromkeys(derived, content)}) == before


def test_an_older_journal_without_the_entries_own_headers_is_read():
    folder = VoterFolder()
    folder.append((2, 1))
    folder.journal.close()
    path = log_paths(folder.storage)[-1]
    batch = build_opaque_batch(b"old", offset=3, leader_epoch=1, timestamp=5)
    simulated_disk(folder.storage).open(path).append([batch])
    assert VoterFolder(folder.storage).served().entries[-1] == (b"\x00old", 3, 1)


def test_the_journal_named_in_a_refusal_is_that_of_the_voter():
    folder = VoterFolder()
    folder.append((2, 1))
    folder.journal.close()
    files = folder.storage.files()
    path = log_paths(folder.storage)[0]
    refusal = open_again({**files, path: files[path][:-1] + b"?"})
    assert f"{JOURNAL}" in refusal
    assert "kraft storage format" in refusal
