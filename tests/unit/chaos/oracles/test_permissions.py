"""The judges of secured brokers: by tables of ACLs and answers, and by accounts of bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.chaos import security
from kraft.chaos.oracles.secured.permissions import Need, Permissions, needs, permits
from kraft.chaos.oracles.secured.taken import (
    BURST_S,
    WINDOW_S,
    Account,
    TakenByClients,
    batches_bytes,
    rates_of,
)
from kraft.chaos.swarm import scenario_of
from kraft.chaos.swarm_features import SECURED_ODDS
from kraft.network.session import Session
from kraft.protocol.api import AclOperation, ApiKey, ResourceType
from kraft.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kraft.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kraft.protocol.schemas.acls import AclCreationResult, CreateAclsResponse, DescribeAclsResponse
from kraft.protocol.schemas.consumer_groups import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from kraft.protocol.schemas.find_coordinator import Coordinator, FindCoordinatorResponse
from quorum.metadata.acls import ALLOW, CLUSTER_NAME, DENY, LITERAL, PREFIXED, Acl

READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALICE, HOST = "User:alice", "10.0.0.7"


def acl(operation=READ, permission=ALLOW, name="vault", pattern=LITERAL, principal=ALICE, host="*", of=TOPIC):
    return Acl(of, name, pattern, principal, host, operation, permission)


@pytest.mark.parametrize(
    ("acls", "operation", "is_permitted"),
    [
        ([], READ, False),
        ([acl()], READ, True),
        ([acl()], WRITE, False),
        ([acl()], DESCRIBE, True),
        ([acl(AclOperation.DESCRIBE_CONFIGS)], DESCRIBE, False),
        ([acl(ALL)], WRITE, True),
        ([acl(), acl(permission=DENY)], READ, False),
        ([acl(permission=DENY), acl(DESCRIBE)], DESCRIBE, True),
        ([acl(), acl(ALL, DENY)], READ, False),
        ([acl(name="va", pattern=PREFIXED)], READ, True),
        ([acl(name="va")], READ, False),
        ([acl(name="*")], READ, True),
        ([acl(name="vault-2")], READ, False),
        ([acl(principal="User:*")], READ, True),
        ([acl(principal="User:bob")], READ, False),
        ([acl(host=HOST)], READ, True),
        ([acl(host="10.0.0.8")], READ, False),
        ([acl(of=GROUP)], READ, False),
    ],
)
def test_the_model_of_permissions(acls, operation, is_permitted):
    assert permits(acls, ALICE, HOST, operation, TOPIC, "vault") is is_permitted
    assert permits(acls, "User:admin", HOST, operation, TOPIC, "vault"), "a super user may do everything"


def image() -> Any:
    return SimpleNamespace(topics={b"1" * 16: SimpleNamespace(name="vault")})


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (
            ProduceResponse(
                [
                    TopicProduceResponse(
                        name="vault",
                        partition_responses=[
                            PartitionProduceResponse(index=0, error_code=29, base_offset=-1)
                        ],
                    )
                ]
            ),
            [Need(WRITE, TOPIC, "vault", True)],
        ),
        (
            FetchResponse(
                responses=[
                    FetchableTopicResponse(topic_id=b"1" * 16, partitions=[PartitionData(error_code=0)]),
                    FetchableTopicResponse(topic_id=b"2" * 16, partitions=[PartitionData(error_code=100)]),
                ]
            ),
            [Need(READ, TOPIC, "vault", False)],
        ),
        (
            FindCoordinatorResponse(coordinators=[Coordinator("g", -1, "", -1, 30)]),
            [Need(DESCRIBE, GROUP, "g", True)],
        ),
        (
            ConsumerGroupHeartbeatResponse(
                assignment=HeartbeatAssignment(
                    [HeartbeatTopicPartitions(b"1" * 16, [0]), HeartbeatTopicPartitions(b"2" * 16, [0])]
                )
            ),
            [Need(DESCRIBE, TOPIC, "vault", False)],
        ),
        (ConsumerGroupHeartbeatResponse(error_code=30), []),
        (DescribeAclsResponse(error_code=31), [Need(DESCRIBE, CLUSTER, CLUSTER_NAME, True)]),
        (
            CreateAclsResponse(results=[AclCreationResult(0)]),
            [Need(AclOperation.ALTER, CLUSTER, CLUSTER_NAME, False)],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_answer_needed(answer, found):
    assert list(needs(answer, image())) == found


class Said:
    """Verdicts that keep the oracles' names."""

    def __init__(self):
        self.oracles, self.events = [], []

    def declare(self, events):
        """Counters that may stay at zero."""

    def counted(self, event, text=""):
        self.events.append(event)

    def happened(self, event, text=""):
        self.events.append(event)

    def violated(self, oracle, text):
        self.oracles.append(oracle)


NOTHING, GRANT = frozenset(), frozenset((acl(),))


@pytest.mark.parametrize(
    ("key", "states", "is_refused", "oracles"),
    [
        (ApiKey.LIST_OFFSETS, [GRANT], False, []),
        (ApiKey.LIST_OFFSETS, [NOTHING], True, []),
        (ApiKey.LIST_OFFSETS, [NOTHING], False, ["served-without-permission"]),
        (ApiKey.LIST_OFFSETS, [GRANT], True, ["refused-with-permission"]),
        (ApiKey.LIST_OFFSETS, [GRANT, NOTHING], False, []),
        (ApiKey.LIST_OFFSETS, [NOTHING, GRANT], True, []),
        (ApiKey.FETCH, [NOTHING, GRANT], False, []),
        (ApiKey.FETCH, [GRANT, NOTHING], False, ["served-without-permission"]),
        (ApiKey.FETCH, [GRANT, NOTHING], True, []),
    ],
)
def test_an_answer_is_judged_by_the_acls_of_its_time(key, states, is_refused, oracles):
    said = Said()
    judge = Permissions(said, SimpleNamespace(node=lambda: 1), is_secured=True)
    judge._judge(key, ALICE, HOST, Need(READ, TOPIC, "vault", is_refused), states)
    assert said.oracles == oracles


class Untold(frozenset):
    """ACLs that nobody may list."""

    def __iter__(self):
        raise AssertionError("listed, and nobody is accused")


def test_what_holds_costs_no_words():
    """Every answer of every broker is judged, those to other brokers too."""
    judge = Permissions(Said(), SimpleNamespace(node=lambda: 1), is_secured=True)
    need = Need(READ, TOPIC, "vault", is_refused=False)
    judge._judge(ApiKey.FETCH, "User:ANONYMOUS", HOST, need, [Untold((acl(),))])


def test_an_account_bounds_what_is_taken_by_quota_burst_and_last_requests():
    one, two = Session("CLIENTS"), Session("CLIENTS")
    account = Account(rate=100.0, since_s=10.0)
    account.take(one, 500)
    account.take(one, 200)
    account.take(two, 300)
    assert (account.taken, account.bound(10.0)) == (1_000, 100 * BURST_S + 500 + 300)
    assert account.bound(15.0) == 100 * (5 + BURST_S) + 800
    assert account.bound(71.0) == 100 * (61 + BURST_S) + 800 + 500 * 2, (
        "each may come again when it was muted longest"
    )


def test_an_account_of_time_is_released_every_window():
    """Longer than that nobody is muted for the loop's time, however much it took."""
    session = Session("CLIENTS")
    account = Account(rate=0.01, since_s=0.0, muted_at_most_s=WINDOW_S)
    for _ in range(3):
        account.take(session, 0.5)
    assert account.bound(2.0) == pytest.approx(0.01 * (2 + BURST_S) + 0.5 + 0.5 * 2)


def test_rates_are_those_of_guests_in_bytes_and_in_seconds_of_the_loop():
    quotas = {
        (("user", "alice"),): {"consumer_byte_rate": 200.0, "request_percentage": 5.0},
        (("user", "mallory"),): {"consumer_byte_rate": 1.0},
    }
    found = rates_of(SimpleNamespace(client_quotas=quotas))
    assert found == {(ALICE, "consumer_byte_rate"): 200.0, (ALICE, "request_percentage"): 0.05}


def test_the_batches_of_an_answer_are_counted_in_memory_and_in_files():
    slices = [SimpleNamespace(length=40), b"1234"]
    parts = [PartitionData(records=slices), PartitionData(records=b"12"), PartitionData(records=None)]
    assert batches_bytes(FetchResponse(responses=[FetchableTopicResponse(partitions=parts)])) == 46


@pytest.mark.parametrize(("at_s", "oracles"), [(0.5, ["read-while-muted"]), (1.9999, []), (2.5, [])])
def test_nothing_is_read_before_the_time_that_a_client_was_told(at_s, oracles):
    said, session = Said(), Session("CLIENTS")
    judge = TakenByClients(said, SimpleNamespace(node=lambda: 1), is_secured=True)
    judge._told(SimpleNamespace(clock_s=lambda: 0.0), session, ProduceResponse(throttle_time_ms=2_000))
    judge._judge_muted(session, at_s)
    assert said.oracles == oracles


def test_some_scenarios_are_secured_and_the_others_are_as_they_were():
    scenarios = [scenario_of(seed) for seed in range(200)]
    those = [one for one in scenarios if security.is_secured(one.properties)]
    assert 0.5 < len(those) / (200 * SECURED_ODDS) < 1.5
    for one in scenarios:
        guests = [spec for spec in one.workloads if spec.kind in ("guest", "security-operator")]
        assert bool(guests) is security.is_secured(one.properties)
        assert guests == list(one.workloads[len(one.workloads) - len(guests) :]), (
            "the others keep their streams"
        )
