"""What rings remember: rates by the second and the minute, lags by the minute, disks that fill."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraft.broker.coordinators.group_history import GROUPS_MAX, STILL_MS, GroupHistory
from kraft.broker.views.disks import DAY_MS, DiskHistory
from kraft.broker.views.history import POINTS, RATES, RateHistory, summed_history, summed_rates
from kraft.coordinator.groups.lag import Row, ShardLags
from quorum.steps import finished

MINUTE_MS = 60_000


def counted(n: int) -> tuple[int, ...]:
    """Counters that grow by 1, 2, 3, …"""
    return tuple(n * step for step in range(1, len(RATES) + 1))


def test_rates_are_differences_by_the_time_between_samples() -> None:
    history = RateHistory()
    assert history.rates() == dict.fromkeys(RATES)
    history.sample(10.0, 1_000, counted(0))
    assert history.rates() == dict.fromkeys(RATES), "one sample is no rate"
    history.sample(12.0, 3_000, counted(10))
    assert history.rates() == {name: 5.0 * step for step, name in enumerate(RATES, 1)}


def test_a_minute_by_the_second_and_an_hour_by_the_minute_are_kept_and_no_more() -> None:
    history = RateHistory()
    for second in range(2 * 3600):
        history.sample(float(second), second * 1000, counted(second * second))
    document = history.document()
    seconds, minutes = document["seconds"], document["minutes"]
    assert (seconds["step_ms"], minutes["step_ms"]) == (1_000, MINUTE_MS)
    assert seconds["end_at_ms"] == 7_199_000
    last = seconds["series"]["bytes_in_per_s"]
    assert len(last) == POINTS
    assert last[-1] == 7199**2 - 7198**2
    hour = minutes["series"]["bytes_in_per_s"]
    assert len(hour) == POINTS
    assert None not in hour
    assert hour[-1] - hour[-2] == pytest.approx(2 * 60)


def test_what_was_not_sampled_is_not_known() -> None:
    history = RateHistory()
    history.sample(0.0, 0, counted(0))
    history.sample(1.0, 1000, counted(7))
    series = history.document()["seconds"]["series"]["bytes_in_per_s"]
    assert series == [None] * (POINTS - 1) + [7.0]
    assert history.document()["minutes"]["series"]["bytes_in_per_s"] == [None] * POINTS


def test_a_timer_that_is_early_by_a_part_of_a_millisecond_makes_a_sample_all_the_same() -> None:
    history = RateHistory()
    history.sample(0.0, 0, counted(0))
    history.sample(0.9995, 999, counted(1))
    assert history.rates()["bytes_in_per_s"] == pytest.approx(1.0, rel=0.01)


def test_sums_over_brokers_leave_out_who_does_not_know() -> None:
    one, other, new = RateHistory(), RateHistory(), RateHistory()
    for at in range(3):
        one.sample(float(at), at * 1000, counted(at))
        other.sample(float(at), at * 1000, counted(10 * at))
    assert summed_rates([one.rates(), other.rates(), new.rates()])["bytes_in_per_s"] == 11.0
    assert summed_rates([new.rates()])["bytes_in_per_s"] is None
    history = summed_history([one.document(), other.document(), new.document()])
    assert history["seconds"]["series"]["bytes_in_per_s"][-3:] == [None, 11.0, 11.0]
    assert history["seconds"]["end_at_ms"] == 2000
    assert summed_history([])["minutes"]["series"]["requests_per_s"] == [None] * POINTS


# Groups


def row(group_id: str, offset: int, lag: int | None, lag_s: float | None = None) -> Row:
    end = None if lag is None else offset + lag
    return (group_id, "t", 0, offset, end, lag, lag_s)


def shard(*rows: Row) -> ShardLags:
    groups: dict[str, Sequence[Row]] = {}
    for one in rows:
        groups[one[0]] = (*groups.get(one[0], ()), one)
    return ShardLags({}, len(rows), {group_id: tuple(of) for group_id, of in groups.items()})


def test_a_group_that_lags_and_commits_nothing_stands_still_after_a_while() -> None:
    history = GroupHistory()
    finished(history.take([shard(row("g", 5, 10))], 1_000))
    assert not history.standing_still(1_000 + STILL_MS - 1)
    assert history.standing_still(1_000 + STILL_MS) == {"g": (10, 1_000)}
    finished(history.take([shard(row("g", 5, 30))], 50_000))
    assert history.standing_still(70_000) == {"g": (30, 1_000)}
    assert history.stands_still_since_ms("g", 70_000) == 1_000
    finished(history.take([shard(row("g", 6, 29))], 70_000))
    assert not history.standing_still(71_000), "it goes on"


def test_a_group_that_has_read_all_does_not_stand_still() -> None:
    history = GroupHistory()
    for at in range(5):
        finished(history.take([shard(row("g", 5, 0)), shard(row("u", 5, None))], at * MINUTE_MS))
    assert not history.standing_still(10 * MINUTE_MS)
    finished(history.take([shard(row("g", 5, 3))], 5 * MINUTE_MS))
    assert not history.standing_still(5 * MINUTE_MS + 1), "the time counts from the last moment without lag"


def test_lags_by_the_minute() -> None:
    history = GroupHistory()
    finished(history.take([shard(row("g", 5, 10, 1.5))], 3 * MINUTE_MS))
    finished(history.take([shard(row("g", 5, 11, 2.5))], 3 * MINUTE_MS + 1))
    finished(history.take([shard(row("g", 5, 20, 4.5), row("g", 7, 1, 9.0))], 5 * MINUTE_MS))
    lags, ages = history.lags("g", 6 * MINUTE_MS)
    assert (len(lags), len(ages)) == (60, 60)
    assert lags[-5:] == [None, 11, None, 21, None]
    assert ages[-5:] == [None, 2.5, None, 9.0, None]
    assert history.lags("nobody", 0) == ([None] * 60, [None] * 60)


def test_what_a_round_does_not_have_is_forgotten_and_the_rest_is_bounded() -> None:
    history = GroupHistory()
    finished(history.take([shard(row("gone", 5, 10))], 0))
    many = [row(f"g{number}", 5, number) for number in range(GROUPS_MAX + 1)]
    finished(history.take([shard(*many)], 1))
    assert history.of_group("gone") is None
    assert history.of_group("g0") is None, "it lags least"
    assert history.of_group("g1") is not None


def test_a_round_takes_steps() -> None:
    history = GroupHistory()
    rows = [row(f"g{number}", 5, 1) for number in range(10_000)]
    steps = sum(1 for _ in history.take([shard(*rows)], 0))
    assert 4 <= steps <= 10


# Disks


def test_days_left_at_the_rate_of_the_last_hour() -> None:
    history = DiskHistory()
    assert history.days_left("/d", 0) is None
    history.sample("/d", 0, 1_000)
    assert history.days_left("/d", 0) is None, "one sample is no rate"
    history.sample("/d", DAY_MS // 24, 900)
    assert history.days_left("/d", DAY_MS // 24) == pytest.approx(9 / 24)
    assert history.days_left("/d", DAY_MS // 12) == pytest.approx(8 / 24), "an hour later"
    history.sample("/d", DAY_MS // 12, 2_000)
    assert history.days_left("/d", DAY_MS // 12) is None, "it does not fill"
