"""DescribeClientQuotas (48), AlterClientQuotas (49): what users, client ids and addresses may take (KIP-546)."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    Message,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    message,
    sentence,
    string,
)


class MatchType(IntEnum):
    """How a component of a filter matches: that name, the default, or any of the type."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@message
class ComponentData(Message):
    """`match` is the name, for EXACT alone."""

    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


@message
class DescribeClientQuotasRequest(Message):
    """With `strict` entities with parts of other types than the filter's are left out."""

    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLIENT_QUOTAS

    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")


@message
class EntityData(Message):
    """`entity_name` None is the default of its type. (Of requests and of both answers.)"""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


@message
class ValueData(Message):
    key: str = string("0+")
    value: float = float64("0+")


@message
class EntryData(Message):
    """The entity of a quota in an answer to DescribeClientQuotas, or of changes in AlterClientQuotas."""

    entity: list[EntityData] = array(EntityData, "0+")
    values: list[ValueData] = array(ValueData, "0+")


@message
class DescribeClientQuotasResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLIENT_QUOTAS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")


@message
class OpData(Message):
    """A quota is set, or, with `remove`, removed."""

    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


@message
class AlterationData(Message):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


@message
class AlterClientQuotasRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ALTER_CLIENT_QUOTAS

    entries: list[AlterationData] = array(AlterationData, "0+")
    validate_only: bool = boolean("0+")


@message
class AlterationResult(Message):
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    entity: list[EntityData] = array(EntityData, "0+")


@message
class AlterClientQuotasResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ALTER_CLIENT_QUOTAS

    throttle_time_ms: int = int32("0+")
    entries: list[AlterationResult] = array(AlterationResult, "0+")
