"""The life of each broker as the active controller decides it: registration, heartbeats, fencing, controlled shutdown.

Guarantees:
- one broker id belongs to one incarnation at a time;
- a registered broker stays fenced until it has applied its own registration;
- a broker without a heartbeat for a session is fenced, and loses its leaderships and ISR memberships, in a handful of
  proposals;
- a broker that returns after an unclean stop is no eligible leader replica of any partition (KIP-966);
- offline replicas are those that the present registration reported;
- a broker that asks to stop is told to only when it leads nothing and the brokers that took over know of it. This is
  decided on its second request, for all that have asked by then: no broker takes over from a broker that goes, too;
- brokers that become ready at the same time, as when a cluster starts, share the partitions that waited for them. A
  ready broker therefore waits for one heartbeat while partitions with a replica on it have no leader and other brokers
  are about to be ready: otherwise the first to come would lead all of them, with one core.

`ControllerState` calls it. The model is Kafka's ClusterControlManager and BrokerHeartbeatManager (KIP-631, KIP-841).
Times are monotonic ms.
"""

from __future__ import annotations

from enum import Enum

from quorum.controller import feature_control, replication_control
from quorum.controller.decision import (
    ClusterView,
    ControllerConfig,
    Decision,
    OnProposed,
    Unit,
    nothing_to_note,
)
from quorum.controller.sessions import BrokerSessions
from quorum.errors import ControllerError, MalformedRecordError
from quorum.metadata.image import BrokerImage, MetadataImage
from quorum.metadata.record_codec import validate
from quorum.metadata.records import BrokerChange, RegisterBroker
from quorum.rpc.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)


class BrokerControlState(Enum):
    """The controller's states of a broker."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


class ClusterControl:
    """The brokers of one active controller. Sessions live here, all else in the image."""

    def __init__(self, config: ControllerConfig, image: MetadataImage, now_ms: int) -> None:
        """Gives every unfenced broker a whole session, since a newly active controller knows no heartbeats."""
        self.sessions = BrokerSessions(config.session_timeout_ms)
        self._shutdown_offsets: dict[int, int] = {}
        self._asked_to_stop: dict[int, int] = {}
        """Epochs by id of the stopping brokers whose leaderships have not been moved yet."""
        self._asked_to_serve: dict[int, int] = {}
        """Epochs by id of the fenced brokers that are ready."""
        self._told_to_go: dict[int, int] = {}
        """Epochs by id of the brokers whose shutdown was granted; copies of their earlier requests may still arrive."""
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            if broker.fenced:
                if broker.in_controlled_shutdown:
                    self._told_to_go[broker_id] = broker.epoch
            else:
                self.sessions.touch(broker_id, broker.epoch, now_ms)
                if broker.in_controlled_shutdown:
                    self._shutdown_offsets[broker_id] = image.offset

    # Registration

    def register(self, view: ClusterView, request: RegisterBrokerRequest, now_ms: int) -> Decision:
        """Registers an incarnation. Its broker epoch is the offset of its record; it starts fenced.

        Raises ControllerError INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION, INVALID_REGISTRATION, or
        DUPLICATE_BROKER_REGISTRATION while another incarnation's session lasts.
        """
        record = _registration(view, request)
        existing = view.image.brokers.get(request.broker_id)
        if existing is None:
            units = replication_control.start_over(view, request.broker_id, cleanly=False)
        elif existing.incarnation_id == request.incarnation_id and _same_registration(existing, record):
            if not self._has_gone(existing.broker_id, existing.epoch):
                self.sessions.touch(existing.broker_id, existing.epoch, now_ms)
            epoch = existing.epoch
            return Decision((), lambda offset: RegisterBrokerResponse(epoch))
        else:
            self._check_duplicate(existing, request, now_ms)
            # Its logs are complete only if it closed them cleanly under the very registration that ends now.
            stopped_cleanly = request.previous_broker_epoch == existing.epoch
            units = replication_control.start_over(view, request.broker_id, cleanly=stopped_cleanly)

        def proposed(offset: int, /) -> None:
            self._shutdown_offsets.pop(request.broker_id, None)
            self._told_to_go.pop(request.broker_id, None)
            self.sessions.touch(request.broker_id, offset, now_ms)

        return Decision((*units, Unit(record)), RegisterBrokerResponse, proposed)

    def _check_duplicate(self, existing: BrokerImage, request: RegisterBrokerRequest, now_ms: int) -> None:
        """Refuses a second incarnation while the session lasts. A controlled shutdown is a promise to go, so its
        successor need not wait."""
        if (
            existing.incarnation_id != request.incarnation_id
            and not existing.in_controlled_shutdown
            and self.sessions.is_valid(existing.broker_id, existing.epoch, now_ms)
        ):
            raise ControllerError(
                "DUPLICATE_BROKER_REGISTRATION",
                f"Another broker is registered with broker id {request.broker_id}. If the broker was just "
                "restarted, this resolves itself once its earlier session has expired; otherwise give one of the "
                "two another node.id.",
            )

    # Heartbeats

    def touch(self, view: ClusterView, request: HeartbeatRequest, now_ms: int) -> None:
        """Counts a heartbeat that is not decided on because of overload: the broker is alive."""
        broker = view.image.brokers.get(request.broker_id)
        if (
            broker is not None
            and broker.epoch == request.broker_epoch
            and not self._has_gone(broker.broker_id, broker.epoch)
        ):
            self.sessions.touch(broker.broker_id, broker.epoch, now_ms, request.current_metadata_offset)
            if request.want_fence or request.want_shutdown:
                self._asked_to_serve.pop(broker.broker_id, None)

    def heartbeat(self, view: ClusterView, request: HeartbeatRequest, now_ms: int) -> Decision:
        """Renews the session and moves the broker to its next state.

        Raises ControllerError STALE_BROKER_EPOCH, also for a late copy of an older request after the broker's shutdown
        was granted: brokers repeat requests that get no answer.
        """
        broker = view.registered(request.broker_id, request.broker_epoch)
        if self._is_late(request):
            raise ControllerError(
                "STALE_BROKER_EPOCH",
                f"The shutdown of broker {request.broker_id} was granted under broker epoch {request.broker_epoch}.",
            )
        self.sessions.touch(broker.broker_id, broker.epoch, now_ms, request.current_metadata_offset)
        current = _state_of(broker)
        state = self._next_state(view, broker, current, request, now_ms)
        if _asks_to_serve(broker, current, request):
            self._asked_to_serve[broker.broker_id] = broker.epoch
        else:
            self._asked_to_serve.pop(broker.broker_id, None)
        if request.want_shutdown and current is BrokerControlState.UNFENCED:
            self._asked_to_stop[broker.broker_id] = broker.epoch
        units: list[Unit] = []
        on_proposed: OnProposed = nothing_to_note
        if state is BrokerControlState.SHUTDOWN_NOW:
            self._told_to_go[broker.broker_id] = broker.epoch
            self.sessions.end(broker.broker_id)  # it will not be heard of again: a successor may come at once
            self._shutdown_offsets.pop(broker.broker_id, None)
            units = _going(view, broker)
        elif state is not current:
            if state is BrokerControlState.FENCED:
                units = _fencing(view, [broker])
            elif state is BrokerControlState.UNFENCED:
                units = self._unfencing(view, now_ms)
            else:
                units, on_proposed = self._controlled_shutdown(view)
        response = HeartbeatResponse(
            is_fenced=state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
            is_caught_up=request.current_metadata_offset >= broker.epoch,
            should_shutdown=state is BrokerControlState.SHUTDOWN_NOW,
        )
        return Decision(tuple(units), lambda offset: response, on_proposed)

    def _has_gone(self, broker_id: int, broker_epoch: int) -> bool:
        return self._told_to_go.get(broker_id) == broker_epoch

    def _is_late(self, request: HeartbeatRequest) -> bool:
        """Whether this is a copy from before the broker asked to stop, which it never takes back."""
        return self._has_gone(request.broker_id, request.broker_epoch) and not request.want_shutdown

    def _next_state(
        self,
        view: ClusterView,
        broker: BrokerImage,
        current: BrokerControlState,
        request: HeartbeatRequest,
        now_ms: int,
    ) -> BrokerControlState:
        states = BrokerControlState
        leads = view.index.led_by(broker.broker_id) > 0
        match current:
            case states.FENCED:
                if request.want_shutdown:
                    return states.SHUTDOWN_NOW
                asks = _asks_to_serve(broker, current, request)
                return states.UNFENCED if asks and self._may_serve(view, broker, now_ms) else states.FENCED
            case states.UNFENCED:
                if request.want_fence:
                    return states.SHUTDOWN_NOW if request.want_shutdown else states.FENCED
                if not request.want_shutdown:
                    return states.UNFENCED
                if not leads:
                    return states.SHUTDOWN_NOW
                # Not at its first request: where a whole cluster stops, the others' requests are on their way.
                has_asked = self._asked_to_stop.get(broker.broker_id) == broker.epoch
                return states.CONTROLLED_SHUTDOWN if has_asked else states.UNFENCED
            case _:
                if not leads and self._shutdown_offsets[broker.broker_id] <= self._lowest_active_offset(view):
                    return states.SHUTDOWN_NOW
                return states.CONTROLLED_SHUTDOWN

    def _may_serve(self, view: ClusterView, broker: BrokerImage, now_ms: int) -> bool:
        """Whether a ready broker is unfenced now: not at its first request, where partitions wait for a leader and
        other brokers are about to be ready."""
        return (
            self._asked_to_serve.get(broker.broker_id) == broker.epoch
            or not view.index.has_leaderless_on(broker.broker_id)
            or all(
                self._asked_to_serve.get(other.broker_id) == other.epoch
                for other in view.image.brokers.values()
                if other.fenced
                and other.broker_id != broker.broker_id
                and self.sessions.is_valid(other.broker_id, other.epoch, now_ms)
            )
        )

    def _unfencing(self, view: ClusterView, now_ms: int) -> list[Unit]:
        """Unfences the ready brokers first, then gives their partitions leaders: no fenced broker leads, even if only
        some units take effect."""
        ready = [
            broker
            for broker_id, epoch in sorted(self._asked_to_serve.items())
            if (broker := view.image.brokers.get(broker_id)) is not None
            and broker.epoch == epoch
            and broker.fenced
            and self.sessions.is_valid(broker_id, epoch, now_ms)
        ]
        served = replication_control.come_back(view, [broker.broker_id for broker in ready])
        return [*(Unit(_unfenced(broker)) for broker in ready), *served]

    def _controlled_shutdown(self, view: ClusterView) -> tuple[list[Unit], OnProposed]:
        """Moves leaderships away from all brokers that have asked to stop."""
        leaving = []
        for broker_id in sorted(self._asked_to_stop):
            broker = view.image.brokers.get(broker_id)
            if broker is not None and broker.epoch == self._asked_to_stop[broker_id] and broker.is_active:
                leaving.append(broker)
        changes = (BrokerChange(b.broker_id, b.epoch, in_controlled_shutdown=True) for b in leaving)

        def proposed(offset: int, /) -> None:
            self._asked_to_stop.clear()
            self._shutdown_offsets.update((broker.broker_id, offset) for broker in leaving)

        moves = replication_control.leave(view, [broker.broker_id for broker in leaving])
        return [*moves, *map(Unit, changes)], proposed

    def _lowest_active_offset(self, view: ClusterView) -> float:
        """The metadata offset that every active broker has reached; infinite when there is none."""
        return min(
            (
                self.sessions.metadata_offset(broker.broker_id, broker.epoch)
                for broker in view.image.brokers.values()
                if broker.is_active
            ),
            default=float("inf"),
        )

    # Time

    def fence_expired(self, view: ClusterView, now_ms: int) -> list[Unit]:
        """Fences every broker whose session has run out, all in one decision."""
        brokers = []
        for broker_id, epoch in self.sessions.pop_expired(now_ms):
            broker = view.image.brokers.get(broker_id)
            if broker is not None and broker.epoch == epoch and not broker.fenced:
                self._shutdown_offsets.pop(broker_id, None)
                brokers.append(broker)
        return _fencing(view, brokers) if brokers else []


def _registration(view: ClusterView, request: RegisterBrokerRequest) -> RegisterBroker:
    if request.cluster_id != view.config.cluster_id:
        raise ControllerError(
            "INCONSISTENT_CLUSTER_ID",
            f"Broker {request.broker_id} belongs to cluster {request.cluster_id!r}, this is cluster "
            f"{view.config.cluster_id!r}; check its data directory and controller.quorum.voters.",
        )
    feature_control.check_registration(view, request)
    record = RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        listeners=request.listeners,
        rack=request.rack,
        log_dirs=request.log_dirs,
        previous_broker_epoch=request.previous_broker_epoch,
        features=request.features,
    )
    try:
        validate(record)
    except MalformedRecordError as error:
        raise ControllerError(
            "INVALID_REGISTRATION", f"The registration cannot be stored: {error}"
        ) from error
    if not request.listeners:
        raise ControllerError(
            "INVALID_REGISTRATION", f"Broker {request.broker_id} registered without a listener."
        )
    return record


def _same_registration(existing: BrokerImage, record: RegisterBroker) -> bool:
    return (existing.listeners, existing.rack, existing.log_dirs, existing.features) == (
        record.listeners,
        record.rack,
        record.log_dirs,
        record.features,
    )


def _state_of(broker: BrokerImage) -> BrokerControlState:
    if broker.fenced:
        return BrokerControlState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.UNFENCED


def _fencing(view: ClusterView, brokers: list[BrokerImage]) -> list[Unit]:
    """Partitions first, brokers last: no fenced broker leads or is in sync, even if only some units take effect."""
    moves = replication_control.leave(view, [broker.broker_id for broker in brokers])
    return [*moves, *(Unit(BrokerChange(broker.broker_id, broker.epoch, fenced=True)) for broker in brokers)]


def _going(view: ClusterView, broker: BrokerImage) -> list[Unit]:
    """Fences a broker whose shutdown is granted, so that the next controller can tell that it was."""
    if broker.fenced and broker.in_controlled_shutdown:
        return []
    moves = [] if broker.fenced else replication_control.leave(view, [broker.broker_id])
    return [
        *moves,
        Unit(BrokerChange(broker.broker_id, broker.epoch, fenced=True, in_controlled_shutdown=True)),
    ]


def _unfenced(broker: BrokerImage) -> BrokerChange:
    shutdown = False if broker.in_controlled_shutdown else None
    return BrokerChange(broker.broker_id, broker.epoch, fenced=False, in_controlled_shutdown=shutdown)


def _asks_to_serve(broker: BrokerImage, current: BrokerControlState, request: HeartbeatRequest) -> bool:
    """Whether a fenced broker is ready, and knows of its own registration."""
    return (
        current is BrokerControlState.FENCED
        and not request.want_fence
        and not request.want_shutdown
        and request.current_metadata_offset >= broker.epoch
    )
