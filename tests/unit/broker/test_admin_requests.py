"""ElectLeaders, reassignments, UpdateFeatures, UnregisterBroker, DescribeQuorum: what reaches the
controller, what comes back, and what is refused without asking it.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.handlers.forwarding import MAX_ITEMS, MAX_REPLICAS
from kraft.protocol.errors import ErrorCode
from kraft.protocol.messages import encode_response
from kraft.protocol.schema import Message
from kraft.protocol.schemas.api_versions import ApiVersionsRequest
from kraft.protocol.schemas.cluster import UnregisterBrokerRequest
from kraft.protocol.schemas.elections import ElectLeadersRequest, TopicPartitions
from kraft.protocol.schemas.features import FeatureUpdateKey, UpdateFeaturesRequest
from kraft.protocol.schemas.quorum import (
    CLUSTER_METADATA_TOPIC,
    DescribePartition,
    DescribeQuorumRequest,
    DescribeTopic,
)
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from quorum.metadata.features import SUPPORTED_FEATURES
from quorum.metadata.records import FeatureLevel
from quorum.rpc import messages
from quorum.rpc.envelope import RpcError, RpcUnavailable
from tests.support.broker_world import BrokerWorld

# Elections


def election(*topics: TopicPartitions, election_type: int = 0) -> ElectLeadersRequest:
    return ElectLeadersRequest(election_type, list(topics), timeout_ms=1_000)


async def test_elections_are_asked_for_and_answered_by_topic(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(
        messages.ElectLeadersRequest,
        messages.ElectLeadersResponse(
            (
                messages.ElectLeadersResult("t", 1),
                messages.ElectLeadersResult("u", 0, "ELECTION_NOT_NEEDED", "it leads"),
                messages.ElectLeadersResult("t", 0, "PREFERRED_LEADER_NOT_AVAILABLE", "it is away"),
            )
        ),
    )
    body = election(TopicPartitions("t", [1, 0]), TopicPartitions("u", [0]), election_type=1)
    response = await world.handle(body, 2)
    assert world.controller.calls == [messages.ElectLeadersRequest(1, (("t", 1), ("t", 0), ("u", 0)))]
    assert response.error_code == ErrorCode.NONE
    assert [
        (topic.topic, [(p.partition_id, p.error_code, p.error_message) for p in topic.partition_result])
        for topic in response.replica_election_results
    ] == [
        ("t", [(1, ErrorCode.NONE, None), (0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it is away")]),
        ("u", [(0, ErrorCode.ELECTION_NOT_NEEDED, "it leads")]),
    ]


async def test_all_partitions_are_asked_for_without_naming_them(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(messages.ElectLeadersRequest, messages.ElectLeadersResponse(()))
    response = await world.handle(ElectLeadersRequest(topic_partitions=None), 2)
    assert world.controller.calls == [messages.ElectLeadersRequest(0, None)]
    assert response.replica_election_results == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (election(TopicPartitions("t", [0]), election_type=2), ErrorCode.INVALID_REQUEST),
        (election(TopicPartitions("t", [0]), TopicPartitions("t", [0])), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_elections_that_make_no_sense(
    world: BrokerWorld, body: ElectLeadersRequest, code: ErrorCode
) -> None:
    await world.start()
    response = await world.handle(body, 2)
    assert response.error_code == code
    assert {p.error_code for t in response.replica_election_results for p in t.partition_result} == {code}
    assert world.controller.calls == []


async def test_requests_that_name_too_much_are_refused_with_one_word(world: BrokerWorld) -> None:
    """An answer for each of a million partitions would be many times larger than the request."""
    await world.start()
    many = range(MAX_ITEMS + 1)
    topic = TopicPartitions("t", list(many))
    listed = ListPartitionReassignmentsTopics("t", list(many))
    asked: list[tuple[Message, int]] = [
        (election(topic), 2),
        (moves(*(ReassignablePartition(n, [1]) for n in many)), 1),
        (ListPartitionReassignmentsRequest(topics=[listed]), 0),
        (update(*(FeatureUpdateKey(f"f{n}", 1) for n in many)), 1),
        (quorum_of(*((f"t{n}", 0) for n in many)), 2),
        (election(TopicPartitions("t" * 30_000, list(range(1_000)))), 2),
        (moves(ReassignablePartition(0, [1] * (MAX_REPLICAS + 1))), 1),
        (update(*(FeatureUpdateKey(f"{n}" * 30_000, 1) for n in range(1_000))), 1),
    ]
    for body, version in asked:
        response = await world.handle(body, version)
        assert response.error_code == ErrorCode.POLICY_VIOLATION
        _, size_bytes = encode_response(response, version)
        assert size_bytes < 1_000
    oldest = await world.handle(election(topic), 0)
    (result,) = oldest.replica_election_results
    assert {p.error_code for p in result.partition_result} == {ErrorCode.POLICY_VIOLATION}
    assert world.controller.calls == []


async def test_the_first_version_of_elect_leaders_has_errors_of_partitions_only(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(messages.ElectLeadersRequest, RpcUnavailable("nobody"))
    response = await world.handle(election(TopicPartitions("t", [0])), 0)
    assert response.error_code == ErrorCode.NONE
    assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.REQUEST_TIMED_OUT


# Reassignments


def moves(*partitions: ReassignablePartition, **fields: Any) -> AlterPartitionReassignmentsRequest:
    topic = ReassignableTopic("t", list(partitions))
    return AlterPartitionReassignmentsRequest(timeout_ms=1_000, topics=[topic], **fields)


async def test_reassignments_are_begun_and_cancelled(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(
        messages.AlterPartitionReassignmentsRequest,
        messages.AlterPartitionReassignmentsResponse(
            (
                messages.ReassignmentResult("t", 0),
                messages.ReassignmentResult("t", 1, "NO_REASSIGNMENT_IN_PROGRESS", "nothing moves"),
            )
        ),
    )
    body = moves(
        ReassignablePartition(0, [2, 3]), ReassignablePartition(1), allow_replication_factor_change=False
    )
    response = await world.handle(body, 1)
    wanted = (messages.PartitionReassignment(0, (2, 3)), messages.PartitionReassignment(1, None))
    assert world.controller.calls == [
        messages.AlterPartitionReassignmentsRequest((messages.TopicReassignments("t", wanted),), False)
    ]
    assert (response.error_code, response.allow_replication_factor_change) == (ErrorCode.NONE, False)
    (topic,) = response.responses
    assert [(p.partition_index, p.error_code, p.error_message) for p in topic.partitions] == [
        (0, ErrorCode.NONE, None),
        (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing moves"),
    ]


async def test_a_partition_moves_to_one_place(world: BrokerWorld) -> None:
    await world.start()
    response = await world.handle(moves(*(ReassignablePartition(0, [n]) for n in (1, 2))), 0)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert [p.error_code for t in response.responses for p in t.partitions] == [ErrorCode.INVALID_REQUEST] * 2
    assert world.controller.calls == []


async def test_the_list_of_reassignments_is_the_controllers(world: BrokerWorld) -> None:
    await world.start()
    moving = messages.OngoingReassignment("t", 4, (1, 2, 3), (3,), (1,))
    world.controller.answer(
        messages.ListPartitionReassignmentsRequest, messages.ListPartitionReassignmentsResponse((moving,))
    )
    named = [ListPartitionReassignmentsTopics("t", [4, 5])]
    response = await world.handle(ListPartitionReassignmentsRequest(topics=named), 0)
    assert world.controller.calls == [
        messages.ListPartitionReassignmentsRequest((messages.TopicPartitions("t", (4, 5)),))
    ]
    ((topic),) = response.topics
    ((found),) = topic.partitions
    assert (topic.name, found.partition_index) == ("t", 4)
    assert (found.replicas, found.adding_replicas, found.removing_replicas) == ([1, 2, 3], [3], [1])


# Features


def update(*features: FeatureUpdateKey, **fields: Any) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(timeout_ms=1_000, feature_updates=list(features), **fields)


ELR = "eligible.leader.replicas.version"


@pytest.mark.parametrize(
    ("version", "key", "upgrade_type"),
    [
        (0, FeatureUpdateKey(ELR, 1, allow_downgrade=False), messages.UPGRADE),
        (0, FeatureUpdateKey(ELR, 0, allow_downgrade=True), messages.SAFE_DOWNGRADE),
        (1, FeatureUpdateKey(ELR, 0, upgrade_type=3), messages.UNSAFE_DOWNGRADE),
        (2, FeatureUpdateKey(ELR, 1, upgrade_type=9), 9),
    ],
)
async def test_how_far_a_feature_may_go(
    world: BrokerWorld, version: int, key: FeatureUpdateKey, upgrade_type: int
) -> None:
    await world.start()
    refused = messages.FeatureUpdateResult(ELR, "INVALID_UPDATE_VERSION", "no")
    world.controller.answer(messages.UpdateFeaturesRequest, messages.UpdateFeaturesResponse((refused,)))
    response = await world.handle(update(key), version)
    assert world.controller.calls == [
        messages.UpdateFeaturesRequest((messages.FeatureUpdate(ELR, key.max_version_level, upgrade_type),))
    ]
    assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert ELR in response.error_message


async def test_the_feature_to_blame_is_the_one_that_was_refused_for_its_own_sake(world: BrokerWorld) -> None:
    await world.start()
    because = messages.FeatureUpdateResult(ELR, messages.FEATURE_UPDATE_FAILED, "because of the other one")
    refused = messages.FeatureUpdateResult("nope", "INVALID_UPDATE_VERSION", "nobody knows it")
    world.controller.answer(
        messages.UpdateFeaturesRequest, messages.UpdateFeaturesResponse((because, refused))
    )
    response = await world.handle(update(FeatureUpdateKey(ELR, 1), FeatureUpdateKey("nope", 1)), 2)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message == "no feature was updated because of nope: nobody knows it"


async def test_features_are_updated_together(world: BrokerWorld) -> None:
    await world.start(FeatureLevel(ELR, 1))
    names = [ELR, "group.version"]

    def made(call: messages.UpdateFeaturesRequest) -> messages.UpdateFeaturesResponse:
        world.publish_soon(*(FeatureLevel(wanted.name, wanted.level) for wanted in call.updates))
        return messages.UpdateFeaturesResponse(
            tuple(messages.FeatureUpdateResult(u.name) for u in call.updates)
        )

    world.controller.always(messages.UpdateFeaturesRequest, made)
    both = [FeatureUpdateKey(ELR, 0, upgrade_type=2), FeatureUpdateKey("group.version", 1)]
    older = await world.handle(update(*both), 1)
    assert [(r.feature, r.error_code) for r in older.results] == [(name, ErrorCode.NONE) for name in names]
    newer = await world.handle(update(*both), 2)
    assert (newer.error_code, newer.results) == (ErrorCode.NONE, [])
    assert dict(world.image.features) == {"group.version": 1}


@pytest.mark.parametrize("features", [(), (FeatureUpdateKey(ELR, 1), FeatureUpdateKey(ELR, 0))])
async def test_updates_that_make_no_sense(world: BrokerWorld, features: tuple[FeatureUpdateKey, ...]) -> None:
    await world.start()
    assert (await world.handle(update(*features), 1)).error_code == ErrorCode.INVALID_REQUEST
    assert world.controller.calls == []


async def test_api_versions_tells_of_features(world: BrokerWorld) -> None:
    await world.start(FeatureLevel("metadata.version", 26), FeatureLevel(ELR, 1))
    client = ApiVersionsRequest("client", "1")
    newest = world.handle(client, 4)
    assert {(f.name, f.min_version, f.max_version) for f in newest.supported_features} == {
        (name, feature.lowest, feature.highest) for name, feature in SUPPORTED_FEATURES.items()
    }
    assert [(f.name, f.min_version_level, f.max_version_level) for f in newest.finalized_features] == [
        (ELR, 1, 1),
        ("metadata.version", 26, 26),
    ]
    assert newest.finalized_features_epoch == world.image.offset
    older = world.handle(client, 3)
    assert all(1 <= f.min_version <= f.max_version for f in older.supported_features)
    assert ELR in {f.name for f in older.supported_features}


# Brokers and the quorum


async def test_unregistering(world: BrokerWorld) -> None:
    await world.start()
    error = RpcError("BROKER_ID_NOT_REGISTERED", "there is no broker 9")
    world.controller.answer(messages.UnregisterBrokerRequest, error, messages.UnregisterBrokerResponse())
    refused = await world.handle(UnregisterBrokerRequest(9), 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "there is no broker 9",
    )
    assert (await world.handle(UnregisterBrokerRequest(9), 0)).error_code == ErrorCode.NONE
    assert world.controller.calls == [messages.UnregisterBrokerRequest(9)] * 2


async def test_nobody_is_told_that_its_own_unregistration_is_in_the_way(world: BrokerWorld) -> None:
    await world.start()
    error = RpcError("BROKER_ID_NOT_REGISTERED", "there is no broker 9", in_doubt=True)
    world.controller.answer(messages.UnregisterBrokerRequest, error)
    told = await world.handle(UnregisterBrokerRequest(9), 0)
    assert told.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "may have been made by this very request" in told.error_message


def quorum_of(*partitions: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest([DescribeTopic(name, [DescribePartition(n)]) for name, n in partitions])


async def test_the_quorum_as_the_controller_sees_it(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(
        messages.DescribeQuorumRequest,
        messages.DescribeQuorumResponse(
            9,
            4,
            100,
            (messages.QuorumReplica(9, b"d" * 16, 101, -1, 5),),
            (messages.QuorumReplica(1, bytes(16), 99, 3, 2),),
        ),
    )
    response = await world.handle(quorum_of((CLUSTER_METADATA_TOPIC, 0)), 2)
    ((topic),) = response.topics
    ((partition),) = topic.partitions
    assert (topic.topic_name, partition.partition_index, partition.error_code) == (
        CLUSTER_METADATA_TOPIC,
        0,
        ErrorCode.NONE,
    )
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (9, 4, 100)
    (voter,), (observer,) = partition.current_voters, partition.observers
    assert (voter.replica_id, voter.replica_directory_id, voter.log_end_offset) == (9, b"d" * 16, 101)
    assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (-1, 5)
    assert (observer.replica_id, observer.log_end_offset, observer.last_fetch_timestamp) == (1, 99, 3)
    (node,) = response.nodes
    assert (node.node_id, [(x.name, x.host, x.port) for x in node.listeners]) == (
        9,
        [("CONTROLLER", "localhost", 9093)],
    )


@pytest.mark.parametrize(
    "asked", [[("t", 0)], [(CLUSTER_METADATA_TOPIC, 1)], [(CLUSTER_METADATA_TOPIC, 0), ("t", 0)], []]
)
async def test_there_is_one_metadata_partition(world: BrokerWorld, asked: list[tuple[str, int]]) -> None:
    await world.start()
    response = await world.handle(quorum_of(*asked), 2)
    found = [(t.topic_name, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]
    assert found == [(name, number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name, number in asked]
    assert world.controller.calls == []


@pytest.mark.parametrize(
    ("body", "version", "kind"),
    [
        (moves(ReassignablePartition(0, [1])), 1, messages.AlterPartitionReassignmentsRequest),
        (ListPartitionReassignmentsRequest(), 0, messages.ListPartitionReassignmentsRequest),
        (update(FeatureUpdateKey(ELR, 1)), 2, messages.UpdateFeaturesRequest),
        (UnregisterBrokerRequest(1), 0, messages.UnregisterBrokerRequest),
        (quorum_of((CLUSTER_METADATA_TOPIC, 0)), 2, messages.DescribeQuorumRequest),
        (election(TopicPartitions("t", [0])), 2, messages.ElectLeadersRequest),
    ],
)
async def test_without_a_controller(world: BrokerWorld, body: Message, version: int, kind: type[Any]) -> None:
    await world.start()
    world.controller.answer(kind, RpcUnavailable("nobody"), RpcError("THROTTLING_QUOTA_EXCEEDED", "later"))
    assert (await world.handle(body, version)).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await world.handle(body, version)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
