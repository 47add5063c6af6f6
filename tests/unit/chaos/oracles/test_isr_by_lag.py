"""Who lags: the judge of replica.lag.time.max.ms fires both ways, and not on the story next to it."""

from __future__ import annotations

import pytest

from kraft.chaos.oracles.isr_by_lag import ISR_BY_LAG, IsrByLag, LeaderEpoch, SessionFetch
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.simulation import Simulation

LEADER, FOLLOWER, OTHER = 1, 2, 3
KEY = (bytes(16), 0)
LAG_MS = 1_000
BROKER_EPOCH = 7


@pytest.fixture
def verdicts() -> Verdicts:
    return Verdicts(Simulation(1, trace=False).scheduler)


@pytest.fixture
def judge(verdicts: Verdicts) -> IsrByLag:
    """Node 1 leads epoch 4 from 0 ms on, with nodes 2 and 3 in the ISR."""
    judge = IsrByLag(verdicts, lambda key: "orders-0")
    judge.leads(LEADER, KEY, 4, (LEADER, FOLLOWER, OTHER), LAG_MS, 0)
    return judge


@pytest.fixture
def led(judge: IsrByLag) -> LeaderEpoch:
    led = judge.epoch(LEADER, KEY, 4)
    assert led is not None
    judge.assigned(led, (FOLLOWER, OTHER))
    return led


def oracles(verdicts: Verdicts) -> list[str]:
    return [violation.oracle for violation in verdicts.violations]


def test_an_epoch_whose_beginning_was_not_seen_is_not_judged(judge: IsrByLag) -> None:
    assert judge.epoch(LEADER, KEY, 5) is None
    assert judge.epoch(FOLLOWER, KEY, 4) is None


@pytest.mark.parametrize(("now_ms", "fired"), [(LAG_MS, [ISR_BY_LAG]), (LAG_MS + 1, [])])
def test_a_member_has_all_of_the_time_to_fetch_first(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts, now_ms: int, fired: list[str]
) -> None:
    judge.dropped(led, (FOLLOWER,), 5, now_ms)
    assert oracles(verdicts) == fired


def test_who_stands_at_the_end_is_not_dropped(judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts) -> None:
    judge.fetched(led, FOLLOWER, 5, 5, 100, BROKER_EPOCH)
    judge.dropped(led, (FOLLOWER,), 5, 100_000)
    assert oracles(verdicts) == [ISR_BY_LAG]


@pytest.mark.parametrize(("now_ms", "fired"), [(1_600, [ISR_BY_LAG]), (1_601, [])])
def test_who_reads_up_to_the_end_of_its_fetch_before_was_there_then(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts, now_ms: int, fired: list[str]
) -> None:
    judge.fetched(led, FOLLOWER, 3, 7, 600, BROKER_EPOCH)
    judge.fetched(led, FOLLOWER, 7, 9, 700, BROKER_EPOCH)
    judge.dropped(led, (FOLLOWER,), 12, now_ms)
    assert oracles(verdicts) == fired


@pytest.mark.parametrize(
    ("asked", "fired"),
    [
        (SessionFetch(5, 9_500), [ISR_BY_LAG]),
        (SessionFetch(5, 8_900), []),
        (SessionFetch(4, 9_500), []),
        (SessionFetch(5, -1), []),
    ],
    ids=["just now", "long ago", "behind", "never"],
)
def test_requests_of_a_session_count_until_the_end_moves(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts, asked: SessionFetch, fired: list[str]
) -> None:
    judge.fetched(led, FOLLOWER, 5, 5, 100, BROKER_EPOCH)
    judge.end_moves(led, FOLLOWER, 5, asked)
    judge.dropped(led, (FOLLOWER,), 6, 10_000)
    assert oracles(verdicts) == fired


def test_a_replica_that_is_assigned_again_is_a_new_one(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts
) -> None:
    judge.assigned(led, (OTHER,))
    judge.assigned(led, (FOLLOWER, OTHER))
    judge.dropped(led, (FOLLOWER,), 5, 10)
    assert oracles(verdicts) == []


def appends(judge: IsrByLag, led: LeaderEpoch, *times_ms: int) -> None:
    for number, now_ms in enumerate(times_ms, start=10):
        judge.appended(led, (FOLLOWER,), number, now_ms)


def test_who_lags_is_dropped_while_its_leader_works(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts
) -> None:
    judge.fetched(led, FOLLOWER, 9, 9, 0, BROKER_EPOCH)
    appends(judge, led, *range(100, 2_001, 100))
    assert oracles(verdicts) == []
    appends(judge, led, 2_100)
    assert oracles(verdicts) == [ISR_BY_LAG]


def test_a_leader_that_stood_still_could_drop_nobody(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts
) -> None:
    judge.fetched(led, FOLLOWER, 9, 9, 0, BROKER_EPOCH)
    appends(judge, led, 100, 60_000, 60_100, 120_000)
    assert oracles(verdicts) == []


def test_nor_could_one_that_waits_for_the_controller(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts
) -> None:
    judge.fetched(led, FOLLOWER, 9, 9, 0, BROKER_EPOCH)
    for start_ms in range(100, 10_000, 1_000):
        appends(judge, led, *range(start_ms, start_ms + 900, 100))
        judge.cannot_drop(led, start_ms + 950)
    assert oracles(verdicts) == []


def test_who_catches_up_begins_anew(judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts) -> None:
    judge.fetched(led, FOLLOWER, 9, 9, 0, BROKER_EPOCH)
    for start_ms in range(100, 10_000, 1_500):
        appends(judge, led, *range(start_ms, start_ms + 1_500, 100))
        judge.fetched(led, FOLLOWER, 50, 50, start_ms + 1_450, BROKER_EPOCH)
    assert oracles(verdicts) == []


def test_who_is_late_now_and_then_may_stay(judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts) -> None:
    """Each append finds it late, and before the next one it was there in time."""
    for end in range(10, 40):
        now_ms = 600 * (end - 9)
        judge.appended(led, (FOLLOWER,), end, now_ms - 10)
        judge.fetched(led, FOLLOWER, end - 1, end, now_ms, BROKER_EPOCH)
    assert led.standings[FOLLOWER].caught_up_ms == now_ms - 600
    assert oracles(verdicts) == []


def test_who_never_was_there_is_nobody_to_drop(judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts) -> None:
    judge.assigned(led, (OTHER,))
    judge.fetched(led, FOLLOWER, 2, 9, 0, BROKER_EPOCH)
    appends(judge, led, *range(100, 10_000, 100))
    judge.dropped(led, (FOLLOWER,), 5, 10_000)
    assert oracles(verdicts) == []


@pytest.mark.parametrize(("now_ms", "fired"), [(6_000, [ISR_BY_LAG]), (6_001, [])])
def test_who_joins_has_all_of_the_time_to_catch_up(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts, now_ms: int, fired: list[str]
) -> None:
    judge.fetched(led, OTHER, 5, 9, 4_900, BROKER_EPOCH)
    judge.joined(led, (OTHER,), 5_000)
    judge.dropped(led, (OTHER,), 9, now_ms)
    assert oracles(verdicts) == fired


def test_nor_has_it_more(judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts) -> None:
    judge.fetched(led, OTHER, 5, 9, 4_900, BROKER_EPOCH)
    judge.joined(led, (OTHER,), 5_000)
    for now_ms in range(5_100, 7_001, 100):
        judge.appended(led, (OTHER,), now_ms, now_ms)
    assert oracles(verdicts) == []
    judge.appended(led, (OTHER,), 7_100, 7_100)
    assert oracles(verdicts) == [ISR_BY_LAG]


def test_who_was_dropped_in_time_does_not_go_on_being_late(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts
) -> None:
    """A replica that joins by what is committed alone, is dropped as it does not catch up, and joins again."""
    judge.fetched(led, FOLLOWER, 9, 9, 0, BROKER_EPOCH)
    for start_ms in range(1_100, 10_000, 1_000):
        appends(judge, led, *range(start_ms, start_ms + 900, 100))
        judge.dropped(led, (FOLLOWER,), 20, start_ms + 950)
    assert oracles(verdicts) == []


@pytest.mark.parametrize("way", ["left", "registered anew", "neither"])
def test_who_left_or_registered_anew_has_proved_nothing(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts, way: str
) -> None:
    judge.fetched(led, FOLLOWER, 5, 5, 100, BROKER_EPOCH)
    if way == "left":
        judge.left(led, (FOLLOWER,))
    again = BROKER_EPOCH + (way == "registered anew")
    judge.fetched(led, FOLLOWER, 5, 9, 200, again)
    judge.dropped(led, (FOLLOWER,), 9, 300)
    assert oracles(verdicts) == ([ISR_BY_LAG] if way == "neither" else [])


@pytest.mark.parametrize(
    ("offset", "fired"), [(5, [ISR_BY_LAG]), (6, []), (4, [])], ids=["where it was", "farther", "cut back"]
)
def test_who_was_dropped_has_to_move_before_it_joins_again(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts, offset: int, fired: list[str]
) -> None:
    judge.fetched(led, FOLLOWER, 5, 8, 100, BROKER_EPOCH)
    judge.dropped(led, (FOLLOWER,), 8, 5_000)
    judge.left(led, (FOLLOWER,))
    judge.fetched(led, FOLLOWER, offset, 8, 6_000, BROKER_EPOCH)
    judge.joined(led, (FOLLOWER,), 6_100)
    assert oracles(verdicts) == fired


def test_an_old_fetch_that_arrives_late_takes_no_progress_back(
    judge: IsrByLag, led: LeaderEpoch, verdicts: Verdicts
) -> None:
    judge.fetched(led, FOLLOWER, 5, 8, 100, BROKER_EPOCH)
    judge.dropped(led, (FOLLOWER,), 8, 5_000)
    for offset in (8, 5):
        judge.fetched(led, FOLLOWER, offset, 8, 6_000, BROKER_EPOCH)
    judge.joined(led, (FOLLOWER,), 6_100)
    assert oracles(verdicts) == []
