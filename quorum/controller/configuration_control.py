"""Dynamic configs of topics: validated as a whole set, stored as the user wrote them.

Keys, types and ranges belong to the injected `TopicConfigSchema`. Called by `topic_control` for a new
topic's configs and by `state` for incremental changes (KIP-339).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.controller.replication_control import elect_unclean
from quorum.errors import ControllerError, MalformedRecordError
from quorum.metadata.records import TOPIC_RESOURCE, Config, validate
from quorum.rpc.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResult,
    ConfigResourceChange,
)


def new_topic_configs(
    view: ClusterView, name: str, configs: Iterable[tuple[str, str | None]]
) -> tuple[dict[str, str], list[Config]]:
    """A new topic's configs by ascending key, and their records. Raises ControllerError INVALID_CONFIG."""
    values: dict[str, str] = {}
    for key, value in sorted(configs, key=lambda pair: pair[0]):
        if value is None:
            raise ControllerError("INVALID_CONFIG", f"Null value not supported for topic configs: {key}")
        if key in values:
            raise ControllerError("INVALID_CONFIG", f"The topic config {key} is given more than once.")
        values[key] = value
    _check_valid(view, values)
    return values, _records(name, values)


def alter_configs(view: ClusterView, request: AlterConfigsRequest) -> Decision:
    """Applies incremental changes, resource by resource: one resource's configs are all set or none."""
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    units: list[Unit] = []
    results = []
    for resource in request.resources:
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise ControllerError("INVALID_REQUEST", "Each resource must appear at most once.")
            changes = _alter_topic(view, resource)
        except ControllerError as error:
            results.append(
                AlterConfigsResult(resource.resource_type, resource.resource_name, error.code, error.message)
            )
            continue
        if not request.validate_only:
            units.extend(changes)
        results.append(AlterConfigsResult(resource.resource_type, resource.resource_name))
    return decided(AlterConfigsResponse(tuple(results)), *units)


def _alter_topic(view: ClusterView, resource: ConfigResourceChange) -> list[Unit]:
    """One unit of config records; if unclean election is newly allowed, then leaders for who has none."""
    name = resource.resource_name
    if resource.resource_type != TOPIC_RESOURCE:
        raise ControllerError(
            "INVALID_REQUEST",
            f"Configs of resource type {resource.resource_type!r} cannot be altered; topics' can.",
        )
    topic = view.image.topic(name)
    if topic is None:
        raise ControllerError("UNKNOWN_TOPIC_OR_PARTITION", f"The topic '{name}' does not exist.")
    before = view.image.config(TOPIC_RESOURCE, name)
    after = dict(before)
    for change in resource.changes:
        if change.value is None:
            after.pop(change.key, None)
        else:
            after[change.key] = change.value
    _check_valid(view, after)
    changed = {key: after.get(key) for key in sorted({*before, *after}) if before.get(key) != after.get(key)}
    if not changed:
        return []
    units = [Unit(*_records(name, changed))]
    schema = view.topic_configs
    if schema.unclean_leader_election_enable(after) and not schema.unclean_leader_election_enable(before):
        units.extend(Unit(record) for record in elect_unclean(view, topic.topic_id))
    return units


def _check_valid(view: ClusterView, configs: dict[str, str]) -> None:
    problem = view.topic_configs.problem(configs)
    if problem is not None:
        raise ControllerError("INVALID_CONFIG", problem)


def _records(name: str, values: dict[str, str] | dict[str, str | None]) -> list[Config]:
    records = [Config(TOPIC_RESOURCE, name, key, value) for key, value in values.items()]
    for record in records:
        try:
            validate(record)
        except MalformedRecordError as error:
            problem = f"The topic config {record.key} cannot be stored: {error}"
            raise ControllerError("INVALID_CONFIG", problem) from error
    return records
