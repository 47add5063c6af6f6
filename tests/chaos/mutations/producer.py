"""Mutations of idempotent producers: duplicates, sequences, and the memory of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partitions.log.log import PartitionLog
from partitions.log.opening import open_log
from partitions.log.producers import log_producers, producer_snapshot, producer_state
from partitions.log.producers.producer_state import ProducerState
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by


def _forgets_producers(original: Callable[..., Any]) -> Callable[..., Any]:
    def append_as_follower(log: Any, records: Any, **bounds: Any) -> Any:
        info = original(log, records, **bounds)
        log.producers.state.producers.clear()
        return info

    return append_as_follower


def _knows_nobody(
    storage: Any, directory: str, names: Any, segments: Any, log_end_offset: int, *, known: Any = None
) -> tuple[ProducerState, int]:
    return ProducerState(log_end_offset), -1


MUTATIONS = (
    Mutation(
        "dedupe-window-of-1",
        "a log remembers the last batch of a producer instead of the last five (KIP-98)",
        ("unexpected-answer",),
        scenarios.RETRIES,
        (
            Patch(producer_state, "BATCHES_RETAINED", lambda _: 1),
            Patch(producer_snapshot, "BATCHES_RETAINED", lambda _: 1),
        ),
    ),
    Mutation(
        "no-dedupe",
        "a batch that is in the log already is appended again",
        ("duplicate",),
        scenarios.RETRIES,
        (
            Patch(ProducerState, "find_duplicate", replaced_by(lambda state, headers: None)),
            Patch(producer_state, "_check_sequence", replaced_by(lambda entry, header: None)),
        ),
    ),
    Mutation(
        "producers-not-rebuilt",
        "followers and restarted replicas know no producers: after a leader change all is new (KIP-360)",
        ("duplicate",),
        scenarios.RETRIES,
        (
            Patch(PartitionLog, "append_as_follower", _forgets_producers),
            Patch(open_log, "load_producer_state", replaced_by(_knows_nobody)),
            Patch(log_producers, "load_producer_state", replaced_by(_knows_nobody)),
        ),
    ),
    Mutation(
        "sequence-gap-accepted",
        "a batch is appended though the one before it is missing (KIP-98)",
        ("non-monotonic-send",),
        scenarios.PIPELINES,
        (Patch(producer_state, "_check_sequence", replaced_by(lambda entry, header: None)),),
    ),
)
