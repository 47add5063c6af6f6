"""Groups as a broker's views tell them: rows of those that it coordinates, and one of them whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from kraft.broker.coordinators.group_history import MINUTE_MS, GroupTotals
from kraft.broker.coordinators.group_lag import GroupLag
from kraft.broker.services import BrokerServices
from kraft.coordinator.groups.context import Client, GroupType
from kraft.coordinator.groups.shard import DescribeConsumerGroup, DescribeGroup, GroupRequest
from kraft.protocol.consumer_protocol import PROTOCOL_TYPE, assigned_partitions, subscribed_topics
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.consumer_groups import DescribedAssignment
from kraft.protocol.schemas.consumer_groups import DescribedGroup as DescribedConsumerGroup
from kraft.protocol.schemas.group_admin import DescribedGroup, ListedGroup
from partitions.topic_partition import TopicPartition

GROUPS_PER_STEP: Final = 500
DESCRIBED_VERSION: Final = 0
NOTHING: Final = GroupTotals(0, 0, None, None, 0)
Document = dict[str, Any]


async def group_rows(services: BrokerServices, group_lag: GroupLag, now_ms: int) -> list[Document]:
    """GROUP of docs/console-api.md, for each group that this broker coordinates."""
    rows: list[Document] = []
    for _, shard in list(services.groups.runtime.shards()):
        for listed, members in list(shard.listed()):
            rows.append(_row(services, group_lag, listed, members, now_ms))
            if len(rows) % GROUPS_PER_STEP == 0:
                await asyncio.sleep(0)
    return rows


def _row(
    services: BrokerServices, group_lag: GroupLag, listed: ListedGroup, members: int, now_ms: int
) -> Document:
    totals = group_lag.history.of_group(listed.group_id) or NOTHING
    return {
        "group_id": listed.group_id,
        "type": listed.group_type,
        "state": listed.group_state,
        "protocol_type": listed.protocol_type,
        "coordinator": services.broker_id,
        "members": members,
        "topics": totals.topics,
        "lag": totals.lag,
        "lag_s": totals.lag_s,
        "measured_at_ms": group_lag.measured_ms or None,
        "stands_still_since_ms": group_lag.history.stands_still_since_ms(listed.group_id, now_ms),
    }


async def group_document(
    services: BrokerServices, group_lag: GroupLag, group_id: str, now_ms: int
) -> Document:
    """One group, whole; empty if this broker coordinates none of that id."""
    number = services.groups.partition_of(group_id)
    shard = next((shard for one, shard in services.groups.runtime.shards() if one == number), None)
    group = None if shard is None else shard.groups.get(group_id)
    if shard is None or group is None:
        return {}
    found = next(((one, count) for one, count in shard.listed() if one.group_id == group_id), None)
    if found is None:
        return {}
    is_consumer = group.type is GroupType.CONSUMER
    question = DescribeConsumerGroup(group_id) if is_consumer else DescribeGroup(group_id)
    request = GroupRequest(question, DESCRIBED_VERSION, Client("console", ""))
    described = await services.groups.submit(group_id, request, reads=True)
    if isinstance(described, ErrorCode):
        return {}
    document = _consumer(described) if is_consumer else _classic(described)
    owners = {
        (topic["topic"], partition): member["member_id"]
        for member in document["member_rows"]
        for topic in member["assignment"]
        for partition in topic["partitions"]
    }
    lags, ages = group_lag.history.lags(group_id, now_ms)
    return {
        **_row(services, group_lag, *found, now_ms),
        **document,
        "partition_rows": _partition_rows(group_lag, group_id, owners),
        "history": {"step_ms": MINUTE_MS, "end_at_ms": now_ms, "lag": lags, "lag_s": ages},
    }


def _partition_rows(
    group_lag: GroupLag, group_id: str, owners: Mapping[tuple[str, int], str]
) -> list[Document]:
    """What is committed or assigned, by topic and number."""
    rows: dict[tuple[str, int], Document] = {
        (topic, partition): _partition(topic, partition, owner)
        for (topic, partition), owner in owners.items()
    }
    for one in group_lag.of_group(group_id) or ():
        rows[one.topic, one.partition] = {
            **_partition(one.topic, one.partition, owners.get((one.topic, one.partition))),
            "offset": one.offset,
            "log_end_offset": one.log_end,
            "lag": one.lag,
            "lag_s": one.lag_s,
        }
    return [rows[key] for key in sorted(rows)]


def _partition(topic: str, partition: int, owner: str | None) -> Document:
    unknown = dict.fromkeys(("offset", "log_end_offset", "lag", "lag_s"))
    return {"topic": topic, "partition": partition, **unknown, "member_id": owner}


def _classic(described: DescribedGroup) -> Document:
    is_consumers = described.protocol_type == PROTOCOL_TYPE
    return {
        "group_epoch": None,
        "assignment_epoch": None,
        "assignor": described.protocol_data or None,
        "member_rows": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rack_id": None,
                "member_epoch": None,
                "subscribed_topics": subscribed_topics(member.member_metadata) if is_consumers else None,
                "assignment": _by_topic(
                    TopicPartition(*one) for one in assigned_partitions(member.member_assignment)
                )
                if is_consumers
                else [],
                "target_assignment": None,
            }
            for member in described.members
        ],
    }


def _consumer(described: DescribedConsumerGroup) -> Document:
    return {
        "group_epoch": described.group_epoch,
        "assignment_epoch": described.assignment_epoch,
        "assignor": described.assignor_name or None,
        "member_rows": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rack_id": member.rack_id,
                "member_epoch": member.member_epoch,
                "subscribed_topics": [
                    *member.subscribed_topic_names,
                    *([member.subscribed_topic_regex] if member.subscribed_topic_regex else ()),
                ],
                "assignment": _by_topic(_assigned(member.assignment)),
                "target_assignment": _by_topic(_assigned(member.target_assignment)),
            }
            for member in described.members
        ],
    }


def _assigned(assignment: DescribedAssignment) -> Iterable[TopicPartition]:
    return (
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _by_topic(keys: Iterable[TopicPartition]) -> list[Document]:
    return [
        {"topic": topic, "partitions": [key.partition for key in of_topic]}
        for topic, of_topic in groupby(sorted(keys), lambda key: key.topic)
    ]
