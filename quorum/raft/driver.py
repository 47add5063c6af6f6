"""The Raft core of one voter as a function: `step` takes events and returns effects.

Guarantees: `step` is synchronous and deterministic; the same events, clock, randomness and disk give the same
effects. Every promise among them (vote, acknowledgement, committed entry, outcome) is durable when `step` returns,
with one fsync for all. Entries are handed out once, in order. Every proposal gets exactly one outcome. A bug or a
disk error halts the node, and nothing of that step leaves it. A lane (`lane.py`) runs it, one step at a time, from
any thread.

A leader's entries leave for its peers before its own fsync, which the next step does first (Raft thesis, section
10.2.1). Until then `tick_interval_s` is 0.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from partitions.disk import Disk
from partitions.ports import Halt, NowMs
from quorum.raft.applying import Applying
from quorum.raft.compat import World, running
from quorum.raft.config import MAX_PROPOSAL_BYTES, RaftConfig
from quorum.raft.events import (
    NOT_COMMITTED,
    UNKNOWN,
    Committed,
    CommittedEntry,
    LeaderChanged,
    PeerConnected,
    PeerDisconnected,
    PeerMessage,
    ProposalOutcome,
    Propose,
    QuorumReport,
    RaftEffect,
    RaftEvent,
    ReportQuorum,
    VoterDirectories,
    VoterStanding,
)
from quorum.raft.halting import Halting, RaftHaltedError
from quorum.raft.journal import END_AFTER_IDLE_S
from quorum.raft.messages import BARRIER
from quorum.raft.metadata_state_machine import MetadataStateMachine
from quorum.raft.node import PeerNode, RaftNode, library_conf
from quorum.raft.pre_vote import PreVote
from quorum.raft.replica_times import UNKNOWN as UNKNOWN_OFFSET
from quorum.raft.replica_times import ReplicaTimesTable
from quorum.raft.snapshot import Snapshot
from quorum.raft.state_machine import StateMachine
from quorum.raft.storage import LogFactory, disk_trouble, open_partition_log, open_storage
from quorum.raft.transfer import SnapshotTransfer
from quorum.raft.transport import QuorumTransport
from quorum.raft.voter_watch import VoterWatch
from quorum.raft.voters import VoterBook
from quorum.steps import finished


class RaftDriver:
    """One voter. Construct it and call it from one lane; it owns its files, nothing else may."""

    def __init__(
        self,
        *,
        config: RaftConfig,
        disk: Disk,
        clock: Callable[[], float],
        wall_ms: NowMs,
        rng: Random,
        halt: Halt,
        state_machine: StateMachine | None = None,
        log_factory: LogFactory | None = None,
    ) -> None:
        """Opens the journal, restores the newest snapshot. Raises RaftStorageError (a sentence) for a
        directory that is not formatted, is another node's, or is damaged; OSError from the disk.

        `clock` is monotonic seconds. By default the state is the metadata image, and the journal's log
        a PartitionLog.
        """
        self._config, timing = config, config.timing
        self._clock = clock
        self._wall_ms = wall_ms
        self._followers = ReplicaTimesTable()
        self._halting = Halting(halt)
        self._world = World(clock, rng)
        self._machine: StateMachine = state_machine if state_machine is not None else MetadataStateMachine()
        self._applying = Applying(self._machine)
        self._pending: dict[int, tuple[int, int]] = {}
        self._effects: list[RaftEffect] = []
        self._applied: list[CommittedEntry] = []
        self._applied_bytes = 0  # since the newest snapshot
        self._snapshot_at_s = clock()  # of the newest snapshot taken or installed, or of the start
        self._leadership = LeaderChanged(None, -1, False)
        self._directories: VoterDirectories | None = None
        self._standing = VoterStanding()
        self._image_replaced = False
        if log_factory is None:
            log_factory = partial(
                open_partition_log, segment_bytes=config.segment_bytes, segment_ms=config.segment_ms
            )
        storage = open_storage(config, disk, wall_ms, self._halting, log_factory)
        self._journal = storage.journal
        self._snapshots = storage.snapshots
        self._quorum_state = storage.state
        self._book = VoterBook(
            config.node_id,
            config.voters,
            config.directory_id,
            lambda proposal: self._machine.voter_directories(proposal),
        )
        self._book.restore(storage.state.directories_offset, storage.state.directories)
        with running(self._world):
            pre_vote = PreVote(lambda: self._book.quorum, timing.election_min_s - timing.heartbeat_s)
            self._transport, self._node = self._build(pre_vote)
            if (newest := self._snapshots.newest) is not None:
                self._node.install(newest, finished(self._machine.decode_steps(newest.state)))
        self._watch = VoterWatch(config.directory_id, self._book, self._node, self._transport, pre_vote)

    def _build(self, pre_vote: PreVote) -> tuple[QuorumTransport, RaftNode]:
        """The library's node, and the transport between it and its peers."""
        config = self._config
        peers = [PeerNode(voter) for voter in sorted(config.voters) if voter != config.node_id]
        book = self._book
        chunk_bytes = config.snapshot_chunk_bytes
        transfer = SnapshotTransfer(
            self._snapshots, book, self._machine, self._halting, chunk_bytes, self._world.now
        )
        self._transfer = transfer
        transport = QuorumTransport(peers, self._world, pre_vote, book, transfer, self._halting, self._void)
        node = RaftNode(
            PeerNode(config.node_id),
            peers,
            library_conf(config, self._journal),
            transport,
            transfer,
            self._world,
            pre_vote,
            book,
            self._on_apply,
            self._on_install,
            self._applying.is_ready,
            config.apply_bytes,
        )
        transport.attach(node)
        return transport, node

    # -- the lane's side

    def step(self, events: Sequence[RaftEvent]) -> list[RaftEffect]:
        """Takes in all events, ticks once, syncs, and returns the effects that may leave.

        After a halt: always the empty list.
        """
        if self._halting.reason is not None:
            return []
        try:
            with running(self._world):
                self._run(events)
            self._halting.check()
        except RaftHaltedError:
            return []
        except Exception as error:  # noqa: BLE001 - whatever broke, this voter must not go on
            config = self._config
            self._halting.note(
                disk_trouble(config.journal_directory, error)
                or f"The Raft lane of node {config.node_id} failed:\n{traceback.format_exc()}"
            )
            return []
        effects, self._effects = self._effects, []
        return effects

    @property
    def tick_interval_s(self) -> float:
        """How long the lane may wait for events before it steps without any; changes with each step."""
        if self._halting.reason is not None:
            return self._config.timing.idle_step_max_s
        if self._journal.dirty or self._transfer.is_busy:
            return 0.0
        idle_s = END_AFTER_IDLE_S if self._journal.end_is_unmarked else self._config.timing.idle_step_max_s
        due_s = self._node.next_due_s(self._clock())
        return min(max(due_s, 0.0), idle_s, self._config.timing.idle_step_max_s)

    def close(self) -> None:
        """Syncs and closes the journal. The driver must not be stepped again."""
        if self._halting.reason is None:
            self._journal.close()

    # -- one step

    def _run(self, events: Sequence[RaftEvent]) -> None:
        self._journal.sync()
        for event in events:
            self._handle(event)
            self._halting.check()
        self._transport.install_on()
        self._note_applied()
        self._note_leadership()
        self._node.tick()
        self._halting.check()
        self._keep_voters()
        self._snapshot_if_due()
        self._halting.check()
        self._journal.remember_end_if_idle(self._clock())
        self._note_applied()
        self._note_leadership()
        self._note_voters()
        if self._effects or self._transport.outbox_promises:
            self._journal.sync()
        self._effects.extend(self._transport.take_outbox())

    def _handle(self, event: RaftEvent) -> None:
        if isinstance(event, PeerMessage):
            self._transport.receive(event.peer_id, event.session, event.data)
            self._note_follower(event.peer_id)
        elif isinstance(event, Propose):
            self._propose(event)
        elif isinstance(event, ReportQuorum):
            self._effects.append(self._report(event.request_id))
        elif isinstance(event, PeerConnected):
            self._transport.connected(event.peer_id, event.session, event.directory_id)
        elif isinstance(event, PeerDisconnected):
            self._transport.disconnected(event.peer_id, event.session)
        else:
            self._transport.hand_over_leadership()

    def _propose(self, event: Propose) -> None:
        if (
            not self._node.barrier_applied()
            or len(event.proposal) > MAX_PROPOSAL_BYTES
            or len(self._pending) >= self._config.max_pending_proposals
            or not self._may_record(event.proposal)
        ):
            self._effects.append(ProposalOutcome(event.request_id, None, NOT_COMMITTED))
            return
        self._pending[self._node.propose(event.proposal)] = (self._node.term(), event.request_id)

    def _note_follower(self, peer_id: int) -> None:
        """Notes how far a peer is that was just heard of, if this node leads."""
        node = self._node
        if node.is_leader():
            match = self._transport.match_index(peer_id)
            end = match + 1 if match > 0 else UNKNOWN_OFFSET
            self._followers.fetched(node.term(), peer_id, end, node.log_end() + 1, self._wall_ms())

    def _report(self, request_id: int) -> QuorumReport:
        node = self._node
        if not node.barrier_applied():
            return QuorumReport(request_id, leads=False)
        term, peers = node.term(), [int(peer.id) for peer in node.peers()]
        return QuorumReport(
            request_id,
            leads=True,
            epoch=term,
            high_watermark=node.commit_index() + 1,
            log_end_offset=node.log_end() + 1,
            followers=tuple(replace(self._followers.of(term, peer_id)) for peer_id in peers),
        )

    def _may_record(self, proposal: bytes) -> bool:
        return self._config.directory_id is None or self._watch.may_record(
            self._machine.voter_directories(proposal)
        )

    def _void(self, leader_id: int, acknowledged: int) -> None:
        """Ends this voter, now and at every start: it has forgotten its promises, votes included."""
        config = self._config
        reason = (
            f"Voter {config.node_id} has forgotten what it had acknowledged: its journal in"
            f" {config.journal_directory} ends at offset {self._node.log_end()}, and voter {leader_id}, which leads"
            f" in epoch {self._node.term()}, had its word through offset {acknowledged}. {config.directory} was"
            " replaced by an older copy of itself, or its disk does not keep what was synced. Its votes may be"
            " forgotten as well, so it must not go on under its old identity: remove everything in"
            f" {config.directory}, format the node anew (`kraft storage format`) and start it; the other voters"
            " bring it up to date and take it in as a new directory."
        )
        self._quorum_state.void = reason
        self._quorum_state.save()
        self._halting.halt(reason)

    def _on_apply(self, command: bytes, index: int, term: int) -> None:
        """Called by the library for each committed entry, in order."""
        if command == BARRIER:
            self._machine.advance(index, term)
            self._applied.append(CommittedEntry(index, term, True))
            return
        self._applied_bytes += len(command)
        applied = self._applying.apply(command, index, term)
        self._applied.append(
            CommittedEntry(
                index,
                term,
                applied.accepted,
                applied.records,
                applied.encoded_records,
                applied.sequence,
                applied.rejection,
            )
        )

    def _on_install(self, snapshot: Snapshot, state: Any) -> None:
        """Called at start, and by the library when the leader's snapshot has arrived."""
        self._machine.adopt(state)
        self._applying.forget()
        self._transfer.forget_taking()
        self._book.restore(snapshot.last[1], dict(snapshot.directories))
        self._applied_bytes = 0
        self._snapshot_at_s = self._clock()
        self._image_replaced = True

    def _note_applied(self) -> None:
        """Hands out the entries applied since the last call, and the outcomes that they decide."""
        entries, self._applied = tuple(self._applied), []
        if not entries and not self._image_replaced:
            return
        self._image_replaced = False
        self._effects.append(Committed(entries, self._machine.image))
        for entry in entries:
            pending = self._pending.pop(entry.offset, None)
            if pending is not None:
                term, request_id = pending
                mine = term == entry.epoch
                self._effects.append(
                    ProposalOutcome(request_id, entry.offset, None)
                    if mine
                    else ProposalOutcome(request_id, None, NOT_COMMITTED)
                )

    def _note_leadership(self) -> None:
        """Reports a change of leader; a node that no longer leads knows no outcomes."""
        node, before = self._node, self._leadership
        leader_id, term, active = node.leader_id(), node.term(), node.barrier_applied()
        if (before.leader_id, before.epoch, before.active) == (leader_id, term, active):
            return
        self._leadership = now = LeaderChanged(leader_id, term, active)
        if not now.active:
            for _, request_id in self._pending.values():
                self._effects.append(ProposalOutcome(request_id, None, UNKNOWN))
            self._pending.clear()
        self._effects.append(now)

    def _keep_voters(self) -> None:
        """Puts the directories of applied entries in force, and notes them for the next start."""
        if self._book.commit_through(self._node.last_applied()):
            self._quorum_state.set_directories(self._book.offset, self._book.in_force)

    def _note_voters(self) -> None:
        """Reports changes of the directories that the metadata should record, and of this voter's standing."""
        directories, standing = self._watch.directories(), self._watch.standing()
        if directories != self._directories:
            self._directories = directories
            if directories is not None:
                self._effects.append(directories)
        if standing is not self._standing and standing != self._standing:
            self._standing = standing
            self._effects.append(standing)

    def _snapshot_if_due(self) -> None:
        """Begins a snapshot that is due, or takes one step of the snapshot under way."""
        if not self._transfer.is_taking:
            if not self._is_snapshot_due():
                return
            self._journal.sync()
            self._node.begin_snapshot()
            self._applied_bytes = 0
            self._snapshot_at_s = self._clock()
        if self._transfer.take_on():
            self._node.end_snapshot()
            self._snapshots.remove_older()
            self._journal.try_to_remember_end()

    def _is_snapshot_due(self) -> bool:
        if self._node.last_applied() < self._book.offset:
            return False  # restarted: the directories in force are those of entries that are not applied again yet
        newest = self._snapshots.newest
        covered = 1 if newest is None else newest.last[1]
        entries = self._node.last_applied() - covered
        # The library joins a snapshot to the log by its last two entries.
        interval_s = self._config.snapshot_interval_s
        return entries >= self._config.snapshot_every_entries or (
            entries >= 2
            and (
                self._applied_bytes >= self._config.snapshot_every_bytes
                or 0 < interval_s <= self._clock() - self._snapshot_at_s
            )
        )
