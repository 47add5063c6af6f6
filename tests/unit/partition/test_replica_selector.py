"""Who a consumer is sent to (KIP-392), as pure decisions."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from partitions.leadership import Leadership
from partitions.replica_selector import (
    LEADER_SELECTOR,
    RACK_AWARE_SELECTOR,
    SELECTORS,
    ReplicaView,
    preferred_read_replica,
    select_by_rack,
    select_leader,
)
from tests.support.replica_world import LeaderState

LEADER = ReplicaView(1, "a", 100, 0)
NEAR, AHEAD, RECENT, ELSEWHERE = (
    ReplicaView(2, "b", 90, 50),
    ReplicaView(3, "b", 95, 70),
    ReplicaView(4, "b", 95, 10),
    ReplicaView(5, "c", 100, 0),
)


def test_kafkas_class_names() -> None:
    assert {LEADER_SELECTOR: select_leader, RACK_AWARE_SELECTOR: select_by_rack} == SELECTORS


@pytest.mark.parametrize(
    ("rack", "followers", "chosen"),
    [
        ("a", [NEAR._replace(rack="a", log_end_offset=200)], LEADER),  # the leader is in the rack itself
        ("b", [NEAR, ELSEWHERE], NEAR),
        ("b", [NEAR, AHEAD, ELSEWHERE], AHEAD),  # more log counts before anything else
        ("b", [NEAR, AHEAD, RECENT], RECENT),  # then who was caught up last
        ("b", [RECENT, RECENT._replace(broker_id=7)], RECENT._replace(broker_id=7)),  # then the larger id
        ("z", [NEAR, ELSEWHERE], LEADER),
        ("", [NEAR._replace(rack="")], LEADER),
        ("b", [], LEADER),
    ],
)
def test_by_rack(rack: str, followers: list[ReplicaView], chosen: ReplicaView) -> None:
    assert select_by_rack(rack, LEADER, followers) == chosen
    assert select_by_rack(rack, LEADER, reversed(followers)) == chosen


def test_the_leaders_selector_names_nobody_else() -> None:
    assert select_leader("b", LEADER, [NEAR]) == LEADER


class _Brokers:
    def registered_epoch(self, broker_id: int) -> int | None:
        return broker_id

    def may_join_isr(self, broker_id: int) -> bool:
        return True


class Followed(NamedTuple):
    start: int
    end: int


def preferred(
    fetch_offset: int, followers: dict[int, Followed], *, isr: tuple[int, ...], rack: str = "b"
) -> int:
    state = LeaderState(1, 0, 0, (1, *followers), isr)
    leading = Leadership(
        local_id=1, state=state, start_offset=0, eligibility=_Brokers(), max_lag_ms=10, now_ms=0
    )
    for broker_id, (start, end) in followers.items():
        follower = leading.follower(broker_id)
        assert follower is not None
        follower.record_fetch(
            broker_epoch=broker_id, fetch_offset=end, log_start_offset=start, leader_end_offset=100, now_ms=0
        )
    return preferred_read_replica(
        select_by_rack,
        leading,
        {1: "a", 2: "b", 3: "b"}.get,
        leader_id=1,
        leader_end_offset=100,
        rack=rack,
        fetch_offset=fetch_offset,
        now_ms=5,
    )


@pytest.mark.parametrize(("fetch_offset", "expected"), [(9, -1), (10, 2), (50, 2), (51, -1)])
def test_only_a_log_that_holds_the_offset(fetch_offset: int, expected: int) -> None:
    assert preferred(fetch_offset, {2: Followed(10, 50)}, isr=(1, 2)) == expected


def test_only_from_the_isr() -> None:
    followers = {2: Followed(0, 100), 3: Followed(0, 60)}
    assert preferred(5, followers, isr=(1, 2, 3)) == 2
    assert preferred(5, followers, isr=(1, 3)) == 3
    assert preferred(5, followers, isr=(1,)) == -1


def test_a_follower_that_has_not_fetched_yet_is_not_named() -> None:
    state = LeaderState(1, 0, 0, (1, 2), (1, 2))
    leading = Leadership(
        local_id=1, state=state, start_offset=0, eligibility=_Brokers(), max_lag_ms=10, now_ms=0
    )
    assert (
        preferred_read_replica(
            select_by_rack,
            leading,
            {1: "a", 2: "b"}.get,
            leader_id=1,
            leader_end_offset=0,
            rack="b",
            fetch_offset=0,
            now_ms=0,
        )
        == -1
    )


def test_a_broker_that_nobody_reaches_has_no_rack() -> None:
    assert preferred(5, {7: Followed(0, 100)}, isr=(1, 7)) == -1
