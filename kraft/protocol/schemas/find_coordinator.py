"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Several keys a request are KIP-699 (version 4), share groups KIP-932 (version 6).
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import STRING, Message, array, int8, int16, int32, message, sentence, string


class CoordinatorType(IntEnum):
    """What a key is of: `key_type`."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@message
class FindCoordinatorRequest(Message):
    """One key up to version 3, several from version 4 on."""

    API_KEY: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(STRING, "4+")


@message
class Coordinator(Message):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = sentence("4+", ignorable=True)


@message
class FindCoordinatorResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = sentence("1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
