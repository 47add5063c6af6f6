"""The controller of a simulated voter: the real `ControllerState`, with a short glue to its Raft lane.

It stands for `quorum.controller_server`, whose glue is tied to an event loop and a listener (that one is
played by whole simulated clusters); it carries the same facts in the same order. Owned by `voter`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.metadata_judge import MetadataJudge
from partitions.log.config import LogConfig
from quorum.controller.decision import ControllerConfig
from quorum.controller.state import Complete, ControllerState, Effect, Propose
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.raft.events import Committed, LeaderChanged, ProposalOutcome, VoterDirectories

CLUSTER_ID = "cluster"
SESSION_TIMEOUT_MS = 2500
Answer = Callable[[Any, str | None], None]
"""Called with the response, or with None and the name of the error."""


class Controller:
    """The controller of one life of one voter."""

    def __init__(
        self,
        rng: Random,
        judge: MetadataJudge,
        propose: Callable[[int, bytes], None],
        now_ms: Callable[[], int],
        happened: Callable[[str], None],
    ) -> None:
        """`propose(request_id, data)` hands a proposal to the Raft lane."""
        config = ControllerConfig(CLUSTER_ID, session_timeout_ms=SESSION_TIMEOUT_MS)
        self._state = ControllerState(config, LogTopicConfigs(LogConfig()), rng)
        self._judge = judge
        self._propose = propose
        self._now_ms = now_ms
        self._happened = happened
        self._image: MetadataImage = EMPTY
        self._leadership = LeaderChanged(None, -1, False)
        self._directories = VoterDirectories(-1, {})
        self._next_sequence = (-1, 0)
        self._accepted: dict[int, bool] = {}
        self._proposals: dict[int, tuple[int, int]] = {}
        self._answers: dict[int, Answer] = {}
        self._serial = 0

    @property
    def is_active(self) -> bool:
        return self._state.is_active

    @property
    def image(self) -> MetadataImage:
        """The committed image, as far as this node has heard."""
        return self._image

    def request(self, request: Any, answer: Answer) -> None:
        """Decides a request; `answer` is called in this call or a later one, unless the node dies."""
        self._serial += 1
        self._answers[self._serial] = answer
        self._run(self._state.handle(self._serial, request, self._now_ms()))

    def tick(self) -> None:
        """Fences brokers whose sessions are over."""
        self._run(self._state.tick(self._now_ms()))

    def take(self, effects: list[Any]) -> None:
        """What one step of the Raft lane came to, in its order; messages to peers left out."""
        for effect in effects:
            if isinstance(effect, Committed):
                self._on_committed(effect)
            elif isinstance(effect, ProposalOutcome):
                self._on_outcome(effect)
            elif isinstance(effect, VoterDirectories):
                self._directories = effect
            elif isinstance(effect, LeaderChanged):
                self._leadership = effect
                if not effect.active or effect.epoch != self._state.epoch:
                    self._run(self._state.renounce("it leads no more"))
        self._accepted.clear()
        self._activate_if_leader()
        if self._state.is_active and self._directories.epoch == self._state.epoch:
            self._run(self._state.record_voters(self._directories.directories))

    def _on_committed(self, committed: Committed) -> None:
        for entry in committed.entries:
            self._accepted[entry.offset] = entry.accepted
            if entry.accepted and entry.sequence is not None:
                self._next_sequence = (entry.epoch, entry.sequence + 1)
        self._image = committed.image[2]

    def _on_outcome(self, outcome: ProposalOutcome) -> None:
        epoch, sequence = self._proposals.pop(outcome.request_id)
        if outcome.offset is None:
            self._run(self._state.on_proposal_failed(epoch, sequence, str(outcome.error)))
        else:
            accepted = self._accepted[outcome.offset]
            self._run(self._state.on_committed(outcome.offset, epoch, sequence, accepted=accepted))

    def _activate_if_leader(self) -> None:
        epoch = self._leadership.epoch
        if not self._leadership.active or not self._state.can_become_active(epoch):
            return
        known_epoch, next_sequence = self._next_sequence
        self._happened(counters.ACTIVATED)
        self._run(
            self._state.become_active(
                epoch,
                self._image,
                self._now_ms(),
                next_sequence=next_sequence if known_epoch == epoch else 0,
            )
        )

    def _run(self, effects: list[Effect]) -> None:
        proposals = [effect for effect in effects if isinstance(effect, Propose)]
        foreseen = self._state.image.offset - len(proposals)
        for number, one in enumerate(proposals, start=1):
            image = self._state.image if number == len(proposals) else None
            self._judge.foresaw(self._state.epoch, one.sequence, foreseen + number, image)
        for effect in effects:
            if isinstance(effect, Propose):
                self._serial += 1
                self._proposals[self._serial] = (self._state.epoch, effect.sequence)
                self._propose(self._serial, effect.data)
            elif isinstance(effect, Complete):
                error = None if effect.error is None else effect.error.code
                self._answers.pop(effect.request_id)(effect.response, error)
            elif self._answers:
                self._happened(counters.RENOUNCED)
