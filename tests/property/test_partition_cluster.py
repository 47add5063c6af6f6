"""Random histories of one partition on three brokers keep the global promises.

Produces, fetches cut into their three messages, elections, fencing, restarts with stale checkpoints, wiped
disks, metadata that lags or is skipped, AlterPartitions that are lost, delayed and duplicated: elections
stay clean, so that nothing acknowledged may be lost. In half of the histories the topic has flush.messages=1: flushes
take their time, every replica may lose its power, all at once too, and that excuses nothing. The oracles are those of
`ReplicaWorld.check`; at the end the faults stop, and everything has to come to rest.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitions.errors import PartitionError
from partitions.isr import AlterPartitionFailed, AlterPartitionResult
from partitions.partition import AckStatus, Partition
from tests.support.examples import examples
from tests.support.memory_log import MemoryLog
from tests.support.replica_world import Pending, World


class History:
    """Every action can be taken in every state; some do nothing there."""

    def __init__(self, min_insync_replicas: int, has_elr: bool, is_flushed: bool = False) -> None:
        self.world = World(min_insync_replicas=min_insync_replicas, has_elr=has_elr)
        self.is_flushed = is_flushed
        if is_flushed:
            self.world.set_flush_messages(1)
        self.results: list[tuple[Pending, AlterPartitionResult]] = []
        self.waiting: list[tuple[Partition, str, int, int]] = []
        self.acknowledged: dict[int, str] = {}
        self.high_watermarks: dict[tuple[int, int], int] = {}
        self.produced = 0
        self.flushing: list[tuple[Partition, MemoryLog, int, int]] = []
        """acks=1 appends."""

    def step(self, action: str, broker_id: int, choice: int) -> None:
        getattr(self, action)(broker_id, choice)
        self._look()

    def _look(self) -> None:
        self.world.check()
        still = []
        for partition, value, required, epoch in self.waiting:
            is_running = any(broker.partition is partition for broker in self.world.brokers.values())
            status = partition.ack_status(required, epoch)
            if is_running and status is AckStatus.OK:
                self.acknowledged[required - 1] = value
            elif is_running and status is AckStatus.PENDING:
                still.append((partition, value, required, epoch))
        self.waiting = still
        for offset, value in self.acknowledged.items():
            assert self.world.committed[offset][1] == value, f"{value} was acknowledged and is not committed"
        if self.is_flushed:
            self._look_at_disks()
        for broker in self.world.brokers.values():
            if broker.partition is not None and broker.partition.is_leader:
                key = (broker.broker_id, broker.partition.leader_epoch)
                assert broker.partition.high_watermark >= self.high_watermarks.get(key, 0)
                self.high_watermarks[key] = broker.partition.high_watermark

    def _look_at_disks(self) -> None:
        """What is readable at a replica, or acknowledged for acks=1, is on its disk."""
        for broker in self.world.brokers.values():
            if broker.partition is not None:
                assert broker.partition.high_watermark <= broker.log.synced_to, (
                    f"{broker.broker_id} serves more"
                )
        still = []
        for partition, log, required, epoch in self.flushing:
            status = partition.flush_status(required, epoch)
            assert status is not AckStatus.OK or log.synced_to >= required
            if status is AckStatus.PENDING:
                still.append((partition, log, required, epoch))
        self.flushing = still

    # Actions

    def produce(self, broker_id: int, choice: int) -> None:
        partition = self.world.brokers[broker_id].partition
        if partition is None:
            return
        self.produced += 1
        value = f"v{self.produced}"
        acks = -1 if choice % 4 else 1
        try:
            info = partition.append_records(value.encode(), acks=acks, now_ms=self.world.now_ms)
        except PartitionError:
            return
        if acks == -1:
            self.waiting.append((partition, value, info.last_offset + 1, partition.leader_epoch))
        else:
            log = self.world.brokers[broker_id].log
            self.flushing.append((partition, log, info.last_offset + 1, partition.leader_epoch))

    def flush(self, broker_id: int, choice: int) -> None:
        self.world.flush(broker_id)

    def lose_power(self, broker_id: int, choice: int) -> None:
        """One replica does, or all at once."""
        for one in self.world.brokers.values() if choice % 3 == 0 else [self.world.brokers[broker_id]]:
            if one.partition is not None:
                on_disk = min(one.partition.high_watermark, one.log.synced_to)
                one.checkpointed_high_watermark = on_disk // (1 + choice % 2)
            self.flushing = [waiting for waiting in self.flushing if waiting[0] is not one.partition]
            self.world.lose_power(one.broker_id)

    def fetch(self, broker_id: int, choice: int) -> None:
        self.world.fetch(broker_id)

    def send_fetch(self, broker_id: int, choice: int) -> None:
        if broker_id not in self.world.fetches:
            self.world.send_fetch(broker_id)

    def deliver_fetch(self, broker_id: int, choice: int) -> None:
        self.world.deliver_fetch(broker_id)

    def deliver_answer(self, broker_id: int, choice: int) -> None:
        self.world.deliver_answer(broker_id)

    def publish(self, broker_id: int, choice: int) -> None:
        self.world.publish(broker_id, skip=choice % 2 == 1)

    def fence(self, broker_id: int, choice: int) -> None:
        if not self.world.now.brokers[broker_id].fenced:
            self.world.fence(broker_id)

    def unfence(self, broker_id: int, choice: int) -> None:
        if self.world.brokers[broker_id].partition is not None:
            self.world.unfence(broker_id)

    def prefer(self, broker_id: int, choice: int) -> None:
        self.world.prefer(broker_id)

    def shut_down(self, broker_id: int, choice: int) -> None:
        if choice == 0 and not self.world.now.brokers[broker_id].shutting_down:
            self.world.shut_down(broker_id)

    def crash(self, broker_id: int, choice: int) -> None:
        broker = self.world.brokers[broker_id]
        if broker.partition is not None:
            broker.checkpointed_high_watermark = broker.partition.high_watermark // (1 + choice % 3)
        self.world.crash(broker_id)

    def start(self, broker_id: int, choice: int) -> None:
        if self.world.brokers[broker_id].partition is None:
            self.world.register(broker_id)

    def come_back_wiped(self, broker_id: int, choice: int) -> None:
        """The disk is empty. The last one who may lead is spared: with it everything would be gone."""
        if self.world.now.state.isr == (broker_id,) or self.world.candidates == {broker_id}:
            return
        broker = self.world.brokers[broker_id]
        self.world.crash(broker_id)
        broker.log.wipe()
        broker.checkpointed_high_watermark = 0
        self.world.register(broker_id)

    def alter(self, broker_id: int, choice: int) -> None:
        """A proposal arrives at the controller; by the time it was sent, others could join as well."""
        if self.world.outbox:
            index = choice % len(self.world.outbox)
            if choice % 2:
                self.world.widen_alter(index)
            pending = self.world.outbox[index]
            result = self.world.deliver_alter(index)
            self.results.append((pending, result))

    def answer(self, broker_id: int, choice: int) -> None:
        if self.results:
            pending, result = self.results.pop(choice % len(self.results))
            if choice % 5 == 0:
                result = AlterPartitionFailed("REQUEST_TIMED_OUT")
            self.world.deliver_result(pending, result)

    def time_out(self, broker_id: int, choice: int) -> None:
        """The leader gives up on a proposal that is still under way."""
        if self.world.outbox and len(self.world.outbox) < 8:
            self.world.abandon(choice % len(self.world.outbox))

    def tick(self, broker_id: int, choice: int) -> None:
        self.world.now_ms += (100, 5_000, 31_000)[choice % 3]
        for broker in self.world.brokers.values():
            if broker.partition is not None:
                self.world.shrink(broker.broker_id)

    def deliver_orphan(self, broker_id: int, choice: int) -> None:
        self.world.deliver_orphan()

    def settle(self, broker_id: int, choice: int) -> None:
        """A quiet moment: everybody has the metadata, and followers fetch."""
        self.world.publish_all()
        for follower in self.world.brokers:
            if choice % 4 != follower:
                self.world.fetch(follower)
                if self.is_flushed and choice // 4 != follower:
                    self.world.flush(follower)
                    self.world.fetch(follower)

    # The end

    def heal(self) -> None:
        """No more faults: what is down comes back, messages arrive."""
        world = self.world
        for broker_id, registration in world.now.brokers.items():
            if world.brokers[broker_id].partition is None or registration.shutting_down:
                world.crash(broker_id)
                world.register(broker_id)
            if world.now.brokers[broker_id].fenced:
                world.unfence(broker_id)
        world.fetches.clear()
        for _ in range(12):
            world.publish_all()
            world.now_ms += 2_000
            for broker_id in world.brokers:
                world.flush(broker_id)
                world.fetch(broker_id)
            while world.outbox:
                result = world.deliver_alter()
                world.deliver_result(replace(world.last_decided), result)
            for pending, result in self.results:
                world.deliver_result(pending, result)
            self.results.clear()
            self._look()

    def check_rest(self) -> None:
        world = self.world
        state = world.now.state
        assert sorted(state.isr) == sorted(state.replicas), f"the ISR did not fill: {state}"
        leader = world.partition(state.leader)
        assert leader.pending_proposal is None
        assert leader.high_watermark == leader.log_end_offset, "not everything was committed"
        values = world.brokers[state.leader].log.values()
        for broker in world.brokers.values():
            assert broker.log.values() == values, f"broker {broker.broker_id} differs from the leader"
        for offset, value in self.acknowledged.items():
            assert values[offset][1] == value
        assert not self.waiting, "a write was not answered"


COMMON = ("produce", "produce", "fetch", "fetch", "publish", "settle", "alter", "answer")
MESSAGES = ("send_fetch", "deliver_fetch", "deliver_answer")
FAULTS = ("crash", "start", "come_back_wiped", "tick", "time_out", "shut_down", "deliver_orphan")
ELECTIONS = ("fence", "unfence", "prefer")
FLUSHES = ("flush", "flush", "flush", "lose_power")


@st.composite
def histories(draw: st.DrawFn, *more: str) -> list[tuple[str, int, int]]:
    """Steps from a few kinds of trouble at a time: few kinds combine deeper than many do."""
    faults = draw(st.lists(st.sampled_from(FAULTS), max_size=3, unique=True))
    messages = MESSAGES if draw(st.booleans()) else ()
    actions = st.sampled_from((*COMMON, *ELECTIONS, *messages, *faults, *more))
    step = st.tuples(actions, st.sampled_from((1, 2, 3)), st.integers(0, 11))
    return draw(st.lists(step, min_size=10, max_size=80))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=histories(), min_insync_replicas=st.sampled_from((1, 2)), has_elr=st.booleans())
def test_clean_elections_lose_nothing(
    steps: list[tuple[str, int, int]], min_insync_replicas: int, has_elr: bool
) -> None:
    history = History(min_insync_replicas, has_elr)
    for action, broker_id, choice in steps:
        history.step(action, broker_id, choice)
    history.heal()
    history.check_rest()


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=histories(*FLUSHES), min_insync_replicas=st.sampled_from((1, 2)), has_elr=st.booleans())
def test_no_power_loss_takes_what_was_flushed(
    steps: list[tuple[str, int, int]], min_insync_replicas: int, has_elr: bool
) -> None:
    history = History(min_insync_replicas, has_elr, is_flushed=True)
    for action, broker_id, choice in steps:
        history.step(action, broker_id, choice)
    history.heal()
    history.check_rest()
