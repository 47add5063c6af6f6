"""InitProducerId (22): a producer id and epoch for an idempotent or transactional producer.

From version 3 a producer may name the id and epoch that it has, to go on with a raised epoch
(KIP-360).
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, int16, int32, int64, message, string


@message
class InitProducerIdRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID

    transactional_id: str | None = string("0+", nullable="0+", default=None)
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@message
class InitProducerIdResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
