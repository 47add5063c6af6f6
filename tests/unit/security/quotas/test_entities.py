"""Whose quota counts: Kafka's order of precedence, from its documentation."""

from __future__ import annotations

import pytest

from kraft.security.quotas.entities import DEFAULT, Entity, QuotaTable, Share, ip_rates, user_of

KEY = "producer_byte_rate"
BOTH, ALICE_ANY, ALICE = (
    (("client-id", "app"), ("user", "alice")),
    (("client-id", DEFAULT), ("user", "alice")),
    (("user", "alice"),),
)
ANY_APP, ANY_ANY, ANY = (
    (("client-id", "app"), ("user", DEFAULT)),
    (("client-id", DEFAULT), ("user", DEFAULT)),
    (("user", DEFAULT),),
)
APP, ANY_CLIENT = (("client-id", "app"),), (("client-id", DEFAULT),)
IN_ORDER: list[tuple[Entity, Share]] = [
    (BOTH, Share("alice", "app")),
    (ALICE_ANY, Share("alice", "app")),
    (ALICE, Share("alice", None)),
    (ANY_APP, Share("alice", "app")),
    (ANY_ANY, Share("alice", "app")),
    (ANY, Share("alice", None)),
    (APP, Share(None, "app")),
    (ANY_CLIENT, Share(None, "app")),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_most_exact_counts(first: int) -> None:
    quotas = {entity: {KEY: float(number)} for number, (entity, _) in enumerate(IN_ORDER) if number >= first}
    limit = QuotaTable(KEY, quotas).find("alice", "app")
    assert limit is not None
    assert (limit.share, limit.value) == (IN_ORDER[first][1], float(first))


def test_others_are_not_concerned() -> None:
    quotas = {BOTH: {KEY: 1.0}, ALICE: {"consumer_byte_rate": 1.0}, (("ip", "10.0.0.1"),): {KEY: 1.0}}
    table = QuotaTable(KEY, quotas)
    assert table.find("alice", "other") is None
    assert table.find("bob", "app") is None
    assert not QuotaTable("request_percentage", quotas)


def test_users_and_client_ids_without_a_name() -> None:
    table = QuotaTable(KEY, {ANY_CLIENT: {KEY: 2.0}})
    limit = table.find("ANONYMOUS", "")
    assert limit is not None
    assert limit.share == Share(None, "")
    assert user_of("User:ANONYMOUS") == "ANONYMOUS"
    assert user_of("User:CN=a,O=b:c") == "CN=a,O=b:c"


def test_rates_of_addresses() -> None:
    quotas = {
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
        (("ip", DEFAULT),): {"connection_creation_rate": 9.0},
        ALICE: {KEY: 1.0},
    }
    assert ip_rates(quotas) == {"10.0.0.1": 5.0, DEFAULT: 9.0}
