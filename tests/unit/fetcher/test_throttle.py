"""What a throttle holds back is left out of requests for a while, and is asked for again (KIP-73)."""

from __future__ import annotations

from fetcher.fetch_state import FetchPhase
from fetcher.fetch_states import CATCH_UP_LANE, SESSION_LANE, FetchStates
from fetcher.leader_endpoint import FetchResponse, PartitionKey
from fetcher.replication import Replication
from fetcher.settings import FetcherSettings
from fetcher.throttle import THROTTLE_PAUSE_MS
from tests.support.fetch_world import A, B, C, FollowerMemory, Listened, followed, got, records


class Limit:
    """Holds back what a test says; takes notes of what came."""

    def __init__(self) -> None:
        self.held: set[PartitionKey] = set()
        self.came: list[tuple[PartitionKey, int]] = []

    def holds_back(self, key: PartitionKey, *, in_sync: bool, now_ms: int) -> bool:
        return key in self.held and not in_sync

    def copied(self, key: PartitionKey, size_bytes: int, now_ms: int) -> None:
        self.came.append((key, size_bytes))


class Follower:
    """Follows A, B and C."""

    def __init__(self) -> None:
        self.limit = Limit()
        self.states = FetchStates(FetcherSettings(), lambda: 0.5, self.limit)
        self.replication = Replication(self.states, Listened())
        for key in (A, B, C):
            self.states.add(followed(key, FollowerMemory()))

    def asked(self, now_ms: int, lane: int = SESSION_LANE) -> list[PartitionKey]:
        request = self.states.build_request(now_ms, lane)
        return [] if request is None else [asked.key for asked in request.partitions]


def test_what_is_held_back_is_left_out_and_asked_for_after_a_pause() -> None:
    follower = Follower()
    follower.limit.held = {B}
    assert follower.asked(0) == [A, C]
    assert follower.states.next_due_ms(FetchPhase.FETCHING) == THROTTLE_PAUSE_MS
    follower.limit.held = set()
    assert B not in follower.asked(THROTTLE_PAUSE_MS - 1)
    assert B in follower.asked(THROTTLE_PAUSE_MS)


def test_a_partition_in_sync_is_not_held_back() -> None:
    follower = Follower()
    request = follower.states.build_request(0, SESSION_LANE)
    assert request is not None
    follower.replication.apply_fetch(request, FetchResponse([got(A), got(B), got(C)], session_id=7), 0)
    follower.limit.held = {A, B, C}
    state = follower.states.get(A)
    assert state is not None
    assert state.lag == 0
    assert state.is_ready
    again = follower.states.build_request(10, SESSION_LANE)
    assert again is not None
    assert again.forgotten == ()


def test_one_that_is_behind_is_held_back_on_its_way_to_catch_up() -> None:
    follower = Follower()
    request = follower.states.build_request(0, SESSION_LANE)
    assert request is not None
    answer = got(A, records(0, "a"), high_watermark=90)
    follower.replication.apply_fetch(request, FetchResponse([answer, got(B), got(C)], session_id=7), 0)
    assert (A, len(records(0, "a"))) in follower.limit.came
    follower.limit.held = {A}
    assert A not in follower.asked(10, CATCH_UP_LANE)
    follower.limit.held = set()
    assert A in follower.asked(10 + THROTTLE_PAUSE_MS, CATCH_UP_LANE)


def test_with_everything_held_back_nothing_is_asked() -> None:
    follower = Follower()
    follower.limit.held = {A, B, C}
    assert follower.asked(0) == []
    assert follower.asked(1, CATCH_UP_LANE) == []
