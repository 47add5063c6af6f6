"""The controller of a replayed history: real decisions on a real image, committed at once.

`ControllerDriver` decides as in production; the one voter of this quorum commits each proposal in the call that
made it. Time passes only when the script lets it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from kraft.chaos.replay.broker import TOPIC, ReplayError
from partitions.log.config import LogConfig
from quorum.controller.decision import ControllerConfig
from quorum.controller.state import Complete, Renounced
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.controller_driver import ControllerDriver, ControllerEffect, Proposed
from quorum.metadata.features import supported_ranges
from quorum.metadata.image import MetadataImage, PartitionImage
from quorum.metadata.records import Listener
from quorum.raft.events import Committed, CommittedEntry, LeaderChanged, ProposalOutcome
from quorum.raft.metadata_state_machine import MetadataStateMachine
from quorum.rpc.messages import (
    SAFE_DOWNGRADE,
    ControllerRequest,
    ControllerResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FeatureUpdate,
    HeartbeatRequest,
    HeartbeatResponse,
    NewTopic,
    PartitionAssignment,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

CLUSTER_ID = "kraft-replay"
SESSION_TIMEOUT_MS = 9_000
TERM = 1
VOTER_ID = 1

_Response = TypeVar("_Response", bound=ControllerResponse)


class ReplayController:
    """The active controller, its log and its clock (`now_ms`)."""

    def __init__(self) -> None:
        self.now_ms = 0
        config = ControllerConfig(
            CLUSTER_ID, session_timeout_ms=SESSION_TIMEOUT_MS, auto_leader_rebalance=False
        )
        self._driver = ControllerDriver(config, LogTopicConfigs(LogConfig()), random.Random(0))
        self._machine = MetadataStateMachine()
        self._completed: dict[int, Complete] = {}
        self._machine.advance(0, TERM)
        barrier = Committed((CommittedEntry(0, TERM, True),), self.image)
        self._run(self._driver.take((barrier, LeaderChanged(VOTER_ID, TERM, True)), self.now_ms))

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self._machine.image

    @property
    def partition(self) -> PartitionImage:
        """The committed state of the one partition."""
        topic = self.image.topic(TOPIC)
        if topic is None:
            raise ReplayError(f"there is no topic {TOPIC}")
        return topic.partitions[0]

    @property
    def topic_id(self) -> bytes:
        return self.image.topic_ids[TOPIC]

    def _run(self, effects: Iterable[ControllerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Proposed):
                self._commit(effect)
            elif isinstance(effect, Complete):
                self._completed[effect.request_id] = effect
            elif isinstance(effect, Renounced):
                raise ReplayError(f"the controller renounced: {effect.reason}")

    def _commit(self, proposed: Proposed) -> None:
        offset = self.image.offset + 1
        applied = self._machine.apply(proposed.data, offset, TERM)
        entry = CommittedEntry(offset, TERM, applied.accepted, sequence=applied.sequence)
        outcome = ProposalOutcome(proposed.request_id, offset, None)
        self._run(self._driver.take((Committed((entry,), self.image), outcome), self.now_ms))

    def call(self, request: ControllerRequest[Any], kind: type[_Response]) -> _Response:
        """One request and its answer. Raises ControllerError."""
        request_id, effects = self._driver.handle(request, self.now_ms)
        self._run(effects)
        complete = self._completed.pop(request_id)
        if complete.error is not None:
            raise complete.error
        if not isinstance(complete.response, kind):
            raise ReplayError(f"{complete.response} is not a {kind.__name__}")
        return complete.response

    # -- brokers

    def register(self, broker_id: int, incarnation: int, previous_epoch: int) -> int:
        """A new process of the broker; `previous_epoch`: in which it ended cleanly, or -1. Returns its epoch."""
        request = RegisterBrokerRequest(
            broker_id=broker_id,
            incarnation_id=bytes([broker_id, incarnation]) * 8,
            cluster_id=CLUSTER_ID,
            listeners=(Listener("PLAINTEXT", f"broker-{broker_id}", 9092, "PLAINTEXT"),),
            previous_broker_epoch=previous_epoch,
            features=supported_ranges(),
        )
        return self.call(request, RegisterBrokerResponse).broker_epoch

    def heartbeat(self, broker_id: int) -> None:
        """Of a broker that has applied all metadata: it is, or gets, unfenced."""
        epoch = self.image.brokers[broker_id].epoch
        self.call(HeartbeatRequest(broker_id, epoch, self.image.offset), HeartbeatResponse)

    def end_session(self, broker_id: int) -> None:
        """So long passes without a heartbeat of this broker that it is fenced; the other unfenced ones beat."""
        others = [n for n, broker in self.image.brokers.items() if n != broker_id and not broker.fenced]
        for _ in range(2):
            self.now_ms += SESSION_TIMEOUT_MS * 2 // 3
            for other in others:
                self.heartbeat(other)
            self._run(self._driver.tick(self.now_ms, self.now_ms))
        if not self.image.brokers[broker_id].fenced:
            raise ReplayError(f"broker {broker_id} was not fenced")

    # -- the topic and the features

    def create_topic(self, replicas: tuple[int, ...], configs: Mapping[str, str]) -> None:
        topic = NewTopic(
            TOPIC, assignments=(PartitionAssignment(0, replicas),), configs=tuple(sorted(configs.items()))
        )
        response = self.call(CreateTopicsRequest((topic,)), CreateTopicsResponse)
        problem = response.topics[0]
        if problem.error != "NONE":
            raise ReplayError(f"the topic was not created: {problem.error} {problem.message}")

    def set_features(self, levels: Mapping[str, int]) -> None:
        updates = tuple(FeatureUpdate(name, level, SAFE_DOWNGRADE) for name, level in levels.items())
        if updates:
            self.call(UpdateFeaturesRequest(updates), UpdateFeaturesResponse)
        for name, level in levels.items():
            if self.image.features.get(name, 0) != level:
                raise ReplayError(f"{name} is {self.image.features.get(name, 0)} and not {level}")
