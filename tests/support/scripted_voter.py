"""One real voter whose peers are the test: it says what peers say, and reads what they hear."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.storage import Storage
from kraft.chaos.world.trace import Trace
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from quorum.raft.config import FAST_TIMING, RaftConfig
from quorum.raft.driver import RaftDriver
from quorum.raft.events import (
    Committed,
    LeaderChanged,
    PeerConnected,
    PeerMessage,
    ProposalOutcome,
    Propose,
    RaftEffect,
    RaftEvent,
    SendToPeer,
)
from quorum.raft.messages import BARRIER, PROPOSAL, decode_message, encode_message
from quorum.raft.storage import open_partition_log
from tests.support.chain_machine import ChainMachine

DIRECTORY = "/data"
JOURNAL = "/data/__cluster_metadata-0"
SESSION = 1


def formatted_storage(node_id: int = 1, seed: int = 0) -> Storage:
    """A host's disk with a formatted, empty data directory on it."""
    storage = Storage(Random(seed))
    storage.make_dirs(DIRECTORY)
    write_meta_properties(simulated_disk(storage), DIRECTORY, MetaProperties("cluster", node_id, "directory"))
    storage.sync_everything()
    return storage


def simulated_disk(storage: Storage) -> SimulatedDisk:
    return SimulatedDisk(storage, Incarnation(Scheduler(Trace()), "host", 1), lambda low, high: low)


class ScriptedVoter:
    """Node 1 of `voters`; virtual time moves only with `advance`."""

    def __init__(
        self,
        voters: int = 3,
        storage: Storage | None = None,
        machine: Any = None,
        *,
        domain: str = "",
        **settings: Any,
    ) -> None:
        self.storage = storage or formatted_storage()
        self.now_s = 50.0
        self.halted: str | None = None
        self.machine = ChainMachine() if machine is None else machine
        self.effects: list[RaftEffect] = []
        self.heard: list[tuple[int, dict[str, Any]]] = []
        self.committed: list[tuple[int, int]] = []
        self.outcomes: list[ProposalOutcome] = []
        self.leadership: LeaderChanged | None = None
        self._sent = dict.fromkeys(range(2, voters + 1), 0)
        self.driver = RaftDriver(
            config=RaftConfig(
                node_id=1,
                voters={node_id: f"voter-{node_id}{domain}:9093" for node_id in range(1, voters + 1)},
                cluster_id="cluster",
                directory=DIRECTORY,
                timing=FAST_TIMING,
                **settings,
            ),
            disk=simulated_disk(self.storage),
            clock=lambda: self.now_s,
            wall_ms=lambda: 1_700_000_000_000,
            rng=Random(1),
            halt=self._halt,
            state_machine=self.machine,
            log_factory=partial(open_partition_log, segment_bytes=4096),
        )

    def _halt(self, reason: str) -> None:
        self.halted = reason

    # -- events

    def step(self, *events: RaftEvent) -> list[RaftEffect]:
        """One step; what peers hear is collected in `heard`, anew for each step."""
        effects = self.effects = self.driver.step(events)
        self.heard = []
        for effect in effects:
            if isinstance(effect, SendToPeer):
                self.heard.append((effect.peer_id, decode_message(effect.data)[1]))
            elif isinstance(effect, Committed):
                self.committed += [(entry.offset, entry.epoch) for entry in effect.entries]
            elif isinstance(effect, LeaderChanged):
                self.leadership = effect
            elif isinstance(effect, ProposalOutcome):
                self.outcomes.append(effect)
        return effects

    def connect(
        self, *peers: int, session: int = SESSION, directories: Mapping[int, bytes] | None = None
    ) -> None:
        """`directories`: what the peers have proved to be, where voters are known by more than a number."""
        self._sent.update(dict.fromkeys(peers, 0))
        proved = directories or {}
        self.step(*(PeerConnected(peer, session, proved.get(peer, b"")) for peer in peers))

    def message(self, peer: int, kind: str, session: int = SESSION, **fields: Any) -> PeerMessage:
        """The next message of a peer in its session."""
        self._sent[peer] += 1
        return PeerMessage(peer, session, encode_message(self._sent[peer], {"type": kind, **fields}))

    def says(self, peer: int, kind: str, **fields: Any) -> list[RaftEffect]:
        return self.step(self.message(peer, kind, **fields))

    def appends(self, peer: int, term: int, previous: tuple[int, int], *terms: int, commit: int = 0) -> None:
        """A leader's entries after (index, term) `previous`, one for each term given."""
        index = previous[0]
        entries = [(PROPOSAL + b"%d.%d" % (index + 1 + n, t), index + 1 + n, t) for n, t in enumerate(terms)]
        self.says(
            peer,
            "append_entries",
            term=term,
            commit_index=commit,
            entries=entries,
            prevLogIdx=index,
            prevLogTerm=previous[1],
        )

    def acknowledges(
        self,
        peer: int,
        term: int,
        next_index: int,
        *,
        success: bool = True,
        reset: bool = False,
        log_end: int | None = None,
        session: int = SESSION,
        snapshot: tuple[int, int] | None = None,
    ) -> None:
        """`log_end`: where the peer's log ends; without, just before `next_index` or, on a reset, far behind.
        `snapshot`: how many bytes it has of the snapshot through which index, as (index, bytes).
        """
        if log_end is None:
            log_end = 10**6 if reset else next_index - 1
        answer = self.message(
            peer,
            "next_node_idx",
            session,
            term=term,
            next_node_idx=next_index,
            success=success,
            reset=reset,
            log_end=log_end,
            **({} if snapshot is None else {"snapshot_index": snapshot[0], "snapshot_bytes": snapshot[1]}),
        )
        self.step(answer)

    def propose(self, request_id: int, proposal: bytes = b"proposal") -> None:
        self.step(Propose(request_id, proposal))

    def advance(self, seconds: float) -> list[RaftEffect]:
        self.now_s += seconds
        return self.step()

    # -- what was heard

    def heard_kinds(self) -> set[str]:
        return {message["type"] for _, message in self.heard}

    def last_heard(self, peer: int, kind: str) -> dict[str, Any] | None:
        found = [message for receiver, message in self.heard if receiver == peer and message["type"] == kind]
        return found[-1] if found else None

    # -- whole passages

    def wait_for_pre_vote(self) -> dict[str, Any]:
        """Lets the election timeout pass; returns the question."""
        self.advance(1.0)
        question = self.last_heard(2, "pre_vote")
        assert question is not None
        return question

    def stand_for_election(self) -> int:
        """Passes the pre-vote; returns the term of the candidacy."""
        question = self.wait_for_pre_vote()
        for peer in sorted(self._sent):
            answer = self.message(
                peer, "response_pre_vote", term=question["term"], round=question["round"], granted=True
            )
            self.step(answer)
            request = self.last_heard(2, "request_vote")
            if request is not None:
                return int(request["term"])
        raise AssertionError("the pre-vote did not pass")

    def become_leader(self) -> int:
        """Wins an election, commits the barrier; returns the term."""
        term = self.stand_for_election()
        for peer in sorted(self._sent):
            self.says(peer, "response_vote", term=term)
        barrier = self.driver_end()
        for peer in sorted(self._sent):
            self.acknowledges(peer, term, barrier + 1)
        assert self.leadership is not None
        assert self.leadership.active
        return term

    def driver_end(self) -> int:
        """Index of the last entry in this voter's log."""
        return self.driver._node.log_end()

    def entries(self) -> list[tuple[int, int]]:
        """(index, term) of every entry in the window."""
        return [(index, term) for _, index, term in self.driver._journal[:]]


__all__ = [
    "BARRIER",
    "DIRECTORY",
    "JOURNAL",
    "PROPOSAL",
    "ScriptedVoter",
    "formatted_storage",
    "simulated_disk",
]
