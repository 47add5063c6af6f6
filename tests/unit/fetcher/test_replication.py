"""What a leader's answers do to the logs; one partition's trouble stays its own."""

from __future__ import annotations

import pytest

from fetcher.fetch_state import FetchPhase, FetchState
from fetcher.fetch_states import CATCH_UP_LANE, FetchStates
from fetcher.leader_endpoint import FetchedPartition, FetchRequest, FetchResponse, LeaderOffsets
from fetcher.replication import LogTruncation, Replication
from fetcher.settings import FetcherSettings
from leader_epoch.epoch_cache import EpochEntry
from partitions.errors import NotLeaderOrFollower
from partitions.log.errors import AppendError, AppendPostponed, NoRoomToAppend, OffsetOutOfRange
from partitions.reads import diverging_epoch
from tests.support.fetch_world import A, B, C, FollowerMemory, Listened, followed, got, records
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log, read_records


class Follower:
    def __init__(self, **logs: FollowerMemory) -> None:
        self.states = FetchStates(FetcherSettings(), lambda: 0.5)
        self.listened = Listened()
        self.replication = Replication(self.states, self.listened)
        self.now_ms = 0

    def follow(self, *pairs: tuple[tuple[str, int], FollowerMemory], leader_epoch: int = 0) -> None:
        for key, log in pairs:
            self.states.add(followed(key, log, leader_epoch=leader_epoch))

    def ask(self) -> FetchRequest:
        request = self.states.build_request(self.now_ms, 0)
        assert request is not None
        return request

    def answer(self, *answers: FetchedPartition) -> None:
        self.replication.apply_fetch(self.ask(), FetchResponse(answers), self.now_ms)

    def state(self, key: tuple[str, int]) -> FetchState:
        state = self.states.get(key)
        assert state is not None
        return state


def test_records_are_appended_and_the_high_watermark_follows() -> None:
    follower, log = Follower(), FollowerMemory()
    follower.follow((A, log))
    follower.answer(got(A, records(0, "a", "b"), high_watermark=1))
    assert (log.text(), log.high_watermark) == ("a b", 1)
    assert follower.state(A).lag == 0
    follower.answer(got(A, records(2, "c"), high_watermark=90))
    assert (log.high_watermark, follower.state(A).lag) == (3, 87)


def test_a_corrupt_batch_holds_up_its_own_partition_only() -> None:
    follower, bad, good = Follower(), FollowerMemory(), FollowerMemory()
    follower.follow((A, bad), (B, good))
    bad.log.fails_with = AppendError("CORRUPT_MESSAGE", "the CRC does not match")
    follower.answer(got(A, records(0, "a")), got(B, records(0, "b")))
    assert (bad.text(), good.text()) == ("", "b")
    assert follower.listened.retried == [(A, "CORRUPT_MESSAGE")]
    assert [asked.key for asked in follower.ask().partitions] == [B]
    follower.now_ms = 100
    follower.answer(got(A, records(0, "a")), got(B))
    assert bad.text() == "a"


def test_how_often_a_log_has_refused_in_a_row_is_told() -> None:
    follower, log = Follower(), FollowerMemory()
    follower.follow((A, log))
    for number in range(1, 4):
        log.log.fails_with = AppendError("OFFSET_OUT_OF_RANGE", "the hole is too wide")
        follower.answer(got(A, records(0, "a")))
        assert follower.listened.refused[-1] == ("the hole is too wide", number)
        follower.now_ms += 100_000
    follower.answer(got(A, records(0, "a")))
    log.log.fails_with = AppendError("CORRUPT_MESSAGE", "the CRC does not match")
    follower.answer(got(A, records(1, "b")))
    assert follower.listened.refused[-1] == ("the CRC does not match", 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(5, "input/output error"), "KAFKA_STORAGE_ERROR"),
        (AppendError("KAFKA_STORAGE_ERROR", "the disk is gone"), "KAFKA_STORAGE_ERROR"),
        (ZeroDivisionError("a defect"), "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_a_failed_disk_or_a_defect_stops_the_partition_and_is_reported(error: Exception, code: str) -> None:
    follower, bad, good = Follower(), FollowerMemory(), FollowerMemory()
    follower.follow((A, bad), (B, good))
    bad.log.fails_with = error
    follower.answer(got(A, records(0, "a")), got(B, records(0, "b")))
    assert follower.listened.failed == [(A, code)]
    assert good.text() == "b"
    assert [asked.key for asked in follower.ask().partitions] == [B]


@pytest.mark.parametrize(
    "passing",
    [NoRoomToAppend("no space left"), AppendPostponed("too many open files")],
    ids=["room", "files"],
)
def test_what_the_node_lacks_for_now_stops_nothing_for_good(passing: AppendError) -> None:
    follower, log = Follower(), FollowerMemory()
    follower.follow((A, log))
    log.log.fails_with = passing
    follower.answer(got(A, records(0, "a")))
    assert follower.listened.failed == []
    assert follower.listened.retried == [(A, "KAFKA_STORAGE_ERROR")]
    follower.now_ms = 100_000
    follower.answer(got(A, records(0, "a")))
    assert log.text() == "a"


def test_a_replica_that_took_another_role_is_left_alone() -> None:
    follower, log = Follower(), FollowerMemory()
    follower.follow((A, log))
    log.log.fails_with = NotLeaderOrFollower("it leads now")
    follower.answer(got(A, records(0, "a")))
    assert follower.state(A).phase is FetchPhase.FAILED
    assert follower.listened.failed == []


def test_fenced_means_waiting_for_metadata() -> None:
    follower, log = Follower(), FollowerMemory()
    follower.follow((A, log), leader_epoch=3)
    follower.answer(FetchedPartition(A, "FENCED_LEADER_EPOCH"))
    assert follower.listened.failed == [(A, "FENCED_LEADER_EPOCH")]
    assert follower.states.build_request(10**9, 0) is None
    follower.follow((A, log), leader_epoch=4)
    assert follower.ask().partitions[0].current_leader_epoch == 4


def test_a_partition_that_the_answer_leaves_out_backs_off() -> None:
    follower = Follower()
    follower.follow((A, FollowerMemory()))
    follower.answer()
    assert follower.listened.retried == [(A, "UNKNOWN_SERVER_ERROR")]


def test_a_diverging_epoch_cuts_and_the_next_fetch_asks_again() -> None:
    follower, log = Follower(), FollowerMemory("a", "b", "c", epoch=1)
    log.high_watermark = 1
    follower.follow((A, log), leader_epoch=2)
    follower.answer(FetchedPartition(A, None, 99, 99, (1, 2)))
    assert (log.text(), log.high_watermark) == ("a b", 1)
    assert follower.listened.truncated == [(A, 3, 2)]
    asked = follower.ask().partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 1)
    assert follower.state(A).phase is FetchPhase.FETCHING


@pytest.mark.parametrize("finds_out", ["in a diverging epoch", "out of range"])
def test_whoever_hears_of_a_cut_learns_what_was_known_before(finds_out: str) -> None:
    follower, log = Follower(), FollowerMemory("a", "b", "c", epoch=1)
    log.high_watermark = 2
    follower.follow((A, log), leader_epoch=1)
    if finds_out == "out of range":
        follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
        follower.replication.apply_offsets(follower.states.offsets_queries(0), {A: LeaderOffsets(0, 0)}, 0)
    else:
        follower.answer(FetchedPartition(A, None, -1, -1, (1, 0)))
    assert (log.high_watermark, log.epochs.latest_epoch) == (0, None)
    assert follower.listened.truncations == [
        LogTruncation(A, from_offset=3, to_offset=0, high_watermark=2, latest_epoch=1)
    ]


@pytest.mark.parametrize(
    ("to_offset", "high_watermark", "known"),
    [(3, 2, 0), (3, 3, 0), (3, 4, 1), (3, 6, 3), (0, 4, 4), (8, 6, 0), (3, 9, 3)],
)
def test_of_what_is_cut_off_all_below_the_high_watermark_was_committed(
    to_offset: int, high_watermark: int, known: int
) -> None:
    assert LogTruncation(A, 6, to_offset, high_watermark, 1).known_committed == known


def test_an_epoch_without_records_is_forgotten_without_a_cut() -> None:
    follower, log = Follower(), FollowerMemory("a", epoch=1)
    log.log.assign_epoch_start(4)
    follower.follow((A, log), leader_epoch=5)
    assert follower.ask().partitions[0].last_fetched_epoch == 4
    follower.answer(FetchedPartition(A, None, -1, -1, (1, 1)))
    assert follower.listened.truncated == []
    assert follower.ask().partitions[0].last_fetched_epoch == 1


def test_a_diverging_epoch_that_leaves_nothing_to_cut_is_not_asked_about_at_once() -> None:
    follower, log = Follower(), FollowerMemory("a", epoch=1)
    follower.follow((A, log), leader_epoch=2)
    follower.answer(FetchedPartition(A, None, -1, -1, (1, 7)))
    assert log.text() == "a"
    assert follower.listened.retried == [(A, "UNKNOWN_SERVER_ERROR")]


def test_out_of_range_asks_for_the_leaders_offsets() -> None:
    follower, log = Follower(), FollowerMemory("a", "b")
    follower.follow((A, log), (B, FollowerMemory()))
    follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"), got(B))
    assert [asked.key for asked in follower.ask().partitions] == [B]
    queries = follower.states.offsets_queries(0)
    assert [query.key for query in queries] == [A]
    follower.replication.apply_offsets(queries, {A: LeaderOffsets(40, 50)}, 0)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert follower.listened.truncated == [(A, 2, 40)]
    assert follower.states.offsets_queries(0) == ()
    assert follower.states.has_hungry


def test_a_leader_epoch_that_has_rotted_in_the_last_batch_does_not_keep_the_replica_behind() -> None:
    """No checksum covers it, and no later batch contradicts it: recovery takes it for an epoch that began there."""
    leader, disk = open_log(memory_disk()), memory_disk()
    before = open_log(disk)
    for number in range(6):
        for log in (leader, before):
            log.append_as_leader(batch_of(b"v%04d" % number), leader_epoch=1 + number // 4)
    last = before.size_bytes - len(batch_of(b"v0000"))
    disk.open(f"{FOLDER}/{0:020d}.log").write_at(last + 13, b"\x01")
    leader.append_as_leader(batch_of(b"later"), leader_epoch=2)

    replica = FollowerMemory(epoch=2)
    replica.log = recovered = open_log(disk)  # type: ignore[assignment]
    assert recovered.epochs.latest_epoch == (1 << 16) + 2
    follower = Follower()
    follower.follow((A, replica), leader_epoch=2)
    for _ in range(4):
        queries = follower.states.offsets_queries(0)
        if queries:
            bounds = LeaderOffsets(leader.log_start_offset, leader.log_end_offset)
            follower.replication.apply_offsets(queries, {A: bounds}, 0)
        asked = follower.ask().partitions[0]
        try:
            diverging = diverging_epoch(leader, asked.fetch_offset, asked.last_fetched_epoch)
        except OffsetOutOfRange:
            follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
            continue
        slices = leader.read(asked.fetch_offset, 1000, up_to_offset=7).slices
        follower.answer(FetchedPartition(A, None, 7, 0, diverging, b"".join(part.read() for part in slices)))
    assert follower.listened.truncated == [(A, 6, 5)]
    assert read_records(recovered) == read_records(leader)
    assert recovered.epochs == leader.epochs


def test_an_epoch_beyond_the_leaders_that_has_no_record_is_forgotten() -> None:
    follower, log = Follower(), FollowerMemory("a", epoch=1)
    log.log.assign_epoch_start(9)
    follower.follow((A, log), leader_epoch=1)
    follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
    follower.replication.apply_offsets(follower.states.offsets_queries(0), {A: LeaderOffsets(0, 1)}, 0)
    assert (log.text(), log.epochs.latest_epoch, follower.listened.truncated) == ("a", 1, [])


class Mended(FollowerMemory):
    """Its file spoke of a later epoch than its batches do."""

    def confirm_epoch_end(self, epoch: int) -> None:
        self.log.epochs.truncate_from_end(1)


def test_epochs_that_prove_not_to_go_beyond_the_leaders_cut_nothing() -> None:
    follower, log = Follower(), Mended("a", "b", epoch=1)
    log.log.epochs.assign(9, 1)
    log.epoch = 4
    follower.follow((A, log), leader_epoch=4)
    follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
    follower.replication.apply_offsets(follower.states.offsets_queries(0), {A: LeaderOffsets(0, 2)}, 0)
    assert (log.text(), follower.listened.truncated, follower.listened.failed) == ("a b", [], [])
    assert log.epochs.latest_epoch == 1


def test_the_leaders_offsets_may_fail_too() -> None:
    follower = Follower()
    follower.follow((A, FollowerMemory("a")), (B, FollowerMemory("a")), (C, FollowerMemory("a")))
    follower.answer(*(FetchedPartition(key, "OFFSET_OUT_OF_RANGE") for key in (A, B, C)))
    queries = follower.states.offsets_queries(0)
    follower.states.remove(C)
    answers = {
        A: LeaderOffsets(error="NOT_LEADER_OR_FOLLOWER"),
        B: LeaderOffsets(error="FENCED_LEADER_EPOCH"),
        C: LeaderOffsets(5, 6),
    }
    follower.replication.apply_offsets(queries, answers, 0)
    assert follower.listened.retried == [(A, "NOT_LEADER_OR_FOLLOWER")]
    assert follower.listened.failed == [(B, "FENCED_LEADER_EPOCH")]
    assert follower.states.offsets_queries(0) == ()
    assert [query.key for query in follower.states.offsets_queries(60)] == [A]


def test_an_answer_that_comes_twice_is_applied_once() -> None:
    follower, log = Follower(), FollowerMemory()
    follower.follow((A, log))
    request = follower.ask()
    for _ in range(2):
        follower.replication.apply_fetch(request, FetchResponse([got(A, records(0, "a"))]), 0)
    assert log.text() == "a"
    assert follower.listened.retried == []


def test_what_was_cut_and_copied_again_is_not_cut_for_the_other_lanes_late_answer() -> None:
    """The leader was told that it is there, and may have committed it."""
    follower, log = Follower(), FollowerMemory("a", epoch=2)
    log.log.append_as_leader(b"lost", leader_epoch=2)
    follower.follow((A, log), leader_epoch=3)
    diverges = FetchResponse([FetchedPartition(A, None, 1, 0, (2, 1))])
    late = follower.states.build_request(0, CATCH_UP_LANE)
    assert late is not None
    follower.replication.apply_fetch(follower.ask(), diverges, 0)
    follower.answer(got(A, records(1, "kept", epoch=3)))
    asked = follower.ask().partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 3), "the leader takes it that this is there"
    follower.replication.apply_fetch(late, diverges, 0)
    assert (log.text(), log.epochs.latest_epoch) == ("a kept", 3)
    assert follower.listened.truncated == [(A, 2, 1)]


def test_a_log_that_corrected_its_epochs_by_itself_is_asked_about_anew() -> None:
    """The session's leader compares the old ones until it is told."""
    follower, log = Follower(), FollowerMemory("a", epoch=1)
    log.log.epochs.assign(2, 0)
    follower.follow((A, log), leader_epoch=4)
    follower.replication.apply_fetch(follower.ask(), FetchResponse([got(A)], session_id=7), 0)
    waiting = follower.ask()
    assert (waiting.session_id, waiting.partitions) == (7, ())
    log.log.epochs.replace([EpochEntry(1, 0)])
    diverges = FetchResponse([FetchedPartition(A, None, 1, 0, (1, 1))], session_id=7)
    follower.replication.apply_fetch(waiting, diverges, 0)
    assert (log.text(), follower.listened.retried) == ("a", [])
    asked = follower.ask().partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (1, 1)


def test_the_bounds_of_a_deleted_topics_log_say_nothing_of_its_successor() -> None:
    """ListOffsets goes by name, and both are led in the same epoch: records between would be lacking for good."""
    follower, old, new = Follower(), FollowerMemory("a"), FollowerMemory()
    follower.states.add(followed(A, old))
    follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
    late = follower.states.offsets_queries(0)
    assert [query.key for query in late] == [A]
    follower.states.remove(A)
    follower.states.add(followed(A, new, topic_id=bytes(15) + b"\x08"))
    follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
    assert follower.state(A).phase is FetchPhase.TRUNCATING
    follower.replication.apply_offsets(late, {A: LeaderOffsets(1000, 2000)}, 0)
    assert (new.log_start_offset, new.log_end_offset) == (0, 0)
    assert follower.state(A).phase is FetchPhase.TRUNCATING, "its own leader is asked"
    own = follower.states.offsets_queries(0)
    follower.replication.apply_offsets(own, {A: LeaderOffsets(50, 5000)}, 0)
    assert (new.log_start_offset, new.log_end_offset) == (50, 50)


def test_bounds_that_were_asked_for_before_a_log_was_replaced_do_not_cut_the_other() -> None:
    """The leader's log has grown since, and the follower has told it of what it copied."""
    follower, damaged = Follower(), FollowerMemory("a")
    follower.follow((A, damaged))
    follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
    late = follower.states.offsets_queries(0)
    copied = FollowerMemory()
    follower.follow((A, copied))  # a log that was opened again, in the same leader epoch
    follower.answer(got(A, records(0, "a", "b", "c")))
    follower.answer(got(A))
    follower.answer(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
    follower.replication.apply_offsets(late, {A: LeaderOffsets(0, 1)}, 0)
    assert copied.text() == "a b c"
