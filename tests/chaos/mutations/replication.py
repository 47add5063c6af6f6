"""Mutations of replication: high watermark, ISR, minimum ISR, fetches, acknowledgements, leader epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fetcher.fetcher import Fetcher
from kraft.broker.replicas.partition_events import PartitionEvents
from partitions.errors import NotLeaderOrFollower, UnknownLeaderEpoch
from partitions.isr import _NOT_APPLIED, _OUT_OF_DATE, IsrState, Outcome, Resolution
from partitions.leadership import Leadership
from partitions.partition import AckStatus, Partition, Transition
from partitions.reads import read
from tests.chaos.mutations import scenarios, scenarios_of_readers
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by

# -- the high watermark


def _over_the_committed_isr(leading: Any, end_offset: int, min_isr: int, now_ms: int) -> int | None:
    if leading.is_under_min_isr(min_isr):
        return None
    members = [f.log_end_offset for f in leading.followers if f.broker_id in leading.isr.committed]
    return min([end_offset, *members])


def _whatever_the_size_of_the_isr(original: Callable[..., int | None]) -> Callable[..., int | None]:
    def committed_offset(leading: Any, end_offset: int, min_isr: int, now_ms: int) -> int | None:
        elr, leading.isr.elr = leading.isr.elr, ()
        try:
            return original(leading, end_offset, 1, now_ms)
        finally:
            leading.isr.elr = elr

    return committed_offset


def _back_and_forth(partition: Any, leading: Any, now_ms: int) -> None:
    min_isr = partition.log.config.min_insync_replicas
    offset = leading.committed_offset(partition.log.log_end_offset, min_isr, now_ms)
    if offset is not None and offset != partition.high_watermark:
        partition._raise_high_watermark(max(offset, partition.log.log_start_offset))


def _ends_of_logs(original: Callable[[Any], dict[Any, int]]) -> Callable[[Any], dict[Any, int]]:
    def take_changed(events: Any) -> dict[Any, int]:
        return {key: events._partitions[key].log_end_offset for key in original(events)}

    return take_changed


def _without_those_who_leave(original: Callable[..., Any]) -> Callable[..., Any]:
    def shrink(isr: Any, leaving: Any) -> Any:
        proposal = original(isr, leaving)
        isr.maximal = proposal.new_isr
        return proposal

    return shrink


# -- the ISR


def _expand_anybody_at_the_high_watermark(leading: Any, follower: Any, high_watermark: int) -> Any:
    if (
        leading.isr.in_flight is not None
        or follower.broker_id in leading.isr.committed
        or follower.log_end_offset < high_watermark
        or not leading._is_eligible(follower)
    ):
        return None
    return leading.isr.expand(follower.broker_id)


def _expand_from_the_epoch_start(leading: Any, follower: Any, high_watermark: int) -> Any:
    if (
        leading.isr.in_flight is not None
        or follower.broker_id in leading.isr.committed
        or follower.log_end_offset < leading.start_offset
        or not leading._is_eligible(follower)
    ):
        return None
    return leading.isr.expand(follower.broker_id)


def _unknown_means_refused(original: Callable[..., Any]) -> Callable[..., Any]:
    def resolve(isr: Any, proposal: Any, result: Any) -> Any:
        code = getattr(result, "code", None)
        if proposal == isr.in_flight and code is not None and code not in _NOT_APPLIED | _OUT_OF_DATE:
            isr._clear()
            return Resolution(Outcome.ROLLED_BACK)
        return original(isr, proposal, result)

    return resolve


# -- fetches


def _read_to_the_end(
    partition: Any,
    fetch_offset: int,
    *,
    max_bytes: int,
    current_leader_epoch: int | None = None,
    last_fetched_epoch: int | None = None,
    min_one_batch: bool = True,
    read_committed: bool = False,
    at_follower: bool = False,
) -> Any:
    partition._check_readable(current_leader_epoch, at_follower=at_follower)
    end = partition.log.log_end_offset
    epoch = None if last_fetched_epoch == -1 else last_fetched_epoch
    return read(
        partition.log,
        fetch_offset=fetch_offset,
        last_fetched_epoch=epoch,
        up_to_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        max_bytes=max_bytes,
        min_one_batch=min_one_batch,
    )


def _in_any_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda replica, current_leader_epoch: original(replica, None)


def _follower_of_any_epoch(replica: Any, replica_id: int, broker_epoch: int, _: int) -> Any:
    leading = replica.check_epoch(None)
    follower = leading.follower(replica_id)
    if follower is None:
        raise UnknownLeaderEpoch(f"broker {replica_id} is not a replica")
    if not leading.is_registered(replica_id, broker_epoch):
        raise NotLeaderOrFollower(f"broker epoch {broker_epoch} of replica {replica_id} is another")
    return leading, follower


def _follow_by_high_watermark(original: Callable[..., Any]) -> Callable[..., Any]:
    def make_follower(partition: Any, state: Any, now_ms: int) -> Any:
        transition = original(partition, state, now_ms)
        if transition is Transition.BECAME_FOLLOWER:
            partition.log.truncate_to(partition.high_watermark)
        return transition

    return make_follower


# -- acknowledgements


def _done_when_appended(original: Callable[..., Any]) -> Callable[..., Any]:
    def ack_status(replica: Any, required_offset: int, leader_epoch: int | None = None) -> Any:
        status = original(replica, required_offset, leader_epoch)
        return AckStatus.OK if status is AckStatus.PENDING else status

    return ack_status


def _still_waiting_as_follower(events: Any, partition: Any) -> None:
    events.fetch_purgatory.on_progress(partition.topic_partition)


def _settle_whoever_leads(events: Any, partition: Any, high_watermark: int) -> None:
    key = partition.topic_partition
    events._moved[key] = None
    events.produce_purgatory.on_watermark(key, high_watermark, None)
    events.fetch_purgatory.on_progress(key)


ACKNOWLEDGED = "an acknowledged record that is gone is seen inside (no-committed-record-lost) and by readers"
LOST = ("no-committed-record-lost", "lost-write", "unseen")
READ = "what was read and then changed is seen inside (consistent-read) and in the history"

MUTATIONS = (
    Mutation(
        "hw-over-the-current-isr",
        "the high watermark does not wait for a member whose expand is in flight (KIP-497)",
        ("high-watermark-bounded",),
        scenarios.FLAPPING_ISR,
        (Patch(Leadership, "committed_offset", replaced_by(_over_the_committed_isr)),),
    ),
    Mutation(
        "shrink-commits-optimistically",
        "the high watermark does not wait for a member whose removal is only proposed (KIP-497)",
        ("strong-isr",),
        scenarios.FLAPPING_ISR,
        (Patch(IsrState, "shrink", _without_those_who_leave),),
    ),
    Mutation(
        "unknown-outcome-means-refused",
        "a leader takes an AlterPartition without an answer for one that was refused (KIP-497)",
        ("strong-isr",),
        scenarios.SLOW_CONTROL,
        (Patch(IsrState, "resolve", _unknown_means_refused),),
    ),
    Mutation(
        "hw-below-min-isr",
        "the high watermark moves while the ISR is smaller than min.insync.replicas (KIP-966)",
        ("strong-isr",),
        scenarios.FEW_IN_SYNC,
        (Patch(Leadership, "committed_offset", _whatever_the_size_of_the_isr),),
    ),
    Mutation(
        "min-isr-ignored",
        "acks=all is taken, committed and acknowledged however small the ISR is",
        ("strong-isr",),
        scenarios.FEW_IN_SYNC,
        (
            Patch(Leadership, "is_under_min_isr", replaced_by(lambda leading, min_isr: False)),
            Patch(Leadership, "effective_min_isr", replaced_by(lambda leading, min_isr: 1)),
        ),
    ),
    Mutation(
        "hw-goes-back",
        "a leader lowers its high watermark when a replica it has to wait for is behind",
        ("high-watermark-monotonic",),
        scenarios.FLAPPING_ISR,
        (Patch(Partition, "_advance_high_watermark", replaced_by(_back_and_forth)),),
    ),
    Mutation(
        "hw-checkpoint-ahead",
        "the high watermark's checkpoint holds the log's end instead",
        ("high-watermark-bounded",),
        scenarios.RESTARTS,
        (Patch(PartitionEvents, "take_changed_high_watermarks", _ends_of_logs),),
    ),
    Mutation(
        "expand-without-epoch-start",
        "a follower joins the ISR that lacks what was written before the leader's epoch (KIP-497)",
        ("leader-candidate-completeness",),
        scenarios.STALE_HIGH_WATERMARKS,
        (Patch(Leadership, "propose_expand", replaced_by(_expand_anybody_at_the_high_watermark)),),
    ),
    Mutation(
        "expand-below-the-high-watermark",
        "a follower joins the ISR that lacks what is committed since the leader's epoch began (KIP-497)",
        ("leader-candidate-completeness",),
        scenarios.STALE_HIGH_WATERMARKS,
        (Patch(Leadership, "propose_expand", replaced_by(_expand_from_the_epoch_start)),),
    ),
    Mutation(
        "truncate-to-high-watermark",
        "a new follower cuts its log at its high watermark instead of asking by epoch (KIP-101)",
        ("leader-candidate-completeness",),
        scenarios.ELECTIONS,
        (Patch(Partition, "make_follower", _follow_by_high_watermark),),
    ),
    Mutation(
        "follower-without-epoch-fence",
        "a replica goes on copying from the leader of an older epoch (KIP-320)",
        ("log-matching", "leader-candidate-completeness"),
        scenarios.ZOMBIES,
        (
            Patch(Fetcher, "remove", replaced_by(lambda fetcher, key: False)),
            Patch(Partition, "_check_following", replaced_by(lambda partition, leader_epoch: None)),
        ),
        faces="a zombie's batches are appended (log-matching), or committed ones cut (leader-candidate-completeness)",
    ),
    Mutation(
        "leader-without-epoch-fence",
        "a leader answers fetches of any leader epoch, and counts them (KIP-320)",
        # No record is lost by it, since LastFetchedEpoch tells once more whose log is another; the rule is judged.
        ("epoch-fenced",),
        scenarios_of_readers.MADE_ANEW,
        (
            Patch(Partition, "check_epoch", _in_any_epoch),
            Patch(Partition, "_assigned_follower", replaced_by(_follower_of_any_epoch)),
        ),
    ),
    Mutation(
        "consumer-reads-above-hw",
        "a consumer is given what is not committed",
        ("consistent-read", "inconsistent-offsets"),
        scenarios.ELECTIONS,
        (Patch(Partition, "read_for_consumer", replaced_by(_read_to_the_end)),),
        faces=READ,
    ),
    Mutation(
        "acks-all-at-leo",
        "acks=all is answered when the leader has the records",
        LOST,
        scenarios.ELECTIONS,
        (Patch(Partition, "ack_status", _done_when_appended),),
        faces=ACKNOWLEDGED,
    ),
    Mutation(
        "acks-all-by-a-deposed-leader",
        "what waits for acks=all goes on waiting at a deposed leader, until others' records are committed",
        LOST,
        scenarios.ZOMBIES,
        (
            Patch(PartitionEvents, "on_state_change", replaced_by(_still_waiting_as_follower)),
            Patch(PartitionEvents, "on_high_watermark", replaced_by(_settle_whoever_leads)),
        ),
        faces=ACKNOWLEDGED,
    ),
)
