"""Mutations of brokers' service to clients: the place of a Produce, the content of a Fetch, the answer of
ListOffsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.broker.handlers import metadata, produce
from kraft.network.connection import CloseConnectionError
from partitions.errors import NotEnoughReplicas, PartitionError, ReplicaOffline
from partitions.log.errors import LogError
from partitions.log.log import PartitionLog
from partitions.partition import AckStatus, Partition
from partitions.reads import list_offset
from partitions.records.batch import decode_records, parse_header
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition
from tests.chaos.mutations import scenarios, scenarios_of_readers
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by

ACKS_ALL, ACKS_LEADER = -1, 1
ONE_IN = 20
"""How many requests of the kind in question there are for each that the broken rule spoils."""
DECOMPRESSED_MAX_BYTES = 1 << 20


# -- Produce


def _refused_after_the_append(original: Callable[..., Any]) -> Callable[..., Any]:
    def append_records(partition: Any, records: Any, *, acks: int, now_ms: int, **rest: Any) -> Any:
        info = original(partition, records, acks=ACKS_LEADER, now_ms=now_ms, **rest)
        if acks == ACKS_ALL and partition.is_under_min_isr:
            raise NotEnoughReplicas(f"the ISR of {partition.topic_partition} is too small")
        return info

    return append_records


def _next_door(original: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def append(services: Any, key: Any, records: Any, acks: int, transaction: Any) -> Any:
        nonlocal calls
        calls += acks == ACKS_LEADER
        if acks == ACKS_LEADER and not calls % ONE_IN:
            key = TopicPartition(key.topic, 1 - key.partition)
        return original(services, key, records, acks, transaction)

    return append


def _refusals_are_defects(original: Callable[..., Any]) -> Callable[..., Any]:
    def append(services: Any, key: Any, records: Any, acks: int, transaction: Any) -> Any:
        try:
            return original(services, key, records, acks, transaction)
        except (PartitionError, LogError) as error:
            raise RuntimeError(f"{key} cannot be appended to: {error.code}") from error

    return append


def _last_record_first(original: Callable[..., Any]) -> Callable[..., Any]:
    def append_as_leader(log: Any, records: Any, **options: Any) -> Any:
        header = parse_header(records)
        if log.topic_id is not None and header.record_count > 1:
            opened = list(decode_records(records, 0, header, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES))
            records = build_batch(
                [(one.timestamp, one.key, one.value, one.headers) for one in reversed(opened)],
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
        return original(log, records, **options)

    return append_as_leader


# -- Fetch


def _from_the_next_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def read_for_consumer(replica: Any, fetch_offset: int, **options: Any) -> Any:
        nonlocal calls
        if fetch_offset + 1 < replica.high_watermark:
            calls += 1
            fetch_offset += calls % ONE_IN == 0
        return original(replica, fetch_offset, **options)

    return read_for_consumer


def _everything_twice(original: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def read_for_consumer(replica: Any, fetch_offset: int, **options: Any) -> Any:
        nonlocal calls
        answer = original(replica, fetch_offset, **options)
        found = answer.records
        if found is None or not found.slices:
            return answer
        calls += 1
        if calls % ONE_IN:
            return answer
        twice = found._replace(slices=found.slices * 2, size_bytes=found.size_bytes * 2)
        return answer._replace(records=twice)

    return read_for_consumer


# -- ListOffsets


def _end_known_at_once(
    replica: Any,
    timestamp: int,
    *,
    for_client: bool,
    current_leader_epoch: int | None = None,
    read_committed: bool = False,
    budget: Any = None,
) -> Any:
    replica.check_epoch(current_leader_epoch)
    end = replica.high_watermark if for_client else replica.log.log_end_offset
    return list_offset(
        replica.log,
        timestamp,
        up_to_offset=end,
        leader_epoch=replica.leader_epoch,
        lagging=False,
        budget=budget,
    )


def _end_of_the_log(original: Callable[..., Any]) -> Callable[..., Any]:
    def answer(replica: Any, timestamp: int, *, for_client: bool, **options: Any) -> Any:
        return original(replica, timestamp, for_client=False, **options)

    return answer


# -- in which leader epoch


def _of_any_epoch(replica: Any, current_leader_epoch: int | None) -> None:
    if replica._end is AckStatus.KAFKA_STORAGE_ERROR:
        raise ReplicaOffline(f"the log of {replica.topic_partition} is on a failed disk of this broker")


def _epoch_end_in_any_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def end_offset_for_epoch(
        replica: Any, leader_epoch: int, *, current_leader_epoch: int | None = None
    ) -> Any:
        return original(replica, leader_epoch, current_leader_epoch=None)

    return end_offset_for_epoch


# -- Metadata


def _none_if_need_be(original: Callable[..., Any]) -> Callable[..., Any]:
    def brokers(services: Any, listener_name: str, *, with_recent: bool) -> Any:
        try:
            return original(services, listener_name, with_recent=with_recent)
        except CloseConnectionError:
            return []

    return brokers


MUTATIONS = (
    Mutation(
        "metadata-without-a-broker",
        "while all brokers are fenced, Metadata is answered with an empty list of them",
        ("unexpected-answer",),
        scenarios.ALL_DOWN,
        (Patch(metadata, "_brokers", _none_if_need_be),),
    ),
    Mutation(
        "refused-after-the-append",
        "NOT_ENOUGH_REPLICAS is answered when the record is in the log already",
        ("aborted-read",),
        scenarios.FEW_FOR_PLAIN_PRODUCERS,
        (Patch(Partition, "append_records", _refused_after_the_append),),
    ),
    Mutation(
        "batch-in-another-partition",
        "now and then a batch is appended to the partition beside the one that it was sent to",
        ("unsent-read",),
        scenarios.RESTARTS,
        (Patch(produce, "_append", _next_door),),
    ),
    Mutation(
        "refusal-is-a-defect",
        "what a partition refuses, as after an election, ends the handler by an exception",
        ("unexpected-error",),
        scenarios.ELECTIONS,
        (Patch(produce, "_append", _refusals_are_defects),),
    ),
    Mutation(
        "batch-written-in-another-order",
        "a leader writes the records of a batch the other way round",
        ("torn-batch",),
        scenarios.RESTARTS,
        (Patch(PartitionLog, "append_as_leader", _last_record_first),),
    ),
    Mutation(
        "fetch-begins-a-batch-late",
        "now and then a read begins with the batch of the offset behind the one asked for",
        ("poll-skip",),
        scenarios.RESTARTS,
        (Patch(Partition, "read_for_consumer", _from_the_next_batch),),
    ),
    Mutation(
        "fetch-returns-batches-twice",
        "now and then an answer has the same ranges of the log twice",
        ("non-monotonic-poll",),
        scenarios.RESTARTS,
        (Patch(Partition, "read_for_consumer", _everything_twice),),
    ),
    Mutation(
        "latest-before-the-epoch-start",
        "a new leader answers LATEST before its high watermark has reached the start of its epoch (KIP-207)",
        ("latest-below-committed",),
        scenarios.LISTED_OFFSETS,
        (Patch(Partition, "list_offset", replaced_by(_end_known_at_once)),),
    ),
    Mutation(
        "client-of-another-epoch-answered",
        "Fetch and ListOffsets of clients are answered in whatever epoch the leader is (KIP-320)",
        ("epoch-fenced",),
        scenarios_of_readers.NEW_EPOCHS,
        (Patch(Partition, "_check_usable", replaced_by(_of_any_epoch)),),
    ),
    Mutation(
        "epoch-end-told-in-another-epoch",
        "OffsetForLeaderEpoch is answered in whatever epoch the leader is (KIP-320)",
        ("epoch-fenced",),
        scenarios_of_readers.NEW_EPOCHS,
        (Patch(Partition, "end_offset_for_epoch", _epoch_end_in_any_epoch),),
    ),
    Mutation(
        "latest-is-the-end-of-the-log",
        "clients are told the log's end instead of the high watermark",
        ("listed-not-committed",),
        scenarios.LISTED_OFFSETS,
        (Patch(Partition, "list_offset", _end_of_the_log),),
    ),
)
