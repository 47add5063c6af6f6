"""Where a follower stands with its partitions: order, back-off, and which answers count."""

from __future__ import annotations

import pytest

from fetcher.fetch_state import FetchPhase, Reset, Step, judge, reset_for_range
from fetcher.fetch_states import FetchStates
from fetcher.leader_endpoint import FetchedPartition
from fetcher.settings import FetcherSettings, backoff_ms
from tests.support.fetch_world import TOPIC_ID, A, B, C, FollowerMemory, followed

SETTINGS = FetcherSettings(backoff_initial_ms=50, backoff_max_ms=1_000)


@pytest.fixture
def states() -> FetchStates:
    return FetchStates(SETTINGS, lambda: 0.5)


def keys(states: FetchStates, now_ms: int = 0) -> list[tuple[str, int]]:
    request = states.build_request(now_ms, 0)
    return [] if request is None else [asked.key for asked in request.partitions]


def test_a_request_says_where_each_log_ends(states: FetchStates) -> None:
    log = FollowerMemory("a,b", epoch=3)
    states.add(followed(A, log, leader_epoch=5))
    states.add(followed(B, FollowerMemory(), leader_epoch=5))
    request = states.build_request(0, lane=0)
    assert request is not None
    first, second = request.partitions
    assert (first.key, first.topic_id, first.current_leader_epoch) == (A, TOPIC_ID, 5)
    assert (first.fetch_offset, first.last_fetched_epoch, first.log_start_offset) == (2, 3, 0)
    assert (second.fetch_offset, second.last_fetched_epoch) == (0, -1)
    assert (request.lane, request.max_wait_ms, request.max_bytes) == (0, 500, 10 * 1024 * 1024)


def test_who_got_records_goes_to_the_end(states: FetchStates) -> None:
    for key in (A, B, C):
        states.add(followed(key, FollowerMemory()))
    state = states.get(A)
    assert state is not None
    states.progressed(state, lag=0, got_records=True)
    assert keys(states) == [B, C, A]
    states.progressed(state, lag=0, got_records=False)
    assert keys(states) == [B, C, A]


def test_a_failing_partition_waits_longer_each_time_and_holds_nobody_up(states: FetchStates) -> None:
    states.add(followed(A, FollowerMemory()))
    states.add(followed(B, FollowerMemory()))
    state = states.get(A)
    assert state is not None
    now_ms, waits = 0, []
    for _ in range(7):
        states.back_off(state, "UNKNOWN_LEADER_EPOCH", now_ms)
        assert keys(states, now_ms) == [B]
        due_ms = states.next_due_ms(FetchPhase.FETCHING)
        assert due_ms is not None
        assert states.next_due_ms(FetchPhase.TRUNCATING) is None
        waits.append(due_ms - now_ms)
        now_ms = due_ms
        assert keys(states, now_ms) == [A, B]
        assert states.next_due_ms(FetchPhase.FETCHING) is None
    assert waits == [50, 100, 200, 400, 800, 1_000, 1_000]
    assert state.failure == "UNKNOWN_LEADER_EPOCH"
    states.progressed(state, lag=0, got_records=False)
    assert (state.failures, state.failure) == (0, None)


def test_back_off_is_bounded_and_spread() -> None:
    assert backoff_ms(SETTINGS, 1, 0.0) == 40
    assert backoff_ms(SETTINGS, 1, 1.0) == 60
    assert backoff_ms(SETTINGS, 10_000_000, 0.5) == 1_000


def test_the_same_epoch_goes_on_and_an_older_one_is_ignored(states: FetchStates) -> None:
    log = FollowerMemory()
    assert states.add(followed(A, log, leader_epoch=3))
    assert not states.add(followed(A, log, leader_epoch=3))
    assert not states.add(followed(A, log, leader_epoch=2))
    assert states.add(followed(A, log, leader_epoch=4))
    assert states.add(followed(A, FollowerMemory(), leader_epoch=4)), "another replica object"
    assert states.add(followed(A, FollowerMemory(), leader_epoch=0, topic_id=bytes(16))), "another topic"


def test_a_failed_partition_is_tried_again_when_it_is_added_again(states: FetchStates) -> None:
    item = followed(A, FollowerMemory())
    states.add(item)
    state = states.get(A)
    assert state is not None
    states.stop(state, "FENCED_LEADER_EPOCH")
    assert keys(states) == []
    assert [failed.key for failed in states.failed()] == [A]
    assert states.add(item)
    assert keys(states) == [A]


def test_hungry_means_ready_and_in_no_request(states: FetchStates) -> None:
    states.add(followed(A, FollowerMemory()))
    assert states.has_hungry
    first = states.build_request(0, 0)
    assert first is not None
    assert not states.has_hungry
    states.add(followed(B, FollowerMemory()))
    assert states.has_hungry
    second = states.build_request(0, 1)
    assert second is not None
    assert [asked.key for asked in second.partitions] == [B], "the long poll asks for the other"
    assert not states.has_hungry
    states.release(second)
    assert states.has_hungry
    states.release(first)
    third = states.build_request(0, 0)
    assert third is not None
    assert [asked.key for asked in third.partitions] == [A, B]
    assert not states.has_hungry
    states.add(followed(C, FollowerMemory()))
    states.remove(C)
    assert not states.has_hungry


@pytest.mark.parametrize(
    ("error", "step"),
    [
        ("OFFSET_OUT_OF_RANGE", Step.ASK_OFFSETS),
        ("FENCED_LEADER_EPOCH", Step.STOP),
        ("UNKNOWN_LEADER_EPOCH", Step.BACK_OFF),
        ("NOT_LEADER_OR_FOLLOWER", Step.BACK_OFF),
        ("UNKNOWN_TOPIC_ID", Step.BACK_OFF),
        ("INCONSISTENT_TOPIC_ID", Step.BACK_OFF),
        ("KAFKA_STORAGE_ERROR", Step.BACK_OFF),
        ("SOMETHING_NEW", Step.BACK_OFF),
        (None, Step.APPEND),
    ],
)
def test_what_an_answer_asks_for(states: FetchStates, error: str | None, step: Step) -> None:
    states.add(followed(A, FollowerMemory()))
    request = states.build_request(0, 0)
    assert request is not None
    assert judge(states.get(A), request.partitions[0], FetchedPartition(A, error)) is step


def test_an_answer_counts_only_for_what_was_asked(states: FetchStates) -> None:
    log = FollowerMemory()
    item = followed(A, log)
    states.add(item)
    request = states.build_request(0, 0)
    assert request is not None
    asked, answer = request.partitions[0], FetchedPartition(A)
    assert judge(states.get(A), asked, FetchedPartition(A, diverging_epoch=(0, 0))) is Step.TRUNCATE
    log.log.append_as_leader(b"x", leader_epoch=0)
    assert judge(states.get(A), asked, answer) is Step.IGNORE, "the log has moved on"
    log.log.truncate_to(0)
    assert judge(states.get(A), asked, answer) is Step.APPEND
    states.remove(A)
    assert judge(states.get(A), asked, answer) is Step.IGNORE, "removed"
    states.add(item)
    assert judge(states.get(A), asked, answer) is Step.IGNORE, "removed and added again"


def test_an_answer_says_nothing_of_a_log_that_came_to_end_there_another_way(states: FetchStates) -> None:
    """It was cut, and copied up to the same offset from the leader: that is not cut again."""
    log = FollowerMemory("a", epoch=1)
    log.log.append_as_leader(b"lost", leader_epoch=2)
    states.add(followed(A, log, leader_epoch=3))
    request = states.build_request(0, 0)
    assert request is not None
    asked, answer = request.partitions[0], FetchedPartition(A, diverging_epoch=(1, 1))
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 2)
    assert judge(states.get(A), asked, answer) is Step.TRUNCATE
    log.log.truncate_to(1)
    log.log.append_as_leader(b"kept", leader_epoch=3)
    assert log.log_end_offset == asked.fetch_offset
    assert judge(states.get(A), asked, answer) is Step.IGNORE


@pytest.mark.parametrize(
    ("own", "leader", "reset"),
    [
        ((0, 10), (20, 30), Reset(restart_at=20)),  # deleted at the leader while we were away
        ((0, 10), (0, 5), Reset(truncate_to=5)),  # the leader is shorter: an unclean election
        ((8, 10), (0, 5), Reset(restart_at=0)),  # ... and ends below where we begin
        ((0, 10), (0, 10), Reset()),  # came into range meanwhile
        ((0, 10), (10, 10), Reset()),
        ((0, 10), (5, 50), Reset()),
    ],
)
def test_back_into_the_leaders_range(own: tuple[int, int], leader: tuple[int, int], reset: Reset) -> None:
    assert reset == reset_for_range(
        log_start_offset=own[0], log_end_offset=own[1],
        leader_start_offset=leader[0], leader_end_offset=leader[1],
    )  # fmt: skip
