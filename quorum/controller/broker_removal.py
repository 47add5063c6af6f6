"""The removal of a broker from the cluster for good: UnregisterBroker (KIP-631).

Guarantees: the broker first leaves leaderships, ISRs and ELRs, then loses its registration, so that no partition waits
for it. Partitions keep it among their replicas until they are reassigned. A process of it that still runs finds its
epoch stale and has to register anew. `requests` calls it.
"""

from __future__ import annotations

from quorum.controller import replication_control
from quorum.controller.decision import ClusterView, Decision, Unit
from quorum.controller.sessions import BrokerSessions
from quorum.errors import ControllerError
from quorum.metadata.records import UnregisterBroker
from quorum.rpc.messages import UnregisterBrokerRequest, UnregisterBrokerResponse


def unregister(view: ClusterView, sessions: BrokerSessions, request: UnregisterBrokerRequest) -> Decision:
    """Removes the registration. Raises ControllerError BROKER_ID_NOT_REGISTERED."""
    broker_id = request.broker_id
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise ControllerError(
            "BROKER_ID_NOT_REGISTERED", f"Broker id {broker_id} is not currently registered."
        )
    moves = replication_control.start_over(view, broker_id, cleanly=False)
    units = (*moves, Unit(UnregisterBroker(broker_id, broker.epoch)))

    def proposed(offset: int, /) -> None:
        sessions.end(broker_id)

    return Decision(units, lambda offset: UnregisterBrokerResponse(), proposed)
