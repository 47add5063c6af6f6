"""The controller of a simulated voter: a real `ControllerDriver`, and the judge of what it foresees.

It stands for `quorum.controller_server`, which needs an event loop and a listener (whole simulated clusters play that
one). Owned by `voter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

from kraft.chaos.node_folders import CLUSTER_ID
from kraft.chaos.quorum import counters
from kraft.chaos.quorum.metadata_judge import MetadataJudge
from partitions.log.config import LogConfig
from quorum.controller.decision import ControllerConfig
from quorum.controller.state import Complete, Renounced
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.controller_driver import Activated, ControllerDriver, ControllerEffect, Proposed
from quorum.raft.events import Committed, RaftEffect

SESSION_TIMEOUT_MS = 1500
OnAnswer = Callable[[Any, str | None], None]
"""Called with the response, or with None and the name of the error."""


class Controller:
    """The controller of one life of one voter."""

    def __init__(
        self,
        rng: Random,
        judge: MetadataJudge,
        propose: Callable[[int, bytes], None],
        now_ms: Callable[[], int],
        happened: Callable[[str, str], None],
        name: str,
    ) -> None:
        """`propose(request_id, data)` hands a proposal to the Raft lane."""
        config = ControllerConfig(CLUSTER_ID, session_timeout_ms=SESSION_TIMEOUT_MS)
        self._driver = ControllerDriver(config, LogTopicConfigs(LogConfig()), rng)
        self._judge = judge
        self._propose = propose
        self._now_ms = now_ms
        self._happened = happened
        self._name = name
        self._answers: dict[int, OnAnswer] = {}

    def request(self, request: Any, answer: OnAnswer) -> None:
        """Decides a request; `answer` is called in this call or a later one, unless the node dies."""
        request_id, effects = self._driver.handle(request, self._now_ms())
        self._answers[request_id] = answer
        self._run(effects)

    def tick(self) -> None:
        """Fences brokers whose sessions are over."""
        now_ms = self._now_ms()
        self._run(self._driver.tick(now_ms, now_ms))

    def take(self, effects: list[RaftEffect]) -> None:
        """What one step of the Raft lane came to, in its order; messages to peers left out."""
        self._run(self._driver.take(map(_unwatched, effects), self._now_ms()))

    def _run(self, effects: Iterable[ControllerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Proposed):
                self._on_proposed(effect)
            elif isinstance(effect, Complete):
                error = None if effect.error is None else effect.error.code
                self._answers.pop(effect.request_id)(effect.response, error)
            elif isinstance(effect, Activated):
                self._happened(counters.ACTIVATED, self._name)
            elif isinstance(effect, Renounced) and self._answers:
                self._happened(counters.RENOUNCED, self._name)

    def _on_proposed(self, effect: Proposed) -> None:
        image = self._driver.state.image
        is_newest = image.offset == effect.offset
        self._judge.foresaw(effect.epoch, effect.sequence, effect.offset, image if is_newest else None)
        self._propose(effect.request_id, effect.data)


def _unwatched(effect: RaftEffect) -> RaftEffect:
    """The image of the real state machine, without the hash that `WatchedMachine` keeps beside it."""
    return replace(effect, image=effect.image[2]) if isinstance(effect, Committed) else effect
