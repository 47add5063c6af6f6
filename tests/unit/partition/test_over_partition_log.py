"""Two replicas over the real partition log and real record batches: copy, diverge, agree again."""

from __future__ import annotations

import pytest

from fetcher.fetch_state import FollowedPartition
from fetcher.fetch_states import FetchStates
from fetcher.follower_log import FollowerLog
from fetcher.leader_endpoint import FetchedPartition, FetchResponse
from fetcher.replication import Replication
from fetcher.settings import FetcherSettings
from partitions.errors import NotLeaderOrFollower
from partitions.isr import AlterPartitionProposal
from partitions.lag_schedule import LagSchedule
from partitions.log.errors import NotVerified
from partitions.log.log import PartitionLog
from partitions.partition import FollowerFetch, Partition, ReplicaContext
from partitions.reads import EARLIEST_TIMESTAMP
from partitions.records.builder import build_batch
from partitions.records.markers import EndTransactionMarker
from partitions.replica_log import ReplicaLog
from tests.support.fetch_world import Listened
from tests.support.logs import PARTITION, batch_of, lead, memory_disk, open_log, read_records, rot_epoch_entry
from tests.support.replica_world import LeaderState
from tests.support.transactions import ABORT, COMMIT, marker_of, transactional

TOPIC_ID = bytes(15) + b"\x09"


class Everybody:
    """Eligibility and listener in one: all brokers are registered with epoch 5 and eligible."""

    def registered_epoch(self, broker_id: int) -> int | None:
        return 5

    def may_join_isr(self, broker_id: int) -> bool:
        return True

    def on_append(self, partition: Partition, log_end_offset: int) -> None: ...
    def on_high_watermark(self, partition: Partition, high_watermark: int) -> None: ...
    def on_low_watermark(self, partition: Partition) -> None: ...
    def on_state_change(self, partition: Partition) -> None: ...
    def on_alter_partition(self, partition: Partition, proposal: AlterPartitionProposal) -> None: ...


def replica(broker_id: int, found: PartitionLog | None = None) -> Partition:
    """A broker's replica, over an empty log or over one that was found on its disk."""
    log: ReplicaLog = found or open_log(memory_disk())
    everybody = Everybody()
    return Partition(PARTITION, TOPIC_ID, log, ReplicaContext(broker_id, everybody, everybody, LagSchedule()))


def copy(leader: Partition, follower: Partition, follower_id: int, *, rounds: int = 3) -> Listened:
    """The follower fetches from the leader, `rounds` times."""
    listened, states = Listened(), FetchStates(FetcherSettings(), lambda: 0.5)
    replication = Replication(states, listened)
    log: FollowerLog = follower
    states.add(FollowedPartition(PARTITION, TOPIC_ID, 1, leader.leader_epoch, log))
    for _ in range(rounds):
        request = states.build_request(0, 0) or states.build_request(0, 1)
        assert request is not None
        asked = request.partitions[0]
        answer = leader.fetch_as_follower(
            FollowerFetch(
                follower_id, 5, asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch, 0
            ),
            max_bytes=10_000,
            now_ms=0,
        )
        records = b"".join(s.read() for s in answer.records.slices) if answer.records else b""
        fetched = FetchedPartition(
            PARTITION, None, answer.high_watermark, answer.log_start_offset, answer.diverging_epoch, records
        )
        replication.apply_fetch(request, FetchResponse([fetched]), 0)
    return listened


def content(partition: Partition) -> bytes:
    answer = partition.log.read(0, 1 << 20, up_to_offset=partition.log_end_offset)
    return b"".join(part.read() for part in answer.slices)


def apply(partition: Partition, state: LeaderState) -> None:
    """Applies a state; a leader has the start of its epoch written."""
    partition.apply_state(state, 0)
    if partition.awaits_epoch_start:
        lead(partition.log, state.leader_epoch)  # type: ignore[arg-type]
        partition.on_epoch_start_durable(state.leader_epoch)


def batch(*values: str) -> bytes:
    return build_batch([(1000, None, value.encode(), ()) for value in values])


@pytest.fixture
def pair() -> tuple[Partition, Partition]:
    first, second = replica(1), replica(2)
    for partition in (first, second):
        apply(partition, LeaderState(1, 0, 0, (1, 2), (1, 2)))
    return first, second


def test_copies_are_equal_byte_for_byte(pair: tuple[Partition, Partition]) -> None:
    leader, follower = pair
    for number in range(20):
        leader.append_records(batch(f"a{number}", "b" * 90), acks=-1, now_ms=0)
    copy(leader, follower, 2)
    assert leader.high_watermark == follower.high_watermark == 40
    assert content(leader) == content(follower)
    assert leader.epochs == follower.epochs


def test_logs_that_parted_agree_again(pair: tuple[Partition, Partition]) -> None:
    first, second = pair
    first.append_records(batch("common"), acks=-1, now_ms=0)
    copy(first, second, 2)
    first.append_records(batch("lost", "lost too"), acks=1, now_ms=0)

    elected = LeaderState(2, 1, 1, (1, 2), (1, 2))
    apply(second, elected)
    second.append_records(batch("won"), acks=1, now_ms=0)
    apply(first, elected)
    listened = copy(second, first, 1)

    assert listened.truncated == [((PARTITION.topic, PARTITION.partition), 3, 1)]
    assert content(first) == content(second)
    assert first.epochs == second.epochs
    assert second.high_watermark == first.high_watermark == 2


def test_an_epoch_in_which_nothing_was_written_does_not_keep_the_logs_apart(
    pair: tuple[Partition, Partition],
) -> None:
    first, second = pair
    first.append_records(batch("common"), acks=-1, now_ms=0)
    copy(first, second, 2)
    apply(second, LeaderState(2, 1, 1, (1, 2), (1, 2)))
    assert second.epochs.latest_epoch == 1
    back = LeaderState(1, 2, 2, (1, 2), (1, 2))
    for partition in pair:
        apply(partition, back)
    first.append_records(batch("next"), acks=-1, now_ms=0)
    listened = copy(first, second, 2)
    assert listened.truncated == []
    assert [entry.epoch for entry in second.epochs.entries] == [0, 2]
    assert content(first) == content(second)


def test_a_follower_does_not_keep_what_only_a_rotten_checkpoint_says_to_be_of_the_leaders_epoch() -> None:
    """The leader wrote one record more in epoch 5 than the follower has, who led in epoch 6 from there on."""
    disk = memory_disk()
    log = open_log(disk)
    for epoch in (5, 5, 6, 6, 6, 6):
        log.append_as_leader(batch("lost"), leader_epoch=epoch)
    log.close()
    rot_epoch_entry(disk, b"6 2", b"6 4")
    first, second = replica(1), replica(2, open_log(disk, clean=True))
    for epoch, count in ((5, 3), (7, 2)):
        apply(first, LeaderState(1, epoch, epoch, (1, 2), (1, 2)))
        for _ in range(count):
            first.append_records(batch("won"), acks=1, now_ms=0)
    apply(second, LeaderState(1, 7, 7, (1, 2), (1, 2)))
    listened = copy(first, second, 2)
    assert listened.truncated == [((PARTITION.topic, PARTITION.partition), 6, 2)]
    assert isinstance(second.log, PartitionLog)
    assert [record.epoch for record in read_records(second.log)] == [5, 5, 5, 7, 7]
    assert first.epochs == second.epochs


@pytest.mark.parametrize("common", [5, 6])
def test_a_follower_that_was_cut_names_the_epoch_of_its_last_batch(common: int) -> None:
    """Its file says that epoch 5 begins at offset 6. Named epoch 3, the leader would have it cut committed records."""
    disk = memory_disk()
    log = open_log(disk)
    for epoch in (3,) * 4 + (5,) * 6 + (6,) * 4:
        log.append_as_leader(batch("x"), leader_epoch=epoch)
    log.close()
    rot_epoch_entry(disk, b"5 4", b"5 6")
    first, second = replica(1), replica(2, open_log(disk, clean=True))
    for epoch, count in ((3, 4), (5, common - 4), (8, 3)):
        apply(first, LeaderState(1, epoch, epoch, (1, 2), (1, 2)))
        for _ in range(count):
            first.append_records(batch("x"), acks=1, now_ms=0)
    second.high_watermark = common
    apply(second, LeaderState(1, 8, 8, (1, 2), (1, 2)))
    listened = copy(first, second, 2)
    assert listened.truncated == [((PARTITION.topic, PARTITION.partition), 14, common)]
    assert content(first) == content(second)
    assert first.epochs == second.epochs


def test_the_epoch_of_the_earliest_offset_is_that_of_the_batch_there() -> None:
    disk = memory_disk()
    log = open_log(disk)
    for epoch in (3, 3, 5, 5):
        log.append_as_leader(batch("x"), leader_epoch=epoch)
    log.close()
    rot_epoch_entry(disk, b"3 0", b"2 0")
    leader = replica(1, open_log(disk, clean=True))
    apply(leader, LeaderState(1, 6, 6, (1, 2), (1, 2)))
    listed = leader.list_offset(EARLIEST_TIMESTAMP, for_client=False)
    assert listed is not None
    assert (listed.offset, listed.leader_epoch) == (0, 3)


def far_apart(*offsets: int) -> Partition:
    """A leader's replica with a batch at each of these offsets, as compaction leaves them."""
    log = open_log(memory_disk())
    for offset in offsets:
        log.append_as_follower(batch_of(b"%d" % offset, base_offset=offset, leader_epoch=3))
    log.close()
    leader = replica(1, log := open_log(log.storage.disk, clean=True))
    apply(leader, LeaderState(1, 4, 4, (1, 2), (1, 2)))
    leader.append_records(batch("new"), acks=1, now_ms=0)
    assert log.log_end_offset == offsets[-1] + 2
    return leader


def test_a_follower_copies_a_compacted_log_whatever_lies_between_its_batches() -> None:
    """What it is handed at once comes from several segments of its leader's."""
    leader, follower = far_apart(2**31 - 1, 2**32 - 1, 2**32, 6_442_450_943, 6_442_450_944), replica(2)
    apply(follower, LeaderState(1, 4, 4, (1, 2), (1, 2)))
    listened = copy(leader, follower, 2)
    assert (listened.retried, listened.truncated) == ([], [])
    assert follower.log.log_end_offset == follower.high_watermark == leader.high_watermark == 6_442_450_946
    assert content(leader) == content(follower)
    assert leader.epochs == follower.epochs


def test_an_empty_follower_starts_with_a_batch_that_is_farther_than_a_segment_reaches() -> None:
    follower = replica(2)
    apply(follower, LeaderState(1, 4, 4, (1, 2), (1, 2)))
    far = batch_of(b"far", base_offset=2**32, leader_epoch=4)
    follower.append_as_follower(
        far, leader_epoch=4, leader_high_watermark=2**32 + 1, leader_log_start_offset=0
    )
    assert (follower.log.log_start_offset, follower.high_watermark) == (2**32, 2**32 + 1)
    assert [record.offset for record in read_records(follower.log)] == [2**32]  # type: ignore[arg-type]


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_guard_does_not_outlive_the_leader_epoch(
    pair: tuple[Partition, Partition], leads_again: bool
) -> None:
    leader, _ = pair
    guard = leader.begin_verification(7, 0, 0)
    assert guard is not None
    leader.check_verified(guard, 7)
    if not leads_again:
        apply(leader, LeaderState(2, 1, 1, (1, 2), (1, 2)))
        with pytest.raises(NotLeaderOrFollower):
            leader.begin_verification(7, 0, 0)
    apply(leader, LeaderState(1, 2, 2, (1, 2), (1, 2)))
    with pytest.raises(NotVerified):
        leader.check_verified(guard, 7)
    with pytest.raises(NotVerified):
        leader.append_records(transactional(7, b"late", sequence=0), acks=1, now_ms=0, guard=guard)
    again = leader.begin_verification(7, 0, 0)
    leader.append_records(transactional(7, b"a", sequence=0), acks=1, now_ms=0, guard=again)
    assert leader.judge_marker(7, 1, EndTransactionMarker(ABORT, 0), 2)


def put(leader: Partition, records: bytes) -> None:
    """Appends as a coordinator does."""
    leader.append_records(records, acks=1, now_ms=0, origin="coordinator")


def test_a_follower_whose_high_watermark_lags_shows_committed_transactions_up_to_it(
    pair: tuple[Partition, Partition],
) -> None:
    """KIP-392: it has the marker, and does not know yet that the marker is committed."""
    leader, follower = pair
    put(leader, transactional(7, b"aborted"))
    put(leader, transactional(8, b"open"))
    copy(leader, follower, 2)
    put(leader, marker_of(7, ABORT))
    copy(leader, follower, 2, rounds=1)

    def seen() -> tuple[int, int, int, list[int]]:
        answer = follower.read_for_consumer(0, max_bytes=10_000, read_committed=True, at_follower=True)
        size = answer.records.size_bytes if answer.records is not None else 0
        return (
            answer.high_watermark,
            answer.last_stable_offset,
            size,
            [one.producer_id for one in answer.aborted_transactions or ()],
        )

    assert follower.log_end_offset == 3
    assert seen() == (2, 0, 0, [])
    copy(leader, follower, 2)
    size = len(transactional(7, b"aborted"))
    assert seen() == (3, 1, size, [7])
    put(leader, marker_of(8, COMMIT))
    copy(leader, follower, 2)
    high_watermark, stable, _, aborted = seen()
    assert (high_watermark, stable, aborted) == (4, 4, [7])


def test_records_that_are_deleted_in_the_middle_of_a_transaction_leave_its_end(
    pair: tuple[Partition, Partition],
) -> None:
    leader, follower = pair
    for records in (transactional(7, b"0"), transactional(8, b"1"), transactional(7, b"2"), batch("3")):
        put(leader, records)
    copy(leader, follower, 2)
    leader.delete_records(2)
    copy(leader, follower, 2)
    assert [one.last_stable_offset for one in pair] == [2, 2], "the open transactions began below"
    put(leader, marker_of(8, COMMIT))
    put(leader, marker_of(7, ABORT))
    copy(leader, follower, 2)
    for one in pair:
        answer = one.read_for_consumer(2, max_bytes=10_000, read_committed=True, at_follower=one is follower)
        assert (one.log_start_offset, answer.last_stable_offset) == (2, 6)
        assert [found.producer_id for found in answer.aborted_transactions or ()] == [7]
    apply(follower, LeaderState(2, 1, 1, (1, 2), (1, 2)))
    assert follower.judge_marker(7, 1, EndTransactionMarker(ABORT, 0), 2)
    assert not follower.judge_marker(7, 0, EndTransactionMarker(ABORT, 0), 2), "it was ended here, too"
