"""A controller with a log under it, for tests: proposals are queued, committed, dropped or fenced off.

`World` plays Raft for one `ControllerState`: an in-memory log applied through the real fence, whose
commits a test can hold back, lose, or cut off by a change of controller.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

from kraft.config_keys import CONFIG_KEYS
from kraft.dynamic_configs import DynamicBrokerConfigs
from kraft.group_configs import DynamicGroupConfigs
from kraft.security.quotas.mutation_quotas import TokenBuckets
from kraft.security.quotas.rates import Windows
from partitions.log.config import LogConfig
from quorum.controller.decision import ControllerConfig
from quorum.controller.proposal import AppliedProposal, ProposalFence, apply_proposal
from quorum.controller.state import Complete, ControllerState, Effect, Propose, Renounced
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.features import supported_ranges
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, Listener
from quorum.rpc.messages import ControllerRequest, HeartbeatRequest, RegisterBrokerRequest
from quorum.steps import finished

CLUSTER_ID = "test-cluster"
LISTENER = Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")


def _default_of(name: str) -> Any:
    """The value of a key that a server.properties does not name."""
    key = CONFIG_KEYS[name]
    assert key.default is not None
    return key.parse(key.default)


class World:
    """One active controller, its committed log and what is on its way there."""

    def __init__(self, *, seed: int = 1, **settings: int) -> None:
        self.config = ControllerConfig(CLUSTER_ID, **settings)
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.term = 0
        self.image: MetadataImage = EMPTY
        self.fence = ProposalFence()
        self.entries: list[tuple[int, bytes | None]] = []  # (term, proposal or None for a barrier)
        self.queue: deque[Propose] = deque()
        self.holding = False
        self.completed: list[Complete] = []
        self.proposed: list[Propose] = []
        self.renounced: list[Renounced] = []
        self._next_request_id = 0
        self.topic_defaults = LogConfig()
        self.controller = self._new_controller()
        self.prepared: MetadataImage = EMPTY
        self.lead()

    def _new_controller(self) -> ControllerState:
        return ControllerState(
            self.config,
            LogTopicConfigs(self.topic_defaults),
            self.rng,
            {
                BROKER_RESOURCE: DynamicBrokerConfigs(self.topic_defaults),
                GROUP_RESOURCE: DynamicGroupConfigs(_default_of),
            },
            TokenBuckets(Windows()),
        )

    # Raft

    def append(self, data: bytes | None) -> AppliedProposal | None:
        """Commits and applies one entry at the next offset; None is a leader's barrier."""
        self.entries.append((self.term, data))
        offset = len(self.entries) - 1
        if data is None:
            self.image = self.image.at(offset, self.term)
            return None
        applied = apply_proposal(self.image, self.fence, data, offset, self.term)
        self.image, self.fence = applied.image, applied.fence
        return applied

    def commit_one(self) -> None:
        proposal = self.queue.popleft()
        applied = self.append(proposal.data)
        assert applied is not None
        offset = len(self.entries) - 1
        self.run(
            self.controller.on_committed(offset, self.term, proposal.sequence, accepted=applied.accepted)
        )

    def commit(self) -> None:
        while self.queue:
            self.commit_one()

    def drop_one(self) -> None:
        """The next proposal is lost on its way to the log; nobody has told the controller yet."""
        self.queue.popleft()

    def fail_one(self) -> None:
        """The next proposal is lost on its way to the log, and the controller learns of it."""
        proposal = self.queue.popleft()
        self.run(self.controller.on_proposal_failed(self.term, proposal.sequence, "NOT_COMMITTED"))

    def lead(self) -> None:
        """A new controller is elected, prepared for what was committed when the last one was: what was not committed
        is gone."""
        self.run(self.controller.renounce("another controller was elected"))
        self.queue.clear()
        self.term += 1
        self.append(None)
        self.controller = self._new_controller()
        finished(self.controller.prepare(self.prepared))
        self.prepared = self.image
        self.run(self.controller.become_active(self.term, self.image, self.now_ms))

    def replay(self) -> MetadataImage:
        """The image that another node gets from the same log."""
        image, fence = EMPTY, ProposalFence()
        for offset, (term, data) in enumerate(self.entries):
            if data is None:
                image = image.at(offset, term)
            else:
                applied = apply_proposal(image, fence, data, offset, term)
                image, fence = applied.image, applied.fence
        return image

    # The controller

    def run(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Propose):
                self.proposed.append(effect)
                self.queue.append(effect)
            elif isinstance(effect, Complete):
                self.completed.append(effect)
            else:
                self.renounced.append(effect)
        if not self.holding:
            self.commit()

    def send(self, request: ControllerRequest) -> int:
        self._next_request_id += 1
        self.run(self.controller.handle(self._next_request_id, request, self.now_ms))
        return self._next_request_id

    def outcome(self, request_id: int) -> Complete | None:
        for complete in self.completed:
            if complete.request_id == request_id:
                return complete
        return None

    def call(self, request: ControllerRequest) -> object:
        """Sends and waits: the response, or the ControllerError."""
        complete = self.outcome(self.send(request))
        assert complete is not None
        return complete.error if complete.error is not None else complete.response

    def advance(self, ms: int) -> None:
        """Time passes in one leap, then the controller ticks."""
        self.now_ms += ms
        self.run(self.controller.tick(self.now_ms))

    # Brokers

    def register(self, broker_id: int, *, incarnation: int = 1, rack: str | None = None) -> object:
        return self.call(registration(broker_id, incarnation=incarnation, rack=rack))

    def heartbeat(self, broker_id: int, *, fence: bool = False, shutdown: bool = False) -> object:
        """A heartbeat of a broker that has applied all that is committed."""
        epoch = self.controller.image.brokers[broker_id].epoch
        return self.call(HeartbeatRequest(broker_id, epoch, self.image.offset, fence, shutdown))

    def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.register(broker_id)
            self.heartbeat(broker_id)


def registration(broker_id: int, *, incarnation: int = 1, rack: str | None = None) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        broker_id=broker_id,
        incarnation_id=bytes([broker_id % 256, incarnation]) * 8,
        cluster_id=CLUSTER_ID,
        listeners=(LISTENER,),
        rack=rack,
        features=supported_ranges(),
    )
