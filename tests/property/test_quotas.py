"""Whatever clients do: what passes stays within their quotas, and what is kept of them within its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft.security.quotas.client_quotas import ClientQuotas
from kraft.security.quotas.connection_quotas import ConnectionQuotas
from kraft.security.quotas.mutation_quotas import TokenBuckets
from kraft.security.quotas.rates import Sensors, TokenBucket, Windows

windows = st.builds(Windows, st.integers(1, 12), st.sampled_from([250, 1000, 3000]))
limits = st.sampled_from([0.5, 10.0, 1000.0, 123456.0])


@given(
    windows, limits, st.lists(st.tuples(st.integers(0, 3000), st.floats(0.1, 30.0)), min_size=1, max_size=80)
)
def test_who_waits_as_told_stays_within_the_quota(
    measured: Windows, limit: float, requests: list[tuple[int, float]]
) -> None:
    """Over any time, no more passes than the quota of that time, one burst, and one last request."""
    bucket, now_ms, passed = TokenBucket(measured.of_rate_ms), 0, list[tuple[int, float]]()
    for gap_ms, seconds_worth in requests:
        now_ms += gap_ms
        bucket.take(limit * seconds_worth, limit, now_ms)
        passed.append((now_ms, limit * seconds_worth))
        now_ms += bucket.throttle_time_ms(limit, now_ms)
    for first, (began_ms, _) in enumerate(passed):
        before_last = sum(value for _, value in passed[first:-1])
        elapsed_s = (passed[-1][0] - began_ms + 1) / 1000  # waits are whole milliseconds
        assert before_last <= limit * (elapsed_s + measured.of_rate_ms / 1000) * (1 + 1e-9)


@given(limits, st.lists(st.tuples(st.integers(0, 30_000), st.floats(0.1, 30.0)), max_size=40))
def test_who_keeps_below_the_quota_never_waits(limit: float, requests: list[tuple[int, float]]) -> None:
    bucket, now_ms = TokenBucket(10_000), 0
    for gap_ms, seconds_worth in requests:
        now_ms += gap_ms + int(seconds_worth * 1000) + 1
        bucket.take(limit * min(seconds_worth, 10), limit, now_ms)
        assert bucket.throttle_time_ms(limit, now_ms) == 0


@given(
    windows, limits, st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 50)), min_size=1, max_size=60)
)
def test_a_strict_client_gets_no_more_than_its_bucket(
    measured: Windows, limit: float, requests: list[tuple[int, int]]
) -> None:
    buckets, quotas, now_ms, passed = (
        TokenBuckets(measured),
        {(("user", "u"),): {"controller_mutation_rate": limit}},
        0,
        [],
    )
    for gap_ms, tokens in requests:
        now_ms += gap_ms
        may, wait_ms = buckets.take(quotas, ("u", "c"), tokens, now_ms, strict=True)
        assert may or wait_ms > 0
        if may:
            passed.append((now_ms, tokens))
    burst = limit * measured.number * measured.size_ms / 1000
    for first, (began_ms, _) in enumerate(passed):
        total = sum(tokens for _, tokens in passed[first:-1])
        elapsed_s = (passed[-1][0] - began_ms) / 1000
        assert total <= burst + limit * elapsed_s + max(tokens for _, tokens in passed[first:]) + 1e-6


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 4000), st.integers(0, 20)), max_size=60),
    st.integers(1, 4),
)
def test_nobody_with_a_bucket_of_his_own_is_rid_of_what_he_owes(
    steps: list[tuple[str, int, int]], at_most: int
) -> None:
    """And there are never more buckets than there is room for."""
    sensors: Sensors[str] = Sensors(3000, at_most)
    alone: dict[str, TokenBucket] = {}
    now_ms = 0
    for name, gap_ms, tokens in steps:
        now_ms += gap_ms
        bucket = sensors.of(name, now_ms)
        assert len(sensors) <= at_most
        if bucket is sensors.of_the_rest:
            continue
        model = alone.setdefault(name, TokenBucket(3000))
        assert bucket.throttle_time_ms(1, now_ms) == model.throttle_time_ms(1, now_ms)
        for each in (bucket, model):
            each.take(tokens, 1, now_ms)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 400)), max_size=150),
    limits.filter(lambda limit: limit >= 1),
)
def test_addresses_open_no_more_than_their_rate(steps: list[tuple[int, int]], limit: float) -> None:
    measured = Windows(3, 1000)
    quotas = ConnectionQuotas(measured, sensors_max=5)
    quotas.update({(("ip", ""),): {"connection_creation_rate": limit}})
    taken: dict[int, list[int]] = {}
    now_ms = 0
    for host, gap_ms in steps:
        now_ms += gap_ms
        if quotas.admit("L", f"10.0.0.{host}", now_ms).is_taken:
            taken.setdefault(host, []).append(now_ms)
    for times in taken.values():
        for first, began_ms in enumerate(times):
            within = [at_ms for at_ms in times[first:] if at_ms - began_ms < measured.size_ms]
            assert len(within) <= limit * measured.number * measured.size_ms / 1000 + 1


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3), st.integers(0, 10**6)), max_size=100))
def test_no_number_of_clients_takes_more_memory_than_its_bound(clients: list[tuple[str, str, int]]) -> None:
    quotas = ClientQuotas(Windows(), sensors_max=7)
    quotas.update(
        {(("client-id", ""), ("user", "")): dict.fromkeys(("producer_byte_rate", "request_percentage"), 10.0)}
    )
    for user, client_id, size in clients:
        quotas.produce.record(user, client_id, size, 0)
        quotas.worked(user, client_id, size, 0)
    assert all(len(kind.sensors) <= 7 for kind in quotas.kinds)
