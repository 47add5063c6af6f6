"""Requests before the authorizer: what is refused beside what is served, what waits, what is written of it.

That each API asks for each of its rights is `tests/integration/test_authorization.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from kraft.broker.authorization import MAX_LINES_PER_S, Audit
from kraft.broker.authorized_operations import TOPIC_OPERATIONS
from kraft.network.connection import CloseConnectionError
from kraft.network.response import Deferred
from kraft.protocol.api import AclOperation as Op
from kraft.protocol.api import ResourceType, Right
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schemas.acls import (
    ANY,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kraft.protocol.schemas.classic_groups import JoinGroupRequest, JoinGroupRequestProtocol
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kraft.protocol.schemas.producers import InitProducerIdRequest
from kraft.protocol.schemas.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from partitions.topic_partition import TopicPartition
from quorum.metadata.acls import ALLOW, DENY, LITERAL, Acl
from quorum.metadata.records import AccessControlEntry, RemoveAccessControlEntry
from tests.support.broker_world import BrokerWorld, batch, topic, topic_id

BOB, ROOT = "User:bob", "User:root"
TOPICS = (*topic("t", 1, (1,)), *topic("u", 2, (1,)))
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def entry(kind: ResourceType, name: str, operation: Op, permission: int = ALLOW) -> AccessControlEntry:
    return AccessControlEntry(Acl(kind, name, LITERAL, BOB, "*", operation, permission))


def no_more(record: AccessControlEntry) -> RemoveAccessControlEntry:
    return RemoveAccessControlEntry(record.acl)


READ_T, WRITE_T, JOIN = entry(TOPIC, "t", Op.READ), entry(TOPIC, "t", Op.WRITE), entry(GROUP, "g", Op.READ)


@pytest.fixture
async def judged(world: BrokerWorld) -> BrokerWorld:
    """Topics t and u; root may do everything, bob what ACLs say."""
    world.authorize(ROOT)
    world.replicas.leaderships.add(world.groups.runtime)
    await world.start(*TOPICS, *topic("__consumer_offsets", 9, (1,)))
    return world


def produce(*names: str, acks: int = 1) -> ProduceRequest:
    data = [
        TopicProduceData(name, [PartitionProduceData(index=0, records=batch(b"value"))]) for name in names
    ]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=data)


def fetch(max_wait_ms: int = 0, **fields: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic_id=topic_id(number), partitions=[wanted]) for number in (1, 2)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics, **fields)


def fetched(answer: Any) -> dict[int, ErrorCode]:
    return {
        int.from_bytes(one.topic_id, "big"): ErrorCode(one.partitions[0].error_code)
        for one in answer.responses
    }


DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_what_is_allowed_is_served_beside_what_is_not(judged: BrokerWorld) -> None:
    await judged.publish(WRITE_T)
    answer = judged.handle(produce("u", "t"), 11, BOB)
    told = {one.name: ErrorCode(one.partition_responses[0].error_code) for one in answer.responses}
    assert told == {"t": ErrorCode.NONE, "u": DENIED}
    ends = {name: judged.replicas.partition(TopicPartition(name, 0)).log_end_offset for name in "tu"}
    assert ends == {"t": 1, "u": 0}


async def test_who_wants_no_answer_is_told_by_the_end_of_the_connection(judged: BrokerWorld) -> None:
    await judged.publish(WRITE_T)
    assert judged.handle(produce("t", acks=0), 11, BOB) is None
    for refused in (produce("u", acks=0), produce("t", "u", acks=0)):
        with pytest.raises(CloseConnectionError):
            judged.handle(refused, 11, BOB)
    assert judged.replicas.partition(TopicPartition("t", 0)).log_end_offset == 2
    assert judged.replicas.partition(TopicPartition("u", 0)).log_end_offset == 0


async def test_a_waiting_fetch_is_judged_again(judged: BrokerWorld) -> None:
    read_u = entry(TOPIC, "u", Op.READ)
    await judged.publish(READ_T, read_u)
    waiting = judged.handle(fetch(60_000), 16, BOB)
    assert isinstance(waiting, Deferred)
    await judged.publish(no_more(READ_T))
    judged.handle(produce("t"), 11, ROOT)
    assert fetched(await waiting) == {1: DENIED, 2: ErrorCode.NONE}


async def test_a_session_reads_again_what_is_allowed_again(judged: BrokerWorld) -> None:
    judged.handle(produce("t", "u"), 11, ROOT)
    await judged.publish(READ_T)
    opened = judged.handle(fetch(session_epoch=0), 16, BOB)
    assert fetched(opened) == {1: ErrorCode.NONE, 2: DENIED}
    await judged.publish(no_more(READ_T), entry(TOPIC, "u", Op.READ))
    seen: dict[int, ErrorCode] = {}
    for epoch in range(1, 40):
        judged.handle(produce("t", "u"), 11, ROOT)
        request = FetchRequest(
            min_bytes=1, max_bytes=1 << 20, session_id=opened.session_id, session_epoch=epoch
        )
        seen |= fetched(judged.handle(request, 16, BOB))
        if seen == {1: DENIED, 2: ErrorCode.NONE}:
            return
    pytest.fail(f"the session tells of {seen}")


async def test_a_follower_needs_the_cluster(judged: BrokerWorld) -> None:
    await judged.publish(READ_T)
    follower = {"replica_id": 2, "replica_epoch": 2}
    assert fetched(judged.handle(fetch(**follower), 16, BOB)) == {1: DENIED, 2: DENIED}
    await judged.publish(entry(ResourceType.CLUSTER, "kafka-cluster", Op.CLUSTER_ACTION))
    assert set(fetched(judged.handle(fetch(**follower), 16, BOB)).values()).isdisjoint({DENIED})


async def test_a_member_that_waits_is_judged_again(judged: BrokerWorld) -> None:
    await judged.publish(JOIN)
    for _ in range(10_000):
        if not judged.groups.runtime.is_loading:
            break
        await asyncio.sleep(0)
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    waiting = asyncio.ensure_future(judged.handle(join, 3, BOB))
    await asyncio.sleep(0)
    assert not waiting.done()
    await judged.publish(no_more(JOIN))
    answer = await waiting
    assert (answer.error_code, answer.members) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])


def named(*names: str, **fields: bool) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        **fields,
    )


async def test_metadata_by_id_tell_no_name_of_what_may_not_be_described(judged: BrokerWorld) -> None:
    await judged.publish(READ_T)
    wanted = [
        MetadataRequestTopic(topic_id=topic_id(1), name=None),
        MetadataRequestTopic(topic_id=topic_id(2), name=None),
        MetadataRequestTopic(topic_id=topic_id(2), name="u"),
    ]
    answer = judged.handle(MetadataRequest(topics=wanted), 12, BOB)
    assert [(one.name, one.error_code, len(one.partitions)) for one in answer.topics] == [
        ("t", 0, 1),
        (None, DENIED, 0),
    ]


async def test_whether_a_topic_exists_is_not_told(judged: BrokerWorld) -> None:
    answer = judged.handle(named("u", "never"), 12, BOB)
    assert {one.error_code for one in answer.topics} == {DENIED}
    (old,) = judged.handle(MetadataRequest(topics=None), 1, ROOT).topics[1:2]
    assert old.name == "t"


async def test_authorized_operations_are_true(judged: BrokerWorld) -> None:
    await judged.publish(READ_T, WRITE_T, entry(TOPIC, "t", Op.WRITE, DENY))
    asked = named("t", include_topic_authorized_operations=True)
    told = judged.handle(asked, 12, BOB).topics[0].topic_authorized_operations
    assert told == 1 << Op.READ | 1 << Op.DESCRIBE
    told = judged.handle(asked, 12, ROOT).topics[0].topic_authorized_operations
    assert told == TOPIC_OPERATIONS


async def test_one_refused_partition_keeps_the_others_out_of_the_transaction(judged: BrokerWorld) -> None:
    await judged.publish(WRITE_T, entry(ResourceType.TRANSACTIONAL_ID, "x", Op.WRITE))
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in "tu"]
    body = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    answer = judged.handle(body, 3, BOB)
    told = {
        one.name: ErrorCode(one.results_by_partition[0].partition_error_code)
        for one in answer.results_by_topic_v3_and_below
    }
    assert told == {"t": ErrorCode.OPERATION_NOT_ATTEMPTED, "u": DENIED}


async def test_a_producer_that_may_write_no_topic_gets_no_id(judged: BrokerWorld) -> None:
    body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    refused = judged.handle(body, 4, BOB)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


async def test_without_an_authorizer_there_are_no_acls(world: BrokerWorld) -> None:
    await world.start()
    described = await world.handle(DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), 3)
    created = await world.handle(CreateAclsRequest([AclCreation(2, "t", 3, BOB, "*", 3, 3)] * 2), 3)
    deleted = await world.handle(
        DeleteAclsRequest([DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)]), 3
    )
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert "authorizer.class.name" in described.error_message
    assert [one.error_code for one in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert [one.error_code for one in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


async def test_acls_are_described_by_what_they_are_about(judged: BrokerWorld) -> None:
    await judged.publish(READ_T, WRITE_T, JOIN)
    answer = await judged.handle(DescribeAclsRequest(TOPIC, None, ANY, None, None, ANY, ANY), 3, ROOT)
    (about,) = answer.resources
    assert (about.resource_type, about.resource_name, about.pattern_type) == (TOPIC, "t", LITERAL)
    assert [(one.principal, one.operation) for one in about.acls] == [(BOB, Op.READ), (BOB, Op.WRITE)]
    wrong = await judged.handle(DescribeAclsRequest(99, None, ANY, None, None, ANY, ANY), 3, ROOT)
    assert wrong.error_code == ErrorCode.INVALID_REQUEST


# The audit log


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


async def test_a_refusal_is_a_line(judged: BrokerWorld, lines: list[dict[str, Any]]) -> None:
    judged.handle(produce("u"), 11, BOB)
    assert [(line["log_level"], line["event"]) for line in lines] == [
        (
            "info",
            "Principal = User:bob is Denied operation = WRITE from host = 127.0.0.1"
            " on resource = Topic:LITERAL:u for request = Produce",
        )
    ]


async def test_what_is_only_left_out_is_no_refusal(judged: BrokerWorld, lines: list[dict[str, Any]]) -> None:
    assert judged.handle(MetadataRequest(topics=None), 12, BOB).topics == []
    assert lines == []


def test_lines_are_bounded_and_forge_none(lines: list[dict[str, Any]]) -> None:
    now_s = 5.0
    audit = Audit(lambda: now_s)
    right = Right(Op.READ, TOPIC)
    for _ in range(MAX_LINES_PER_S + 7):
        audit.write(BOB, "h", right, "t\nPrincipal = User:root is Allowed", "Fetch", granted=False)
    assert len(lines) == MAX_LINES_PER_S
    assert "\n" not in lines[0]["event"]
    now_s = 6.0
    audit.write(BOB, "h", right, None, "Fetch", granted=False)
    assert lines[-1]["decisions_left_out"] == 7
    assert "Topic:LITERAL:any" in lines[-1]["event"]
