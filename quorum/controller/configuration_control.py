"""Changes of the dynamic configs of topics, brokers, groups: validated as a whole set, stored as the user wrote them.

Guarantees: the changes of one resource are all made or none, and its stored configs are valid as a whole. The effects
of a request on partitions follow from all its changes together (`config_effects`). Keys, types and ranges belong to
the injected schemas. `topic_control` calls it for a new topic's configs, `requests` for AlterConfigs and
IncrementalAlterConfigs (KIP-133, KIP-226, KIP-339).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from quorum.controller.config_effects import ConfigKey, consequences
from quorum.controller.decision import ALL_BROKERS, ClusterView, Decision, Unit, decided
from quorum.errors import ControllerError, MalformedRecordError
from quorum.metadata.record_codec import validate
from quorum.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, Config
from quorum.rpc.messages import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResult,
    ConfigChange,
    ConfigResourceChange,
)

MAX_VALUE_BYTES = 32_767
"""UTF-8 bytes of one value: the limit of a string in Kafka's protocol."""


def new_topic_configs(
    view: ClusterView, name: str, configs: Iterable[tuple[str, str | None]]
) -> tuple[dict[str, str], Sequence[Config]]:
    """A new topic's configs by ascending key, and their records. Raises ControllerError INVALID_CONFIG."""
    values: dict[str, str] = {}
    for key, value in sorted(configs, key=lambda pair: pair[0]):
        if value is None:
            raise ControllerError("INVALID_CONFIG", f"Null value not supported for topic configs: {key}")
        if key in values:
            raise ControllerError("INVALID_CONFIG", f"The topic config {key} is given more than once.")
        values[key] = value
    _check_valid(view, TOPIC_RESOURCE, name, values)
    return values, _records(TOPIC_RESOURCE, name, values)


def alter_configs(view: ClusterView, request: AlterConfigsRequest) -> Decision:
    """Applies changes, resource by resource: one resource's configs are all set or none.

    The effects on partitions come once, ahead of and behind all of them: values of several resources make up one
    effective value, and each may change it.
    """
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    changed: dict[ConfigKey, Unit] = {}
    results = []
    for resource in request.resources:
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise ControllerError("INVALID_REQUEST", "Each resource must appear at most once.")
            unit = _alter(view, resource)
        except ControllerError as error:
            results.append(
                AlterConfigsResult(resource.resource_type, resource.resource_name, error.code, error.message)
            )
            continue
        if unit is not None and not request.validate_only:
            changed[resource.resource_type, resource.resource_name] = unit
        results.append(AlterConfigsResult(resource.resource_type, resource.resource_name))
    effects = consequences(view, changed)
    units = (*effects.before, *changed.values(), *effects.after)
    return decided(AlterConfigsResponse(tuple(results)), *units)


def _alter(view: ClusterView, resource: ConfigResourceChange) -> Unit | None:
    """The records that change one resource; None if nothing changes. Raises ControllerError."""
    kind, name = resource.resource_type, resource.resource_name
    _check_exists(view, kind, name)
    before = view.image.config(kind, name)
    after = _changed(view, resource, before)
    _check_valid(view, kind, name, after)
    changed = {key: after.get(key) for key in sorted({*before, *after}) if before.get(key) != after.get(key)}
    return Unit(*_records(kind, name, changed)) if changed else None


def _check_exists(view: ClusterView, kind: str, name: str) -> None:
    """Raises ControllerError. A group that nobody has joined yet can have configs, as in Kafka."""
    if kind == TOPIC_RESOURCE:
        if not name:
            raise ControllerError("INVALID_REQUEST", "Default topic resources are not allowed.")
        if view.image.topic(name) is None:
            raise ControllerError("UNKNOWN_TOPIC_OR_PARTITION", f"The topic '{name}' does not exist.")
    elif kind not in view.resource_configs:
        raise ControllerError("INVALID_REQUEST", f"Configs of resource type {kind!r} cannot be altered.")
    elif kind == GROUP_RESOURCE:
        if not name:
            raise ControllerError("INVALID_REQUEST", "Default group resources are not allowed.")
    elif kind == BROKER_RESOURCE:
        if name == ALL_BROKERS:
            return
        if not (name.isascii() and name.isdigit() and str(int(name)) == name):
            raise ControllerError(
                "INVALID_REQUEST", f"Invalid broker name '{name}'; a broker is named by its id."
            )
        if int(name) not in view.image.brokers:
            raise ControllerError("BROKER_ID_NOT_REGISTERED", f"No broker with id {name} found.")


def _changed(view: ClusterView, resource: ConfigResourceChange, before: Mapping[str, str]) -> dict[str, str]:
    """The resource's configs after the changes. Raises ControllerError."""
    keys = Counter(change.key for change in resource.changes)
    if len(keys) != len(resource.changes):
        twice = ", ".join(sorted(key for key, count in keys.items() if count > 1))
        raise ControllerError("INVALID_REQUEST", f"Error due to duplicate config keys: {twice}")
    if resource.replace_all and any(change.operation != SET for change in resource.changes):
        raise ControllerError("INVALID_REQUEST", "A whole configuration consists of keys to be set.")
    nulls = [change.key for change in resource.changes if change.value is None and change.operation != DELETE]
    if nulls:
        raise ControllerError(
            "INVALID_REQUEST",
            f"Null value not supported for: {', '.join(nulls)}; delete a key to return it to its default.",
        )
    after = {} if resource.replace_all else dict(before)
    for change in resource.changes:
        if change.operation == DELETE:
            after.pop(change.key, None)
        else:
            after[change.key] = _new_value(view, resource.resource_type, change, after.get(change.key))
    return after


def _new_value(view: ClusterView, kind: str, change: ConfigChange, current: str | None) -> str:
    assert change.value is not None
    if change.operation == SET:
        return change.value
    if change.operation not in (APPEND, SUBTRACT):
        raise ControllerError("INVALID_REQUEST", f"Unknown operation {change.operation!r} on {change.key}.")
    schema = view.topic_configs if kind == TOPIC_RESOURCE else view.resource_configs[kind]
    if not schema.is_list(change.key):
        raise ControllerError(
            "INVALID_CONFIG", f"Can't {change.operation} to key {change.key} because its type is not LIST."
        )
    parts = _parts(schema.default(change.key) if current is None else current)
    named = _parts(change.value)
    if change.operation == APPEND:
        parts += [part for part in dict.fromkeys(named) if part not in parts]
    else:
        parts = [part for part in parts if part not in named]
    return ",".join(parts)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _check_valid(view: ClusterView, kind: str, name: str, configs: dict[str, str]) -> None:
    problem = next(_too_large(configs), None)
    if problem is None and kind == TOPIC_RESOURCE:
        problem = view.topic_configs.problem(configs)
    elif problem is None:
        problem = view.resource_configs[kind].problem(name, configs)
    if problem is not None:
        raise ControllerError("INVALID_CONFIG", problem)


def _too_large(configs: Mapping[str, str]) -> Iterator[str]:
    for key, value in configs.items():
        size_bytes = len(value.encode(errors="surrogatepass"))
        if size_bytes > MAX_VALUE_BYTES:
            yield f"The value of {key[:255]} has {size_bytes} bytes; at most {MAX_VALUE_BYTES} can be stored."


def _records(kind: str, name: str, values: Mapping[str, str] | Mapping[str, str | None]) -> Sequence[Config]:
    records = [Config(kind, name, key, value) for key, value in values.items()]
    for record in records:
        try:
            validate(record)
        except MalformedRecordError as error:
            problem = f"The {kind} config {record.key} cannot be stored: {error}"
            raise ControllerError("INVALID_CONFIG", problem) from error
    return records
