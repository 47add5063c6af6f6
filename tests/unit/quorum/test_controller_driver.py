"""Plays the stories under scripts/: what a Raft lane tells a controller, and what the controller makes of it.

A `step` is one step of the lane: the things that happened in it, divided by `;`. What the controller proposes waits
in the lane until a step commits or loses it; commits go through the real fence.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from partitions.log.config import LogConfig
from quorum.controller.decision import ControllerConfig
from quorum.controller.proposal import Proposal
from quorum.controller.state import Complete, Renounced
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.controller_driver import Activated, ControllerDriver, ControllerEffect, Proposed, SessionEnded
from quorum.metadata.record_codec import decode_records
from quorum.raft.events import (
    NOT_COMMITTED,
    UNKNOWN,
    Committed,
    CommittedEntry,
    LeaderChanged,
    ProposalOutcome,
    RaftEffect,
    SendToPeer,
    VoterDirectories,
)
from quorum.raft.metadata_state_machine import MetadataStateMachine
from quorum.rpc.messages import CreateTopicsRequest, HeartbeatRequest, NewTopic
from tests.support.controller_world import CLUSTER_ID, registration
from tests.support.golden import check_script, scripts_beside

SESSION_TIMEOUT_MS = 800
NODE_ID = 1


class Story:
    """One controller, and a lane that does what it is told."""

    def __init__(self) -> None:
        config = ControllerConfig(CLUSTER_ID, session_timeout_ms=SESSION_TIMEOUT_MS)
        self.driver = ControllerDriver(config, LogTopicConfigs(LogConfig()), random.Random(1))
        self.machine = MetadataStateMachine()
        self.offset = 0
        self.lane: deque[Proposed] = deque()
        self.dropped: deque[Proposed] = deque()
        self.now_ms = 0

    def play(self, line: str) -> list[str]:
        command, _, rest = line.partition(" ")
        effects: Iterable[ControllerEffect]
        if command == "step":
            happened = [effect for part in rest.split(";") for effect in self._happened(*part.split())]
            effects = self.driver.take(happened, self.now_ms)
        else:
            effects = getattr(self, "do_" + command.replace("-", "_"))(*rest.split())
        return [line for effect in effects for line in self._show(effect)]

    # What happens in a step

    def _happened(self, what: str, *words: str) -> Iterator[RaftEffect]:
        match what:
            case "barrier":
                self.offset += 1
                self.machine.advance(self.offset, int(words[0]))
                yield self._committed(CommittedEntry(self.offset, int(words[0]), True))
            case "commit":
                proposed = self.lane.popleft()
                yield self._applied(proposed.data, proposed.epoch)
                yield ProposalOutcome(proposed.request_id, self.offset, None)
            case "commit-stray":
                epoch, sequence = map(int, words)
                yield self._applied(Proposal(epoch, sequence, b"\x90").encode(), epoch)
            case "lose":
                yield ProposalOutcome(self.lane.popleft().request_id, None, NOT_COMMITTED)
            case "lose-newest":
                yield ProposalOutcome(self.lane.pop().request_id, None, NOT_COMMITTED)
            case "drop":
                self.dropped.append(self.lane.popleft())
            case "tell-dropped":
                yield ProposalOutcome(self.dropped.popleft().request_id, None, NOT_COMMITTED)
            case "leadership-lost":
                for proposed in self.lane:
                    yield ProposalOutcome(proposed.request_id, None, UNKNOWN)
                self.lane.clear()
                yield LeaderChanged(None, int(words[0]), False)
            case "leader":
                yield LeaderChanged(int(words[0]), int(words[1]), words[-1] == "active")
            case "directories":
                yield VoterDirectories(int(words[0]), {int(one): bytes(16) for one in words[1:]})
            case "send":
                yield SendToPeer(2, 1, b"")

    def _applied(self, data: bytes, epoch: int) -> Committed:
        self.offset += 1
        applied = self.machine.apply(data, self.offset, epoch)
        return self._committed(
            CommittedEntry(
                self.offset,
                epoch,
                applied.accepted,
                applied.records,
                sequence=applied.sequence,
                rejection=applied.rejection,
            )
        )

    def _committed(self, entry: CommittedEntry) -> Committed:
        return Committed((entry,), self.machine.image)

    # What others want

    def do_create(self, topic: str) -> list[ControllerEffect]:
        return self.driver.handle(CreateTopicsRequest((NewTopic(topic, 1, 1),)), self.now_ms)[1]

    def do_register(self, broker: str) -> list[ControllerEffect]:
        return self.driver.handle(registration(int(broker)), self.now_ms)[1]

    def do_heartbeat(self, broker: str) -> list[ControllerEffect]:
        epoch = self.driver.state.image.brokers[int(broker)].epoch
        return self.driver.handle(HeartbeatRequest(int(broker), epoch, self.offset), self.now_ms)[1]

    def do_time(self, now_ms: str) -> list[ControllerEffect]:
        self.now_ms = int(now_ms)
        return []

    def do_tick(self, _: str, due_ms: str) -> list[ControllerEffect]:
        return self.driver.tick(self.now_ms, int(due_ms))

    def do_close(self) -> list[ControllerEffect]:
        return self.driver.close()

    # What comes of it

    def _show(self, effect: ControllerEffect) -> Iterator[str]:
        match effect:
            case Proposed():
                self.lane.append(effect)
                records = decode_records(Proposal.decode(effect.data).records)
                kinds = " ".join(dict.fromkeys(type(record).__name__ for record in records))
                yield (
                    f"propose #{effect.request_id} epoch={effect.epoch} sequence={effect.sequence}"
                    f" offset={effect.offset}: {kinds}"
                )
            case Complete(error=None):
                yield f"answer #{effect.request_id}: {type(effect.response).__name__}"
            case Complete():
                assert effect.error is not None
                doubt = ", in doubt" if effect.in_doubt else ""
                yield f"answer #{effect.request_id}: {effect.error.code}{doubt}"
            case Activated():
                yield f"active in epoch {effect.epoch}"
            case Renounced():
                yield f"renounced epoch {effect.epoch}: {effect.reason}"
            case SessionEnded():
                yield f"session of broker {effect.broker_id} ended"
            case Committed():
                (entry,) = effect.entries
                yield f"committed {entry.offset}" + (
                    f", refused: {entry.rejection}" if entry.rejection else ""
                )
            case LeaderChanged():
                active = ", active" if effect.active else ""
                yield f"leader {effect.leader_id} in epoch {effect.epoch}{active}"
            case _:
                yield type(effect).__name__


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    check_script(path, Story().play)


def test_a_tick_is_due_when_a_session_ends_and_often_enough_to_find_a_standstill() -> None:
    story = Story()
    assert story.driver.next_tick_ms(0) is None
    story.play("step barrier 1; leader 1 1 active")
    story.play("register 1")
    assert story.driver.next_tick_ms(0) == SESSION_TIMEOUT_MS // 8
    assert story.driver.next_tick_ms(SESSION_TIMEOUT_MS - 10) == SESSION_TIMEOUT_MS
    assert story.driver.next_tick_ms(SESSION_TIMEOUT_MS + 10) == SESSION_TIMEOUT_MS + 10


def test_what_was_answered_meanwhile_names_the_leader_of_its_time() -> None:
    """Effects are carried out one by one: what a failed proposal costs comes before who leads next."""
    story = Story()
    story.play("step barrier 1; leader 1 1 active")
    story.play("register 1")
    leaders = []
    failed = [ProposalOutcome(one.request_id, None, UNKNOWN) for one in story.lane]
    for effect in story.driver.take([*failed, LeaderChanged(2, 2, False)], 0):
        if isinstance(effect, Complete):
            leaders.append(story.driver.leadership.leader_id)
    assert leaders == [1]
    assert story.driver.leadership.leader_id == 2
