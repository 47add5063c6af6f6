"""All mutations, by area."""

from __future__ import annotations

from tests.chaos.mutations import (
    alter_partition,
    cleaner,
    clients,
    disk,
    fetch_sessions,
    follower_reads,
    log,
    metadata,
    producer,
    raft,
    raft_hooks,
    raft_journal,
    replication,
    truncation,
)
from tests.chaos.mutations.registry import Mutation, by_name

MUTATIONS: tuple[Mutation, ...] = (
    *replication.MUTATIONS,
    *truncation.MUTATIONS,
    *alter_partition.MUTATIONS,
    *fetch_sessions.MUTATIONS,
    *follower_reads.MUTATIONS,
    *log.MUTATIONS,
    *cleaner.MUTATIONS,
    *disk.MUTATIONS,
    *producer.MUTATIONS,
    *clients.MUTATIONS,
    *metadata.MUTATIONS,
    *raft.MUTATIONS,
    *raft_journal.MUTATIONS,
    *raft_hooks.MUTATIONS,
)
BY_NAME = by_name(MUTATIONS)
