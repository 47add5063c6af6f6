"""A controller, driven: what a step of the Raft lane came to goes in, proposals and answers come out.

The controller becomes active when its node leads and has applied the barrier of its own epoch: it starts from the
committed image, at the sequence that the fence expects next. It renounces when its node leads no more, or when a
proposal fails. Whoever waits then is in doubt: the next leader may commit what was proposed.

Sans IO: requests, time and the lane's effects in; effects out. `ControllerServer` drives real voters with it,
`kraft chaos quorum` and `kraft chaos replay` simulated ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from quorum.controller.decision import ControllerConfig
from quorum.controller.mutation_budget import MutationQuotas
from quorum.controller.placement import Randomness
from quorum.controller.proposal import FIRST_SEQUENCE
from quorum.controller.state import Complete, ControllerState, Propose, Renounced
from quorum.controller.state import Effect as StateEffect
from quorum.controller.topic_configs import NO_SCHEMAS, ResourceConfigSchemas, TopicConfigSchema
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.raft.events import Committed, LeaderChanged, ProposalOutcome, RaftEffect, VoterDirectories
from quorum.rpc.messages import ControllerRequest

WATCHES_PER_SESSION = 8
"""How often a controller looks whether it stood still itself, in a session timeout of its brokers."""


class Proposed(NamedTuple):
    """Hand `data` to the Raft lane under this number; order matters. If the fence accepts it, it is at `offset`."""

    request_id: int
    data: bytes
    epoch: int
    sequence: int
    offset: int


class Activated(NamedTuple):
    """The controller is active."""

    epoch: int


class SessionEnded(NamedTuple):
    """Nothing was heard of a broker for too long: it is about to be fenced."""

    broker_id: int


ControllerEffect: TypeAlias = RaftEffect | Proposed | Complete | Activated | Renounced | SessionEnded
"""What is left to do, in order. The lane's own effects are among them, but for those that only the driver needs."""


class ControllerDriver:
    """The controller of one voter. Not thread-safe; all calls come from one lane. Times are monotonic."""

    def __init__(
        self,
        config: ControllerConfig,
        topic_configs: TopicConfigSchema,
        rng: Randomness,
        resource_configs: ResourceConfigSchemas = NO_SCHEMAS,
        mutation_quotas: MutationQuotas | None = None,
    ) -> None:
        self.state = ControllerState(config, topic_configs, rng, resource_configs, mutation_quotas)
        """For reading. What makes effects is called by the driver alone."""
        self.image: MetadataImage = EMPTY
        """The committed image, as far as this node has heard."""
        self.leadership = LeaderChanged(None, -1, False)
        self._watch_ms = max(1, config.session_timeout_ms // WATCHES_PER_SESSION)
        self._directories = VoterDirectories(-1, {})
        self._next_sequence = (-1, FIRST_SEQUENCE)  # epoch, and the sequence that its fence expects
        self._accepted: dict[int, bool] = {}  # by offset, of the commits whose outcomes come next
        self._proposals: dict[int, tuple[int, int]] = {}  # number → epoch, sequence
        self._last_id = 0
        self._closed = False

    @property
    def is_active(self) -> bool:
        return self.state.is_active

    # -- from the Raft lane

    def take(self, effects: Iterable[RaftEffect], now_ms: int) -> Iterator[ControllerEffect]:
        """Takes the effects of one step, all of them. Carry out each effect before you ask for the next: who leads,
        for example, is what it was when the effect was due."""
        for effect in effects:
            if isinstance(effect, ProposalOutcome):
                yield from self._on_outcome(effect)
            elif isinstance(effect, VoterDirectories):
                self._directories = effect
            elif isinstance(effect, Committed):
                self._on_committed(effect)
                yield effect
            elif isinstance(effect, LeaderChanged):
                self.leadership = effect
                yield effect
                if not effect.active or effect.epoch != self.state.epoch:
                    reason = "this node does not lead the quorum any more"
                    yield from self._numbered(self.state.renounce(reason))
            else:
                yield effect
        self._accepted.clear()
        yield from self._activate_if_leader(now_ms)
        if self.is_active and self._directories.epoch == self.state.epoch:
            yield from self._numbered(self.state.record_voters(self._directories.directories))

    def _on_committed(self, committed: Committed) -> None:
        for entry in committed.entries:
            self._accepted[entry.offset] = entry.accepted
            if entry.accepted and entry.sequence is not None:
                self._next_sequence = (entry.epoch, entry.sequence + 1)
        self.image = committed.image

    def _on_outcome(self, outcome: ProposalOutcome) -> list[ControllerEffect]:
        epoch, sequence = self._proposals.pop(outcome.request_id)
        if outcome.offset is None:
            return self._numbered(self.state.on_proposal_failed(epoch, sequence, str(outcome.error)))
        accepted = self._accepted[outcome.offset]
        return self._numbered(self.state.on_committed(outcome.offset, epoch, sequence, accepted=accepted))

    def _activate_if_leader(self, now_ms: int) -> Iterator[ControllerEffect]:
        epoch = self.leadership.epoch
        if self._closed or not self.leadership.active or not self.state.can_become_active(epoch):
            return
        known_epoch, sequence = self._next_sequence
        next_sequence = sequence if known_epoch == epoch else FIRST_SEQUENCE
        effects = self.state.become_active(epoch, self.image, now_ms, next_sequence=next_sequence)
        yield Activated(epoch)
        yield from self._numbered(effects)

    # -- from the controller's node

    def handle(self, request: ControllerRequest[Any], now_ms: int) -> tuple[int, list[ControllerEffect]]:
        """Decides a request. Its `Complete` bears the number that is returned, and comes in this call's effects or
        in later ones, exactly once."""
        request_id = self._new_id()
        return request_id, self._numbered(self.state.handle(request_id, request, now_ms))

    def next_tick_ms(self, now_ms: int) -> int | None:
        """When to tick next; None while the controller is not active. A controller that has nothing to do ticks all
        the same, to find out whether it stands still."""
        deadline_ms = self.state.next_tick_ms()
        return None if deadline_ms is None else min(max(deadline_ms, now_ms), now_ms + self._watch_ms)

    def tick(self, now_ms: int, due_ms: int) -> list[ControllerEffect]:
        """Ends the sessions of silent brokers, and does what else is due. A tick that comes after `due_ms` tells that
        this loop was busy, or the process did not run: heartbeats are still to be read."""
        if now_ms > due_ms:
            self.state.stood_still(now_ms - due_ms, now_ms)
        ended: list[ControllerEffect] = [SessionEnded(one) for one in self.state.expired_sessions(now_ms)]
        return ended + self._numbered(self.state.tick(now_ms))

    def close(self) -> list[ControllerEffect]:
        """The node is about to stop: the controller renounces, for good."""
        self._closed = True
        return self._numbered(self.state.renounce("the node is stopping"))

    def _numbered(self, effects: Iterable[StateEffect]) -> list[ControllerEffect]:
        numbered: list[ControllerEffect] = []
        for effect in effects:
            numbered.append(self._proposed(effect) if isinstance(effect, Propose) else effect)
        return numbered

    def _proposed(self, effect: Propose) -> Proposed:
        number, epoch = self._new_id(), self.state.epoch
        self._proposals[number] = (epoch, effect.sequence)
        return Proposed(number, effect.data, epoch, effect.sequence, effect.offset)

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id
