"""DescribeClientQuotas (48), from this broker's metadata; AlterClientQuotas (49), forwarded to the controller."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kraft.broker.handlers.forwarding import Forwarded, Refusal, Split, too_long, too_many
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.client_quotas import (
    AlterationData,
    AlterationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    MatchType,
    ValueData,
)
from kraft.security.quotas.entities import CLIENT_ID, DEFAULT, IP, USER, Entity
from quorum.rpc import messages

ALTER_TIMEOUT_S = 30.0
"""The request does not say how long its client waits."""
_TYPES = (USER, CLIENT_ID, IP)


class _Filter:
    """Which entities are asked for."""

    def __init__(self, components: Sequence[ComponentData], *, strict: bool) -> None:
        """Raises ValueError with a sentence for a filter that makes no sense."""
        self._names: dict[str, str | None] = {}
        """By type; None stands for any name."""
        self._strict = strict
        for component in components:
            if component.entity_type in self._names:
                raise ValueError(f"entity type {component.entity_type} appears more than once in the filter")
            self._names[component.entity_type] = _matched_name(component)
        if IP in self._names and len(self._names) > 1:
            raise ValueError("a filter for ip has neither user nor client-id beside it")

    def matches(self, entity: Entity) -> bool:
        names = dict(entity)
        if self._strict and names.keys() != self._names.keys():
            return False
        return all(kind in names and wanted in (None, names[kind]) for kind, wanted in self._names.items())


def _matched_name(component: ComponentData) -> str | None:
    if component.match_type not in tuple(MatchType):
        raise ValueError(f"unknown match type {component.match_type}; use 0 (exact), 1 (default) or 2 (any)")
    if component.match_type == MatchType.EXACT:
        if not component.match:
            raise ValueError("an exact match needs the name that it matches")
        return component.match
    if component.match is not None:
        raise ValueError("only an exact match has a name")
    return DEFAULT if component.match_type == MatchType.DEFAULT else None


def handle_describe_client_quotas(
    services: BrokerServices, request: Request[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    """Answers DescribeClientQuotas; entities come in ascending order."""
    body = request.body
    unknown = [c.entity_type for c in body.components if c.entity_type not in _TYPES]
    if unknown:
        sentence = f"there is no entity type {unknown[0]!r}; use {', '.join(_TYPES)}"
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=sentence, entries=None
        )
    try:
        wanted = _Filter(body.components, strict=body.strict)
    except ValueError as error:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None
        )
    quotas = services.metadata.image.client_quotas
    entries = [_entry(entity, quotas[entity]) for entity in sorted(quotas) if wanted.matches(entity)]
    return DescribeClientQuotasResponse(entries=entries)


def _entry(entity: Entity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(kind, None if name == DEFAULT else name) for kind, name in entity],
        values=[ValueData(key, values[key]) for key in sorted(values)],
    )


async def handle_alter_client_quotas(
    services: BrokerServices, request: Request[AlterClientQuotasRequest]
) -> AlterClientQuotasResponse:
    """Answers AlterClientQuotas, entity by entity."""
    body = request.body
    problem = too_many(sum(len(entry.ops) + 1 for entry in body.entries), "entities and quotas") or too_long(
        text for entry in body.entries for text in _texts(entry)
    )
    if problem:
        return AlterClientQuotasResponse(entries=_refuse(body.entries, problem))
    split = Split(body.entries, _problem, _refuse)
    call = messages.AlterClientQuotasRequest(
        tuple(messages.ClientQuotaAlteration(_entity(entry), _changes(entry)) for entry in split.allowed),
        body.validate_only,
    )

    def results(forwarded: Forwarded[messages.AlterClientQuotasResponse]) -> Iterator[AlterationResult]:
        for entry, result in zip(split.allowed, forwarded.response.entities, strict=False):
            code, message = forwarded.outcome(result.error, result.message)
            yield AlterationResult(code, message, entry.entity)

    entries = await split.forward(services, call, ALTER_TIMEOUT_S, results, changes=not body.validate_only)
    return AlterClientQuotasResponse(entries=entries)


def _problem(entry: AlterationData) -> Refusal | None:
    """What the controller cannot be told of."""
    for part in entry.entity:
        if part.entity_name == "":
            return Refusal(ErrorCode.INVALID_REQUEST, f"Empty {part.entity_type} not supported")
    for op in entry.ops:
        if not op.remove and not math.isfinite(op.value):
            return Refusal(ErrorCode.INVALID_REQUEST, f"{op.key} is to be a number, not {op.value}")
    return None


def _entity(entry: AlterationData) -> Entity:
    return tuple(
        sorted(
            (part.entity_type, DEFAULT if part.entity_name is None else part.entity_name)
            for part in entry.entity
        )
    )


def _changes(entry: AlterationData) -> tuple[messages.QuotaChange, ...]:
    return tuple(messages.QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops)


def _texts(entry: AlterationData) -> Iterator[str]:
    for part in entry.entity:
        yield part.entity_type
        yield part.entity_name or ""
    for op in entry.ops:
        yield op.key


def _refuse(entries: Iterable[AlterationData], refusal: Refusal) -> list[AlterationResult]:
    return [AlterationResult(code, message, entry.entity) for entry, code, message in refusal.of(entries)]
