"""AlterConfigs (33) and IncrementalAlterConfigs (44): checked here, forwarded to the active controller.

Both become the same call; the older API replaces a resource's whole configuration (KIP-133, KIP-339).
The configs of one broker are altered through that broker, which knows what its keys are, as in Kafka; the
controller judges all of it once more. Each resource is answered by itself, in the order of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kraft.broker.handlers.forwarding import Forwarded, Refusal, Split, too_long, too_many
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.dynamic_configs import ALL_BROKERS, DynamicBrokerConfigs
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kraft.protocol.schemas.configs import ConfigResourceType
from kraft.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraft.protocol.texts import shortened
from quorum.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from quorum.rpc import messages

TIMEOUT_S = 30.0
"""Neither request says how long its client waits; this is what Kafka's brokers give the controller."""

_KINDS = {
    ConfigResourceType.TOPIC: TOPIC_RESOURCE,
    ConfigResourceType.BROKER: BROKER_RESOURCE,
    ConfigResourceType.GROUP: GROUP_RESOURCE,
}
_OPERATIONS = {operation.value: operation.name for operation in ConfigOperation}
_NAMED_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


class _Wanted(NamedTuple):
    """One resource of a request. An operation that is not Kafka's has no name."""

    resource_type: int
    name: str
    changes: Sequence[tuple[str, str | None, str | None]]
    """Key, value, name of the operation."""

    @property
    def key(self) -> tuple[int, str]:
        return self.resource_type, self.name


async def handle_alter_configs(
    services: BrokerServices, request: Request[AlterConfigsRequest]
) -> AlterConfigsResponse:
    """Answers AlterConfigs: what a request does not name is put back to its default."""
    responses = await _alter(services, request.body, lambda config: messages.SET, replace_all=True)
    return AlterConfigsResponse(responses=responses)


async def handle_incremental_alter_configs(
    services: BrokerServices, request: Request[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Answers IncrementalAlterConfigs."""

    def operation(config: AlterableConfig) -> str | None:
        return _OPERATIONS.get(config.config_operation)

    responses = await _alter(services, request.body, operation, replace_all=False)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    services: BrokerServices,
    body: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    operation: Callable[[Any], str | None],
    *,
    replace_all: bool,
) -> list[AlterConfigsResourceResponse]:
    """What became of each resource, in order."""
    wanted = [
        _Wanted(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value, operation(config)) for config in resource.configs],
        )
        for resource in body.resources
    ]
    if problem := _too_large(wanted):
        return _refuse(wanted, problem)
    named = Counter(resource.key for resource in wanted)
    split = Split(
        wanted, lambda one: _NAMED_TWICE if named[one.key] > 1 else _problem(services, one), _refuse
    )

    def altered(
        forwarded: Forwarded[messages.AlterConfigsResponse],
    ) -> Iterator[AlterConfigsResourceResponse]:
        for resource, result in zip(split.allowed, forwarded.response.resources, strict=False):
            yield _response(resource, *forwarded.outcome(result.error, result.message))

    resources = tuple(_resource(resource, replace_all) for resource in split.allowed)
    call = messages.AlterConfigsRequest(resources, body.validate_only)
    return await split.forward(services, call, TIMEOUT_S, altered, changes=not body.validate_only)


def _refuse(wanted: Iterable[_Wanted], refusal: Refusal) -> list[AlterConfigsResourceResponse]:
    return [_response(*told) for told in refusal.of(wanted)]


def _response(resource: _Wanted, code: ErrorCode, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.name,
    )


def _too_large(wanted: Sequence[_Wanted]) -> Refusal | None:
    texts = (text for resource in wanted for key, value, _ in resource.changes for text in (key, value or ""))
    return (
        too_many(sum(1 + len(resource.changes) for resource in wanted), "resources and configs")
        or too_long(resource.name for resource in wanted)
        or too_long(texts)
    )


def _problem(services: BrokerServices, resource: _Wanted) -> Refusal | None:
    """What is wrong with a resource as far as a broker can tell; None: the controller decides."""
    sentence = _sentence(services, resource)
    return None if sentence is None else Refusal(ErrorCode.INVALID_REQUEST, sentence)


def _sentence(services: BrokerServices, resource: _Wanted) -> str | None:
    keys = [key for key, _, _ in resource.changes]
    if len(set(keys)) != len(keys):
        return "Error due to duplicate config keys"
    nulls = [key for key, value, op in resource.changes if value is None and op != messages.DELETE]
    if nulls:
        return f"Null value not supported for : {', '.join(map(shortened, nulls))}"
    if any(operation is None for _, _, operation in resource.changes):
        return "An operation is none of 0 (set), 1 (delete), 2 (append) and 3 (subtract)"
    if resource.resource_type not in _KINDS:
        return (
            f"Configs of resource type {resource.resource_type} cannot be altered here;"
            " those of topics (2), brokers (4) and groups (32) can"
        )
    if resource.resource_type == ConfigResourceType.BROKER:
        return _broker_sentence(services, resource)
    return None


def _broker_sentence(services: BrokerServices, resource: _Wanted) -> str | None:
    if resource.name not in (ALL_BROKERS, str(services.broker_id)):
        received = shortened(resource.name)
        return f"Unexpected broker id, expected {services.broker_id} or empty string, but received {received}"
    schema = DynamicBrokerConfigs(services.config.log_defaults)
    added = [key for key, _, operation in resource.changes if operation != messages.DELETE]
    values = {key: value for key, value, op in resource.changes if op == messages.SET and value is not None}
    return schema.names_problem(resource.name, added) or schema.problem(resource.name, values)


def _resource(wanted: _Wanted, replace_all: bool) -> messages.ConfigResourceChange:
    changes = tuple(
        messages.ConfigChange(key, None if operation == messages.DELETE else value, operation)
        for key, value, operation in wanted.changes
        if operation is not None
    )
    kind = _KINDS[ConfigResourceType(wanted.resource_type)]
    return messages.ConfigResourceChange(kind, wanted.name, changes, replace_all)
