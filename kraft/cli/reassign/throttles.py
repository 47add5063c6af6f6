"""The throttles of `kraft reassign --throttle` on brokers and topics, and how they are taken away again (KIP-73).

The rate and the throttled replicas are set before anything moves. The end takes away all run-time values of these
configs, also those that others set, as Kafka's tool does. Leaders are throttled where a partition is now, since any of
these brokers may lead it; followers where it comes newly. A broker that a move under way has added already is both: it
may lead, and it may still have to copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from kraft.cli.shared.admin_client import CONFIGS_VERSION, AdminClient, BrokerAwayError, raise_for
from kraft.network.client import ConnectionLostError
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kraft.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from partitions.topic_partition import TopicPartition

ALTER_VERSION = 1
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
TOPICS_PER_REQUEST = 1000
ALL_REPLICAS = "*"
LIST_MAX_CHARACTERS = 30_000
"""Beyond it all replicas of the topic are throttled: a longer value could not be stored."""


class Throttled(NamedTuple):
    """Where throttles were taken away, and which brokers are not there to be asked whether they have one: a
    broker's own configs are told and altered by that broker alone, as in Kafka."""

    brokers: list[int]
    topics: list[str]
    away: list[int]

    def __bool__(self) -> bool:
        return bool(self.brokers or self.topics)


async def set_throttles(
    admin: AdminClient,
    now: Mapping[TopicPartition, Sequence[int]],
    origins: Mapping[TopicPartition, Sequence[int]],
    targets: Mapping[TopicPartition, Sequence[int]],
    bytes_per_s: int,
) -> list[int]:
    """Limits moves to `targets` to so much for each broker. Raises UserError.

    `now` is where partitions are, `origins` the same without what a move under way is adding. Returns the brokers
    that are not there, and could not be told: they copy nothing before they come back.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for partition, target in targets.items():
        topic, number = partition
        current, origin = now[partition], origins[partition]
        brokers.update(current, target)
        leaders.setdefault(topic, []).extend(f"{number}:{broker}" for broker in current)
        followers.setdefault(topic, []).extend(
            f"{number}:{broker}" for broker in target if broker not in origin
        )
    there = {broker.node_id for broker in (await admin.metadata([])).brokers}
    for broker in sorted(brokers & there):
        changes = [
            AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=str(bytes_per_s))
            for key in RATES
        ]
        await _alter(admin, ConfigResourceType.BROKER, {str(broker): changes})
    names = iter(sorted(leaders))
    while some := list(islice(names, TOPICS_PER_REQUEST)):
        found = await _set_of(admin, ConfigResourceType.TOPIC, some, (LEADERS, FOLLOWERS))
        changed = {}
        for topic in some:
            known = found.get(topic, {})
            more = ((LEADERS, leaders[topic]), (FOLLOWERS, followers[topic]))
            wanted = [_more(key, known.get(key, ""), replicas) for key, replicas in more]
            if any(wanted):
                changed[topic] = [change for change in wanted if change is not None]
        await _alter(admin, ConfigResourceType.TOPIC, changed)
    return sorted(brokers - there)


def _more(key: str, known: str, replicas: Sequence[str]) -> AlterableConfig | None:
    """Throttles more replicas of a topic, beside those of `known`; None if they all are throttled."""
    listed = {replica.strip() for replica in known.split(",")}
    new = [] if ALL_REPLICAS in listed else [replica for replica in replicas if replica not in listed]
    if not new:
        return None
    text = ",".join(new)
    if len(known) + 1 + len(text) > LIST_MAX_CHARACTERS:
        return AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=ALL_REPLICAS)
    # Appended, since another reassignment of the topic may be about to do the same.
    return AlterableConfig(name=key, config_operation=ConfigOperation.APPEND, value=text)


async def clear_throttles(admin: AdminClient) -> Throttled:
    """Takes all throttles away, of brokers that are there and of all topics. Raises UserError."""
    metadata = await admin.metadata(None)
    throttled = Throttled([], [], [])
    there = {broker.node_id for broker in metadata.brokers}
    for broker in sorted(there | await admin.registered_brokers()):
        try:
            found = await _set_of(admin, ConfigResourceType.BROKER, [str(broker)], RATES)
            for name, keys in found.items():
                await _alter(admin, ConfigResourceType.BROKER, {name: [_gone(key) for key in keys]})
                throttled.brokers.append(broker)
        except (BrokerAwayError, ConnectionLostError):
            throttled.away.append(broker)
    names = iter(sorted(topic.name or "" for topic in metadata.topics))
    while some := list(islice(names, TOPICS_PER_REQUEST)):
        found = await _set_of(admin, ConfigResourceType.TOPIC, some, (LEADERS, FOLLOWERS))
        changes = {name: [_gone(key) for key in keys] for name, keys in found.items()}
        await _alter(admin, ConfigResourceType.TOPIC, changes)
        throttled.topics.extend(changes)
    return throttled


def _gone(key: str) -> AlterableConfig:
    return AlterableConfig(name=key, config_operation=ConfigOperation.DELETE, value=None)


async def _set_of(
    admin: AdminClient, kind: ConfigResourceType, names: Iterable[str], keys: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Which of the keys are set at run time, and to what, by resource; nothing for one that is gone meanwhile."""
    own = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
        for name in names
    ]
    request = DescribeConfigsRequest(resources=resources)
    answer = cast(
        "DescribeConfigsResponse",
        await admin.request_for(kind, resources[0].resource_name, request, version=CONFIGS_VERSION),
    )
    found = {
        result.resource_name: {
            config.name: config.value or "" for config in result.configs if config.config_source in own
        }
        for result in answer.results
        if not result.error_code
    }
    return {name: set_keys for name, set_keys in found.items() if set_keys}


async def _alter(
    admin: AdminClient, kind: ConfigResourceType, changes: Mapping[str, list[AlterableConfig]]
) -> None:
    """Changes configs of these resources; those of a broker, which comes alone, through it. Raises UserError."""
    if not changes:
        return
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
            for name, configs in changes.items()
        ]
    )
    answer: Any = await admin.request_for(kind, next(iter(changes)), request, version=ALTER_VERSION)
    for result in answer.responses:
        what = f"the throttle of {kind.name.lower()} {result.resource_name}"
        raise_for(
            result.error_code, result.error_message, f"{what} was not altered", change=f"{what} was altered"
        )
