"""InitProducerId (22): ids for idempotent producers (KIP-98, KIP-360).

Transactions are not served: a transactional id is refused, and no transaction API is advertised.
"""

from __future__ import annotations

from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.producers import InitProducerIdRequest, InitProducerIdResponse
from quorum.rpc.envelope import RpcError

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


async def handle_init_producer_id(
    services: BrokerServices, request: Request[InitProducerIdRequest]
) -> InitProducerIdResponse:
    """A new producer id with epoch 0."""
    body = request.body
    if body.transactional_id is not None:
        return _refused(
            ErrorCode.INVALID_REQUEST if not body.transactional_id else ErrorCode.UNSUPPORTED_VERSION
        )
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        # A producer without transactional id that names its old id gets a new one: nobody else remembers
        # its epoch, and a new id is as good (Kafka does the same).
        producer_id = await services.producer_ids.next()
    except RpcError:
        # As in Kafka, whatever the reason: producers try again on this one. COORDINATOR_NOT_AVAILABLE
        # would send them looking for a coordinator, which an idempotent producer has none of.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
