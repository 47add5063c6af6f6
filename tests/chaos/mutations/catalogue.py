"""All mutations, by area."""

from __future__ import annotations

from tests.chaos.mutations import (
    alter_partition,
    cleaner,
    clients,
    disk,
    fetch_sessions,
    flushes,
    follower_reads,
    groups,
    lag,
    log,
    mended,
    metadata,
    producer,
    promises,
    raft,
    raft_door,
    raft_guards,
    raft_hooks,
    raft_journal,
    raft_world,
    replication,
    security,
    transactions,
    truncation,
)
from tests.chaos.mutations.registry import Mutation, by_name

MUTATIONS: tuple[Mutation, ...] = (
    *replication.MUTATIONS,
    *truncation.MUTATIONS,
    *alter_partition.MUTATIONS,
    *lag.MUTATIONS,
    *fetch_sessions.MUTATIONS,
    *follower_reads.MUTATIONS,
    *flushes.MUTATIONS,
    *groups.MUTATIONS,
    *transactions.MUTATIONS,
    *security.MUTATIONS,
    *log.MUTATIONS,
    *cleaner.MUTATIONS,
    *disk.MUTATIONS,
    *producer.MUTATIONS,
    *clients.MUTATIONS,
    *promises.MUTATIONS,
    *metadata.MUTATIONS,
    *mended.MUTATIONS,
    *raft.MUTATIONS,
    *raft_journal.MUTATIONS,
    *raft_hooks.MUTATIONS,
    *raft_guards.MUTATIONS,
    *raft_world.MUTATIONS,
    *raft_door.MUTATIONS,
)
BY_NAME = by_name(MUTATIONS)
