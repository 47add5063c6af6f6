"""Every API with each of its operations denied: one broker, two addresses to come from, one of which may do everything.

What is denied is told as Kafka tells it, and nothing is denied any more once the ACL is gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest

from kraft.broker.authorized_operations import CLUSTER_OPERATIONS
from kraft.broker.handlers.broker_views import VIEW_VERSION, view_request
from kraft.cli.app import run
from kraft.protocol.api import APIS, AclOperation, ResourceType
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.acls import (
    ANY,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    PatternType,
    PermissionType,
)
from kraft.protocol.schemas.alter_configs import AlterConfigsRequest, AlterConfigsResource
from kraft.protocol.schemas.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from kraft.protocol.schemas.client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from kraft.protocol.schemas.cluster import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
    UnregisterBrokerRequest,
)
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from kraft.protocol.schemas.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from kraft.protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraft.protocol.schemas.elections import ElectLeadersRequest
from kraft.protocol.schemas.elections import TopicPartitions as ElectedTopic
from kraft.protocol.schemas.features import UpdateFeaturesRequest
from kraft.protocol.schemas.find_coordinator import CoordinatorType, FindCoordinatorRequest
from kraft.protocol.schemas.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraft.protocol.schemas.incremental_alter_configs import (
    AlterConfigsResource as IncrementallyAltered,
)
from kraft.protocol.schemas.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraft.protocol.schemas.log_dirs import DescribeLogDirsRequest
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kraft.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraft.protocol.schemas.producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    InitProducerIdRequest,
)
from kraft.protocol.schemas.quorum import DescribePartition, DescribeQuorumRequest, DescribeTopic
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kraft.protocol.schemas.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from kraft.protocol.schemas.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kraft.protocol.schemas.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kraft.security.super_users import STANDARD_AUTHORIZER
from tests.support.node_processes import until
from tests.support.raw_client import RawConnection, batch
from tests.support.threaded_cluster import threaded_cluster

CLIENT, ADMIN = "127.0.0.1", "127.0.0.2"
NAMES: Final = {
    ResourceType.TOPIC: "seen",
    ResourceType.GROUP: "readers",
    ResourceType.CLUSTER: "kafka-cluster",
    ResourceType.TRANSACTIONAL_ID: "writer",
}
TOPIC, GROUP, CLUSTER, ID = NAMES
SEEN, READERS, MEMBERS, WRITER = NAMES[TOPIC], NAMES[GROUP], "members", NAMES[ID]
PROPERTIES: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
Op = AclOperation
Right = tuple[AclOperation, ResourceType]


class Case(NamedTuple):
    """A request that is refused while its rights are denied, all of them. `code` NONE: it is answered with less, and
    `hidden` says what the answer has only if it is allowed."""

    body: Callable[[], Message]
    version: int
    rights: tuple[Right, ...]
    code: ErrorCode
    hidden: str = ""

    def __repr__(self) -> str:
        rights = "+".join(f"{operation.name}-{resource.name}" for operation, resource in self.rights)
        return f"{self.body().API_KEY.name}-{self.version}-{rights}-{self.hidden or self.code.name}"


REFUSED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def refused(
    body: Callable[[], Message], version: int, *rights: Right, as_of: ResourceType | None = None
) -> Case:
    return Case(body, version, rights, REFUSED[as_of or rights[-1][1]])


def hides(what: str, body: Callable[[], Message], version: int, *rights: Right) -> Case:
    return Case(body, version, rights, ErrorCode.NONE, what)


def produce(transactional_id: str | None = None) -> ProduceRequest:
    data = TopicProduceData(SEEN, [PartitionProduceData(index=0, records=batch(b"value"))])
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])


def fetch(replica_id: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=SEEN, partitions=[wanted])],
    )


def metadata(*names: str, creates: bool = False, **fields: bool) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names] or None
    return MetadataRequest(topics=topics, allow_auto_topic_creation=creates, **fields)


def configs(kind: ConfigResourceType) -> tuple[ConfigResourceType, str]:
    return kind, {ConfigResourceType.TOPIC: SEEN, ConfigResourceType.GROUP: READERS}.get(kind, "1")


def describe_configs(kind: ConfigResourceType) -> Message:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(*configs(kind))])


def alter_configs(kind: ConfigResourceType) -> Message:
    return AlterConfigsRequest(resources=[AlterConfigsResource(*configs(kind))], validate_only=True)


def alter_incrementally(kind: ConfigResourceType) -> Message:
    return IncrementalAlterConfigsRequest(
        resources=[IncrementallyAltered(*configs(kind))], validate_only=True
    )


def commit() -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    return OffsetCommitRequest(
        group_id=READERS, topics=[OffsetCommitRequestTopic(name=SEEN, partitions=partitions)]
    )


def commit_in_transaction() -> Message:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    return TxnOffsetCommitRequest(
        transactional_id=WRITER,
        group_id=READERS,
        topics=[TxnOffsetCommitRequestTopic(name=SEEN, partitions=partitions)],
    )


def fetch_offsets(named: bool) -> Message:
    topics = [OffsetFetchRequestTopics(name=SEEN, partition_indexes=[0])] if named else None
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=READERS, topics=topics)])


def heartbeat_of_consumer_group() -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=MEMBERS,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[SEEN],
        topic_partitions=[],
    )


def acl_filter() -> DeleteAclsFilter:
    return DeleteAclsFilter(ANY, "nowhere", ANY, None, None, ANY, ANY)


def add_partitions() -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=WRITER,
        v3_and_below_producer_id=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=SEEN, partitions=[0])],
    )


def add_partitions_for_another() -> Message:
    topics = [AddPartitionsToTxnTopic(name=SEEN, partitions=[0])]
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=WRITER, producer_id=0, verify_only=True, topics=topics
            )
        ]
    )


def markers() -> Message:
    topics = [WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0])]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=9, topics=topics)])


def end_of_epoch() -> Message:
    wanted = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=SEEN, partitions=wanted)])


READ_GROUP = (Op.READ, GROUP)
WRITE_ID = (Op.WRITE, ID)
CONFIGURED = {
    ConfigResourceType.TOPIC: TOPIC,
    ConfigResourceType.GROUP: GROUP,
    ConfigResourceType.BROKER: CLUSTER,
}

CASES = [
    refused(produce, 11, (Op.WRITE, TOPIC)),
    refused(lambda: produce(WRITER), 11, WRITE_ID),
    refused(lambda: fetch(-1), 12, (Op.READ, TOPIC)),
    refused(lambda: fetch(2), 12, (Op.CLUSTER_ACTION, CLUSTER), as_of=TOPIC),
    refused(
        lambda: ListOffsetsRequest(
            topics=[ListOffsetsTopic(SEEN, [ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        ),
        7,
        (Op.DESCRIBE, TOPIC),
    ),
    refused(lambda: metadata(SEEN), 12, (Op.DESCRIBE, TOPIC)),
    hides(f"name={SEEN!r}", metadata, 12, (Op.DESCRIBE, TOPIC)),
    refused(lambda: metadata(SEEN + "-not", creates=True), 12, (Op.CREATE, CLUSTER), (Op.CREATE, TOPIC)),
    hides(
        f"cluster_authorized_operations={CLUSTER_OPERATIONS}",
        lambda: metadata(SEEN, include_cluster_authorized_operations=True),
        10,
        (Op.DESCRIBE, CLUSTER),
    ),
    refused(
        lambda: CreateTopicsRequest(topics=[CreatableTopic(SEEN, 1, 1)], validate_only=True),
        7,
        (Op.CREATE, CLUSTER),
        (Op.CREATE, TOPIC),
    ),
    hides(
        "name='seen-too', topic_id=b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00',"
        " error_code=0, error_message=None, topic_config_error_code=0, num_partitions=1",
        lambda: CreateTopicsRequest(topics=[CreatableTopic("seen-too", 1, 1)], validate_only=True),
        7,
        (Op.DESCRIBE_CONFIGS, TOPIC),
    ),
    refused(
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name="seen-last")], timeout_ms=10_000),
        6,
        (Op.DELETE, CLUSTER),
        (Op.DELETE, TOPIC),
    ),
    refused(
        lambda: DeleteTopicsRequest(topic_names=["seen-first"], timeout_ms=10_000),
        5,
        (Op.DELETE, CLUSTER),
        (Op.DELETE, TOPIC),
    ),
    hides(  # of a topic that does not exist: whether it does
        "does not exist",
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name="seen-never")], timeout_ms=10_000),
        6,
        (Op.DELETE, CLUSTER),
        (Op.DESCRIBE, TOPIC),
        (Op.DELETE, TOPIC),
    ),
    refused(
        lambda: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(SEEN, [DeleteRecordsPartition(0, 0)])], timeout_ms=10_000
        ),
        2,
        (Op.DELETE, TOPIC),
    ),
    refused(lambda: DescribeLogDirsRequest(topics=None), 3, (Op.DESCRIBE, CLUSTER)),
    refused(
        lambda: InitProducerIdRequest(transactional_id=WRITER + "-too", transaction_timeout_ms=1_000),
        4,
        WRITE_ID,
    ),
    refused(
        lambda: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000),
        4,
        (Op.WRITE, TOPIC),
        (Op.IDEMPOTENT_WRITE, CLUSTER),
    ),
    refused(add_partitions, 3, WRITE_ID),
    refused(add_partitions, 3, (Op.WRITE, TOPIC)),
    refused(add_partitions_for_another, 4, (Op.CLUSTER_ACTION, CLUSTER)),
    refused(lambda: AddOffsetsToTxnRequest(WRITER, 0, 0, READERS), 3, WRITE_ID),
    refused(lambda: AddOffsetsToTxnRequest(WRITER, 0, 0, READERS), 3, READ_GROUP),
    refused(lambda: EndTxnRequest(WRITER, 99, 0, True), 3, WRITE_ID),
    refused(lambda: DescribeTransactionsRequest([WRITER]), 0, (Op.DESCRIBE, ID)),
    hides(f"topic={SEEN!r}", lambda: DescribeTransactionsRequest([WRITER]), 0, (Op.DESCRIBE, TOPIC)),
    hides(WRITER, ListTransactionsRequest, 0, (Op.DESCRIBE, ID)),
    refused(markers, 1, (Op.ALTER, CLUSTER), (Op.CLUSTER_ACTION, CLUSTER)),
    refused(end_of_epoch, 4, (Op.CLUSTER_ACTION, CLUSTER), (Op.DESCRIBE, TOPIC)),
    *(
        refused(lambda make=make, kind=kind: make(kind), version, (operation, resource))  # type: ignore[misc]
        for kind, resource in CONFIGURED.items()
        for make, version, operation in (
            (describe_configs, 4, Op.DESCRIBE_CONFIGS),
            (alter_configs, 2, Op.ALTER_CONFIGS),
            (alter_incrementally, 1, Op.ALTER_CONFIGS),
        )
    ),
    refused(
        lambda: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(SEEN, 2, None)], timeout_ms=10_000, validate_only=True
        ),
        3,
        (Op.ALTER, TOPIC),
    ),
    refused(lambda: ElectLeadersRequest(topic_partitions=[ElectedTopic(SEEN, [0])]), 2, (Op.ALTER, CLUSTER)),
    refused(lambda: ElectLeadersRequest(topic_partitions=[ElectedTopic(SEEN, [0])]), 0, (Op.ALTER, CLUSTER)),
    refused(
        lambda: AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(SEEN, [ReassignablePartition(0, None)])]
        ),
        0,
        (Op.ALTER, CLUSTER),
    ),
    refused(lambda: ListPartitionReassignmentsRequest(topics=None), 0, (Op.DESCRIBE, CLUSTER)),
    refused(
        lambda: DescribeQuorumRequest(topics=[DescribeTopic("__cluster_metadata", [DescribePartition(0)])]),
        1,
        (Op.DESCRIBE, CLUSTER),
    ),
    refused(UpdateFeaturesRequest, 2, (Op.ALTER, CLUSTER)),
    refused(DescribeUserScramCredentialsRequest, 0, (Op.DESCRIBE, CLUSTER)),
    refused(
        lambda: AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("nobody", 1)]),
        0,
        (Op.ALTER, CLUSTER),
    ),
    refused(DescribeClientQuotasRequest, 1, (Op.DESCRIBE_CONFIGS, CLUSTER)),
    refused(
        lambda: AlterClientQuotasRequest(
            [AlterationData([EntityData("user", "x")], [OpData("request_percentage", 90.0)])]
        ),
        1,
        (Op.ALTER_CONFIGS, CLUSTER),
    ),
    refused(lambda: UnregisterBrokerRequest(99), 0, (Op.ALTER, CLUSTER)),
    hides(
        f"cluster_authorized_operations={CLUSTER_OPERATIONS}",
        lambda: DescribeClusterRequest(include_cluster_authorized_operations=True),
        1,
        (Op.DESCRIBE, CLUSTER),
    ),
    refused(
        lambda: DescribeProducersRequest(topics=[DescribeProducersTopic(SEEN, [0])]), 0, (Op.READ, TOPIC)
    ),
    refused(ListConfigResourcesRequest, 1, (Op.DESCRIBE_CONFIGS, CLUSTER)),
    refused(lambda: view_request("summary", {}), VIEW_VERSION, (Op.CLUSTER_ACTION, CLUSTER)),
    refused(
        lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(SEEN)], response_partition_limit=10),
        0,
        (Op.DESCRIBE, TOPIC),
    ),
    hides(
        f"name={SEEN!r}",
        lambda: DescribeTopicPartitionsRequest(topics=[], response_partition_limit=100),
        0,
        (Op.DESCRIBE, TOPIC),
    ),
    refused(lambda: FindCoordinatorRequest(READERS), 3, (Op.DESCRIBE, GROUP)),
    refused(lambda: FindCoordinatorRequest(coordinator_keys=[READERS]), 4, (Op.DESCRIBE, GROUP)),
    refused(lambda: FindCoordinatorRequest(WRITER, CoordinatorType.TRANSACTION), 3, (Op.DESCRIBE, ID)),
    refused(
        lambda: FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=[WRITER]),
        4,
        (Op.DESCRIBE, ID),
    ),
    refused(
        lambda: JoinGroupRequest(
            group_id=READERS,
            session_timeout_ms=1,  # too short: nobody joins
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        ),
        5,
        READ_GROUP,
    ),
    refused(lambda: HeartbeatRequest(READERS, 1, "nobody"), 4, READ_GROUP),
    refused(lambda: LeaveGroupRequest(READERS, members=[MemberIdentity("nobody")]), 4, READ_GROUP),
    refused(lambda: SyncGroupRequest(READERS, 1, "nobody"), 4, READ_GROUP),
    refused(commit, 8, READ_GROUP),
    refused(commit, 8, (Op.READ, TOPIC)),
    refused(commit_in_transaction, 2, WRITE_ID),
    refused(commit_in_transaction, 2, READ_GROUP),
    refused(commit_in_transaction, 2, (Op.READ, TOPIC)),
    refused(lambda: fetch_offsets(named=True), 8, (Op.DESCRIBE, GROUP)),
    refused(lambda: fetch_offsets(named=True), 8, (Op.DESCRIBE, TOPIC)),
    hides(f"name={SEEN!r}", lambda: fetch_offsets(named=False), 8, (Op.DESCRIBE, TOPIC)),
    refused(
        lambda: OffsetFetchRequest(group_id=READERS, topics=[OffsetFetchRequestTopic(SEEN, [0])]),
        1,
        (Op.DESCRIBE, GROUP),
    ),
    refused(
        lambda: OffsetDeleteRequest(
            READERS, [OffsetDeleteRequestTopic("nowhere", [OffsetDeleteRequestPartition(0)])]
        ),
        0,
        (Op.DELETE, GROUP),
    ),
    refused(
        lambda: OffsetDeleteRequest(
            READERS + "-not", [OffsetDeleteRequestTopic(SEEN, [OffsetDeleteRequestPartition(0)])]
        ),
        0,
        (Op.READ, TOPIC),
    ),
    refused(lambda: DescribeGroupsRequest([READERS]), 4, (Op.DESCRIBE, GROUP)),
    hides(READERS, ListGroupsRequest, 4, (Op.DESCRIBE, CLUSTER), (Op.DESCRIBE, GROUP)),
    refused(lambda: DeleteGroupsRequest([READERS + "-not"]), 2, (Op.DELETE, GROUP)),
    refused(heartbeat_of_consumer_group, 0, READ_GROUP),
    refused(heartbeat_of_consumer_group, 0, (Op.DESCRIBE, TOPIC)),
    refused(lambda: ConsumerGroupDescribeRequest([MEMBERS]), 0, (Op.DESCRIBE, GROUP)),
    hides(
        f"topic_name={SEEN!r}",
        lambda: ConsumerGroupDescribeRequest([MEMBERS]),
        0,
        (Op.DESCRIBE, TOPIC),
    ),
    refused(lambda: DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), 2, (Op.DESCRIBE, CLUSTER)),
    refused(
        lambda: CreateAclsRequest([creation((Op.READ, TOPIC), PermissionType.ALLOW, principal="nobody")]),
        2,
        (Op.ALTER, CLUSTER),
    ),
    refused(lambda: DeleteAclsRequest([acl_filter()]), 2, (Op.ALTER, CLUSTER)),
]


def creation(
    right: Right, permission: PermissionType, host: str = CLIENT, principal: str = "User:*"
) -> AclCreation:
    """An ACL about all resources whose names begin as those of these tests do."""
    operation, resource = right
    if resource is CLUSTER:
        name, pattern = NAMES[CLUSTER], PatternType.LITERAL
    elif resource is GROUP or (operation, resource) == (Op.WRITE, TOPIC):
        name, pattern = "*", PatternType.LITERAL  # no topic may be written, whatever its name
    else:
        name, pattern = NAMES[resource], PatternType.PREFIXED
    return AclCreation(resource, name, pattern, principal, host, operation, permission)


class Broker(NamedTuple):
    client: RawConnection
    admin: RawConnection

    def deny(self, *rights: Right) -> None:
        answer = self.admin.call(
            CreateAclsRequest([creation(right, PermissionType.DENY) for right in rights]), 3
        )
        assert codes(answer) == {ErrorCode.NONE}

    def deny_nothing(self) -> None:
        wanted = DeleteAclsFilter(ANY, None, ANY, None, None, ANY, PermissionType.DENY)
        assert codes(self.admin.call(DeleteAclsRequest([wanted]), 3)) == {ErrorCode.NONE}


def codes(value: Any) -> set[ErrorCode]:
    """All error codes anywhere in an answer."""
    if isinstance(value, list):
        return {code for one in value for code in codes(one)}
    if not isinstance(value, Message):
        return set()
    own = {ErrorCode(getattr(value, name)) for name in value.NAMES if name.endswith("error_code")}
    return own | {code for name in value.NAMES for code in codes(getattr(value, name))}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Everybody may do everything, by ACLs that can be denied; there is something of everything."""
    with threaded_cluster(1, PROPERTIES) as cluster:
        address = ("127.0.0.1", cluster.cluster.ports[1])
        with RawConnection(address, CLIENT) as client, RawConnection(address, ADMIN) as admin:
            everything = [
                AclCreation(resource, "*", PatternType.LITERAL, "User:*", "*", Op.ALL, PermissionType.ALLOW)
                for resource in (TOPIC, GROUP, ID)
            ]
            cluster_too = creation((Op.ALL, CLUSTER), PermissionType.ALLOW, host="*")
            assert codes(admin.call(CreateAclsRequest([*everything, cluster_too]), 2)) == {ErrorCode.NONE}
            fill(admin)
            yield Broker(client, admin)


def fill(admin: RawConnection) -> None:
    """Topics, a committed offset, a member, a transaction."""

    def done(body: Message, version: int) -> Any:
        def ask() -> Any:
            answer = admin.call(body, version)
            return answer if codes(answer) == {ErrorCode.NONE} else None

        return until(ask, f"{body.API_KEY.name} is done")

    names = (SEEN, "seen-first", "seen-last")
    done(CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1) for name in names], timeout_ms=10_000), 7)
    done(FindCoordinatorRequest(coordinator_keys=[READERS]), 4)
    done(commit(), 8)
    done(heartbeat_of_consumer_group(), 0)
    done(FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=[WRITER]), 4)
    begun = done(InitProducerIdRequest(transactional_id=WRITER, transaction_timeout_ms=600_000), 4)
    add = add_partitions()
    add.v3_and_below_producer_id, add.v3_and_below_producer_epoch = begun.producer_id, begun.producer_epoch
    done(add, 3)


DENIALS = set(REFUSED.values())


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_what_is_denied_is_not_served(broker: Broker, case: Case) -> None:
    broker.deny(*case.rights)
    try:
        answer = broker.client.call(case.body(), case.version)
        if case.hidden:
            assert case.hidden not in repr(answer)
        else:
            assert case.code in codes(answer)
            assert codes(broker.admin.call(case.body(), case.version)).isdisjoint(DENIALS), (
                "it is the client's"
            )
    finally:
        broker.deny_nothing()
    answer = broker.client.call(case.body(), case.version)
    assert codes(answer).isdisjoint(DENIALS)
    assert case.hidden in repr(answer)


def test_each_right_of_each_api_is_among_the_cases() -> None:
    denied = {(case.body().API_KEY, *right) for case in CASES for right in case.rights}
    asked = {
        (key, right.operation, right.resource)
        for key, api in APIS.items()
        for permission in api.permissions
        for right in permission.rights
    }
    assert asked - denied == set()
    assert {key for key, *_ in denied} == {key for key, api in APIS.items() if api.permissions}


def test_an_expression_comes_to_the_topics_that_its_member_may_describe(broker: Broker) -> None:
    """KIP-848; anew with the next heartbeat whenever ACLs change."""

    def topics() -> int:
        body = heartbeat_of_consumer_group()
        body.group_id, body.member_id = "expressions", "of-one"
        body.subscribed_topic_names, body.subscribed_topic_regex = None, "seen.*"
        answer = broker.client.call(body, 1)
        assert codes(answer) == {ErrorCode.NONE}
        return len(answer.assignment.topic_partitions)

    assert topics() == 3
    broker.deny((Op.DESCRIBE, TOPIC))
    try:
        assert topics() == 0
    finally:
        broker.deny_nothing()
    assert topics() == 3


# The command


def test_acls_are_listed_added_and_removed(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    host, port = broker.admin.socket.getpeername()

    def acls(*arguments: str) -> Any:
        capfd.readouterr()
        assert run(["acls", *arguments, "--bootstrap-server", f"{host}:{port}"]) == 0
        return capfd.readouterr().out

    options = ("--allow-principal", "User:cli", "--consumer", "--topic", "cli", "--group", "cli")
    added = json.loads(acls("add", *options, "--json"))["acls"]
    assert [(one["resource_type"], one["operation"]) for one in added] == [
        ("TOPIC", "READ"),
        ("TOPIC", "DESCRIBE"),
        ("GROUP", "READ"),
    ]
    assert json.loads(acls("list", "--principal", "User:cli", "--json"))["acls"] == added
    lines = acls("list", "--topic", "cli", "--resource-pattern-type", "literal").splitlines()
    assert lines[1].split() == ["TOPIC", "cli", "LITERAL", "User:cli", "*", "READ", "ALLOW"]
    assert json.loads(acls("remove", *options, "--force", "--json"))["acls"] == added
    assert acls("list", "--principal", "User:cli") == ""
    assert acls("remove", *options, "--force") == "there was no such ACL\n"
