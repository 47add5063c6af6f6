"""What windows measure and buckets hold: Kafka's numbers."""

from __future__ import annotations

from kraft.security.quotas.rates import Sensors, TokenBucket, Windows

ELEVEN = Windows(11, 1000)


def test_what_is_exceeded_is_waited_for_as_long_as_kafka_says() -> None:
    """Its formula: (rate - quota) / quota * window, where a rate is measured over ten of eleven windows at least."""
    bucket = TokenBucket(ELEVEN.of_rate_ms)
    bucket.take(1000, 100, 0)
    assert bucket.throttle_time_ms(100, 0) == 0
    bucket.take(500, 100, 0)
    assert bucket.throttle_time_ms(100, 0) == 5000
    assert bucket.throttle_time_ms(100, 5000) == 0


def test_what_is_owed_is_not_forgotten_with_the_windows() -> None:
    bucket = TokenBucket(ELEVEN.of_rate_ms)
    bucket.take(2100, 100, 0)
    assert bucket.throttle_time_ms(100, 0) == 11_000
    bucket.take(2100, 100, 11_000)
    assert bucket.throttle_time_ms(100, 11_000) == 21_000  # nothing was saved up meanwhile


def test_one_window_lets_its_own_worth_pass() -> None:
    assert Windows(1, 2000).of_rate_ms == Windows(1, 2000).of_bucket_ms == 2000


def test_a_bucket_lets_a_burst_pass_and_then_wants_it_back() -> None:
    bucket = TokenBucket(ELEVEN.of_bucket_ms)
    bucket.take(110, 10, 50)  # 11 windows of 10 a second
    assert bucket.throttle_time_ms(10, 50) == 0
    bucket.take(5, 10, 50)
    assert bucket.throttle_time_ms(10, 50) == 500
    assert bucket.throttle_time_ms(10, 550) == 0
    assert not bucket.is_idle(550)
    assert bucket.is_idle(50 + 11_500)


def test_a_debt_is_not_forgotten_while_it_lasts() -> None:
    """Its client cannot be rid of it by being silent for a while, or by there being many others."""
    bucket = TokenBucket(ELEVEN.of_bucket_ms)
    bucket.take(1000, 1, 0)
    assert not bucket.is_idle(999_000)
    assert bucket.throttle_time_ms(1, 500_000) == 489_000


def test_there_is_room_for_so_many_and_one_for_the_rest() -> None:
    sensors: Sensors[str] = Sensors(ELEVEN.of_rate_ms, at_most=2)
    for name in ("a", "b"):
        sensors.of(name, 0).take(1, 1, 0)
    assert sensors.of("c", 0) is sensors.of("d", 0)
    assert sensors.of("a", 0) is not sensors.of("b", 0)
    assert len(sensors) == 2


def test_who_owes_nothing_makes_room() -> None:
    sensors: Sensors[str] = Sensors(ELEVEN.of_rate_ms, at_most=2)
    sensors.of("a", 0).take(5, 1, 0)
    sensors.of("b", 0).take(1, 1, 0)
    shared = sensors.of("c", 0)
    sensors.of("a", 900).take(5, 1, 900)
    assert sensors.of("c", 1000) is not shared  # b's bucket is full again
    assert len(sensors) == 2
    assert sensors.of("a", 1000).throttle_time_ms(1, 1000, tokens=2) > 0
