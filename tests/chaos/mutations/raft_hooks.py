"""Mutations of the rules that keep voters' sessions, controllers' epochs and large snapshots apart.

They play where `kraft chaos quorum` plays: real drivers and controllers, snapshots that take many steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraft.chaos.faults.context import Pace
from kraft.chaos.quorum.settings import SOUND, Settings
from kraft.chaos.world.network import Latency
from quorum.controller.proposal import Proposal
from quorum.errors import MalformedProposalError
from quorum.raft import metadata_state_machine
from quorum.raft.config import RaftTiming
from quorum.raft.transfer import SnapshotTransfer
from quorum.raft.transport import QuorumTransport
from quorum.steps import Steps
from tests.chaos.mutations.raft_journal import QUORUM
from tests.chaos.mutations.registry import Mutation, Patch
from tests.chaos.mutations.stages import RaftStage

LATE_WORDS_OF_OLD_DISKS = RaftStage(
    "quorum of disks that are replaced while what they said is on its way",
    lambda seed: Settings(
        workload="topics",
        append_bytes=12_000,
        clients=8,
        pace=Pace(0.02, 0.35),
        latency=Latency(0.005, 0.4),
        timing=RaftTiming(election_min_s=1.0, election_max_s=2.0, heartbeat_s=0.05, leader_fallback_s=1.0),
        messages=replace(SOUND, late=1.0),
        faults={"wipe": 6.0},
    ),
)
RETURNING_LEADERS = RaftStage(
    "quorum of leaders that come back before their lanes have caught up",
    lambda seed: Settings(
        workload="topics",
        append_bytes=12_000,
        clients=8,
        queue_s=(0.01, 0.3),
        latency=Latency(0.001, 0.005),
        faults={"reset": 12.0, "isolate-controller": 2.0},
    ),
)


def _of_any_session(original: Callable[..., None]) -> Callable[..., None]:
    """Takes what comes late for what the present session says."""

    def receive(transport: Any, peer_id: int, session: int, data: bytes) -> None:
        link = transport._links.get(peer_id)
        if link is not None and session != link.session:
            received, link.received = link.received, -1
            original(transport, peer_id, link.session, data)
            if transport._links.get(peer_id) is link:
                link.received = received
            return
        original(transport, peer_id, session, data)

    return receive


def _of_any_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_proposal(image: Any, fence: Any, data: Any, offset: int, entry_term: int) -> Any:
        try:
            proposal = replace(
                Proposal.decode(data),
                controller_epoch=entry_term,
                sequence=fence.expected_sequence(entry_term),
            )
        except MalformedProposalError:
            return original(image, fence, data, offset, entry_term)
        return original(image, fence, proposal.encode(), offset, entry_term)

    return apply_proposal


def _of_the_state_at_its_end(original: Callable[..., None]) -> Callable[..., None]:
    def serialize(transfer: Any, data: Any, log_id: int) -> None:
        original(transfer, data, log_id)
        transfer._taking.steps = at_the_end(transfer, transfer._taking.steps)

    def at_the_end(transfer: Any, steps: Any) -> Steps[bytes]:
        yield from steps
        latest: bytes = yield from transfer._machine.snapshot_steps()
        return latest

    return serialize


MUTATIONS = (
    Mutation(
        "older-session-heard",
        "what a peer said in an earlier session counts in the present one",
        ("liveness", "halted"),
        LATE_WORDS_OF_OLD_DISKS,
        (Patch(QuorumTransport, "receive", _of_any_session),),
        faces=(
            "a leader goes by what a follower said of another log: it never sends what this one lacks, or tells it that"
            " it has forgotten"
        ),
    ),
    Mutation(
        "older-controller-epoch-applies",
        "a proposal is applied though it was decided in an epoch before the entry's term",
        ("proposals-in-sequence",),
        RETURNING_LEADERS,
        (Patch(metadata_state_machine, "apply_proposal", _of_any_epoch),),
    ),
    Mutation(
        "snapshot-of-a-later-state",
        "a snapshot that takes many steps holds the state of the last, under the offset of the first (KIP-630)",
        ("applied-prefix", "equal-images"),
        QUORUM,
        (Patch(SnapshotTransfer, "serialize", _of_the_state_at_its_end),),
        faces="who starts from it applies entries twice: another state, or another hash, at one offset",
    ),
)
