"""The follower's half of a fetch session: what each request names, and what puts an end to it."""

from __future__ import annotations

import pytest

from fetcher.fetch_session import EPOCH_MAX, SESSION_ERRORS, FetchSession
from fetcher.fetch_state import FetchState
from fetcher.fetch_states import CATCH_UP_LANE, CATCH_UP_WAIT_MAX_MS, SESSION_LANE, FetchStates
from fetcher.leader_endpoint import FetchedPartition, FetchRequest, FetchResponse, PartitionKey
from fetcher.replication import Replication
from fetcher.settings import FetcherSettings
from tests.support.fetch_world import A, B, C, FollowerMemory, Listened, followed, got, records

ID = 77


class Follower:
    """A follower of A, B and C, whose leader keeps a session."""

    def __init__(self) -> None:
        self.states = FetchStates(FetcherSettings(), lambda: 0.5)
        self.replication = Replication(self.states, Listened())
        self.logs = {key: FollowerMemory() for key in (A, B, C)}
        self.now_ms = 0
        for key, log in self.logs.items():
            self.states.add(followed(key, log))

    def ask(self, lane: int = SESSION_LANE) -> FetchRequest:
        request = self.states.build_request(self.now_ms, lane)
        assert request is not None
        return request

    def answer(self, request: FetchRequest, *answers: FetchedPartition, session_id: int = ID) -> None:
        if request.is_full:
            named = {answer.key for answer in answers}
            answers += tuple(got(asked.key) for asked in request.partitions if asked.key not in named)
        response = FetchResponse(answers, session_id=0 if request.lane else session_id)
        self.replication.apply_fetch(request, response, self.now_ms)

    def exchange(self, *answers: FetchedPartition) -> FetchRequest:
        request = self.ask()
        self.answer(request, *answers)
        return request

    def state(self, key: PartitionKey) -> FetchState:
        state = self.states.get(key)
        assert state is not None
        return state


@pytest.fixture
def follower() -> Follower:
    made = Follower()
    first = made.exchange()
    assert (named(first), session(first)) == ([A, B, C], (0, 0))
    return made


def named(request: FetchRequest) -> list[PartitionKey]:
    return [asked.key for asked in request.partitions]


def session(request: FetchRequest) -> tuple[int, int]:
    return request.session_id, request.session_epoch


def test_what_stands_still_is_not_named(follower: Follower) -> None:
    for epoch in (1, 2, 3):
        request = follower.exchange()
        assert (named(request), request.forgotten, session(request)) == ([], (), (ID, epoch))
    assert not follower.states.has_hungry


def test_what_moved_is_named_with_where_it_is(follower: Follower) -> None:
    follower.exchange(got(B, records(0, "x"), high_watermark=1))
    (asked,) = follower.exchange().partitions
    assert (asked.key, asked.fetch_offset) == (B, 1)
    assert named(follower.exchange(got(B, high_watermark=1))) == []
    assert follower.logs[B].high_watermark == 1
    assert named(follower.exchange()) == [], "a high watermark is nothing that the leader does not know"


def test_where_a_log_starts_is_told(follower: Follower) -> None:
    follower.exchange(got(A, records(0, "x", "y")))
    follower.exchange()
    follower.logs[A].log.raise_log_start_offset(1)
    follower.states.touch(A)
    (asked,) = follower.exchange().partitions
    assert (asked.key, asked.log_start_offset) == (A, 1)


def test_what_comes_and_goes(follower: Follower) -> None:
    follower.states.remove(A)
    assert follower.exchange().forgotten == ((A, follower.state(B).followed.topic_id),)
    follower.states.add(followed(A, follower.logs[A]))
    assert named(follower.exchange()) == [A]


def test_a_topic_that_is_another_takes_the_place_of_the_old_one(follower: Follower) -> None:
    old_id = follower.state(A).followed.topic_id
    follower.states.add(followed(A, FollowerMemory(), topic_id=bytes(16)))
    request = follower.exchange()
    assert [(asked.key, asked.topic_id) for asked in request.partitions] == [(A, bytes(16))]
    assert request.forgotten == ((A, old_id),)


def test_a_new_epoch_is_told(follower: Follower) -> None:
    follower.states.add(followed(A, follower.logs[A], leader_epoch=4))
    (asked,) = follower.exchange().partitions
    assert (asked.key, asked.current_leader_epoch) == (A, 4)


def test_a_failing_partition_leaves_the_session_while_it_waits(follower: Follower) -> None:
    follower.exchange(FetchedPartition(A, "UNKNOWN_LEADER_EPOCH"))
    assert [key for key, _ in follower.exchange().forgotten] == [A]
    assert follower.exchange().forgotten == ()
    follower.now_ms += 1_000
    assert named(follower.exchange()) == [A]


def test_a_truncated_log_is_asked_about_anew(follower: Follower) -> None:
    follower.exchange(got(A, records(0, "x")))
    follower.exchange(got(A, records(1, "y")))
    follower.exchange()
    follower.exchange(FetchedPartition(A, None, -1, -1, (0, 1)))
    (asked,) = follower.exchange().partitions
    assert (asked.key, asked.fetch_offset) == (A, 1)


@pytest.mark.parametrize("error", sorted(SESSION_ERRORS))
def test_a_session_that_is_refused_begins_anew(follower: Follower, error: str) -> None:
    follower.exchange(got(B, records(0, "x")))
    follower.states.release(follower.ask(), error)
    request = follower.exchange()
    kept = 0 if error == "FETCH_SESSION_ID_NOT_FOUND" else ID
    assert (named(request), session(request)) == ([A, C, B], (kept, 0))
    assert {asked.key: asked.fetch_offset for asked in request.partitions}[B] == 1
    assert session(follower.exchange()) == (ID, 1)


def test_a_lost_answer_ends_the_session(follower: Follower) -> None:
    follower.states.release(follower.ask())
    assert session(follower.exchange()) == (ID, 0)
    follower.ask()
    assert session(follower.exchange()) == (ID, 0), "nobody waited for the answer before"


def test_a_leader_that_keeps_no_session_is_named_everything() -> None:
    follower = Follower()
    for _ in range(3):
        request = follower.ask()
        assert (named(request), session(request)) == ([A, B, C], (0, 0))
        follower.answer(request, session_id=0)


def test_a_leader_that_closes_the_session_is_named_everything(follower: Follower) -> None:
    follower.answer(follower.ask(), session_id=0)
    request = follower.exchange()
    assert (named(request), session(request)) == ([A, B, C], (0, 0))


@pytest.mark.parametrize("answer", [(got(("nobody's", 0)), ID), (got(A), ID + 1)])
def test_an_answer_that_is_not_the_sessions_ends_it(
    follower: Follower, answer: tuple[FetchedPartition, int]
) -> None:
    follower.answer(follower.ask(), answer[0], session_id=answer[1])
    assert session(follower.exchange()) == (ID, 0)


def test_an_answer_to_a_request_before_says_nothing_of_the_session(follower: Follower) -> None:
    late = follower.ask()
    request = follower.ask()
    follower.answer(late, got(A, records(0, "late")))
    follower.answer(request)
    assert session(follower.exchange()) == (ID, 1)


def test_epochs_wrap() -> None:
    kept = FetchSession()
    kept.id, kept.epoch = ID, EPOCH_MAX
    kept.send(1, [])
    kept.answered(ID)
    assert kept.epoch == 1


def test_with_nothing_to_ask_for_nothing_is_sent(follower: Follower) -> None:
    for key in (A, B, C):
        follower.states.remove(key)
    assert follower.states.build_request(0, SESSION_LANE) is None
    follower.states.add(followed(A, follower.logs[A]))
    request = follower.ask()
    assert (named(request), sorted(key for key, _ in request.forgotten)) == ([A], [B, C])


def test_who_is_behind_the_high_watermark_goes_by_the_other_lane(follower: Follower) -> None:
    follower.exchange(got(A, records(0, "x"), high_watermark=9), got(B, records(0, "x"), high_watermark=1))
    request = follower.ask()
    assert (named(request), [key for key, _ in request.forgotten]) == ([B], [A])
    behind = follower.ask(CATCH_UP_LANE)
    assert (named(behind), behind.session_epoch, behind.max_wait_ms) == ([A], -1, CATCH_UP_WAIT_MAX_MS)

    # It stays there until it has caught up; then the session takes it, and until that can, the lane goes on.
    follower.answer(behind, got(A, records(1, "y"), high_watermark=9))
    behind = follower.ask(CATCH_UP_LANE)
    assert [asked.fetch_offset for asked in behind.partitions] == [2]
    follower.answer(behind, got(A, records(2, *"abcdefg"), high_watermark=9))
    assert follower.states.has_hungry
    behind = follower.ask(CATCH_UP_LANE)
    follower.answer(request)
    assert named(follower.ask()) == [A]
    assert not follower.states.wants_catch_up
    follower.answer(behind)
    assert not follower.states.wants_catch_up, "the long poll asks for it"


def test_those_that_are_behind_take_turns(follower: Follower) -> None:
    for key in (A, B):
        follower.exchange(got(key, records(0, "x"), high_watermark=9))
    first = follower.ask(CATCH_UP_LANE)
    assert named(first) == [A, B]
    follower.answer(first, got(A, records(1, "y"), high_watermark=9), got(B, high_watermark=9))
    assert named(follower.ask(CATCH_UP_LANE)) == [B, A]
