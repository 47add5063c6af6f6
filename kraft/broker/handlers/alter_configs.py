"""AlterConfigs (33) and IncrementalAlterConfigs (44): checked here, forwarded to the active controller.

Both become the same call; the older API replaces a resource's whole configuration (KIP-133, KIP-339).
The configs of one broker are altered through that broker, which knows what its keys are, as in Kafka; the
controller judges all of it once more. Each resource is answered by itself, in the order of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kraft.broker.handlers.forwarding import (
    catch_up,
    error_code,
    forward,
    refusal,
    too_long,
    too_many,
)
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
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraft.protocol.texts import shortened
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.rpc import messages
from quorum.rpc.envelope import RpcError

TIMEOUT_S = 30.0
"""Neither request says how long its client waits; this is what Kafka's brokers give the controller."""

_KINDS = {ConfigResourceType.TOPIC: TOPIC_RESOURCE, ConfigResourceType.BROKER: BROKER_RESOURCE}
_OPERATIONS = {operation.value: operation.name for operation in ConfigOperation}


class _Wanted(NamedTuple):
    """One resource of a request. An operation that is not Kafka's has no name."""

    resource_type: int
    name: str
    changes: Sequence[tuple[str, str | None, str | None]]
    """Key, value, name of the operation."""

    @property
    def key(self) -> tuple[int, str]:
        return self.resource_type, self.name


class _Outcome(NamedTuple):
    code: ErrorCode
    message: str | None


_DONE = _Outcome(ErrorCode.NONE, None)


async def handle_alter_configs(
    services: BrokerServices, request: Request[AlterConfigsRequest]
) -> AlterConfigsResponse:
    """Answers AlterConfigs: what a request does not name is put back to its default."""
    body = request.body
    wanted = [
        _Wanted(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value, messages.SET) for config in resource.configs],
        )
        for resource in body.resources
    ]
    outcomes = await _alter(services, wanted, body.validate_only, replace_all=True)
    return AlterConfigsResponse(responses=_responses(wanted, outcomes))


async def handle_incremental_alter_configs(
    services: BrokerServices, request: Request[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Answers IncrementalAlterConfigs."""
    body = request.body
    wanted = [
        _Wanted(
            resource.resource_type,
            resource.resource_name,
            [(c.name, c.value, _OPERATIONS.get(c.config_operation)) for c in resource.configs],
        )
        for resource in body.resources
    ]
    outcomes = await _alter(services, wanted, body.validate_only, replace_all=False)
    return IncrementalAlterConfigsResponse(responses=_responses(wanted, outcomes))


def _responses(wanted: Iterable[_Wanted], outcomes: Iterable[_Outcome]) -> list[AlterConfigsResourceResponse]:
    return [
        AlterConfigsResourceResponse(
            error_code=outcome.code,
            error_message=outcome.message,
            resource_type=resource.resource_type,
            resource_name=resource.name,
        )
        for resource, outcome in zip(wanted, outcomes, strict=True)
    ]


async def _alter(
    services: BrokerServices, wanted: Sequence[_Wanted], validate_only: bool, *, replace_all: bool
) -> list[_Outcome]:
    """What became of each resource, in order."""
    if problem := _too_large(wanted):
        return [_Outcome(*problem), *[_Outcome(problem[0], None)] * (len(wanted) - 1)]
    named = Counter(resource.key for resource in wanted)
    outcomes: dict[tuple[int, str], _Outcome] = {}
    forwarded: list[_Wanted] = []
    for resource in wanted:
        problem_here = _problem(services, resource) if named[resource.key] == 1 else _named_twice()
        if problem_here is None:
            forwarded.append(resource)
        else:
            outcomes[resource.key] = problem_here
    if forwarded:
        outcomes.update(await _forward(services, forwarded, validate_only, replace_all))
    missing = _Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller did not answer for this resource")
    return [outcomes.get(resource.key, missing) for resource in wanted]


def _too_large(wanted: Sequence[_Wanted]) -> tuple[ErrorCode, str] | None:
    texts = (text for resource in wanted for key, value, _ in resource.changes for text in (key, value or ""))
    return (
        too_many(sum(1 + len(resource.changes) for resource in wanted), "resources and configs")
        or too_long(resource.name for resource in wanted)
        or too_long(texts)
    )


def _named_twice() -> _Outcome:
    return _Outcome(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _problem(services: BrokerServices, resource: _Wanted) -> _Outcome | None:
    """What is wrong with a resource as far as a broker can tell; None: the controller decides."""
    sentence = _sentence(services, resource)
    return None if sentence is None else _Outcome(ErrorCode.INVALID_REQUEST, sentence)


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
            " those of topics (2) and brokers (4) can"
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


async def _forward(
    services: BrokerServices, wanted: Iterable[_Wanted], validate_only: bool, replace_all: bool
) -> dict[tuple[int, str], _Outcome]:
    """Has the controller decide, and waits until this broker has what it has changed."""
    kinds = {kind: resource_type for resource_type, kind in _KINDS.items()}
    call = messages.AlterConfigsRequest(tuple(_resource(r, replace_all) for r in wanted), validate_only)
    try:
        forwarded = await forward(services, call, TIMEOUT_S)
    except RpcError as error:
        return {resource.key: _Outcome(*refusal(error)) for resource in wanted}
    outcomes = {
        (int(kinds[result.resource_type]), result.resource_name): _Outcome(
            error_code(result.error), result.message
        )
        for result in forwarded.answer.resources
        if result.resource_type in kinds
    }
    if not validate_only:
        made = [resource for resource in call.resources if outcomes.get(_key(resource)) == _DONE]
        await catch_up(services, lambda: all(_is_known(services, resource) for resource in made))
    return outcomes


def _key(resource: messages.ConfigResourceChange) -> tuple[int, str]:
    resource_type = next(number for number, kind in _KINDS.items() if kind == resource.resource_type)
    return int(resource_type), resource.resource_name


def _resource(wanted: _Wanted, replace_all: bool) -> messages.ConfigResourceChange:
    changes = tuple(
        messages.ConfigChange(key, None if operation == messages.DELETE else value, operation)
        for key, value, operation in wanted.changes
        if operation is not None
    )
    kind = _KINDS[ConfigResourceType(wanted.resource_type)]
    return messages.ConfigResourceChange(kind, wanted.name, changes, replace_all)


def _is_known(services: BrokerServices, resource: messages.ConfigResourceChange) -> bool:
    """Whether this broker's metadata shows the change; of lists only the controller knows the outcome."""
    configs = services.metadata.image.config(resource.resource_type, resource.resource_name)
    changed = {change.key: change for change in resource.changes}
    if resource.replace_all and configs.keys() - changed.keys():
        return False
    return all(
        configs.get(key) == change.value
        for key, change in changed.items()
        if change.operation in (messages.SET, messages.DELETE)
    )
