"""Producer ids, handed out to brokers in blocks, each id once in the life of the cluster (KIP-730)."""

from __future__ import annotations

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.errors import ControllerError
from quorum.metadata.records import ProducerIds
from quorum.metadata.wire import INT64_MAX
from quorum.rpc.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse

PRODUCER_ID_BLOCK_SIZE = 1000


def allocate_producer_ids(view: ClusterView, request: AllocateProducerIdsRequest) -> Decision:
    """Gives the broker the next block. A block whose answer is lost is never used, which does no harm.

    Raises ControllerError STALE_BROKER_EPOCH, or UNKNOWN_SERVER_ERROR when all ids are used up.
    """
    view.registered(request.broker_id, request.broker_epoch)
    first = view.image.next_producer_id
    if first > INT64_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise ControllerError("UNKNOWN_SERVER_ERROR", f"All producer ids up to {first} have been handed out.")
    record = ProducerIds(request.broker_id, request.broker_epoch, first + PRODUCER_ID_BLOCK_SIZE)
    return decided(AllocateProducerIdsResponse(first, PRODUCER_ID_BLOCK_SIZE), Unit(record))
