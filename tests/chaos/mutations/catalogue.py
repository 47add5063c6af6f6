"""All mutations, by area."""

from __future__ import annotations

from tests.chaos.mutations import clients, disk, log, metadata, producer, raft, raft_journal, replication
from tests.chaos.mutations.registry import Mutation, by_name

MUTATIONS: tuple[Mutation, ...] = (
    *replication.MUTATIONS,
    *log.MUTATIONS,
    *disk.MUTATIONS,
    *producer.MUTATIONS,
    *clients.MUTATIONS,
    *metadata.MUTATIONS,
    *raft.MUTATIONS,
    *raft_journal.MUTATIONS,
)
BY_NAME = by_name(MUTATIONS)
