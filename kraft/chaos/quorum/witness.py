"""What one voter promises and hands out, told to the judges at the moment at which it leaves the voter.

Votes, acknowledgements and consents are read from the messages, leaders, commits and outcomes from the
effects of a step. One for each life of a voter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.judge import RaftJudge, Violation
from kraft.chaos.quorum.machine import Application
from kraft.chaos.quorum.metadata_judge import MetadataJudge
from kraft.chaos.quorum.settings import Settings
from quorum.raft.driver import RaftDriver
from quorum.raft.events import (
    NOT_COMMITTED,
    Committed,
    LeaderChanged,
    ProposalOutcome,
    RaftEffect,
    SendToPeer,
)
from quorum.raft.messages import MessageRefusedError, SnapshotChunk, decode_message


class Judged(Protocol):
    """The world's judges, and its counters."""

    settings: Settings
    judge: RaftJudge
    metadata: MetadataJudge
    ids: list[int]
    candidacies: set[int]

    def happened(self, what: str, text: str = "", times: int = 1) -> None: ...

    def note(self, node_id: int, effect: RaftEffect) -> None: ...

    def led(self, node_id: int) -> None: ...


class Seen(Protocol):
    """What is known of a voter from what left it."""

    node_id: int
    active: bool
    applied: int
    pending: dict[int, bytes]


class Witness:
    """Of one life of a voter."""

    def __init__(self, world: Judged, voter: Seen) -> None:
        self._world = world
        self._voter = voter
        self._transfers: dict[int, int] = {}

    def see(self, effects: Sequence[RaftEffect], applications: list[Application], driver: RaftDriver) -> None:
        """The effects of one step leave, in order; `applications` is what the step applied."""
        for effect in effects:
            self._world.note(self._voter.node_id, effect)
            if isinstance(effect, SendToPeer):
                self._watch_promise(effect, driver)
            elif isinstance(effect, Committed):
                self._judge_commits(effect, applications, driver)
            elif isinstance(effect, LeaderChanged):
                self._judge_leader(effect, driver)
            elif isinstance(effect, ProposalOutcome):
                self._judge_outcome(effect)

    def _watch_promise(self, effect: SendToPeer, driver: RaftDriver) -> None:
        judge, happened = self._world.judge, self._world.happened
        try:
            _, message = decode_message(effect.data)
        except MessageRefusedError as error:
            raise Violation(
                "only-listed-messages", f"voter {self._voter.node_id} says what its peers refuse: {error}"
            ) from error
        kind = message["type"]
        if kind == "response_vote":
            judge.voted(self._voter.node_id, message["term"], effect.peer_id)
        elif kind == "request_vote":
            judge.voted(self._voter.node_id, message["term"], self._voter.node_id)
            judge.stood(self._voter.node_id, message["term"], len(self._world.ids) // 2 + 1)
            self._world.candidacies.add(message["term"])
            happened(counters.CANDIDACY)
        elif kind == "next_node_idx" and message["success"]:
            judge.promised(self._voter.node_id, message["next_node_idx"] - 1, driver._journal)
        elif kind == "response_pre_vote" and message["granted"]:
            judge.consented(self._voter.node_id, effect.peer_id, message["term"])
        elif kind == "response_pre_vote":
            happened(counters.PRE_VOTE_REFUSED)
        elif kind == "take_leadership":
            for voter in self._world.ids:  # an order stands for everybody's consent
                judge.consented(voter, effect.peer_id, message["term"])
        elif message.get("entries"):
            acknowledged = driver._transport.match_index(effect.peer_id) if driver._node.is_leader() else 0
            judge.sent(self._voter.node_id, effect.peer_id, message["prevLogIdx"], acknowledged)
        elif message.get("serialized") is not None:
            self._watch_transfer(effect.peer_id, message["serialized"])

    def _watch_transfer(self, peer_id: int, chunk: SnapshotChunk) -> None:
        if chunk.is_first:
            if self._transfers.get(peer_id) == chunk.last_index:
                self._world.happened(counters.SENT_AGAIN)
            self._transfers[peer_id] = chunk.last_index

    def _judge_commits(self, effect: Committed, applications: list[Application], driver: RaftDriver) -> None:
        world, node_id, term = self._world, self._voter.node_id, driver._node.term()
        for one in applications:
            is_first = world.judge.applied(node_id, one.offset, one.epoch, one.data or b"", term)
            if is_first and world.settings.workload == "topics":
                world.metadata.committed(one)
        applications.clear()
        offset, chain, image = effect.image
        if offset < self._voter.applied:
            raise Violation(
                "applied-prefix", f"voter {node_id} went back from offset {self._voter.applied} to {offset}"
            )
        world.judge.state(node_id, offset, chain)
        if image is not None:
            world.metadata.compare_image(node_id, offset, image, always=not effect.entries)
        if not effect.entries and self._voter.applied > 1:
            world.happened(counters.INSTALLED, f"voter {node_id}, up to offset {offset}")
            if driver._node.log_end() > offset:
                world.happened(counters.KEPT_TAIL, f"voter {node_id}")
        self._voter.applied = offset

    def _judge_leader(self, effect: LeaderChanged, driver: RaftDriver) -> None:
        if effect.leader_id == self._voter.node_id:
            if effect.epoch not in self._world.judge.leaders:
                self._world.happened(counters.ELECTED, f"voter {effect.leader_id} in term {effect.epoch}")
            self._world.judge.led(self._voter.node_id, effect.epoch, driver._journal)
            self._world.led(self._voter.node_id)
        elif self._voter.active:
            self._world.happened(counters.DEPOSED, f"voter {self._voter.node_id}")
        self._voter.active = effect.active

    def _judge_outcome(self, effect: ProposalOutcome) -> None:
        judge, world = self._world.judge, self._world
        data = self._voter.pending.pop(effect.request_id, None)
        if data is None:
            raise Violation(
                "one-outcome", f"request {effect.request_id} of voter {self._voter.node_id} came out twice"
            )
        if effect.error is None:
            assert effect.offset is not None
            judge.told_committed(effect.offset, data)
            world.happened(counters.ACKNOWLEDGED)
        elif effect.error == NOT_COMMITTED:
            judge.told_refused(data)
            world.happened(counters.NOT_COMMITTED)
        else:
            world.happened(counters.UNKNOWN_OUTCOME)
