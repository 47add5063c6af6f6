"""Clients, those who change topics, and connections, each against its quotas."""

from __future__ import annotations

from kraft.security.quotas.client_quotas import ClientQuotas
from kraft.security.quotas.connection_quotas import TAKEN_AT_ONCE, Admission, ConnectionQuotas, canonical_ip
from kraft.security.quotas.entities import DEFAULT
from kraft.security.quotas.mutation_quotas import TokenBuckets
from kraft.security.quotas.rates import Windows

ELEVEN = Windows(11, 1000)
ALICE, APP = (("user", "alice"),), (("client-id", "app"),)


def test_without_a_quota_nothing_is_kept() -> None:
    quotas = ClientQuotas(ELEVEN)
    assert not quotas.is_limiting
    quotas.update({ALICE: {"producer_byte_rate": 100.0}})
    assert quotas.is_limiting
    assert quotas.produce.record("bob", "app", 10**9, 0) == 0
    assert quotas.fetch.record("alice", "app", 10**9, 0) == 0
    assert [len(kind.sensors) for kind in quotas.kinds] == [0, 0, 0]
    quotas.update({ALICE: {"controller_mutation_rate": 1.0}})
    assert not quotas.is_limiting


def test_connections_of_a_user_share_its_quota() -> None:
    quotas = ClientQuotas(ELEVEN)
    quotas.update({ALICE: {"producer_byte_rate": 100.0}})
    assert quotas.produce.record("alice", "one", 1000, 0) == 0
    assert quotas.produce.record("alice", "two", 100, 0) == 1000
    assert quotas.produce.record("bob", "two", 10_000, 0) == 0


def test_a_quota_that_is_raised_counts_at_once() -> None:
    quotas = ClientQuotas(ELEVEN)
    quotas.update({APP: {"consumer_byte_rate": 100.0}})
    quotas.fetch.record("a", "app", 2000, 0)
    assert quotas.fetch.throttle_time_ms("b", "app", 0) == 10_000
    quotas.update({APP: {"consumer_byte_rate": 200.0}})
    assert quotas.fetch.throttle_time_ms("b", "app", 0) == 5000


def test_time_of_the_loop() -> None:
    """A tenth of the loop is a second of ten; nobody waits for more than a window at a time."""
    quotas = ClientQuotas(ELEVEN)
    quotas.update({APP: {"request_percentage": 10.0}})
    assert quotas.worked("a", "app", 1.0, 0) == 0
    assert quotas.worked("a", "app", 0.05, 0) == 500
    assert quotas.worked("a", "app", 5.0, 0) == 1000


def test_one_answer_does_not_exceed_a_quota_by_itself() -> None:
    quotas = ClientQuotas(ELEVEN)
    quotas.update({APP: {"consumer_byte_rate": 100.0}})
    assert quotas.fetch_max_bytes("a", "app", 0) == 1000
    quotas.fetch.record("a", "app", 900, 0)
    assert quotas.fetch_max_bytes("b", "app", 0) == 100
    quotas.fetch.record("a", "app", 900, 0)
    assert quotas.fetch_max_bytes("b", "app", 0) == 1
    assert quotas.fetch_max_bytes("a", "other", 0) is None


def test_who_knows_of_the_quota_is_refused_others_wait() -> None:
    buckets, quotas = TokenBuckets(ELEVEN), {ALICE: {"controller_mutation_rate": 2.0}}
    alice = ("alice", "admin")
    assert buckets.take(quotas, alice, 30, 0, strict=True) == (True, 4000)
    assert buckets.take(quotas, alice, 1, 0, strict=True) == (False, 4000)
    assert buckets.take(quotas, alice, 2, 0, strict=False) == (True, 5000)
    assert buckets.take(quotas, ("bob", "admin"), 1000, 0, strict=True) == (True, 0)
    assert buckets.take(quotas, alice, 1, 5000, strict=True) == (True, 500)
    assert buckets.take({}, alice, 1000, 5000, strict=True) == (True, 0)


def test_an_address_that_connects_too_often_is_turned_away() -> None:
    quotas = ConnectionQuotas(ELEVEN)
    assert not quotas.is_limiting
    quotas.update({(("ip", "10.0.0.1"),): {"connection_creation_rate": 1.0}})
    assert quotas.is_limiting
    admitted = [quotas.admit("CLIENTS", "10.0.0.1", 0) for _ in range(12)]
    assert admitted == [TAKEN_AT_ONCE] * 10 + [Admission(is_taken=False, delay_ms=1000)] * 2
    assert quotas.admit("CLIENTS", "::ffff:10.0.0.1", 0).is_taken is False
    assert quotas.admit("CLIENTS", "10.0.0.2", 0) == TAKEN_AT_ONCE
    assert quotas.admit("CLIENTS", "10.0.0.1", 11_000) == TAKEN_AT_ONCE  # what was turned away did not count
    assert quotas.throttled_ips == 3


def test_each_address_by_default() -> None:
    quotas = ConnectionQuotas(Windows(2, 1000))
    quotas.update(
        {
            (("ip", DEFAULT),): {"connection_creation_rate": 1.0},
            (("ip", "10.0.0.9"),): {"connection_creation_rate": 2.0},
        }
    )
    for host, taken in (("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.9", 2)):
        assert [quotas.admit("L", host, 0).is_taken for _ in range(3)] == [n < taken for n in range(3)]


def test_listeners_have_their_connections_wait() -> None:
    quotas = ConnectionQuotas(
        Windows(2, 1000), of_broker=2, of_listeners={"SLOW": 1}, protected_listener="BROKERS"
    )
    assert [quotas.admit("SLOW", "h", 0).delay_ms for _ in range(2)] == [0, 1000]
    assert quotas.admit("FAST", "h", 0) == Admission(is_taken=True, delay_ms=500)  # the third of all
    assert quotas.admit("BROKERS", "h", 0) == TAKEN_AT_ONCE
    assert quotas.throttled_listeners == 2


def test_one_text_for_one_address() -> None:
    assert canonical_ip("::ffff:10.0.0.1") == "10.0.0.1"
    assert canonical_ip("FE80::1%eth0") == "fe80::1"
    assert canonical_ip("0:0:0:0:0:0:0:1") == "::1"
    assert canonical_ip("a host") == "a host"
