"""Mutations of the voters' messages, and of the leader's reactions to them.

Most play where `kraft chaos quorum` plays; `raft_journal` has those of voters' disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from kraft.chaos.faults.context import Pace
from kraft.chaos.quorum.settings import SOUND, Settings
from kraft.chaos.world.network import Latency
from quorum.controller import state
from quorum.controller.decision import Unit
from quorum.controller.proposal import FIRST_SEQUENCE, Proposal, ProposalFence
from quorum.controller.state import ControllerState
from quorum.controller_driver import ControllerDriver
from quorum.errors import MalformedProposalError
from quorum.raft import driver, metadata_state_machine
from quorum.raft.config import RaftTiming
from quorum.raft.driver import RaftDriver
from quorum.raft.events import NOT_COMMITTED
from quorum.raft.journal import DurableJournal
from quorum.raft.messages import _MAX_INDEX, _MAX_TERM, BARRIER
from quorum.raft.metadata_state_machine import MetadataStateMachine
from quorum.raft.node import RaftNode
from quorum.raft.pre_vote import PreVote
from quorum.raft.transport import QuorumTransport
from tests.chaos.mutations.raft_journal import DEPOSED_LEADERS, QUORUM, SNAPSHOTS_IN_ONE_PIECE
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import RaftStage
from tests.chaos.mutations.stale_ack import StaleAckStage

SHORT_LIVED_LEADERS = RaftStage(
    "quorum of short-lived leaders",
    lambda seed: Settings(
        snapshot_every_entries=1000,
        virtual_s=60.0,
        propose=0.8,
        messages=replace(SOUND, drop=0.2),
        faults={"kill-new-leader": 4.0, "kill": 0.3, "power-loss": 0.3, "kill-mid-operation": 0.3},
    ),
)
COLLIDING_CANDIDATES = RaftStage(
    "five voters, colliding candidates, doubled messages",
    lambda seed: Settings(
        voters=5,
        pace=Pace(0.04, 0.35),
        latency=Latency(0.002, 0.05),
        messages=replace(SOUND, duplicate=0.5),
        faults={"kill-new-leader": 4.0, "isolate-controller": 0.5, "partition": 0.5},
        timing=RaftTiming(election_min_s=0.25, election_max_s=0.27, heartbeat_s=0.05, leader_fallback_s=0.2),
    ),
)
FULL_LANES = RaftStage(
    "quorum of lanes that take three proposals at a time",
    lambda seed: Settings(
        workload="topics",
        virtual_s=6.0,
        append_bytes=12_000,
        clients=8,
        max_pending_proposals=3,
    ),
)
"""Controllers renounce and become active again in the same epoch."""

# -- elections


def _forgets_its_vote(original: Callable[..., None]) -> Callable[..., None]:
    def deliver(node: Any, peer: Any, message: dict[str, Any]) -> None:
        if message["type"] == "request_vote":
            node._SyncObj__votedForNodeId = None
        original(node, peer, message)

    return deliver


_BEST_LOG = {"last_log_term": _MAX_TERM, "last_log_index": _MAX_INDEX - 1}


def _any_candidate_is_good(original: Callable[..., None]) -> Callable[..., None]:
    def deliver(node: Any, peer: Any, message: dict[str, Any]) -> None:
        original(node, peer, {**message, **_BEST_LOG} if message["type"] == "request_vote" else message)

    return deliver


def _any_log_is_good(original: Callable[..., None]) -> Callable[..., None]:
    return lambda transport, peer, message: original(transport, peer, {**message, **_BEST_LOG})


def _any_message_is_news(original: Callable[..., None]) -> Callable[..., None]:
    def receive(transport: Any, peer_id: int, session: int, data: bytes) -> None:
        link = transport._links.get(peer_id)
        if link is not None:
            link.received = -1
        original(transport, peer_id, session, data)

    return receive


def _every_vote_counts(transport: Any, peer: Any, message: dict[str, Any]) -> None:
    if message["term"] == transport.node.term():
        transport._votes = (message["term"], {})
        transport.node.deliver(peer, message)


# -- replication


def _any_term_acknowledges(original: Callable[..., None]) -> Callable[..., None]:
    def on_next_node_idx(transport: Any, peer: Any, message: dict[str, Any]) -> None:
        original(transport, peer, {**message, "term": max(message["term"], transport.node.term())})

    return on_next_node_idx


def _asks_from_the_end(transport: Any, message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "term": transport.node.term(), "log_end": transport.node.log_end()}


class _KeepsCommitIndex(dict[str, Any]):
    """A message whose commit index nobody lowers."""

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "commit_index":
            super().__setitem__(key, value)


def _commits_what_it_is_told(original: Callable[..., None]) -> Callable[..., None]:
    def on_append_entries(transport: Any, peer: Any, message: dict[str, Any]) -> None:
        original(transport, peer, _KeepsCommitIndex(message) if "entries" in message else message)

    return on_append_entries


def _chunk_commits(transport: Any, peer: Any, message: dict[str, Any]) -> None:
    transport.node.deliver(
        peer, {name: message[name] for name in ("type", "term", "commit_index")} | {"serialized": None}
    )


def _any_snapshot_is_news(transport: Any, peer: Any, message: dict[str, Any]) -> None:
    chunk, incoming = message["serialized"], transport._transfer.incoming
    if chunk is not None and incoming.receive(int(peer.id), chunk):
        while not incoming.read_on():
            pass
        transport._install(peer, message["term"], chunk.last_index)
        return
    transport._beat(peer, message)
    if chunk is not None:
        transport._answer(peer, reset=False, chunk=chunk)


def _counts_entries_of_any_term(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def tick(node: Any) -> None:
        if node.is_leader():
            ends = sorted([node.log_end(), *(node.match_index(peer) for peer in node.peers())])
            index = ends[len(ends) - (len(ends) // 2 + 1)]
            if index > node.commit_index():
                node._SyncObj__raftCommitIndex = index
                node._SyncObj__raftLog.setRaftCommitIndex(index)
        original(node)

    return tick


def _leader_does_not_sync(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Votes are made durable all the same."""

    def sync(journal: Any) -> None:
        if getattr(journal, "_leads", False):
            if journal._state.dirty:
                journal.save_state()
        else:
            original(journal)

    return sync


def _noting_who_leads(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def tick(node: Any) -> None:
        node._SyncObj__raftLog._leads = node.is_leader()
        original(node)
        node._SyncObj__raftLog._leads = node.is_leader()

    return tick


def _applied_in_the_present_term(original: Callable[..., None]) -> Callable[..., None]:
    return lambda one, command, index, term: original(one, command, index, one._node.term())


def _barriers_are_nothing(original: Callable[..., None]) -> Callable[..., None]:
    def on_apply(one: Any, command: bytes, index: int, term: int) -> None:
        if command != BARRIER:
            original(one, command, index, term)

    return on_apply


# -- proposals


def _any_sequence(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_proposal(image: Any, fence: Any, data: Any, offset: int, entry_term: int) -> Any:
        try:
            fence = ProposalFence(entry_term, Proposal.decode(data).sequence)
        except MalformedProposalError:
            return original(image, fence, data, offset, entry_term)
        return original(image, fence, data, offset, entry_term)

    return apply_proposal


def _raises_on_refusal(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_proposal(*arguments: Any) -> Any:
        applied = original(*arguments)
        if not applied.accepted:
            raise ValueError(applied.rejection)
        return applied

    return apply_proposal


def _without_fence(original: Callable[..., None]) -> Callable[..., None]:
    return lambda machine, state: original(machine, state._replace(fence=ProposalFence()))


def _record_by_record(units: Iterable[Unit], *limits: int) -> Iterator[list[Unit]]:
    return ([Unit(record)] for unit in units for record in unit.records)


def _goes_on(original: Callable[..., Any]) -> Callable[..., Any]:
    def on_proposal_failed(controller: Any, epoch: int, sequence: int, reason: str) -> Any:
        if not controller._active or epoch != controller._epoch:
            return original(controller, epoch, sequence, reason)
        pending = next(one for one in controller._pending if one.sequence == sequence)
        controller._pending.remove(pending)
        controller._waiting -= len(pending.waiters)
        return [waiter.complete(pending.offset) for waiter in pending.waiters]

    return on_proposal_failed


def _forgets_the_sequence(original: Callable[..., None]) -> Callable[..., None]:
    def on_committed(driver: Any, committed: Any) -> None:
        original(driver, committed)
        driver._next_sequence = (-1, FIRST_SEQUENCE)

    return on_committed


MUTATIONS = (
    Mutation(
        "votes-twice-in-a-term",
        "a voter forgets whom it has voted for when the next candidate asks",
        ("vote-once",),
        QUORUM,
        (Patch(RaftNode, "deliver", _forgets_its_vote),),
    ),
    Mutation(
        "vote-for-a-shorter-log",
        "a voter elects a candidate whose log is behind its own (Raft 5.4.1)",
        ("leader-completeness",),
        QUORUM,
        (
            Patch(RaftNode, "deliver", _any_candidate_is_good),
            Patch(QuorumTransport, "_on_pre_vote", _any_log_is_good),
        ),
    ),
    Mutation(
        "votes-counted-twice",
        "a vote that arrives twice counts twice",
        ("one-leader-per-term", "leader-completeness"),
        COLLIDING_CANDIDATES,
        (
            Patch(QuorumTransport, "_on_response_vote", replaced_by(_every_vote_counts)),
            Patch(QuorumTransport, "receive", _any_message_is_news),
        ),
        faces="whoever is elected by too few is a second leader or one that lacks committed entries",
    ),
    Mutation(
        "no-pre-vote",
        "a voter that hears of no leader stands for election without asking (Raft thesis 9.6)",
        ("consent-before-candidacy",),
        QUORUM,
        (
            Patch(
                PreVote,
                "passed",
                replaced_by(
                    lambda vote, term: term == vote._term and (vote._ordered or vote._granted is not None)
                ),
            ),
        ),
    ),
    Mutation(
        "stale-ack-accepted",
        "an acknowledgement of an older term counts for entries of this one",
        ("applied-prefix", "leader-completeness"),
        StaleAckStage(),
        (Patch(QuorumTransport, "_on_next_node_idx", _any_term_acknowledges),),
        faces="what was committed by too few is missed by the next leader, or applied otherwise by its followers",
    ),
    Mutation(
        "commits-older-terms-by-counting",
        "a leader commits entries of older terms once a majority has them (Raft 5.4.2, figure 8)",
        ("leader-completeness",),
        SHORT_LIVED_LEADERS,
        (Patch(RaftNode, "tick", _counts_entries_of_any_term),),
    ),
    Mutation(
        "leader-counts-itself-unsynced",
        "a leader commits with its own copy, which a power loss may take away",
        ("leader-completeness",),
        QUORUM,
        (
            Patch(DurableJournal, "sync", _leader_does_not_sync),
            Patch(RaftNode, "tick", _noting_who_leads),
        ),
    ),
    Mutation(
        "follower-commits-unproved-tail",
        "a follower commits up to the leader's index entries that were not compared with the leader's",
        ("applied-prefix", "leader-completeness"),
        DEPOSED_LEADERS,
        (Patch(QuorumTransport, "_on_append_entries", _commits_what_it_is_told),),
        faces="a wrong entry is applied: seen at the first who applies another, or at the leader that has another",
    ),
    Mutation(
        "resend-asked-from-the-end",
        "a follower whose log does not match asks the leader to go on from its end, not from what is committed",
        ("liveness",),
        DEPOSED_LEADERS,
        (Patch(QuorumTransport, "_checked_acknowledgement", replaced_by(_asks_from_the_end)),),
    ),
    Mutation(
        "snapshot-chunk-commits",
        "a piece of a snapshot moves the commit index over a log that was not compared",
        ("applied-prefix", "leader-completeness"),
        DEPOSED_LEADERS,
        (Patch(QuorumTransport, "_beat", replaced_by(_chunk_commits)),),
        faces="as above",
    ),
    Mutation(
        "older-snapshot-installed",
        "a snapshot that covers less than what is applied is installed all the same",
        ("applied-prefix", "no-needless-truncation"),
        SNAPSHOTS_IN_ONE_PIECE,
        (Patch(QuorumTransport, "_on_snapshot_chunk", replaced_by(_any_snapshot_is_news)),),
        faces="the state goes back, and so does the log if it begins behind the snapshot",
    ),
    Mutation(
        "applied-in-the-present-term",
        "entries are applied under the voter's term, not their own",
        ("applied-prefix",),
        QUORUM,
        (Patch(RaftDriver, "_on_apply", _applied_in_the_present_term),),
    ),
    Mutation(
        "barrier-not-applied",
        "a leader's barrier leaves a hole in the offsets",
        ("applied-prefix",),
        QUORUM,
        (Patch(RaftDriver, "_on_apply", _barriers_are_nothing),),
    ),
    Mutation(
        "active-before-the-barrier",
        "a leader acts as the controller before everything committed is applied",
        ("proposals-in-sequence",),
        QUORUM,
        (Patch(RaftNode, "barrier_applied", replaced_by(lambda node: node.is_leader())),),
    ),
    Mutation(
        "failure-reported-though-committed",
        "a leader that lost its office says of its proposals that they will never be committed",
        ("refused-stays-away",),
        QUORUM,
        (Patch(driver, "UNKNOWN", lambda _: NOT_COMMITTED),),
    ),
    Mutation(
        "refusal-raises",
        "a proposal that the fence refuses stops whoever applies it",
        ("halted",),
        FULL_LANES,
        (Patch(metadata_state_machine, "apply_proposal", _raises_on_refusal),),
    ),
    Mutation(
        "any-sequence-applies",
        "a proposal is applied though one before it is missing",
        ("proposals-in-sequence",),
        FULL_LANES,
        (Patch(metadata_state_machine, "apply_proposal", _any_sequence),),
    ),
    Mutation(
        "fence-not-in-snapshots",
        "who starts from a snapshot has forgotten which proposal is the next",
        ("proposals-in-sequence", "applied-prefix", "equal-images"),
        QUORUM,
        (Patch(MetadataStateMachine, "adopt", _without_fence),),
        faces="what one voter accepts another refuses; which of them is judged first is chance",
    ),
    Mutation(
        "topic-in-several-proposals",
        "a topic's records are proposed one by one (KIP-868)",
        ("topic-whole",),
        QUORUM,
        (Patch(state, "_batches", replaced_by(_record_by_record)),),
    ),
    Mutation(
        "controller-goes-on-after-a-failure",
        "a controller keeps its speculative image when one of its proposals has failed",
        ("acknowledged-topic",),
        QUORUM,
        (Patch(ControllerState, "on_proposal_failed", _goes_on),),
    ),
    Mutation(
        "first-sequence-again",
        "a controller that is active again in an epoch begins with the epoch's first sequence",
        ("proposals-in-sequence", "liveness"),
        FULL_LANES,
        (Patch(ControllerDriver, "_on_committed", _forgets_the_sequence),),
        faces="a number that was used is refused for ever, or names two proposals; which of them is seen is chance",
    ),
)
