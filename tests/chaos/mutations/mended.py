"""Mutations that undo one mend each: the product fails again as a simulated seed once caught it failing.

A mend has its line in CHANGELOG.md, and a case in tests/chaos/corpus/ where one is small enough. A case fails at the
instant at which it once failed; these fail in any run that comes to the same situation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.broker.membership.history_guard import HistoryGuard, _path_in
from kraft.chaos.scenario import WorkloadSpec
from partitions.disk import write_atomically
from partitions.log.cleaner.cleaner import CleaningRound
from partitions.log.errors import LogStorageError
from quorum.rpc.client import RpcClient, _SessionUnknown
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import ClusterStage, Storm


def _needed_whatever_it_is(original: Callable[..., Any]) -> Callable[..., Any]:
    async def durably(cleaning: Any, job: Any, *arguments: Any, is_needed: bool = True) -> None:
        await original(cleaning, job, *arguments)

    return durably


def _every_caller_forgets_the_session(original: Callable[..., Any]) -> Callable[..., Any]:
    async def post(client: Any, address: str, session: Any, *call: Any) -> Any:
        was_kept = client._sessions.get(address) is session
        try:
            return await original(client, address, session, *call)
        except _SessionUnknown:
            if was_kept:
                del client._sessions[address]
                client._sessions[address] = session  # for the caller, which does as much
            raise

    return post


async def _position_tried_again(guard: Any) -> None:
    position = guard._now
    if position is None or position == guard._written:
        return
    for directory in guard._directories():
        path = _path_in(directory)
        try:
            await guard._executor.run(write_atomically, guard._disk, path, position.encode())
        except OSError as error:
            raise LogStorageError(f"writing {path} failed: {error}") from error
    guard._written = position


CLEANING_FULL_DISKS = ClusterStage(
    "compaction on full disks",
    Storm(
        ("disk-full",),
        mean_s=0.3,
        topics=scenarios.COMPACTED,
        workloads=(
            scenarios.IDEMPOTENT,
            WorkloadSpec("producer", 1, scenarios.ORDERS, acks=1, per_second=60.0),
        ),
        properties={"log.cleaner.backoff.ms": "300"},
    ),
)
MUTATIONS = (
    Mutation(
        "cleaning-on-a-full-disk-halts",
        "a disk that is full when cleaned files are made durable is a disk that has failed",
        ("halted",),
        CLEANING_FULL_DISKS,
        (Patch(CleaningRound, "_durably", _needed_whatever_it_is),),
    ),
    Mutation(
        "session-forgotten-twice",
        "each of several calls that find a controller restarted forgets the session with it",
        ("halted",),
        scenarios.CONTROLLERS,
        (Patch(RpcClient, "_post", _every_caller_forgets_the_session),),
    ),
    Mutation(
        "metadata-position-written-again",
        "after a failed fsync of the metadata position the directory is used on",
        ("not-halted",),
        scenarios.FAILING_DISKS,
        (Patch(HistoryGuard, "checkpoint", replaced_by(_position_tried_again)),),
    ),
)
