"""Changes of clients' quotas (KIP-546): judged entity by entity, recorded where they change something.

The controller judges what an entity and a value may be; brokers and the controller's own `MutationQuotas` measure.
`requests` calls it; the model is Kafka's ClientQuotaControlManager. Addresses have to be addresses: no name is
looked up here.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.errors import ControllerError, MalformedRecordError
from quorum.metadata.record_codec import validate
from quorum.metadata.records import ClientQuota, QuotaEntity
from quorum.rpc.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ClientQuotaAlteration,
    ClientQuotaResult,
)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_DEFAULT: Final = ""


class _Range(NamedTuple):
    """Above 0 and at most this; whether it is a whole number."""

    maximum: float
    is_whole: bool


_OF_CLIENTS: Mapping[str, _Range] = {
    "producer_byte_rate": _Range(2.0**63, is_whole=True),
    "consumer_byte_rate": _Range(2.0**63, is_whole=True),
    "request_percentage": _Range(float("inf"), is_whole=False),
    "controller_mutation_rate": _Range(float("inf"), is_whole=False),
}
_OF_ADDRESSES: Mapping[str, _Range] = {"connection_creation_rate": _Range(2.0**31 - 1, is_whole=True)}


def alter_client_quotas(view: ClusterView, request: AlterClientQuotasRequest) -> Decision:
    """Sets and removes quotas: all of an entity, or none."""
    named = Counter(alteration.entity for alteration in request.entities)
    units = []
    results = []
    for alteration in request.entities:
        try:
            if named[alteration.entity] > 1:
                raise _refused(f"The entity {_text(alteration.entity)} is named more than once.")
            records = _records(view, alteration)
        except ControllerError as error:
            results.append(ClientQuotaResult(error.code, error.message))
            continue
        results.append(ClientQuotaResult())
        if records and not request.validate_only:
            units.append(Unit(*records))
    return decided(AlterClientQuotasResponse(tuple(results)), *units)


def _records(view: ClusterView, alteration: ClientQuotaAlteration) -> list[ClientQuota]:
    """What changes something. Raises ControllerError."""
    keys = _keys_of(alteration.entity)
    present = view.image.client_quotas.get(alteration.entity, {})
    records = []
    seen: set[str] = set()
    for change in alteration.changes:
        if change.key in seen:
            raise _refused(f"The quota {change.key} is named more than once.")
        seen.add(change.key)
        if change.key not in keys:
            raise _refused(f"Invalid configuration key {change.key}; use {', '.join(keys)}.")
        if change.value is not None:
            _check_value(change.key, change.value, keys[change.key])
        if present.get(change.key) != change.value:
            record = ClientQuota(alteration.entity, change.key, change.value)
            try:
                validate(record)
            except MalformedRecordError as error:
                raise _refused(str(error)) from error
            records.append(record)
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, _Range]:
    """The quotas that the entity may have. Raises ControllerError."""
    types = [kind for kind, _ in entity]
    if not types:
        raise _refused("Invalid empty client quota entity.")
    for kind in types:
        if kind not in (USER, CLIENT_ID, IP):
            raise _refused(f"Unhandled client quota entity type: {kind}; use {USER}, {CLIENT_ID} or {IP}.")
        if types.count(kind) > 1:
            raise _refused(f"Invalid client quota entity, duplicate entity entry {kind}.")
    if IP not in types:
        return _OF_CLIENTS
    if len(types) > 1:
        raise _refused(
            "Invalid quota entity combination: an ip has neither a user nor a client-id beside it."
        )
    name = entity[0][1]
    if name != _DEFAULT and not _is_address(name):
        raise _refused(f"{name} is not a valid IP address.")
    return _OF_ADDRESSES


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(key: str, value: float, within: _Range) -> None:
    if value <= 0:
        raise _refused(f"Quota {key} must be greater than 0.")
    if value > within.maximum:
        raise _refused(f"Proposed value for {key} is too large; it may be {within.maximum:.0f} at most.")
    if within.is_whole and abs(value % 1.0) > 1e-6:
        raise _refused(f"{key} cannot be a fractional value.")


def _refused(sentence: str) -> ControllerError:
    return ControllerError("INVALID_REQUEST", sentence)


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {name or '<default>'}" for kind, name in entity)
