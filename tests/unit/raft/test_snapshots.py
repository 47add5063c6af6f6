"""Snapshots: taken, joined to the log, sent, and refused where they are no news."""

import pytest

from quorum.raft.incoming import RESUME_WITHIN_S
from quorum.raft.messages import BARRIER, SnapshotChunk
from quorum.raft.snapshot import Snapshot, SnapshotError, SnapshotStore, decode_snapshot, encode_snapshot
from quorum.raft.transfer import CHUNKS_IN_FLIGHT
from tests.support.chain_machine import ChainMachine
from tests.support.scripted_voter import JOURNAL, ScriptedVoter, formatted_storage, simulated_disk


def snapshot_of(last_index: int, term: int = 1) -> Snapshot:
    machine = ChainMachine()
    for offset in range(2, last_index + 1):
        machine.advance(offset, term)
    prev, last = (BARRIER, last_index - 1, term), (BARRIER, last_index, term)
    return Snapshot(prev, last, (1, 2, 3), machine.snapshot())


def follower(**settings):
    voter = ScriptedVoter(**settings)
    voter.connect(2, 3)
    return voter


def send(voter, snapshot, peer=2, term=1, chunk_bytes=64, skip=(), commit=1, damage=False):
    """All chunks of a snapshot, each in a step of its own."""
    data = bytearray(encode_snapshot(snapshot))
    if damage:
        data[-20] ^= 1
    starts = range(0, len(data), chunk_bytes)
    for number, start in enumerate(starts):
        if number not in skip:
            piece = bytes(data[start : start + chunk_bytes])
            chunk = SnapshotChunk(
                piece, start == 0, start == starts[-1], *snapshot.last[1:], start, len(data)
            )
            voter.says(peer, "append_entries", term=term, commit_index=commit, serialized=chunk)
    return voter.last_heard(peer, "next_node_idx")


# -- the file


def test_a_snapshot_comes_back_as_it_was():
    snapshot = snapshot_of(9)
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


@pytest.mark.parametrize("at", [0, 5, 12, 40, -1])
def test_a_flipped_bit_anywhere_is_found(at):
    data = bytearray(encode_snapshot(snapshot_of(9)))
    data[at] ^= 4
    with pytest.raises(SnapshotError):
        decode_snapshot(bytes(data))


@pytest.mark.parametrize("size", [0, 3, 30, -1])
def test_a_snapshot_that_is_cut_off_is_found(size):
    with pytest.raises(SnapshotError):
        decode_snapshot(encode_snapshot(snapshot_of(9))[:size])


def test_the_store_opens_the_newest_and_clears_away_the_rest():
    storage = formatted_storage()
    disk = simulated_disk(storage)
    disk.make_dirs(JOURNAL)
    store = SnapshotStore(disk, JOURNAL)
    for last_index in (5, 9):
        store.save(snapshot_of(last_index))
    disk.open(f"{JOURNAL}/{snapshot_of(12).name}.tmp", create=True)
    again = SnapshotStore(disk, JOURNAL)
    again.open()
    assert again.newest == snapshot_of(9)
    assert disk.list_dir(JOURNAL) == ["00000000000000000010-0000000001.checkpoint"]


@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize("operation", range(8))
def test_a_name_that_only_the_page_cache_has_replaces_nothing(operation, older):
    """The process dies between the rename and the folder's fsync; the next one loses power while it starts."""
    storage = formatted_storage(seed=operation)
    disk = simulated_disk(storage)
    disk.make_dirs(JOURNAL)
    disk.sync_dir(JOURNAL.rpartition("/")[0])
    if older:
        SnapshotStore(disk, JOURNAL).save(snapshot_of(5))

    def killed(kind, path):
        if kind == "sync_dir":
            raise OSError("killed")

    storage.before_operation = killed
    with pytest.raises(OSError, match="killed"):
        SnapshotStore(disk, JOURNAL).save(snapshot_of(9))
    left = operation

    def cut_off(kind, path):
        nonlocal left
        left -= kind not in ("read", "exists", "list")
        if left < 0:
            raise OSError("power cut")

    storage.before_operation = cut_off
    opened = False
    try:
        SnapshotStore(disk, JOURNAL).open()
        opened = True
    except OSError:
        assert left < 0
    storage.before_operation = None
    storage.lose_power()
    again = SnapshotStore(simulated_disk(storage), JOURNAL)
    again.open()
    survivors = [snapshot_of(9)] if opened else [snapshot_of(9), snapshot_of(5) if older else None]
    assert again.newest in survivors


def test_a_damaged_file_is_named_and_not_replaced_by_an_older_one():
    storage = formatted_storage()
    disk = simulated_disk(storage)
    disk.make_dirs(JOURNAL)
    store = SnapshotStore(disk, JOURNAL)
    store.save(snapshot_of(5))
    store.save(snapshot_of(9))
    disk.open(f"{JOURNAL}/{snapshot_of(9).name}").write_at(30, b"x")
    with pytest.raises(SnapshotError, match=r"00000000000000000010-0000000001\.checkpoint is damaged"):
        SnapshotStore(disk, JOURNAL).open()


# -- taking


def test_a_snapshot_is_taken_every_so_many_entries_and_the_log_is_cut_behind_it():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage, snapshot_every_entries=5)
    voter.step()
    for request_id in range(7):
        voter.propose(request_id)
    assert voter.entries()[0] == (5, 1)
    assert b'"journalEnd": 6' in storage.files()[f"{JOURNAL}/quorum-state"]
    storage.lose_power()
    again = ScriptedVoter(voters=1, storage=storage, snapshot_every_entries=5)
    assert again.machine.offset == 6
    again.step()
    assert [offset for offset, _ in again.committed] == [7, 8, 9, 10]
    assert again.machine.image[0] == 10


def test_a_snapshot_is_taken_after_so_many_bytes():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage, snapshot_every_bytes=1000)
    voter.step()
    for request_id in range(4):
        voter.propose(request_id, bytes(200))
    assert not [path for path in storage.files() if path.endswith(".checkpoint")]
    voter.propose(5, bytes(400))
    [snapshot] = [path for path in storage.files() if path.endswith(".checkpoint")]
    voter.propose(6, bytes(900))
    assert [path for path in storage.files() if path.endswith(".checkpoint")] == [snapshot], "it begins anew"


def test_a_snapshot_is_taken_after_so_long_if_anything_was_applied():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage, snapshot_interval_s=60)
    voter.step()
    for number in range(3):
        voter.propose(number)

    def taken():
        return [path for path in storage.files() if path.endswith(".checkpoint")]

    voter.advance(30)
    assert taken() == []
    voter.advance(31)
    first = taken()
    assert len(first) == 1
    voter.advance(120)
    assert taken() == first, "nothing has changed since"
    voter.propose(4)
    voter.propose(5)
    assert taken() != first


def test_no_snapshot_is_taken_by_time_where_that_is_switched_off():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage, snapshot_interval_s=0)
    voter.step()
    for number in range(3):
        voter.propose(number)
    voter.advance(10**6)
    assert not [path for path in storage.files() if path.endswith(".checkpoint")]


@pytest.mark.parametrize("at", [0, 70_000, 140_000, 199_000])
def test_the_block_that_is_damaged_is_named(at):
    data = bytearray(encode_snapshot(Snapshot((b"x", 1, 1), (b"y", 2, 1), (1,), bytes(200_000))))
    data[at] ^= 4
    with pytest.raises(SnapshotError) as caught:
        decode_snapshot(bytes(data))
    assert caught.value.position <= at < caught.value.position + 64 * 1024


def test_the_segments_behind_a_snapshot_are_dropped():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage, snapshot_every_entries=5)
    voter.step()
    for request_id in range(60):
        voter.propose(request_id, bytes(300))
    logs = [path for path in storage.files() if path.endswith(".log")]
    assert len(logs) <= 2
    assert not logs[0].endswith(f"{0:020d}.log")


# -- sending


def test_a_peer_that_is_too_far_behind_is_sent_the_snapshot_and_then_entries():
    voter = ScriptedVoter(snapshot_every_entries=5, snapshot_chunk_bytes=100)
    voter.connect(2, 3)
    term = voter.become_leader()
    for request_id in range(8):
        voter.propose(request_id)
        voter.acknowledges(2, term, voter.driver_end() + 1)
    voter.acknowledges(3, term, 2, success=False, reset=True)
    voter.advance(0.06)
    chunks = chunks_to(voter)
    answers(voter, term, chunks)
    chunks += chunks_to(voter)
    data = b"".join(chunk.data for chunk in chunks)
    snapshot = decode_snapshot(data)
    assert (chunks[0].is_first, chunks[-1].is_last) == (True, True)
    assert len(chunks) == -(-len(data) // 100)
    following = [m["entries"] for peer, m in voter.heard if peer == 3 and m.get("entries")]
    assert following[0][0][1] == snapshot.last[1] + 1


def far_behind(voter, peer=3):
    """A leader with a snapshot of many chunks, and the term: a peer has just asked for the log's beginning."""
    voter.connect(2, 3)
    term = voter.become_leader()
    for request_id in range(8):
        voter.propose(request_id)
        voter.acknowledges(2, term, voter.driver_end() + 1)
    voter.acknowledges(peer, term, 2, success=False, reset=True)
    return term


def chunks_to(voter, peer=3):
    return [m["serialized"] for to, m in voter.heard if to == peer and m.get("serialized") is not None]


def answers(voter, term, chunks, peer=3, received_bytes=None):
    """The peer acknowledges a chunk: it has all that was in these, or so many bytes of the snapshot."""
    last = chunks[-1]
    received = last.position + len(last.data) if received_bytes is None else received_bytes
    voter.acknowledges(peer, term, 3, success=False, snapshot=(last.last_index, received))


def test_one_chunk_asks_how_much_the_peer_has():
    voter = ScriptedVoter(snapshot_every_entries=5, snapshot_chunk_bytes=8)
    term = far_behind(voter)
    voter.advance(0.06)
    sent = chunks_to(voter)
    assert [chunk.position for chunk in sent] == [0]
    voter.advance(0.06)
    assert chunks_to(voter) == []
    answers(voter, term, sent)
    assert [chunk.position for chunk in chunks_to(voter)] == [8 * n for n in range(1, CHUNKS_IN_FLIGHT + 1)]


@pytest.mark.parametrize("session", [2, None])
def test_a_transfer_goes_on_behind_what_the_peer_has(session):
    """After a link that broke, and after a leader that has forgotten what it sent."""
    voter = ScriptedVoter(snapshot_every_entries=5, snapshot_chunk_bytes=8)
    term = far_behind(voter)
    voter.advance(0.06)
    if session is not None:
        answers(voter, term, chunks_to(voter))
        voter.connect(3, session=session)
        voter.step(
            voter.message(
                3,
                "next_node_idx",
                session,
                term=term,
                next_node_idx=2,
                success=False,
                reset=True,
                log_end=10**6,
            )
        )
        voter.advance(0.06)
    sent = chunks_to(voter)
    assert [chunk.position for chunk in sent] == [0]
    voter.acknowledges(3, term, 3, success=False, snapshot=(sent[0].last_index, 37), session=session or 1)
    assert [chunk.position for chunk in chunks_to(voter)][:2] == [37, 45]


def test_a_peer_that_has_all_but_the_installation_gets_the_end_again():
    voter = ScriptedVoter(snapshot_every_entries=5, snapshot_chunk_bytes=8)
    term = far_behind(voter)
    voter.advance(0.06)
    [first] = chunks_to(voter)
    answers(voter, term, [first], received_bytes=first.total_bytes)
    [last] = chunks_to(voter)
    assert (last.position, last.is_last) == (first.total_bytes - 1, True)


def test_what_a_peer_has_of_another_snapshot_does_not_count():
    voter = ScriptedVoter(snapshot_every_entries=5, snapshot_chunk_bytes=8)
    term = far_behind(voter)
    voter.advance(0.06)
    [first] = chunks_to(voter)
    voter.acknowledges(3, term, 3, success=False, snapshot=(first.last_index - 1, 37))
    assert [chunk.position for chunk in chunks_to(voter)] == [8]


def test_only_a_few_chunks_are_on_their_way_and_the_heart_beats_on():
    voter = ScriptedVoter(snapshot_every_entries=5, snapshot_chunk_bytes=8)
    term = far_behind(voter)
    voter.advance(0.06)
    sent = chunks_to(voter)
    answers(voter, term, sent)
    sent += chunks_to(voter)
    assert len(sent) == 1 + CHUNKS_IN_FLIGHT
    for _ in range(3):
        voter.advance(0.06)
        assert chunks_to(voter) == []
        assert [m["serialized"] for to, m in voter.heard if to == 3] == [None]
        assert voter.last_heard(2, "append_entries") is not None
    for _ in range(100):
        if sent[-1].is_last:
            break
        answers(voter, term, sent[:1])
        sent += chunks_to(voter)
        assert len(voter.heard) <= 2 * CHUNKS_IN_FLIGHT
    data = b"".join(chunk.data for chunk in sent)
    assert decode_snapshot(data).last[1] == voter.driver._snapshots.newest.last[1]
    voter.acknowledges(3, term, sent[-1].last_index + 1)
    assert voter.leadership.active


def test_a_transfer_whose_answers_are_lost_asks_anew():
    voter = ScriptedVoter(snapshot_every_entries=5, snapshot_chunk_bytes=8)
    term = far_behind(voter)
    voter.advance(0.06)
    for _ in range(200):
        voter.acknowledges(2, term, voter.driver_end() + 1)  # or the leader would not lead any more
        voter.advance(0.2)
        if chunks_to(voter):
            break
    assert [chunk.is_first for chunk in chunks_to(voter)] == [True]


# -- receiving


def test_a_snapshot_is_installed_and_acknowledges_itself():
    voter = follower()
    answer = send(voter, snapshot_of(20))
    assert (answer["success"], answer["next_node_idx"]) == (True, 21)
    assert voter.machine.offset == 20
    assert voter.entries() == [(19, 1), (20, 1)]
    voter.appends(2, 1, (20, 1), 1, commit=21)
    assert voter.committed == [(21, 1)]


def test_an_installed_snapshot_survives_a_power_loss():
    storage = formatted_storage()
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    send(voter, snapshot_of(20))
    storage.lose_power()
    again = ScriptedVoter(storage=storage)
    assert (again.machine.offset, again.entries()) == (20, [(19, 1), (20, 1)])


def test_a_matching_tail_stays_and_is_not_acknowledged():
    voter = follower()
    voter.appends(2, 1, (1, 0), *[1] * 9)
    snapshot = snapshot_of(6)
    prev, last = voter.driver._journal[4:6]
    answer = send(voter, Snapshot(prev, last, snapshot.voters, snapshot.state), commit=10)
    assert voter.entries() == [(index, 1) for index in range(5, 11)]
    assert (answer["success"], answer["next_node_idx"]) == (True, 7)
    assert voter.machine.offset == 6


def test_a_tail_that_does_not_match_goes():
    voter = follower()
    voter.appends(2, 1, (1, 0), *[1] * 9)
    send(voter, snapshot_of(6, term=2), term=2)
    assert voter.entries() == [(5, 2), (6, 2)]


def test_chunks_on_the_way_commit_nothing_and_are_answered():
    voter = follower()
    voter.appends(2, 1, (1, 0), *[1] * 9)
    data = encode_snapshot(snapshot_of(20))
    chunk = SnapshotChunk(data[:50], True, False, 20, 1, 0, len(data))
    voter.says(2, "append_entries", term=1, commit_index=20, serialized=chunk)
    answer = voter.last_heard(2, "next_node_idx")
    assert (answer["success"], answer["reset"]) == (False, False)
    assert voter.committed == []


def test_every_chunk_is_answered_and_a_refused_one_resets_nothing_twice():
    voter = follower()
    data = encode_snapshot(snapshot_of(20))
    resets = []
    for start in (0, 50, 150, 200):  # with a hole
        chunk = SnapshotChunk(data[start : start + 50], start == 0, False, 20, 1, start, len(data))
        voter.says(2, "append_entries", term=1, commit_index=1, serialized=chunk)
        answer = voter.last_heard(2, "next_node_idx")
        assert not answer["success"]
        resets.append(answer["reset"])
    assert resets == [False] * 4, "the last chunk is the one that has it begin again"


def test_a_snapshot_that_is_no_news_is_refused_but_its_sender_is_still_the_leader():
    voter = follower()
    voter.appends(2, 1, (1, 0), *[1] * 9, commit=8)
    answer = send(voter, snapshot_of(6), peer=3, term=2, commit=10)
    assert (answer["success"], answer["reset"], answer["next_node_idx"]) == (False, True, 9)
    assert (voter.machine.offset, voter.leadership.leader_id) == (8, 3)


@pytest.mark.parametrize("fault", [{"skip": (1,)}, {"skip": (0,)}, {"damage": True}])
def test_a_transfer_with_a_hole_or_damage_begins_again(fault):
    voter = follower()
    voter.appends(2, 1, (1, 0), *[1] * 3)
    answer = send(voter, snapshot_of(20), commit=4, chunk_bytes=32, **fault)
    assert (answer["success"], answer["reset"], answer["next_node_idx"]) == (False, True, 2)
    assert voter.committed == []
    assert send(voter, snapshot_of(20))["success"]


def test_chunks_of_two_snapshots_are_not_glued_together():
    voter = follower()
    for snapshot, start, end in ((snapshot_of(20), 0, 50), (snapshot_of(21), 50, None)):
        data = encode_snapshot(snapshot)
        chunk = SnapshotChunk(data[start:end], start == 0, end is None, *snapshot.last[1:], start, len(data))
        voter.says(2, "append_entries", term=1, commit_index=1, serialized=chunk)
    assert voter.last_heard(2, "next_node_idx")["reset"]
    assert voter.machine.offset == 1


def begins(voter, snapshot, until):
    """The first bytes of a snapshot from voter 2."""
    data = encode_snapshot(snapshot)
    chunk = SnapshotChunk(data[:until], True, False, *snapshot.last[1:], 0, len(data))
    voter.says(2, "append_entries", term=1, commit_index=1, serialized=chunk)
    return data


def goes_on(voter, snapshot, start, end=None, session=2):
    """A further piece, in another session of voter 2; what is answered."""
    data = encode_snapshot(snapshot)
    chunk = SnapshotChunk(data[start:end], start == 0, end is None, *snapshot.last[1:], start, len(data))
    voter.step(voter.message(2, "append_entries", session=session, term=1, commit_index=1, serialized=chunk))
    return voter.last_heard(2, "next_node_idx")


def test_a_transfer_goes_on_in_a_new_session():
    voter = follower()
    begins(voter, snapshot_of(20), 50)
    voter.connect(2, session=2)
    answer = goes_on(voter, snapshot_of(20), 0, 30)
    assert (answer["reset"], answer["snapshot_index"], answer["snapshot_bytes"]) == (False, 20, 50)
    answer = goes_on(voter, snapshot_of(20), 40)
    assert (answer["success"], voter.machine.offset) == (True, 20)


def test_another_snapshot_goes_on_with_nothing():
    voter = follower()
    begins(voter, snapshot_of(20), 50)
    voter.connect(2, session=2)
    assert goes_on(voter, snapshot_of(21), 0, 30)["snapshot_bytes"] == 30
    assert goes_on(voter, snapshot_of(20), 50)["reset"]
    assert voter.machine.offset == 1


def test_a_beginning_that_nobody_comes_back_for_is_given_up():
    voter = follower()
    begins(voter, snapshot_of(20), 50)
    voter.advance(RESUME_WITHIN_S + 1)
    voter.connect(2, session=2)
    assert goes_on(voter, snapshot_of(20), 0, 30)["snapshot_bytes"] == 30


def test_a_state_that_cannot_be_restored_halts_the_voter():
    voter = follower()
    voter.machine.decode_steps = lambda data: (_ for _ in ()).throw(ValueError("odd bytes"))
    send(voter, snapshot_of(20))
    assert "odd bytes" in voter.halted
    assert voter.step() == []


# -- large ones, which take several steps


def test_entries_are_committed_while_a_snapshot_is_taken():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage, snapshot_every_entries=5)
    voter.step()
    voter.machine.pauses = 6

    def taken():
        return [path for path in storage.files() if path.endswith(".checkpoint")]

    for request_id in range(8):
        voter.propose(request_id)
    assert not taken(), "it is being taken"
    assert voter.driver.tick_interval_s == 0.0
    assert voter.machine.offset == 10
    voter.step()
    voter.step()
    assert [decode_snapshot(storage.files()[path]).last[1] for path in taken()] == [6]
    assert voter.entries()[0] == (5, 1)
    storage.lose_power()
    again = ScriptedVoter(voters=1, storage=storage)
    again.step()
    assert again.machine.offset == 11


def arriving(voter, last_index=20, term=1, pauses=3):
    """A whole snapshot from voter 2, which takes some more steps to read."""
    voter.machine.pauses = pauses
    answer = send(voter, snapshot_of(last_index, term), term=term, chunk_bytes=10_000)
    assert (answer["success"], answer["reset"]) == (False, False)
    assert voter.machine.offset == 1
    return answer


def test_the_leader_is_answered_while_its_snapshot_is_read():
    voter = follower()
    assert arriving(voter)["snapshot_bytes"] == len(encode_snapshot(snapshot_of(20)))
    assert voter.driver.tick_interval_s == 0.0
    voter.appends(2, 1, (20, 1), 1, commit=21)
    answer = voter.last_heard(2, "next_node_idx")
    assert (answer["success"], answer["reset"]) == (False, False)
    assert voter.leadership.leader_id == 2
    voter.step()
    answer = voter.last_heard(2, "next_node_idx")
    assert (answer["success"], answer["next_node_idx"]) == (True, 21)
    assert voter.machine.offset == 20
    assert voter.driver.tick_interval_s > 0.0
    voter.appends(2, 1, (20, 1), 1, commit=21)
    assert voter.committed == [(21, 1)]


def test_the_last_chunk_again_while_a_snapshot_is_read_changes_nothing():
    voter = follower()
    arriving(voter)
    answer = send(voter, snapshot_of(20), chunk_bytes=10_000)
    assert (answer["success"], answer["reset"]) == (False, False)
    voter.step()
    assert voter.machine.offset == 20


def test_a_snapshot_is_not_installed_for_a_leader_that_leads_no_more():
    voter = follower()
    arriving(voter, pauses=4)
    voter.appends(3, 2, (1, 0), 2, commit=2)
    for _ in range(4):
        voter.step()
    assert (voter.machine.offset, voter.entries()) == (2, [(1, 0), (2, 2)])
    assert not [path for path in voter.storage.files() if path.endswith(".checkpoint")]


def test_a_snapshot_that_is_read_is_not_sent_again_in_its_leaders_next_term():
    voter = follower()
    arriving(voter, pauses=4)
    voter.says(2, "request_vote", term=2, last_log_index=20, last_log_term=1)
    assert voter.driver.tick_interval_s > 0.0, "there is nothing to be read for nobody"
    data = encode_snapshot(snapshot_of(20))
    chunk = SnapshotChunk(data[:50], True, False, 20, 1, 0, len(data))
    voter.says(2, "append_entries", term=2, commit_index=1, serialized=chunk)
    answer = voter.last_heard(2, "next_node_idx")
    assert (answer["reset"], answer["snapshot_bytes"]) == (False, len(data))
    while voter.machine.offset < 20 and voter.driver.tick_interval_s == 0.0:
        voter.step()
    answer = voter.last_heard(2, "next_node_idx")
    assert (answer["success"], answer["next_node_idx"]) == (True, 21)
    assert (voter.machine.offset, voter.entries()) == (20, [(19, 1), (20, 1)])


def test_a_snapshot_that_was_read_for_another_is_kept_for_a_while():
    voter = follower()
    arriving(voter, pauses=4)
    voter.appends(3, 2, (1, 0), 2, commit=2)
    voter.step()
    incoming = voter.driver._transfer.incoming
    assert incoming.arrival is None
    assert incoming._incoming is not None
    voter.advance(RESUME_WITHIN_S + 1)
    assert incoming._incoming is None


def test_a_newer_snapshot_takes_the_place_of_the_one_that_is_read():
    voter = follower()
    arriving(voter, pauses=4)
    arriving(voter, last_index=30, pauses=4)
    for _ in range(4):
        voter.step()
    assert (voter.machine.offset, voter.entries()) == (30, [(29, 1), (30, 1)])


def test_a_snapshot_that_is_taken_ends_where_a_newer_one_is_installed():
    voter = follower(snapshot_every_entries=5)
    voter.machine.pauses = 50
    voter.appends(2, 1, (1, 0), *[1] * 9, commit=10)
    assert voter.driver._transfer.is_taking
    voter.machine.pauses = 0
    send(voter, snapshot_of(20), commit=10)
    assert not voter.driver._transfer.is_taking
    assert (voter.machine.offset, voter.entries()) == (20, [(19, 1), (20, 1)])
    assert voter.driver._snapshots.newest.last[1] == 20


@pytest.mark.parametrize("last_index", [6, 20])
@pytest.mark.parametrize("operation", range(40))
def test_a_crash_anywhere_in_an_installation_leaves_a_voter_that_starts(operation, last_index):
    storage = formatted_storage(seed=operation)
    voter = ScriptedVoter(storage=storage)
    voter.connect(2, 3)
    voter.appends(2, 1, (1, 0), *[1] * 9)
    voter.driver._journal.remember_end()
    left = operation

    def fail(kind, path):
        nonlocal left
        left -= kind not in ("read", "exists", "list")
        if left < 0:
            raise OSError("power cut")

    storage.before_operation = fail
    send(voter, snapshot_of(last_index, term=2), term=2)
    storage.before_operation = None
    storage.lose_power()
    again = ScriptedVoter(storage=storage)
    assert again.entries()[-1][0] in (10, last_index)
    assert again.machine.offset in (1, last_index)


def test_what_was_begun_of_a_large_entry_is_given_up_for_a_snapshot():
    voter = ScriptedVoter(apply_bytes=1)
    voter.connect(2, 3)
    voter.machine.pauses = 1000
    voter.appends(2, 1, (1, 0), 1, 1, commit=3)
    voter.step()
    assert voter.machine.offset == 1
    voter.machine.pauses = 0
    send(voter, snapshot_of(20))
    assert voter.machine.offset == 20
    voter.appends(2, 1, (20, 1), 1, 1, commit=22)
    while voter.driver.tick_interval_s == 0.0:
        voter.step()
    assert voter.committed[-2:] == [(21, 1), (22, 1)]
    assert voter.machine.offset == 22
