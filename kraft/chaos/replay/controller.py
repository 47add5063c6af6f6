"""The controller of a replayed history: real decisions on a real image, committed at once.

`ControllerState` decides as in production; the one voter of this quorum commits each proposal in the call that
made it. Time passes only when the script lets it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import TypeVar

from kraft.chaos.replay.broker import TOPIC, ReplayError
from partitions.log.config import LogConfig
from quorum.controller.decision import ControllerConfig
from quorum.controller.proposal import ProposalFence, apply_proposal
from quorum.controller.state import Complete, ControllerState, Effect, Propose
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.features import supported_ranges
from quorum.metadata.image import EMPTY, MetadataImage, PartitionImage
from quorum.metadata.records import Listener
from quorum.rpc.admin_messages import (
    SAFE_DOWNGRADE,
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from quorum.rpc.messages import (
    ControllerRequest,
    ControllerResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    NewTopic,
    PartitionAssignment,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)

CLUSTER_ID = "kraft-replay"
SESSION_TIMEOUT_MS = 9_000
TERM = 1

_Response = TypeVar("_Response", bound=ControllerResponse)


class ReplayController:
    """The active controller, its log and its clock (`now_ms`)."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.image: MetadataImage = EMPTY.at(0, TERM)
        config = ControllerConfig(
            CLUSTER_ID, session_timeout_ms=SESSION_TIMEOUT_MS, auto_leader_rebalance=False
        )
        self._state = ControllerState(config, LogTopicConfigs(LogConfig()), random.Random(0))
        self._fence = ProposalFence()
        self._completed: dict[int, Complete] = {}
        self._requests = 0
        self._run(self._state.become_active(TERM, self.image, self.now_ms))

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

    def _run(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Propose):
                offset = self.image.offset + 1
                applied = apply_proposal(self.image, self._fence, effect.data, offset, TERM)
                self.image, self._fence = applied.image, applied.fence
                self._run(self._state.on_committed(offset, TERM, effect.sequence, accepted=applied.accepted))
            elif isinstance(effect, Complete):
                self._completed[effect.request_id] = effect
            else:
                raise ReplayError(f"the controller renounced: {effect.reason}")

    def call(self, request: ControllerRequest, kind: type[_Response]) -> _Response:
        """One request and its answer. Raises ControllerError."""
        self._requests += 1
        self._run(self._state.handle(self._requests, request, self.now_ms))
        complete = self._completed.pop(self._requests)
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
            self._run(self._state.tick(self.now_ms))
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
