"""Mutations of compaction: the records that may go, their time, and the offset up to which (KIP-58, KIP-354,
KIP-534)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partitions.log.cleaner import swap
from partitions.log.cleaner.filter import BatchFilter
from partitions.log.cleaner.offset_map import OffsetMap
from partitions.log.log import PartitionLog
from partitions.log.opening import open_log
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by


def _first_one_counts(original: Callable[..., bool]) -> Callable[..., bool]:
    """The map remembers the first offset of a key."""

    def put(offsets: Any, key: bytes, offset: int) -> bool:
        return True if offsets.get(key) >= 0 else original(offsets, key, offset)

    return put


def _up_to_the_mapped_one(batch_filter: Any, record: Any, offset: int, keeps_tombstones: bool) -> bool:
    if offset > batch_filter._offsets.latest_offset or record.key is None:
        return True
    newest = batch_filter._offsets.get(record.key)
    return (newest < 0 or offset <= newest) and (record.has_value or keeps_tombstones)


def _without_tombstones(original: Callable[..., bool]) -> Callable[..., bool]:
    def stays(batch_filter: Any, record: Any, offset: int, keeps_tombstones: bool) -> bool:
        is_mapped = offset <= batch_filter._offsets.latest_offset
        return original(batch_filter, record, offset, keeps_tombstones) and (
            record.has_value or not is_mapped
        )

    return stays


def _up_to_the_end(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda log, now_ms, high_watermark: original(log, now_ms, log.log_end_offset)


def _undo_what_was_decided(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def recover(storage: Any, directory: str, names: Any) -> list[str]:
        for name in names:
            if name.endswith(swap.SWAP_SUFFIX):
                storage.remove(f"{directory}/{name}")
        return original(storage, directory, storage.disk.list_dir(directory))

    return recover


MUTATIONS = (
    Mutation(
        "cleaner-keeps-an-older-value",
        "of a key's records in the dirty section the first one stays",
        ("newest-of-key-kept",),
        scenarios.COMPACTION,
        (
            Patch(OffsetMap, "put", _first_one_counts),
            Patch(BatchFilter, "_stays", replaced_by(_up_to_the_mapped_one)),
        ),
    ),
    Mutation(
        "tombstone-dropped-at-once",
        "a tombstone goes with the first cleaning, whoever has not yet read it (KIP-534)",
        ("tombstone-kept",),
        scenarios.COMPACTION,
        (Patch(BatchFilter, "_stays", _without_tombstones),),
    ),
    Mutation(
        "cleans-above-the-high-watermark",
        "the section to clean ends with the log, not with what is committed",
        ("cleaned-below-high-watermark",),
        scenarios.COMPACTION_BEHIND_FOLLOWERS,
        (Patch(PartitionLog, "cleanable_section", _up_to_the_end),),
    ),
    Mutation(
        "decided-swap-undone",
        "a start after a crash removes a cleaned segment whose place was decided, though the old ones are gone",
        ("no-committed-record-lost",),
        scenarios.COMPACTION,
        (Patch(open_log, "recover_swaps", _undo_what_was_decided),),
    ),
)
