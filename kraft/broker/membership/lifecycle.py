"""A broker's life as the controller sees it: registration, heartbeats, fencing, controlled shutdown.

STARTING → (registered, caught up with its own registration) → RUNNING once unfenced → back to FENCED
when the controller says so → SHUTTING_DOWN after its leaderships have moved away. A broker that the
controller no longer knows under its epoch (STALE_BROKER_EPOCH) registers anew. (KIP-631,
BrokerLifecycleManager.)
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from kraft.broker.membership.controller_client import ControllerClient
from kraft.broker.vital_task import end_task, start_vital_task
from partitions.ports import Halt
from quorum.metadata.features import supported_ranges
from quorum.metadata.records import Listener
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.messages import (
    HeartbeatRequest,
    RegisterBrokerRequest,
)

log = structlog.get_logger(__name__)

REGISTRATION_TIMEOUT_S = 60.0
REGISTRATION_ATTEMPT_S = 5.0
BACKOFF_S = 0.1
_UNKNOWN_TO_CONTROLLER = frozenset({"STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED"})
_REFUSED_FOR_GOOD = frozenset(
    {"CLUSTER_AUTHORIZATION_FAILED", "INCONSISTENT_CLUSTER_ID", "INVALID_REGISTRATION", "UNSUPPORTED_VERSION"}
)
"""What asking again does not mend; an operator has to."""


class BrokerState(enum.Enum):
    """Where a broker is in its life; the values are Kafka's metric values (KIP-631)."""

    NOT_RUNNING = 0
    STARTING = 1
    FENCED = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationRefused(Exception):
    """The controller refuses this broker; the message says why."""


@dataclass(frozen=True)
class Registration:
    """What a broker says about itself when it registers."""

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    rack: str | None
    log_dirs: tuple[bytes, ...]
    previous_broker_epoch: int = -1
    """Under which the logs were closed cleanly; -1 when they were not."""


class BrokerLifecycle:
    """Owns the registration and the heartbeat task of one broker."""

    def __init__(
        self,
        registration: Registration,
        controller: ControllerClient,
        rng: random.Random,
        *,
        heartbeat_interval_s: float,
        session_timeout_s: float,
        metadata_offset: Callable[[], int],
        halt: Halt,
        on_registered: Callable[[], None] = lambda: None,
        may_unfence: Callable[[], bool] = lambda: True,
    ) -> None:
        """`on_registered` is called after each registration; a fenced broker asks to be unfenced only when
        `may_unfence` says so."""
        self._registration = registration
        self._on_registered = on_registered
        self._may_unfence = may_unfence
        self._controller = controller
        self._rng = rng
        self._interval_s = heartbeat_interval_s
        self._session_s = session_timeout_s
        self._metadata_offset = metadata_offset
        self._halt = halt
        self._ready = False
        self._want_shutdown = False
        self._abandoned = False
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.state = BrokerState.NOT_RUNNING
        self.epoch = -1

    async def start(self) -> None:
        """Registers. Raises RegistrationRefused when the controller says no for good."""
        self.state = BrokerState.STARTING
        await self._register()
        self._task = start_vital_task(self._heartbeats(), "broker-heartbeats", self._halt)

    def set_ready(self) -> None:
        """The broker can serve: from now on it asks to be unfenced."""
        self._ready = True
        self._wake.set()

    @property
    def unfenced(self) -> bool:
        return self.state in (BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)

    async def wait_unfenced(self) -> None:
        """Returns when the controller has unfenced the broker; the caller brings the timeout."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.unfenced)

    async def controlled_shutdown(self, timeout_s: float) -> bool:
        """Asks the controller to move leaderships away. Returns whether it agreed in `timeout_s`.

        Gives up sooner when no controller answers for a session, as when all nodes stop at once: by
        then whoever leads the quorum has fenced this broker, and if nobody does, nothing moves.
        """
        if self._task is None:
            return False
        self._want_shutdown = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: self.state is BrokerState.SHUTTING_DOWN or self._abandoned
                )
        except TimeoutError:
            return False
        return self.state is BrokerState.SHUTTING_DOWN

    async def close(self) -> None:
        await end_task(self._task)

    # -- registration

    async def _register(self) -> None:
        me = self._registration
        request = RegisterBrokerRequest(
            me.broker_id,
            me.incarnation_id,
            me.cluster_id,
            me.listeners,
            me.rack,
            me.log_dirs,
            # A process that registers again has lost nothing since it was last registered.
            previous_broker_epoch=me.previous_broker_epoch if self.epoch < 0 else self.epoch,
            features=supported_ranges(),
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REGISTRATION_TIMEOUT_S
        while True:
            try:
                answer = await self._controller.call(request, timeout_s=REGISTRATION_ATTEMPT_S)
            except RpcError as error:
                if loop.time() >= deadline or error.code in _REFUSED_FOR_GOOD:
                    raise RegistrationRefused(
                        f"broker {me.broker_id} could not register: {error.message} ({error.code})"
                    ) from error
                if isinstance(error, RpcUnavailable):
                    log.info("no controller answered the registration", reason=str(error))
                else:
                    # DUPLICATE_BROKER_REGISTRATION ends with the session of the previous incarnation.
                    log.info("registration is refused for now", reason=str(error))
                await asyncio.sleep(BACKOFF_S * self._rng.uniform(0.8, 1.2))
                continue
            self.epoch = answer.broker_epoch
            log.info("registered", broker_id=me.broker_id, broker_epoch=self.epoch)
            self._on_registered()
            return

    # -- heartbeats

    async def _heartbeats(self) -> None:
        """Until cancelled, or told to shut down: a successor may hold the id from then on."""
        while self.state is not BrokerState.SHUTTING_DOWN:
            try:
                await self._heartbeat()
            except RpcError as error:
                if error.code in _UNKNOWN_TO_CONTROLLER:
                    log.warning("the controller does not know this registration", reason=str(error))
                    await self._set_state(BrokerState.FENCED)
                    await self._register_again()
                else:
                    log.info("no heartbeat got through", reason=str(error))
                    if self._want_shutdown and isinstance(error, RpcUnavailable):
                        await self._abandon_shutdown()
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    def _pause_s(self) -> float:
        """Until the next heartbeat: short while an answer is expected to change something."""
        waiting = (self._ready and not self.unfenced) or self._want_shutdown
        return min(self._interval_s, BACKOFF_S / 2) if waiting else self._interval_s

    async def _register_again(self) -> None:
        try:
            await self._register()
        except RegistrationRefused as error:
            log.warning("registration failed; it is tried again", reason=str(error))

    async def _heartbeat(self) -> None:
        answer = await self._controller.call(
            HeartbeatRequest(
                self._registration.broker_id,
                self.epoch,
                self._metadata_offset(),
                want_fence=not self._ready or not (self.unfenced or self._may_unfence()),
                want_shutdown=self._want_shutdown,
            ),
            timeout_s=self._session_s,
            attempt_timeout_s=max(self._interval_s, self._session_s / 3),
        )
        if answer.should_shutdown:
            await self._set_state(BrokerState.SHUTTING_DOWN)
        elif self._want_shutdown:
            await self._set_state(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        else:
            await self._set_state(BrokerState.FENCED if answer.is_fenced else BrokerState.RUNNING)

    async def _abandon_shutdown(self) -> None:
        async with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    async def _set_state(self, state: BrokerState) -> None:
        if state is not self.state:
            log.info("broker state", before=self.state.name, now=state.name)
            self.state = state
            async with self._changed:
                self._changed.notify_all()
