"""A voter of the controller quorum, assembled: Raft lane, links, listener, controller, metadata log.

It carries effects between the pure parts. What the Raft lane commits goes to the committed image, to those
who follow it, and to `ControllerDriver`; what the driver proposes goes to the Raft lane; a call on the
controller listener is answered when the driver says so. It decides nothing itself. Started by `kraft.node`
on nodes with the controller role. (KRaft's ControllerServer.)
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import structlog

from partitions.disk import Disk
from partitions.ports import Halt, NowMs
from quorum.controller.mutation_budget import MutationQuotas
from quorum.controller.state import Complete, Renounced
from quorum.controller.topic_configs import NO_SCHEMAS, ResourceConfigSchemas, TopicConfigSchema
from quorum.controller_driver import Activated, ControllerDriver, ControllerEffect, Proposed, SessionEnded
from quorum.controller_metrics import ControllerMetrics
from quorum.controller_server_config import ControllerServerConfig
from quorum.errors import ControllerError, MalformedMessageError
from quorum.metadata.image import MetadataImage
from quorum.metadata_log import MetadataLog
from quorum.quorum_status import QuorumStatus
from quorum.raft.driver import RaftDriver
from quorum.raft.events import (
    Committed,
    LeaderChanged,
    Propose,
    QuorumReport,
    RaftEffect,
    SendToPeer,
    TransferLeadership,
    VoterStanding,
)
from quorum.raft.lane import RaftLane
from quorum.raft.metadata_state_machine import MetadataStateMachine
from quorum.recent_changes import RecentChanges
from quorum.rpc import message_codec
from quorum.rpc.client import ConnectorFactory, default_connector
from quorum.rpc.envelope import Body, RpcError
from quorum.rpc.link_lane import LinkLane, NodeLoopLane
from quorum.rpc.messages import (
    METHODS,
    ControllerRequest,
    ControllerResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    MetadataEntry,
)
from quorum.rpc.voter_network import VoterNetwork, VoterTls
from quorum.turns import taking_turns
from quorum.voter_status import VoterStatus

log = structlog.get_logger(__name__)

REQUEST_TIMEOUT_S = 30.0
FETCH_METADATA_MAX_WAIT_MS = 10_000
FETCH_METADATA_MAX_BYTES = 8 * 1024 * 1024
HANDOVER_TIMEOUT_S = 1.0
PREPARED_PARTITIONS = 1_000
"""In a cluster with so many, a voter that does not lead prepares to, whenever so many records have changed them."""


class ControllerServer:
    """One voter. `start` and `close` on the event loop that it lives on."""

    def __init__(
        self,
        config: ControllerServerConfig,
        *,
        lane: RaftLane,
        disk: Disk,
        clock: Callable[[], float],
        now_ms: NowMs,
        rng: random.Random,
        halt: Halt,
        topic_configs: TopicConfigSchema,
        resource_configs: ResourceConfigSchemas = NO_SCHEMAS,
        mutation_quotas: MutationQuotas | None = None,
        connector: ConnectorFactory = default_connector,
        link_lane: LinkLane | None = None,
    ) -> None:
        """`link_lane` is where listener and Raft links run, the loop that this is made on by default."""
        self._config = config
        self._lane = lane
        self._disk = disk
        self._clock = clock
        self._now_ms = now_ms
        self._rng = rng
        self._halt = halt
        self._driver = ControllerDriver(
            config.controller, topic_configs, rng, resource_configs, mutation_quotas
        )
        self._state = self._driver.state
        self._network = VoterNetwork(
            config.raft,
            config.secret,
            self._serve,
            raft_lane=lane,
            link_lane=NodeLoopLane() if link_lane is None else link_lane,
            rng=rng,
            connector=connector,
            tls=VoterTls(config.server_tls, config.client_tls),
        )
        self._log = MetadataLog()
        self.recent_changes = RecentChanges()
        self._quorum = QuorumStatus(config.raft.node_id, config.raft.voters, lane.post, now_ms)
        self._voters = VoterStatus()
        self.metrics = ControllerMetrics()
        self._requests: dict[int, asyncio.Future[Complete]] = {}
        self._ticker: asyncio.TimerHandle | None = None
        self._unprepared = 0
        self._preparing: asyncio.Task[None] | None = None

    # -- life

    async def start(self) -> None:
        """Opens the journal, listens, begins to take part. Raises OSError or RaftStorageError."""
        raft = self._config.raft
        self._loop = asyncio.get_running_loop()
        self._lane.start(self._open_driver, self._deliver, self._network.send)
        try:
            await self._network.start(self._config.host, self._config.port)
        except OSError:
            self._lane.stop()
            raise
        log.info("voter started", node_id=raft.node_id, voters=sorted(raft.voters), offset=self.image.offset)

    def _open_driver(self) -> RaftDriver:
        return RaftDriver(
            config=self._config.raft,
            disk=self._disk,
            clock=self._clock,
            wall_ms=self._now_ms,
            rng=random.Random(self._rng.getrandbits(64)),
            halt=self._halt,
            state_machine=MetadataStateMachine(),
        )

    async def hand_over(self) -> None:
        """Before a planned stop: a leader lets another voter take over, if one is caught up."""
        if not self._driver.leadership.active or len(self._config.raft.voters) == 1:
            return
        self._lane.post(TransferLeadership())
        if not await self._log.wait_until(lambda: not self._driver.leadership.active, HANDOVER_TIMEOUT_S):
            log.info("no other voter took over; stopping all the same")

    async def close(self) -> None:
        """Stops taking part. The journal is synced and closed."""
        async with contextlib.AsyncExitStack() as last_to_first:
            last_to_first.callback(self._lane.stop)
            last_to_first.push_async_callback(self._network.close)
            if self._preparing is not None:
                self._preparing.cancel()
            self._run(self._driver.close())

    # -- what is so

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self._log.image

    @property
    def leader_id(self) -> int | None:
        return self._driver.leadership.leader_id

    @property
    def epoch(self) -> int:
        return self._driver.leadership.epoch

    @property
    def is_active(self) -> bool:
        return self._state.is_active

    @property
    def pending_proposals(self) -> int:
        return self._state.pending_proposals

    def status(self) -> Mapping[str, Any]:
        """For the node's own pages: who leads, and how far this voter is."""
        return {
            "leader_id": self.leader_id,
            "epoch": self.epoch,
            "active": self.is_active,
            "committed_offset": self.image.offset,
            "pending_proposals": self._state.pending_proposals,
            **self._voters.describe(),
        }

    def unready_reasons(self) -> list[str]:
        """Why this controller is not a whole member of a whole quorum; empty when it is."""
        return self._voters.unready_reasons(self.leader_id)

    # -- what there is to do

    def _deliver(self, effects: list[RaftEffect]) -> None:
        """Takes the effects of one step, all of them: a voter that missed one must not go on."""
        try:
            self._run(self._driver.take(effects, self._monotonic_ms()))
        except Exception as error:
            log.exception("the committed metadata could not be taken in")
            self._halt(f"the controller could not take in what the quorum did: {error!r}")

    def _run(self, effects: Iterable[ControllerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendToPeer):
                self._network.send(effect)
            elif isinstance(effect, Committed):
                self._on_committed(effect)
            elif isinstance(effect, Proposed):
                self._lane.post(Propose(effect.request_id, effect.data))
            elif isinstance(effect, Complete):
                self._complete(effect)
            elif isinstance(effect, QuorumReport):
                self._quorum.on_report(effect)
            elif isinstance(effect, VoterStanding):
                self._voters.take(effect)
            else:
                self._on_change(effect)

    def _on_committed(self, committed: Committed) -> None:
        for entry in committed.entries:
            if entry.rejection is not None:
                log.warning("a proposal was refused at apply", offset=entry.offset, reason=entry.rejection)
        self.metrics.committed(self.image, committed, is_active=self._state.is_active)
        entries = [
            MetadataEntry(entry.offset, entry.epoch, entry.encoded_records) for entry in committed.entries
        ]
        self._log.append(entries, committed.image)
        self.recent_changes.take(entries, self._now_ms())
        self._prepare(committed)

    def _prepare(self, committed: Committed) -> None:
        """To take over: with ten thousand partitions that would hold up the loop for a good part of a second."""
        if self._state.is_active:
            self._unprepared = 0  # it keeps up by itself
            return
        partitions = self.metrics.partitions.partitions
        records = sum(len(entry.records) for entry in committed.entries)
        self._unprepared += records if committed.entries else partitions
        is_due = min(partitions, self._unprepared) >= PREPARED_PARTITIONS
        if is_due and (self._preparing is None or self._preparing.done()):
            self._unprepared = 0
            self._preparing = self._loop.create_task(taking_turns(self._state.prepare(committed.image)))
            self._preparing.add_done_callback(self._prepared)

    def _prepared(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._halt(f"the controller could not prepare to lead: {task.exception()!r}")

    def _on_change(self, effect: ControllerEffect) -> None:
        """Another leader, another state of this controller: told in the log, and to those who wait for it."""
        if isinstance(effect, LeaderChanged):
            log.info("quorum leader", leader_id=effect.leader_id, epoch=effect.epoch, active=effect.active)
            self._log.wake()
        elif isinstance(effect, Activated):
            log.info("active controller", epoch=effect.epoch, offset=self.image.offset)
            self._schedule_tick()
        elif isinstance(effect, Renounced):
            log.info("controller renounced", epoch=effect.epoch, reason=effect.reason)
            if self._ticker is not None:
                self._ticker.cancel()
            self._log.wake()
        elif isinstance(effect, SessionEnded):
            log.warning("a broker's session has ended", broker_id=effect.broker_id)

    def _complete(self, effect: Complete) -> None:
        future = self._requests.pop(effect.request_id, None)
        if future is None or future.done():
            return
        if effect.error is not None:
            future.set_exception(self._as_rpc_error(effect.error, in_doubt=effect.in_doubt))
        else:
            future.set_result(effect)

    # -- time

    def _schedule_tick(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        now_ms = self._monotonic_ms()
        due_ms = self._driver.next_tick_ms(now_ms)
        if due_ms is not None:
            self._ticker = self._loop.call_later((due_ms - now_ms) / 1000, self._tick, due_ms)

    def _tick(self, due_ms: int) -> None:
        try:
            self._run(self._driver.tick(self._monotonic_ms(), due_ms))
            self._schedule_tick()
        except Exception as error:
            log.exception("the controller's tick failed")
            self._halt(f"the controller cannot watch over the brokers' sessions: {error!r}")

    def _monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # -- calls

    async def _serve(self, method: str, body: Body) -> Body:
        try:
            request = message_codec.decode_request(method, body)
        except MalformedMessageError as error:
            raise RpcError(error.code, str(error)) from error
        if not isinstance(request, ControllerRequest):
            response = await _NOT_DECIDED[type(request)](self, request)
            return message_codec.encode_response(response, self.image.offset)
        before = self._state.next_tick_ms()
        request_id, future = self._decide(request)
        try:
            after = self._state.next_tick_ms()
            if before is None or after is None or after < before:
                self._schedule_tick()
            if future.done():  # decided at once
                return _encoded(future.result())
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return _encoded(await future)
        except TimeoutError:
            raise RpcError(
                "REQUEST_TIMED_OUT", f"{method} was not committed in {REQUEST_TIMEOUT_S:g} s", in_doubt=True
            ) from None
        finally:
            self._requests.pop(request_id, None)

    def _decide(self, request: Any) -> tuple[int, asyncio.Future[Complete]]:
        """A defect that a request meets is that request's, unless it left something half decided: in the
        speculative image, and not on its way. Nothing could be decided on that; another voter takes over.
        """
        before = (self._state.image, self._state.pending_proposals)
        try:
            request_id, effects = self._driver.handle(request, self._monotonic_ms())
            future = self._requests[request_id] = self._loop.create_future()
            self._run(effects)
        except Exception as error:
            if (self._state.image, self._state.pending_proposals) != before:
                log.exception("a request was half decided", request=type(request).__name__)
                self._halt(f"the controller met a defect in the middle of a decision: {error!r}")
            raise
        return request_id, future

    async def _fetch_metadata(self, request: FetchMetadataRequest) -> FetchMetadataResponse:
        """Waits until there is something after the requested offset, the time is over, or another leads."""
        if self._state.is_active:
            self._quorum.observed(
                request.node_id, request.offset + 1, epoch=self.epoch, committed_end=self.image.offset + 1
            )
        wait_s = min(request.max_wait_ms, FETCH_METADATA_MAX_WAIT_MS) / 1000
        max_bytes = min(request.max_bytes, FETCH_METADATA_MAX_BYTES)
        await self._log.wait_until(
            lambda: self.image.offset > request.offset or not self._state.is_active, wait_s
        )
        self._check_active()
        answer = await self._log.read(request.offset, request.epoch, max_bytes, leader_id=self.leader_id)
        self._check_active()  # an image takes a while
        return answer

    async def _describe_quorum(self, _: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return await self.describe_quorum()

    async def describe_quorum(self) -> DescribeQuorumResponse:
        """How far all are. Raises RpcError on a controller that is not the active one."""
        self._check_active()
        return await self._quorum.describe(self.image.voters)

    def _check_active(self) -> None:
        if not self._state.is_active:
            text = f"node {self._config.raft.node_id} is not the active controller"
            raise self._as_rpc_error(ControllerError("NOT_CONTROLLER", text))

    def _as_rpc_error(self, error: ControllerError, *, in_doubt: bool = False) -> RpcError:
        hint = self.leader_id if self.leader_id != self._config.raft.node_id else None
        return RpcError(error.code, error.message, hint, in_doubt=in_doubt)


def _encoded(decided: Complete) -> Body:
    assert decided.response is not None
    return message_codec.encode_response(decided.response, decided.offset)


_NOT_DECIDED: Mapping[type[Any], Callable[[ControllerServer, Any], Awaitable[ControllerResponse]]] = {
    FetchMetadataRequest: ControllerServer._fetch_metadata,
    DescribeQuorumRequest: ControllerServer._describe_quorum,
}
"""Requests that are answered from what is committed, and from the Raft lane."""
assert _NOT_DECIDED.keys() == {
    rpc.request for rpc in METHODS.values() if not issubclass(rpc.request, ControllerRequest)
}, "every request that the controller does not decide needs an answer, and no other has one"
