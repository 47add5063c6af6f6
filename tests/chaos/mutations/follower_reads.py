"""Mutations of reading from followers (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.broker.replicas import read_replicas
from partitions.partition import Partition
from partitions.reads import read
from partitions.replica_selector import RACK_AWARE_SELECTOR
from tests.chaos.mutations import scenarios, scenarios_of_readers
from tests.chaos.mutations.registry import Mutation, Patch


def _to_the_end_of_a_followers_log(original: Callable[..., Any]) -> Callable[..., Any]:
    def read_for_consumer(replica: Any, fetch_offset: int, *, max_bytes: int, **rest: Any) -> Any:
        answer = original(replica, fetch_offset, max_bytes=max_bytes, **rest)
        if replica.is_leader:
            return answer
        end = replica.log.log_end_offset
        return read(
            replica.log,
            fetch_offset=fetch_offset,
            last_fetched_epoch=None,
            up_to_offset=end,
            high_watermark=end,
            last_stable_offset=end,
            max_bytes=max_bytes,
            min_one_batch=True,
        )

    return read_for_consumer


def _to_whoever_is_furthest(rack: str, leader: Any, followers: Any) -> Any:
    return max(followers, key=lambda view: view.log_end_offset, default=leader)


def _selecting(select: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda selectors: {**selectors, RACK_AWARE_SELECTOR: select}


MUTATIONS = (
    Mutation(
        "sent-to-another-rack",
        "a leader sends consumers to a follower wherever that is (KIP-392)",
        ("unexpected-answer",),
        scenarios_of_readers.READ_BY_RACK,
        (Patch(read_replicas, "SELECTORS", _selecting(_to_whoever_is_furthest)),),
    ),
    Mutation(
        "follower-serves-its-whole-log",
        "a follower gives consumers what it does not know to be committed (KIP-392)",
        ("high-watermark-bounded",),
        scenarios.ELECTIONS,
        (Patch(Partition, "read_for_consumer", _to_the_end_of_a_followers_log),),
    ),
)
