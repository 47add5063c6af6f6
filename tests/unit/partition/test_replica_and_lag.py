"""A follower's progress, and when it is looked at for having fallen behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.errors import NotEnoughReplicas, NotLeaderOrFollower, ReplicaOffline
from partitions.isr import IsrCommitted
from partitions.lag_schedule import LagSchedule
from partitions.partition import AckStatus, FollowerFetch, Partition, Transition
from partitions.replica import NEVER_MS, Replica
from tests.support.replica_world import KEY, MAX_LAG_MS, LeaderState, World


def fetch(replica: Replica, offset: int, *, leader_end: int, now_ms: int) -> None:
    replica.record_fetch(
        broker_epoch=7, fetch_offset=offset, log_start_offset=0, leader_end_offset=leader_end, now_ms=now_ms
    )


@dataclass
class Session:
    """A follower's fetch session, as far as its leader's replica knows it."""

    fetch_offset: int
    last_fetch_ms: int
    repeats: bool = False

    def look_again(self) -> None:
        self.repeats = True


def test_a_follower_starts_unknown_and_caught_up_only_if_it_is_in_sync() -> None:
    member, other = Replica(2, in_sync=True, now_ms=1000), Replica(3, in_sync=False, now_ms=1000)
    assert (member.log_end_offset, member.has_fetched) == (-1, False)
    assert member.is_caught_up(50, 1000 + MAX_LAG_MS, MAX_LAG_MS)
    assert not member.is_caught_up(50, 1001 + MAX_LAG_MS, MAX_LAG_MS)
    assert other.last_caught_up_ms == NEVER_MS
    assert not other.is_caught_up(50, 0, MAX_LAG_MS), "also on a clock that starts at zero"


def test_caught_up_when_it_reads_to_the_leaders_end_of_now_or_of_its_fetch_before() -> None:
    replica = Replica(2, in_sync=False, now_ms=0)
    fetch(replica, 5, leader_end=10, now_ms=100)
    assert replica.last_caught_up_ms == NEVER_MS
    fetch(replica, 10, leader_end=20, now_ms=200)
    assert replica.last_caught_up_ms == 100
    fetch(replica, 15, leader_end=30, now_ms=300)
    assert replica.last_caught_up_ms == 100
    fetch(replica, 30, leader_end=30, now_ms=400)
    assert replica.last_caught_up_ms == 400


def test_what_an_incarnation_proved_is_not_for_the_next() -> None:
    replica = Replica(2, in_sync=True, now_ms=0)
    fetch(replica, 10, leader_end=10, now_ms=100)
    replica.record_fetch(
        broker_epoch=8, fetch_offset=10, log_start_offset=0, leader_end_offset=90, now_ms=200
    )
    assert not replica.is_caught_up(90, 200, MAX_LAG_MS), "it was there, when it was another"
    replica.record_fetch(
        broker_epoch=8, fetch_offset=90, log_start_offset=0, leader_end_offset=95, now_ms=300
    )
    assert replica.last_caught_up_ms == 200


def test_who_leaves_the_isr_proves_anew_that_it_is_caught_up() -> None:
    replica = Replica(2, in_sync=True, now_ms=0)
    session = Session(fetch_offset=10, last_fetch_ms=150)
    replica.fetched_by(session)
    fetch(replica, 10, leader_end=10, now_ms=100)
    replica.leave_isr()
    replica.catch_up_with_session(10)
    fetch(replica, 10, leader_end=90, now_ms=200)
    assert not replica.is_caught_up(90, 200, MAX_LAG_MS)
    assert replica.log_end_offset == 10
    assert session.repeats, "what its session does not name would never be heard of again"
    fetch(replica, 90, leader_end=90, now_ms=300)
    assert replica.is_caught_up(95, 300, MAX_LAG_MS)


def test_who_joins_the_isr_has_all_of_the_time_to_catch_up() -> None:
    replica = Replica(2, in_sync=False, now_ms=0)
    fetch(replica, 10, leader_end=90, now_ms=100)
    replica.join_isr(200)
    assert replica.is_caught_up(90, 200 + MAX_LAG_MS, MAX_LAG_MS)
    assert not replica.is_caught_up(90, 201 + MAX_LAG_MS, MAX_LAG_MS)


@pytest.mark.parametrize("way", ["answer", "metadata"])
def test_a_slow_follower_that_joins_is_dropped_when_its_time_is_over_and_not_at_once(way: str) -> None:
    """Others wait for it as long as that, even below min.insync.replicas: it has all that is committed."""
    world = World(brokers=(1, 2), isr=(1,), min_insync_replicas=2)
    leader = world.partition(1)
    epoch = world.brokers[2].broker_epoch
    for text in (b"a", b"b", b"c"):
        leader.append_records(text, acks=1, now_ms=0)
    joined_ms = 5 * MAX_LAG_MS
    leader.update_follower(2, epoch, 1, 0, 3, joined_ms)
    proposal = leader.pending_proposal
    assert proposal is not None
    if way == "answer":
        leader.on_alter_partition_result(proposal, IsrCommitted(0, 1, (1, 2)), joined_ms)
    else:
        leader.apply_state(LeaderState(1, 0, 1, (1, 2), (1, 2)), joined_ms)
    assert (leader.isr, leader.high_watermark) == ((1, 2), 1)
    assert leader.next_lag_deadline_ms(joined_ms) == joined_ms + MAX_LAG_MS + 1
    leader.maybe_shrink(joined_ms + MAX_LAG_MS)
    assert leader.pending_proposal is None
    leader.maybe_shrink(joined_ms + MAX_LAG_MS + 1)
    assert leader.pending_proposal is not None


def test_who_asks_again_in_the_same_way_could_not_use_what_it_was_sent() -> None:
    replica = Replica(2, in_sync=True, now_ms=0)
    replica.handed(5, in_session=False)
    assert not replica.was_handed(5, in_session=True), "both ways at a time: the answer is on its way"
    replica.handed(5, in_session=True)
    assert replica.was_handed(5, in_session=False)
    assert not replica.was_handed(5, in_session=False), "said once"
    assert not replica.was_handed(6, in_session=True)
    assert not replica.was_handed(5, in_session=True), "it has gone on"


@pytest.fixture
def schedule() -> LagSchedule[str]:
    return LagSchedule()


def test_due_in_order_of_deadline_and_once(schedule: LagSchedule[str]) -> None:
    for key, deadline_ms in (("b", 20), ("a", 10), ("c", 30), ("a", 5)):
        schedule.arm(key, deadline_ms)
    assert schedule.next_deadline_ms == 10
    assert schedule.pop_due(9) == []
    assert schedule.pop_due(20) == ["a", "b"]
    assert "a" not in schedule
    assert schedule.pop_due(20) == []
    schedule.disarm("c")
    schedule.disarm("unknown")
    assert (len(schedule), schedule.pop_due(99)) == (0, [])


def test_armed_again_after_disarming_counts_with_its_new_deadline(schedule: LagSchedule[str]) -> None:
    schedule.arm("a", 10)
    schedule.disarm("a")
    schedule.arm("a", 50)
    assert schedule.pop_due(49) == []
    assert schedule.pop_due(50) == ["a"]


@given(
    st.lists(st.tuples(st.sampled_from(("arm", "disarm", "pop")), st.integers(0, 200), st.integers(0, 99)))
)
def test_a_schedule_behaves_as_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    schedule: LagSchedule[int] = LagSchedule()
    model: dict[int, int] = {}
    for action, key, time_ms in steps:
        if action == "arm":
            schedule.arm(key, time_ms)
            model.setdefault(key, time_ms)
        elif action == "disarm":
            schedule.disarm(key)
            model.pop(key, None)
        else:
            due = {key for key, deadline_ms in model.items() if deadline_ms <= time_ms}
            assert set(schedule.pop_due(time_ms)) == due
            for gone in due:
                del model[gone]
        assert len(schedule) == len(model)


def test_only_partitions_where_something_lags_are_scheduled() -> None:
    world = World()
    leader, schedule = world.partition(1), world.brokers[1].schedule
    for _ in range(2):
        world.each(world.fetch)
    assert leader.next_lag_deadline_ms(0) is None
    world.now_ms = MAX_LAG_MS + 1
    world.shrink(1)  # what was armed when it became leader, before anybody had fetched
    assert len(schedule) == 0

    world.each(world.fetch)
    leader.append_records(b"a", acks=1, now_ms=world.now_ms)
    assert schedule.next_deadline_ms == leader.next_lag_deadline_ms(world.now_ms) == 2 * MAX_LAG_MS + 2
    leader.append_records(b"b", acks=1, now_ms=world.now_ms)
    assert len(schedule) == 1
    for _ in range(2):
        world.each(world.fetch)
    world.now_ms = 3 * MAX_LAG_MS
    world.shrink(1)
    assert (len(schedule), leader.pending_proposal) == (0, None)

    leader.append_records(b"c", acks=1, now_ms=world.now_ms)
    world.prefer(2)
    world.publish(1)
    assert len(schedule) == 0, "who does not lead watches nobody"


@pytest.mark.parametrize("answered", [False, True])
def test_the_high_watermark_stands_still_while_somebody_outside_the_isr_is_eligible(answered: bool) -> None:
    """Whatever this broker takes min.insync.replicas to be (1 here): the controller knows a newer value."""
    world = World(brokers=(1, 2))
    leader = world.partition(1)
    world.fetch(2)
    world.now_ms = MAX_LAG_MS + 1
    leader.append_records(b"a", acks=1, now_ms=world.now_ms)
    world.now_ms *= 2
    leader.maybe_shrink(world.now_ms)
    proposal = leader.pending_proposal
    assert proposal is not None
    if answered:
        leader.on_alter_partition_result(proposal, IsrCommitted(0, 1, (1,), (2,)), world.now_ms)
    else:
        leader.apply_state(LeaderState(1, 0, 1, (1, 2), (1,), (2,)), world.now_ms)
    assert (leader.isr, leader.high_watermark, leader.is_under_min_isr) == ((1,), 0, True)
    with pytest.raises(NotEnoughReplicas, match=r"too small .*: \[2\] may be elected in its place"):
        leader.append_records(b"b", acks=-1, now_ms=world.now_ms)
    leader.apply_state(LeaderState(1, 0, 2, (1, 2), (1,)), world.now_ms)
    assert (leader.high_watermark, leader.is_under_min_isr) == (1, False)


def test_the_high_watermark_stops_waiting_for_a_follower_that_no_longer_catches_up() -> None:
    """It is caught up and about to join, but dies; no fetch and no append comes to look again."""
    world = World(brokers=(1, 2), isr=(1,))
    leader = world.partition(1)
    world.fetch(2)
    world.outbox.clear()
    leader.append_records(b"a", acks=-1, now_ms=0)
    assert leader.high_watermark == 0
    pending = leader.pending_proposal
    assert pending is not None
    world.fence(2)
    world.commit(state=world.now.state._replace(partition_epoch=1))
    world.publish_all()
    assert leader.high_watermark == 1, "a fenced broker is not waited for"

    world.unfence(2)
    world.publish_all()
    leader.append_records(b"b", acks=-1, now_ms=0)
    assert leader.high_watermark == 1, "it could join again"
    world.now_ms = MAX_LAG_MS + 1
    world.shrink(1)
    assert leader.high_watermark == 2


def test_nobody_waits_for_a_follower_that_is_offline() -> None:
    """Its broker lives and had copied everything just now, but it cannot serve its log any more."""
    world = World(brokers=(1, 2), isr=(1,))
    leader = world.partition(1)
    world.fetch(2)
    leader.append_records(b"a", acks=-1, now_ms=0)
    leader.apply_state(LeaderState(1, 0, 1, (1, 2), (1,)), 0)
    assert leader.high_watermark == 0, "it is caught up and about to join"
    leader.apply_state(LeaderState(1, 0, 2, (1, 2), (1,), offline_replicas=(2,)), 0)
    assert (leader.high_watermark, leader.isr) == (1, (1,))
    assert (leader.delete_records(None), leader.low_watermark) == (1, 1)
    world.fetch(2)
    world.fetch(2)
    assert leader.pending_proposal is None, "the controller would refuse it"
    leader.apply_state(LeaderState(1, 0, 3, (1, 2), (1,)), 0)
    leader.reconsider(0)
    assert leader.maximal_isr == (1, 2)


class LowWatermarks:
    """A listener that notes the low watermarks that whoever waits in DeleteRecords is told of."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def on_low_watermark(self, partition: Partition) -> None:
        self.told.append(partition.low_watermark)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


@pytest.mark.parametrize(
    "state",
    [
        LeaderState(1, 0, 1, (1, 2, 3), (1, 2), offline_replicas=(3,)),
        LeaderState(1, 0, 1, (1, 2), (1, 2)),
        LeaderState(1, 0, 0, (1, 2), (1, 2)),
    ],
    ids=["offline", "no longer assigned", "assignment after the ISR"],
)
def test_who_deletes_records_is_told_that_the_replica_it_waits_for_is_gone(state: LeaderState) -> None:
    world, listener = World(), LowWatermarks()
    context = replace(world.partition(1)._context, listener=listener)  # type: ignore[arg-type]
    leader = Partition(KEY, bytes(16), world.brokers[1].log, context)
    leader.apply_state(LeaderState(1, 0, 0, (1, 2, 3), (1, 2, 3)), 0)
    leader.append_records(b"a", acks=1, now_ms=0)
    for broker_id in (2, 3):
        fetch = FollowerFetch(broker_id, world.brokers[broker_id].broker_epoch, 0, 1, 0, 0)
        leader.fetch_as_follower(fetch, max_bytes=1000, now_ms=0)
    assert leader.delete_records(None) == 1
    fetch = FollowerFetch(2, world.brokers[2].broker_epoch, 0, 1, 0, 1)
    leader.fetch_as_follower(fetch, max_bytes=1000, now_ms=0)
    assert leader.low_watermark == 0
    listener.told.clear()
    leader.apply_state(state, 0)
    assert listener.told == [1]


def test_a_follower_that_was_offline_may_have_lost_what_it_had() -> None:
    world = World(brokers=(1, 2))
    leader = world.partition(1)
    leader.append_records(b"a", acks=1, now_ms=0)
    for _ in range(2):
        world.fetch(2)
    assert leader.high_watermark == 1
    leader.apply_state(LeaderState(1, 0, 1, (1, 2), (1,), offline_replicas=(2,)), 0)
    leader.apply_state(LeaderState(1, 0, 2, (1, 2), (1,)), 0)
    leader.reconsider(0)
    assert leader.pending_proposal is None, "its log may be a new one, of which it has not fetched a record"
    world.fetch(2)
    assert leader.maximal_isr == (1, 2)


def test_who_is_reconsidered_may_join_without_another_fetch() -> None:
    world = World(isr=(1, 2))
    world.fence(3)
    world.publish_all()
    world.fetch(3)
    assert world.partition(1).pending_proposal is None
    world.unfence(3)
    world.publish_all()
    world.partition(1).reconsider(0)
    assert world.partition(1).maximal_isr == (1, 2, 3)


def test_a_state_that_is_not_newer_changes_nothing() -> None:
    partition = World().partition(1)
    for state in (
        LeaderState(1, 0, 0, (1, 2, 3), (1,)),
        LeaderState(2, 0, 0, (1, 2, 3), (1, 2, 3)),
        LeaderState(1, -1, 5, (1, 2, 3), (1,)),
    ):
        assert partition.apply_state(state, 0) is Transition.IGNORED
    assert partition.is_leader
    assert partition.isr == (1, 2, 3)


def test_the_assignment_may_come_after_the_isr_of_its_partition_epoch() -> None:
    partition = World().partition(1)
    assert partition.apply_state(LeaderState(1, 0, 0, (1, 2), (1, 2)), 0) is Transition.UPDATED
    assert partition.replicas == (1, 2)
    assert partition.isr == (1, 2, 3), "only metadata of a newer partition epoch changes the ISR"


def test_a_new_leader_that_cannot_note_its_epoch_does_not_lead() -> None:
    world = World()
    world.prefer(2)
    log = world.brokers[2].log

    def fail(epoch: int) -> None:
        raise OSError(28, "no space left on device")

    log.assign_epoch_start = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"):
        world.publish(2)
    partition = world.partition(2)
    assert (partition.is_leader, partition.leader_epoch) == (False, 0)


@pytest.mark.parametrize(
    ("storage_failed", "error", "status"),
    [
        (False, NotLeaderOrFollower, AckStatus.NOT_LEADER_OR_FOLLOWER),
        (True, ReplicaOffline, AckStatus.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_replica_that_came_to_its_end_refuses_for_good(
    storage_failed: bool, error: type[Exception], status: AckStatus
) -> None:
    world = World()
    partition = world.partition(1)
    partition.append_records(b"a", acks=-1, now_ms=0)
    partition.take_offline(storage_failed=storage_failed)
    assert partition.ack_status(1, 0) is status
    with pytest.raises(error):
        partition.append_records(b"b", acks=1, now_ms=0)
    with pytest.raises(error):
        partition.read_for_consumer(0, max_bytes=10)
    assert partition.apply_state(LeaderState(1, 9, 9, (1,), (1,)), 0) is Transition.IGNORED
    assert len(world.brokers[1].schedule) == 0


def test_an_ack_of_a_leadership_that_ended_is_not_given_by_the_next() -> None:
    world = World(brokers=(1, 2))
    partition = world.partition(1)
    partition.append_records(b"a", acks=-1, now_ms=0)
    world.prefer(2)
    world.publish_all()
    world.prefer(1)
    world.publish_all()
    for _ in range(
        3
    ):  # the first answer says that epoch 1, in which nothing was written, is not the leader's
        world.fetch(2)
    assert partition.is_leader
    assert partition.ack_status(1, 0) is AckStatus.NOT_LEADER_OR_FOLLOWER
    assert partition.ack_status(1, 2) is AckStatus.OK


def test_a_follower_is_changed_only_in_the_epoch_that_it_follows_in() -> None:
    world = World()
    partition: Partition = world.partition(2)
    for epoch in (-1, 1):
        with pytest.raises(Exception, match=str(KEY)):
            partition.truncate_to(0, leader_epoch=epoch)
        with pytest.raises(Exception, match=str(KEY)):
            partition.truncate_fully_and_start_at(7, leader_epoch=epoch)
        with pytest.raises(Exception, match=str(KEY)):
            partition.append_as_follower(
                b"", leader_epoch=epoch, leader_high_watermark=0, leader_log_start_offset=0
            )
    with pytest.raises(NotLeaderOrFollower):
        world.partition(1).truncate_to(0, leader_epoch=0)


def test_a_checkpointed_high_watermark_is_bounded_by_the_log() -> None:
    world = World()
    world.partition(1).append_records(b"a,b", acks=1, now_ms=0)
    for checkpoint, expected in ((0, 0), (1, 1), (99, 2)):
        world.brokers[1].checkpointed_high_watermark = checkpoint
        world.is_clean = False
        world.boot(world.brokers[1], 11)
        assert world.partition(1).high_watermark == expected
