"""The active controller, sans IO: requests and time in, proposals and completed responses out.

Guarantees: every decision is made on the speculative image, which holds everything proposed so far. Proposals are
numbered without gap within the controller's epoch. A response leaves only when the proposal that it depends on is
committed, so that it never shows a state that may yet be lost. A response that changed nothing waits for the last
proposal before it, whose effects it may show. If a proposal fails, or is committed at another offset than foreseen, the
whole speculative image is void: the controller renounces, answers all waiting requests NOT_CONTROLLER (retriable), and
has to become active again from the committed image. The model is Kafka's QuorumController; see KIP-631.

`ControllerDriver` calls `become_active` when the Raft lane reports this node as leader with its own barrier applied. It
hands out `Propose` effects in order, reports each outcome, and calls `tick` at `next_tick_ms`. Offsets are foreseeable
because only the leader appends: its barrier, then proposals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quorum.controller import feature_control, replication_control, voter_control
from quorum.controller.cluster_control import ClusterControl
from quorum.controller.cluster_index import ClusterIndex
from quorum.controller.decision import ClusterView, ControllerConfig, Unit
from quorum.controller.leader_rebalance import LeaderRebalance
from quorum.controller.mutation_budget import MutationQuotas
from quorum.controller.placement import Randomness
from quorum.controller.proposal import FIRST_SEQUENCE, MAX_PROPOSAL_RECORDS_BYTES, Proposal
from quorum.controller.requests import Circumstances, decide
from quorum.controller.topic_configs import NO_SCHEMAS, ResourceConfigSchemas, TopicConfigSchema
from quorum.errors import ControllerError
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.record_codec import MAX_RECORDS, join_encoded
from quorum.rpc.messages import ControllerRequest, ControllerResponse, HeartbeatRequest
from quorum.steps import Steps, finished


class Propose(NamedTuple):
    """Hand `data` to the Raft lane, in order; report the outcome under `sequence`. `offset` is foreseen."""

    data: bytes
    sequence: int
    offset: int


class Complete(NamedTuple):
    """Answer a request: with the response, or with the error if there is one."""

    request_id: int
    response: ControllerResponse | None
    error: ControllerError | None = None
    in_doubt: bool = False
    """What was decided is on its way, and may yet be committed."""
    offset: int = -1
    """The committed offset that has everything which the response tells of."""


class Renounced(NamedTuple):
    """The controller is no longer active; it may become active again as `can_become_active` says."""

    epoch: int
    reason: str


Effect = Propose | Complete | Renounced


@dataclass(slots=True)
class _Waiter:
    request_id: int
    respond: Callable[[int], ControllerResponse]
    error: ControllerError | None = None

    def complete(self, offset: int) -> Complete:
        if self.error is not None:
            return Complete(self.request_id, None, self.error)
        return Complete(self.request_id, self.respond(offset), offset=offset)


@dataclass(slots=True)
class _Pending:
    """A proposal under way, and the requests that wait for it."""

    sequence: int
    offset: int
    waiters: list[_Waiter] = field(default_factory=list)


class ControllerState:
    """See the module's text. Not thread-safe; all calls come from one lane."""

    def __init__(
        self,
        config: ControllerConfig,
        topic_configs: TopicConfigSchema,
        rng: Randomness,
        resource_configs: ResourceConfigSchemas = NO_SCHEMAS,
        mutation_quotas: MutationQuotas | None = None,
    ) -> None:
        """Without `resource_configs` no configs but those of topics can be altered; without `mutation_quotas` no client
        is limited in what it changes."""
        self._config = config
        self._topic_configs = topic_configs
        self._resource_configs = resource_configs
        self._mutation_quotas = mutation_quotas
        self._rng = rng
        self._active = False
        self._epoch = -1
        self._unresolved: set[int] = set()
        self._index = ClusterIndex()
        self._reset(EMPTY, 0)

    def _reset(self, image: MetadataImage, now_ms: int) -> None:
        self._image = image
        self._cluster = ClusterControl(self._config, image, now_ms)
        self._rebalance = LeaderRebalance(self._config, now_ms)
        self._pending: deque[_Pending] = deque()
        self._waiting = 0

    # Facts ---------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._active

    @property
    def epoch(self) -> int:
        """The epoch in which it is, or was last, active; -1 if never."""
        return self._epoch

    @property
    def image(self) -> MetadataImage:
        """The speculative image, while active: committed metadata and everything proposed since."""
        return self._image

    @property
    def pending_proposals(self) -> int:
        return len(self._pending)

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do at the earliest (monotonic ms); None while there is nothing."""
        if not self._active:
            return None
        times = (self._cluster.sessions.next_deadline_ms(), self._rebalance.next_check_ms)
        return min((time for time in times if time is not None), default=None)

    def can_become_active(self, epoch: int) -> bool:
        """Whether `become_active` may be called for this epoch.

        An epoch that was renounced can be taken up again only after the outcome of every proposal made
        in it is known: otherwise a straggler might be committed under a number that is used again.
        """
        if self._active or epoch < self._epoch:
            return False
        return epoch > self._epoch or not self._unresolved

    # Leadership ----------------------------------------------------------------------------------

    def prepare(self, image: MetadataImage) -> Steps[None]:
        """While another controller is active: makes it quick to become active at this image, or a later one. Steps that
        are left then are done at once."""
        assert not self._active, "its index is that of its own image"
        return self._index.follow(image)

    def become_active(
        self, epoch: int, image: MetadataImage, now_ms: int, *, next_sequence: int = FIRST_SEQUENCE
    ) -> list[Effect]:
        """Starts from the committed image, which holds the leader's barrier of `epoch`.

        `next_sequence` is the one that the proposal fence expects in this epoch (0 in a new one). In a new cluster the
        controller records the features' levels. It completes the changes that an earlier controller left half done.
        """
        assert self.can_become_active(epoch), (
            f"epoch {epoch} cannot be led (again): {self._epoch} is unresolved"
        )
        self._active = True
        self._epoch = epoch
        self._unresolved = set()
        self._next_sequence = next_sequence
        finished(self._index.follow(image))
        self._reset(image, now_ms)
        effects, _ = self._propose(
            feature_control.bootstrap(
                image, (*self._config.new_cluster_features, *self._config.new_cluster_users)
            )
        )
        return effects + self._propose(replication_control.settle(self._view()))[0]

    def renounce(self, reason: str) -> list[Effect]:
        """Gives up: every waiting request fails with NOT_CONTROLLER. Nothing happens if not active."""
        if not self._active:
            return []
        self._active = False
        error = ControllerError("NOT_CONTROLLER", f"This controller is no longer the active one: {reason}.")
        effects: list[Effect] = [Renounced(self._epoch, reason)]
        for pending in self._pending:
            self._unresolved.add(pending.sequence)
            effects.extend(
                Complete(waiter.request_id, None, error, in_doubt=True) for waiter in pending.waiters
            )
        self._reset(EMPTY, 0)
        return effects

    # Requests ------------------------------------------------------------------------------------

    def handle(self, request_id: int, request: ControllerRequest[Any], now_ms: int) -> list[Effect]:
        """Decides a request. Its `Complete` comes in this call or a later one, exactly once."""
        if not self._active:
            error = ControllerError(
                "NOT_CONTROLLER", "This node is not the active controller; ask the leader."
            )
            return [Complete(request_id, None, error)]
        if self._waiting >= self._config.max_pending_requests:
            if isinstance(request, HeartbeatRequest):
                self._cluster.touch(self._view(), request, now_ms)
            error = ControllerError(
                "THROTTLING_QUOTA_EXCEEDED",
                f"{self._waiting} requests are waiting to be committed already; try again later.",
            )
            return [Complete(request_id, None, error)]
        try:
            given = Circumstances(self._view(), self._cluster, self._rng, now_ms, self._mutation_quotas)
            decision = decide(request, given)
        except ControllerError as error:
            return self._wait(_Waiter(request_id, _no_response, error))
        effects, offset = self._propose(decision.units)
        if decision.units:
            decision.on_proposed(offset)
        return effects + self._wait(_Waiter(request_id, decision.respond))

    def expired_sessions(self, now_ms: int) -> list[int]:
        """The silent brokers that a tick at this time fences."""
        return [broker_id for broker_id, _ in self._cluster.sessions.expired(now_ms)] if self._active else []

    def stood_still(self, duration_ms: int, now_ms: int) -> None:
        """Prolongs sessions after this controller stood still: heartbeats of that time are yet to be read."""
        self._cluster.sessions.extend(duration_ms, now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """Fences brokers whose sessions have run out, and rebalances leaders when that is due.

        O(1) when there is nothing to do.
        """
        if not self._active:
            return []
        effects, _ = self._propose(self._cluster.fence_expired(self._view(), now_ms))
        return effects + self._propose(self._rebalance.due(self._view(), now_ms))[0]

    def record_voters(self, directories: Mapping[int, bytes]) -> list[Effect]:
        """Proposes to record the voters' directory ids that the image lacks."""
        if not self._active:
            return []
        return self._propose(voter_control.record_voters(self._image, directories))[0]

    # Outcomes ------------------------------------------------------------------------------------

    def on_committed(self, offset: int, epoch: int, sequence: int, *, accepted: bool = True) -> list[Effect]:
        """Takes the outcome of a proposal committed at `offset` in term `epoch`; outcomes come in order of sequence.

        `accepted` is false if the fence refused it at apply, which voids all later proposals.
        """
        if not self._active or epoch != self._epoch:
            self._resolve(epoch, sequence)
            return []
        if not accepted:
            return self.on_proposal_failed(epoch, sequence, "it was refused at apply")
        pending = self._pending[0] if self._pending else None
        assert pending is not None, f"nothing is pending, yet sequence {sequence} was committed"
        assert pending.sequence == sequence, f"sequence {sequence} was committed before {pending.sequence}"
        self._pending.popleft()
        self._waiting -= len(pending.waiters)
        effects: list[Effect] = [waiter.complete(offset) for waiter in pending.waiters]
        if offset != pending.offset:
            effects += self.renounce(
                f"a proposal was committed at offset {offset}, foreseen was {pending.offset}"
            )
        return effects

    def on_proposal_failed(self, epoch: int, sequence: int, reason: str) -> list[Effect]:
        """Takes the failure of a proposal: not committed, unknown (leadership lost), or refused at apply."""
        if not self._active or epoch != self._epoch:
            self._resolve(epoch, sequence)
            return []
        effects = self.renounce(f"proposal {sequence} failed: {reason}")
        self._resolve(epoch, sequence)
        return effects

    def _resolve(self, epoch: int, sequence: int) -> None:
        if epoch == self._epoch:
            self._unresolved.discard(sequence)

    # Proposing -----------------------------------------------------------------------------------

    def _view(self) -> ClusterView:
        return ClusterView(
            self._image, self._index, self._config, self._topic_configs, self._resource_configs
        )

    def _wait(self, waiter: _Waiter) -> list[Effect]:
        """Lets the request wait for the last proposal; answers at once when there is none."""
        if not self._pending:
            return [waiter.complete(self._image.offset)]
        self._pending[-1].waiters.append(waiter)
        self._waiting += 1
        return []

    def _propose(self, units: Iterable[Unit]) -> tuple[list[Effect], int]:
        """Applies units to the speculative image and proposes them, in as few proposals as they fit into. Large ones
        are applied in steps (`quorum.raft.applying`, the brokers' metadata loader)."""
        effects: list[Effect] = []
        for batch in _batches(units):
            offset = self._image.offset + 1
            delta = MetadataDelta(self._image)
            for unit in batch:
                for record in unit.records:
                    delta.apply(record, offset, self._epoch)
            self._image = delta.finish(offset, self._epoch)
            self._index.update(delta, self._image)
            records = join_encoded([encoded for unit in batch for encoded in unit.encoded])
            sequence = self._next_sequence
            self._next_sequence += 1
            self._pending.append(_Pending(sequence, offset))
            effects.append(Propose(Proposal(self._epoch, sequence, records).encode(), sequence, offset))
        return effects, self._image.offset


def _no_response(offset: int) -> ControllerResponse:
    raise AssertionError("a refused request has no response")


def _batches(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Units in order, packed into lists that fit one proposal each."""
    batch: list[Unit] = []
    size_bytes = records = 0
    for unit in units:
        if batch and (
            size_bytes + unit.size_bytes > MAX_PROPOSAL_RECORDS_BYTES
            or records + len(unit.records) > MAX_RECORDS
        ):
            yield batch
            batch, size_bytes, records = [], 0, 0
        batch.append(unit)
        size_bytes += unit.size_bytes
        records += len(unit.records)
    if batch:
        yield batch
