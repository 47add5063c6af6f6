"""Probes on the quorum and its followers: Raft lanes, metadata loaders, brokers' registrations.

A step of a Raft lane is a function from events to effects, so its result tells everything about it. Only votes are
taken where they are made; they count once the step that made them has returned, since they are durable by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraft.broker.membership.lifecycle import BrokerLifecycle
from kraft.broker.membership.metadata_loader import MetadataLoader
from kraft.chaos.oracles import events
from kraft.chaos.oracles.durability import Durability
from kraft.chaos.oracles.metadata import CommittedMetadata, Entry
from kraft.chaos.oracles.raft import COVERED, Quorum
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.verdict import Verdicts
from quorum.raft.driver import RaftDriver
from quorum.raft.events import Committed, LeaderChanged, RaftEffect
from quorum.raft.journal import DurableJournal
from quorum.raft.snapshot import SnapshotStore
from quorum.raft.transport import QuorumTransport


class QuorumProbes(Probes):
    """Probes on voters, and on brokers as followers of the metadata."""

    def __init__(
        self,
        verdicts: Verdicts,
        whose: Whose,
        quorum: Quorum,
        metadata: CommittedMetadata,
        durability: Durability,
    ) -> None:
        self._durability = durability
        self._verdicts = verdicts
        self._whose = whose
        self._quorum = quorum
        self._metadata = metadata
        self._votes: list[tuple[int, int, int]] = []
        self._snapshots: list[tuple[int, int, int, bool]] = []
        self._lifecycles: dict[int, tuple[str, BrokerLifecycle]] = {}

    def registration(self, node: int, process: str) -> int | None:
        """The broker epoch of this incarnation of a broker; None before it has one."""
        known = self._lifecycles.get(node)
        if known is None or known[0] != process or known[1].epoch < 0:
            return None
        return known[1].epoch

    # -- voters

    @around(RaftDriver, "step")
    def _step(self, original: Method, driver: RaftDriver, arrived: Any) -> list[RaftEffect]:
        self._votes.clear()
        self._snapshots.clear()
        effects: list[RaftEffect] = original(driver, arrived)
        if effects:
            self._take(driver, effects)
        return effects

    def _take(self, driver: RaftDriver, effects: Sequence[RaftEffect]) -> None:
        node, directory = driver._config.node_id, driver._config.journal_directory
        for effect in effects:
            if isinstance(effect, Committed):
                self._committed(node, effect, directory)
            elif isinstance(effect, LeaderChanged):
                self._leader(node, effect, driver._journal)
        for vote in self._votes:
            self._quorum.voted(*vote)
            self._durability.vote(*vote, directory)
        for snapshot in self._snapshots:
            self._quorum.snapshot(*snapshot)

    def _committed(self, node: int, effect: Committed, directory: str) -> None:
        known = self._metadata.offset
        entries = [
            Entry(entry.offset, entry.epoch, entry.encoded_records, entry.records, entry.rejection)
            for entry in effect.entries
        ]
        self._metadata.committed(node, entries, effect.image)
        for entry in entries:
            if entry.offset > known:
                self._durability.committed(entry.offset, entry.epoch, directory)

    def _leader(self, node: int, change: LeaderChanged, journal: DurableJournal) -> None:
        if change.leader_id == node:
            if change.active:
                self._quorum.became_active(node, change.epoch)
            else:
                self._quorum.led(node, change.epoch, lambda index: _term_at(journal, index))
        elif change.leader_id is not None:
            self._quorum.heard(node, change.epoch, change.leader_id)

    @around(QuorumTransport, "send")
    def _send(self, original: Method, transport: QuorumTransport, peer: Any, message: dict[str, Any]) -> bool:
        sent: bool = original(transport, peer, message)
        kind = message["type"]
        if sent and kind in ("request_vote", "response_vote"):
            voter = transport.node.node_id()
            self._votes.append((voter, message["term"], voter if kind == "request_vote" else int(peer.id)))
        return sent

    @around(SnapshotStore, "save")
    def _save(
        self, original: Method, store: SnapshotStore, snapshot: Any, encoded: bytes | None = None
    ) -> None:
        original(store, snapshot, encoded)
        node = self._whose.node()
        if node is not None:
            self._snapshots.append((node, snapshot.last[1], snapshot.last[2], encoded is not None))

    # -- brokers

    @around(MetadataLoader, "_apply")
    async def _apply(self, original: Method, loader: MetadataLoader, response: Any, whole: Any) -> bool:
        base, published = loader._newest.offset, loader.image.offset
        changed: bool = await original(loader, response, whole)
        image = loader._newest
        if image.offset != base and self._whose.node() is not None:
            self._applied(loader._node_id, response, base, image)
        if loader.image.offset < published:
            self._metadata.went_back(loader._node_id, published, loader.image.offset)
        return changed

    def _applied(self, node: int, response: Any, base: int, image: Any) -> None:
        if response.snapshot is not None:
            self._verdicts.happened(events.BROKER_SNAPSHOT, f"broker {node} at offset {image.offset}")
            self._metadata.applied(node, (), image)
            return
        entries = [
            Entry(entry.offset, entry.epoch, entry.records)
            for entry in response.entries
            if entry.offset > base
        ]
        self._metadata.applied(node, entries, image)

    @around(BrokerLifecycle, "__init__")
    def _lifecycle(
        self, original: Method, lifecycle: BrokerLifecycle, registration: Any, *arguments: Any, **options: Any
    ) -> None:
        original(lifecycle, registration, *arguments, **options)
        self._lifecycles[registration.broker_id] = (self._whose.process(), lifecycle)


def _term_at(journal: DurableJournal, index: int) -> int | None:
    """The term of a voter's entry (see `raft.TermAt`)."""
    position = index - journal[0][1]
    if position < 0:
        return COVERED
    return int(journal[position][2]) if position < len(journal) else None
