"""What each API names that permissions are asked for, and the one way in which its handler is guarded.

`GUARDS` is keyed by the table of APIs and checked against it at import: a row with a permission that can be refused
needs a guard that says where its resources are. The guard then does the same for all: it refuses the request as a
whole, or takes out what is refused, has the handler serve the rest and adds the refused things to its answer, as Kafka
does, and conceals from an answer what its reader may not see. An answer that was long in coming is judged again, where
nothing was changed by the request. Called by the dispatcher where there is an authorizer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kraft.broker.authorization import Judge
from kraft.broker.ready_requests import Handler
from kraft.broker.request import HandlerResult, Request
from kraft.broker.services import BrokerServices
from kraft.network.connection import CloseConnectionError
from kraft.network.response import Deferred
from kraft.protocol import produce
from kraft.protocol.api import APIS, ApiKey, Denial, ResourceType
from kraft.protocol.errors import ErrorCode
from kraft.protocol.messages import response_class
from kraft.protocol.schema import Message
from kraft.protocol.schemas import (
    acls,
    client_quotas,
    configs,
    consumer_groups,
    delete_records,
    elections,
    find_coordinator,
    group_admin,
    group_offsets,
    offsets,
    producers,
    reassignments,
    topics,
    transactions,
)
from kraft.protocol.schemas.alter_configs import AlterConfigsResourceResponse
from kraft.protocol.schemas.configs import ConfigResourceType
from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.metadata.acls import CLUSTER_NAME

_CLUSTER, _TOPIC, _GROUP, _ID = (
    ResourceType.CLUSTER,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
)
Resource = tuple[ResourceType, str]


class Items(NamedTuple):
    """Things that a request names and its answer has results for; fields' names in both. `resource` says what one
    of them is about: None where there is nothing to refuse. Where all stand or fall together it is never asked."""

    asked: str
    answered: str
    refused: Callable[[Any, ErrorCode], Message]
    resource: Callable[[Judge, Any], Resource | None] | None = None
    of: frozenset[ResourceType] = frozenset()
    others: ErrorCode | None = None
    """What the other things are answered with when one is refused; None: they are served."""


class Guard(NamedTuple):
    """How one API is guarded."""

    whole: Mapping[ResourceType, Callable[[Any], Iterable[str]]] = {}
    """The names that a body has on which all of it depends."""
    items: Items | None = None
    conceal: Callable[[Judge, Any], None] | None = None
    """Takes out of an answer what its reader may not see."""
    judged_again: bool = False
    """Whether a late answer is refused if the permission is gone by then."""
    is_silent: Callable[[Any], bool] | None = None
    """Whether a body wants no answer: then a refusal closes the connection."""
    refusal: Mapping[str, int] = {}
    """What the answer to a request that is refused as a whole says beside its error."""
    by_handler: bool = False
    """Its handler asks the judge by itself."""


# -- what requests name


def _cluster_name(_: Any) -> Iterable[str]:
    return (CLUSTER_NAME,)


def _group_id(body: Any) -> Iterable[str]:
    return (body.group_id,)


def _transactional_id(body: Any) -> Iterable[str]:
    return () if body.transactional_id is None else (body.transactional_id,)


def _adding_id(body: Any) -> Iterable[str]:
    return (body.v3_and_below_transactional_id,)


def _key(body: Any) -> Iterable[str]:
    return (body.key,)


def _named_topic(_: Judge, item: Any) -> Resource:
    return _TOPIC, item.name


def _topic_of_epochs(_: Judge, item: Any) -> Resource:
    return _TOPIC, item.topic


def _committed_topic(judge: Judge, item: Any) -> Resource | None:
    name = item.name or judge.metadata.topic_name(item.topic_id)
    return None if name is None else (_TOPIC, name)


def _deleted_topic(judge: Judge, item: Any) -> Resource | None:
    """None for a topic that is not there, if its name is to be seen: then that is the answer."""
    if isinstance(item, str):
        name: str | None = item
    else:
        name = judge.metadata.topic_name(item.topic_id) if item.topic_id != ZERO_TOPIC_ID else item.name
    if name is None or (judge.metadata.image.topic(name) is None and judge.shows(_TOPIC, name)):
        return None
    return _TOPIC, name


def _coordinated(judge: Judge, key: str) -> Resource:
    is_group = judge.body.key_type == find_coordinator.CoordinatorType.GROUP
    return (_GROUP if is_group else _ID), key


def _configured(_: Judge, item: Any) -> Resource:
    if item.resource_type == ConfigResourceType.TOPIC:
        return _TOPIC, item.resource_name
    if item.resource_type == ConfigResourceType.GROUP:
        return _GROUP, item.resource_name
    return _CLUSTER, CLUSTER_NAME


def _one_group(_: Judge, group_id: str) -> Resource:
    return _GROUP, group_id


def _one_id(_: Judge, transactional_id: str) -> Resource:
    return _ID, transactional_id


# -- results of what is refused


def _produced(topic: Any, code: ErrorCode) -> Message:
    return produce.TopicProduceResponse(
        name=topic.name,
        partition_responses=[
            produce.PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
            for data in topic.partition_data
        ],
    )


def _listed(topic: Any, code: ErrorCode) -> Message:
    return offsets.ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            offsets.ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ],
    )


def _epochs(topic: Any, code: ErrorCode) -> Message:
    return offsets.OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            offsets.EpochEndOffset(partition=one.partition, error_code=code) for one in topic.partitions
        ],
    )


def _described_producers(topic: Any, code: ErrorCode) -> Message:
    return producers.DescribeProducersTopicResult(
        name=topic.name,
        partitions=[
            producers.DescribeProducersPartition(partition_index=number, error_code=code)
            for number in topic.partition_indexes
        ],
    )


def _deleted_records(topic: Any, code: ErrorCode) -> Message:
    return delete_records.DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            delete_records.DeleteRecordsPartitionResult(
                partition_index=one.partition_index,
                low_watermark=delete_records.UNKNOWN_LOW_WATERMARK,
                error_code=code,
            )
            for one in topic.partitions
        ],
    )


def _created_topic(topic: Any, code: ErrorCode) -> Message:
    return topics.CreatableTopicResult(name=topic.name, error_code=code, error_message=code.message)


def _deleted(topic: Any, code: ErrorCode) -> Message:
    if isinstance(topic, str):
        return topics.DeletableTopicResult(name=topic, error_code=code, error_message=code.message)
    return topics.DeletableTopicResult(
        name=topic.name if topic.topic_id == ZERO_TOPIC_ID else None,
        topic_id=topic.topic_id,
        error_code=code,
        error_message=code.message,
    )


def _grown(topic: Any, code: ErrorCode) -> Message:
    return topics.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=code.message)


def _described_configs(resource: Any, code: ErrorCode) -> Message:
    return configs.DescribeConfigsResult(
        error_code=code,
        error_message=code.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _altered_configs(resource: Any, code: ErrorCode) -> Message:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=code.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _elected(topic: Any, code: ErrorCode) -> Message:
    return elections.ReplicaElectionResult(
        topic=topic.topic,
        partition_result=[
            elections.PartitionResult(partition_id=number, error_code=code) for number in topic.partitions
        ],
    )


def _reassigned(topic: Any, code: ErrorCode) -> Message:
    return reassignments.ReassignableTopicResponse(
        name=topic.name,
        partitions=[
            reassignments.ReassignablePartitionResponse(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ],
    )


def _found(key: str, code: ErrorCode) -> Message:
    return find_coordinator.Coordinator(
        key=key, error_code=code, error_message=code.message, node_id=-1, host="", port=-1
    )


def _committed(topic: Any, code: ErrorCode) -> Message:
    return group_offsets.OffsetCommitResponseTopic(
        topic.name,
        topic.topic_id,
        [group_offsets.OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions],
    )


def _committed_in_transaction(topic: Any, code: ErrorCode) -> Message:
    return group_offsets.TxnOffsetCommitResponseTopic(
        topic.name,
        [
            group_offsets.TxnOffsetCommitResponsePartition(one.partition_index, code)
            for one in topic.partitions
        ],
    )


def _deleted_offsets(topic: Any, code: ErrorCode) -> Message:
    return group_offsets.OffsetDeleteResponseTopic(
        topic.name,
        [group_offsets.OffsetDeleteResponsePartition(one.partition_index, code) for one in topic.partitions],
    )


def _described_group(group_id: str, code: ErrorCode) -> Message:
    return group_admin.DescribedGroup(group_id=group_id, error_code=code)


def _described_consumer_group(group_id: str, code: ErrorCode) -> Message:
    return consumer_groups.DescribedGroup(group_id=group_id, error_code=code)


def _deleted_group(group_id: str, code: ErrorCode) -> Message:
    return group_admin.DeletableGroupResult(group_id=group_id, error_code=code)


def _described_transaction(transactional_id: str, code: ErrorCode) -> Message:
    return transactions.DescribedTransaction(error_code=code, transactional_id=transactional_id)


def _added(topic: Any, code: ErrorCode) -> Message:
    return transactions.AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            transactions.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
            for number in topic.partitions
        ],
    )


def _marked(marker: Any, code: ErrorCode) -> Message:
    return transactions.WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            transactions.WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    transactions.WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
                    for number in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def _created_acl(_: Any, code: ErrorCode) -> Message:
    return acls.AclCreationResult(error_code=code, error_message=code.message)


def _deleted_acls(_: Any, code: ErrorCode) -> Message:
    return acls.DeleteAclsFilterResult(error_code=code, error_message=code.message)


def _altered_quotas(item: Any, code: ErrorCode) -> Message:
    return client_quotas.AlterationResult(error_code=code, error_message=code.message, entity=item.entity)


# -- what answers conceal


def _conceal_configs(judge: Judge, answer: topics.CreateTopicsResponse) -> None:
    for topic in answer.topics:
        if not topic.error_code and not judge.shows(_TOPIC, topic.name):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []


def _conceal_topics_of_transactions(judge: Judge, answer: transactions.DescribeTransactionsResponse) -> None:
    for one in answer.transaction_states:
        one.topics = [topic for topic in one.topics if judge.shows(_TOPIC, topic.topic)]


def _conceal_transactions(judge: Judge, answer: transactions.ListTransactionsResponse) -> None:
    answer.transaction_states = [
        one for one in answer.transaction_states if judge.shows(_ID, one.transactional_id)
    ]


def _conceal_groups(judge: Judge, answer: group_admin.ListGroupsResponse) -> None:
    answer.groups = [group for group in answer.groups if judge.shows(_GROUP, group.group_id)]


def _conceal_consumer_groups(judge: Judge, answer: consumer_groups.ConsumerGroupDescribeResponse) -> None:
    """A group is told whole or not at all."""
    for group in answer.groups:
        seen = {
            topic.topic_name
            for member in group.members
            for part in (member.assignment, member.target_assignment)
            for topic in part.topic_partitions
        }
        if not all(judge.shows(_TOPIC, name) for name in seen):
            group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group.error_message = "The group has topics that you are not authorized to describe."
            group.members = []


# -- the table

_CLUSTERS: Final = Guard(whole={_CLUSTER: _cluster_name})
_GROUPS: Final = Guard(whole={_GROUP: _group_id})
_BY_HANDLER: Final = Guard(by_handler=True)
_JUST_TOPIC: Final = frozenset({_TOPIC})
_JUST_GROUP: Final = frozenset({_GROUP})
_CONFIGURED: Final = frozenset({_TOPIC, _GROUP, _CLUSTER})


def _of_topics(
    asked: str,
    answered: str,
    refused: Callable[[Any, ErrorCode], Message],
    resource: Callable[[Judge, Any], Resource | None] = _named_topic,
    others: ErrorCode | None = None,
) -> Items:
    return Items(asked, answered, refused, resource, _JUST_TOPIC, others)


GUARDS: Final[Mapping[ApiKey, Guard]] = {
    ApiKey.PRODUCE: Guard(
        {_ID: _transactional_id},
        _of_topics("topic_data", "responses", _produced),
        is_silent=lambda body: body.acks == 0,
    ),
    ApiKey.FETCH: _BY_HANDLER,
    ApiKey.LIST_OFFSETS: Guard(items=_of_topics("topics", "topics", _listed)),
    ApiKey.METADATA: _BY_HANDLER,
    ApiKey.CREATE_TOPICS: Guard(
        items=_of_topics("topics", "topics", _created_topic), conceal=_conceal_configs
    ),
    ApiKey.DELETE_TOPICS: Guard(items=_of_topics("topics", "responses", _deleted, _deleted_topic)),
    ApiKey.DELETE_RECORDS: Guard(items=_of_topics("topics", "topics", _deleted_records)),
    ApiKey.DESCRIBE_LOG_DIRS: _CLUSTERS,
    ApiKey.INIT_PRODUCER_ID: Guard(
        {_ID: _transactional_id, _CLUSTER: _cluster_name}, refusal={"producer_id": -1, "producer_epoch": -1}
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Guard({_CLUSTER: _cluster_name, _ID: _adding_id, _TOPIC: lambda body: ()}),
    ApiKey.ADD_OFFSETS_TO_TXN: Guard({_ID: _transactional_id, _GROUP: _group_id}),
    ApiKey.END_TXN: Guard({_ID: _transactional_id}),
    ApiKey.DESCRIBE_TRANSACTIONS: Guard(
        items=Items(
            "transactional_ids", "transaction_states", _described_transaction, _one_id, frozenset({_ID})
        ),
        conceal=_conceal_topics_of_transactions,
    ),
    ApiKey.LIST_TRANSACTIONS: Guard(conceal=_conceal_transactions),
    ApiKey.WRITE_TXN_MARKERS: Guard({_CLUSTER: _cluster_name}, Items("markers", "markers", _marked)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Guard(items=_of_topics("topics", "topics", _epochs, _topic_of_epochs)),
    ApiKey.DESCRIBE_CONFIGS: Guard(
        items=Items("resources", "results", _described_configs, _configured, _CONFIGURED)
    ),
    ApiKey.CREATE_PARTITIONS: Guard(items=_of_topics("topics", "results", _grown)),
    ApiKey.ALTER_CONFIGS: Guard(
        items=Items("resources", "responses", _altered_configs, _configured, _CONFIGURED)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Guard(
        items=Items("resources", "responses", _altered_configs, _configured, _CONFIGURED)
    ),
    ApiKey.ELECT_LEADERS: Guard(
        {_CLUSTER: _cluster_name}, Items("topic_partitions", "replica_election_results", _elected)
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Guard(
        {_CLUSTER: _cluster_name}, Items("topics", "responses", _reassigned)
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _CLUSTERS,
    ApiKey.DESCRIBE_QUORUM: _CLUSTERS,
    ApiKey.UPDATE_FEATURES: _CLUSTERS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _CLUSTERS,
    ApiKey.ALTER_CLIENT_QUOTAS: Guard(
        {_CLUSTER: _cluster_name}, Items("entries", "entries", _altered_quotas)
    ),
    ApiKey.UNREGISTER_BROKER: _CLUSTERS,
    ApiKey.DESCRIBE_PRODUCERS: Guard(items=_of_topics("topics", "topics", _described_producers)),
    ApiKey.LIST_CONFIG_RESOURCES: _CLUSTERS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _BY_HANDLER,
    ApiKey.FIND_COORDINATOR: Guard(
        items=Items("coordinator_keys", "coordinators", _found, _coordinated, frozenset({_GROUP, _ID}))
    ),
    ApiKey.JOIN_GROUP: _GROUPS._replace(judged_again=True),
    ApiKey.HEARTBEAT: _GROUPS,
    ApiKey.LEAVE_GROUP: _GROUPS,
    ApiKey.SYNC_GROUP: _GROUPS._replace(judged_again=True),
    ApiKey.OFFSET_COMMIT: Guard(
        {_GROUP: _group_id}, _of_topics("topics", "topics", _committed, _committed_topic)
    ),
    ApiKey.TXN_OFFSET_COMMIT: Guard(
        {_ID: _transactional_id, _GROUP: _group_id},
        _of_topics("topics", "topics", _committed_in_transaction),
    ),
    ApiKey.OFFSET_FETCH: _BY_HANDLER,
    ApiKey.OFFSET_DELETE: Guard({_GROUP: _group_id}, _of_topics("topics", "topics", _deleted_offsets)),
    ApiKey.DESCRIBE_GROUPS: Guard(items=Items("groups", "groups", _described_group, _one_group, _JUST_GROUP)),
    ApiKey.LIST_GROUPS: Guard(conceal=_conceal_groups),
    ApiKey.DELETE_GROUPS: Guard(
        items=Items("groups_names", "results", _deleted_group, _one_group, _JUST_GROUP)
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Guard(
        {_GROUP: _group_id, _TOPIC: lambda body: body.subscribed_topic_names or ()}
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Guard(
        items=Items("group_ids", "groups", _described_consumer_group, _one_group, _JUST_GROUP),
        conceal=_conceal_consumer_groups,
    ),
    ApiKey.DESCRIBE_ACLS: _CLUSTERS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _CLUSTERS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _BY_HANDLER,  # two lists name users, and one answers for both
    ApiKey.CREATE_ACLS: Guard({_CLUSTER: _cluster_name}, Items("creations", "results", _created_acl)),
    ApiKey.DELETE_ACLS: Guard({_CLUSTER: _cluster_name}, Items("filters", "filter_results", _deleted_acls)),
}

OLDER: Final[Mapping[ApiKey, tuple[int, Guard]]] = {
    ApiKey.DELETE_TOPICS: (6, Guard(items=_of_topics("topic_names", "responses", _deleted, _deleted_topic))),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        4,
        Guard(
            {_ID: _adding_id},
            _of_topics(
                "v3_and_below_topics",
                "results_by_topic_v3_and_below",
                _added,
                others=ErrorCode.OPERATION_NOT_ATTEMPTED,
            ),
        ),
    ),
    ApiKey.FIND_COORDINATOR: (4, Guard({_GROUP: _key, _ID: _key})),
}
"""The guards of versions before the one given, whose requests name things elsewhere."""


def _unguarded(key: ApiKey, guard: Guard) -> list[str]:
    """Permissions of an API that nobody would ask for."""
    known = {*guard.whole, *(guard.items.of if guard.items is not None else ())}
    return [
        f"{key.name}: {permission}"
        for permission in APIS[key].permissions
        if permission.denial is Denial.REFUSE
        and not guard.by_handler
        and not any(right.resource in known for right in permission.rights)
    ]


assert not [text for key in APIS for text in _unguarded(key, GUARDS.get(key, Guard()))], "each has its guard"


# -- the mechanism


def guarded(handlers: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
    """The same handlers, behind their guards."""
    return {
        key: handler if GUARDS.get(key, _BY_HANDLER).by_handler else _behind_guard(key, handler)
        for key, handler in handlers.items()
    }


def _behind_guard(key: ApiKey, handler: Handler) -> Handler:
    newest = GUARDS[key]
    before, older = OLDER.get(key, (0, newest))

    def handle(services: BrokerServices, request: Request[Any]) -> HandlerResult:
        guard = older if request.version < before else newest
        judge = services.judge(request)
        assert judge is not None, "handlers are guarded where there is an authorizer"
        code = _refusal_of_whole(judge, guard)
        if code:
            return _refusal(guard, request, code)
        results: list[Message] = []
        if guard.items is not None and guard.items.resource is not None:
            results, serves_others = _take_out_refused(judge, guard.items, request)
            if not serves_others:
                return _answer(guard, request, results, None)
        result = handler(services, request)
        if not results and guard.conceal is None and not guard.judged_again:
            return result

        def finish(answer: Message | None) -> Message | None:
            if guard.judged_again and (now := _refusal_of_whole(judge, guard)):
                return _refusal(guard, request, now)
            if answer is not None and guard.conceal is not None:
                guard.conceal(judge, answer)
            return _answer(guard, request, results, answer)

        return finished(result, finish)

    return handle


def finished(result: HandlerResult, finish: Callable[[Message | None], Message | None]) -> HandlerResult:
    """The result as `finish` makes it, whenever it comes."""
    if result is None or isinstance(result, Message):
        return finish(result)
    if isinstance(result, Deferred):
        before: Callable[[Any], Message | None] = result.finish
        return Deferred(result.future, lambda outcome: finish(before(outcome)))
    return _later(result, finish)


async def _later(
    result: Awaitable[Message | None], finish: Callable[[Message | None], Message | None]
) -> Message | None:
    return finish(await result)


def _refusal_of_whole(judge: Judge, guard: Guard) -> ErrorCode:
    for resource, names in guard.whole.items():
        for name in names(judge.body):
            code = judge.refusal(resource, name)
            if code:
                return code
    return ErrorCode.NONE


def _take_out_refused(judge: Judge, items: Items, request: Request[Any]) -> tuple[list[Message], bool]:
    """Leaves in the body what may be served. The results of the rest, and whether there is something to serve."""
    asked = getattr(request.body, items.asked) or []
    codes = []
    assert items.resource is not None
    for item in asked:
        resource = items.resource(judge, item)
        codes.append(ErrorCode.NONE if resource is None else judge.refusal(*resource))
    if not any(codes):
        return [], True
    if items.others is not None:
        codes = [code or items.others for code in codes]
    setattr(request.body, items.asked, [item for item, code in zip(asked, codes, strict=True) if not code])
    results = [items.refused(item, code) for item, code in zip(asked, codes, strict=True) if code]
    return results, len(results) < len(asked)


def _refusal(guard: Guard, request: Request[Any], code: ErrorCode) -> Message | None:
    """The answer to a request that is refused as a whole: the error, and that of each thing that it names."""
    items = guard.items
    asked = [] if items is None else getattr(request.body, items.asked) or []
    results = [] if items is None else [items.refused(item, code) for item in asked]
    answer = response_class(request.body.API_KEY)()
    for name, field in answer.FIELDS:
        if name == "error_code" and field.versions.includes(request.version):
            answer.error_code = code  # type: ignore[attr-defined]
        if name == "error_message" and field.versions.includes(request.version):
            answer.error_message = code.message  # type: ignore[attr-defined]
    for name, value in guard.refusal.items():
        setattr(answer, name, value)
    return _answer(guard, request, results, answer)


def _answer(
    guard: Guard, request: Request[Any], results: list[Message], answer: Message | None
) -> Message | None:
    """The handler's answer, or an empty one, with the results of what was refused."""
    if guard.is_silent is not None and guard.is_silent(request.body):
        if results:
            raise CloseConnectionError("a request without an answer asked for what its client may not do")
        return None
    if answer is None:
        answer = response_class(request.body.API_KEY)()
    if results:
        assert guard.items is not None
        setattr(answer, guard.items.answered, [*getattr(answer, guard.items.answered), *results])
    return answer
