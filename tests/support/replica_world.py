"""One partition on several brokers, with a model controller: the world of replica tests.

Real: `Partition`, the fetcher's `FetchStates` and `Replication`. Modelled, as plainly as can be: the
controller (registration, fencing, clean election, AlterPartition), the metadata log that brokers apply
one entry at a time, and messages that wait until the test lets them arrive, arrive twice, or get lost.
`check` states the global oracles over it all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fetcher.fetch_state import FollowedPartition
from fetcher.fetch_states import FetchStates
from fetcher.leader_endpoint import FetchedPartition, FetchRequest, FetchResponse, LeaderOffsets
from fetcher.replication import LogTruncation, Replication
from fetcher.settings import FetcherSettings
from partitions.errors import PartitionError
from partitions.isr import AlterPartitionFailed, AlterPartitionProposal, AlterPartitionResult, IsrCommitted
from partitions.lag_schedule import LagSchedule
from partitions.log.errors import LogError
from partitions.partition import FollowerFetch, Partition, ReplicaContext, Transition
from partitions.topic_partition import TopicPartition
from tests.support.memory_log import MemoryLog, MemoryLogConfig, MemoryRead

KEY = TopicPartition("orders", 0)
TOPIC_ID = bytes(15) + b"\x01"
MAX_LAG_MS = 30_000


@dataclass(frozen=True)
class Registration:
    """A broker as the controller knows it."""

    epoch: int
    fenced: bool = False
    shutting_down: bool = False

    @property
    def is_active(self) -> bool:
        return not self.fenced and not self.shutting_down


class LeaderState(NamedTuple):
    """A partition's state as the metadata has it (`LeaderAndIsr`)."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The metadata after one entry."""

    state: LeaderState
    brokers: dict[int, Registration]


@dataclass
class Pending:
    """An AlterPartition on its way to the controller, or its answer on the way back."""

    broker: Broker
    incarnation: int
    broker_epoch: int
    proposal: AlterPartitionProposal
    is_abandoned: bool = False
    """The leader gave up waiting: the request may still be executed, but nobody hears the answer."""
    result: AlterPartitionResult | None = None


@dataclass
class InFlightFetch:
    """A fetch on its way to the leader, or its answer on the way back."""

    request: FetchRequest
    leader_id: int
    broker_id: int
    broker_epoch: int
    incarnation: int
    response: FetchResponse | None = None


@dataclass
class Broker:
    """A broker: its disk, its view of the metadata, and while it runs, its replica."""

    broker_id: int
    world: World
    log: MemoryLog
    checkpointed_high_watermark: int = 0
    incarnation: int = 0
    broker_epoch: int = -1
    applied: int = -1
    """Index of the newest metadata entry that it has applied."""
    partition: Partition | None = None
    states: FetchStates = field(init=False)
    replication: Replication = field(init=False)
    schedule: LagSchedule[Partition] = field(init=False)

    # BrokerEligibility, over its own view

    @property
    def view(self) -> Snapshot | None:
        return self.world.history[self.applied] if self.applied >= 0 else None

    def registered_epoch(self, broker_id: int) -> int | None:
        if broker_id == self.broker_id:
            return self.broker_epoch
        known = None if self.view is None else self.view.brokers.get(broker_id)
        return None if known is None else known.epoch

    def may_join_isr(self, broker_id: int) -> bool:
        known = None if self.view is None else self.view.brokers.get(broker_id)
        return known is not None and known.is_active

    # PartitionListener

    def on_append(self, partition: Partition, log_end_offset: int) -> None:
        pass

    def on_low_watermark(self, partition: Partition) -> None:
        pass

    def on_high_watermark(self, partition: Partition, high_watermark: int) -> None:
        if partition.is_leader:
            self.world.committed_by(self, high_watermark)

    def on_state_change(self, partition: Partition) -> None:
        pass

    def on_alter_partition(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        self.world.outbox.append(Pending(self, self.incarnation, self.broker_epoch, proposal))
        isr = ",".join(f"{i}@{e}" for i, e in proposal.new_isr_with_epochs)
        self.world.say(f"{self.broker_id}: proposes {proposal.change.value} to isr={isr}")

    # ReplicationListener

    def on_truncated(self, truncation: LogTruncation) -> None:
        to_offset, high_watermark = truncation.to_offset, truncation.high_watermark
        below = " BELOW ITS HIGH WATERMARK" if to_offset < high_watermark else ""
        self.world.say(f"{self.broker_id}: truncates {truncation.from_offset} -> {to_offset}{below}")
        if below and self.world.is_clean:
            raise AssertionError(
                f"broker {self.broker_id} cut {to_offset} below its high watermark {high_watermark}"
            )

    def on_partition_failed(
        self, key: tuple[str, int], leader_epoch: int, code: str, error: Exception | None
    ) -> None:
        self.world.say(f"{self.broker_id}: stops fetching: {code}")

    def on_retry(
        self, key: tuple[str, int], leader_epoch: int, code: str, error: Exception | None, failures: int
    ) -> None:
        self.world.say(f"{self.broker_id}: backs off: {code}")


class World:
    """See the module."""

    def __init__(
        self,
        *,
        brokers: tuple[int, ...] = (1, 2, 3),
        min_insync_replicas: int = 1,
        isr: tuple[int, ...] | None = None,
        has_elr: bool = False,
    ) -> None:
        """`has_elr`: the controller keeps eligible leader replicas (KIP-966), and an ISR may become empty."""
        self.now_ms = 0
        self.has_elr = has_elr
        self.is_clean = True
        """No election so far made an acknowledged record excusable."""
        self.said: list[str] = []
        self.outbox: list[Pending] = []
        self.fetches: dict[int, InFlightFetch] = {}
        self.orphans: list[InFlightFetch] = []
        """Fetches whose sender has crashed: they may still arrive, their answers no longer."""
        self.committed: dict[int, tuple[int, str]] = {}
        self.config = MemoryLogConfig(min_insync_replicas)
        self._epochs = 0
        self.brokers = {i: Broker(i, self, MemoryLog(self.config)) for i in brokers}
        registrations = {i: Registration(self._next_epoch()) for i in brokers}
        state = LeaderState(brokers[0], 0, 0, brokers, isr or brokers)
        self.history = [Snapshot(state, registrations)]
        for broker in self.brokers.values():
            self.boot(broker, registrations[broker.broker_id].epoch)
        self.publish_all()
        self.said.clear()

    def say(self, line: str) -> None:
        self.said.append(line)

    def _next_epoch(self) -> int:
        self._epochs += 1
        return 10 * self._epochs + 1

    @property
    def now(self) -> Snapshot:
        """The controller's state."""
        return self.history[-1]

    def partition(self, broker_id: int) -> Partition:
        partition = self.brokers[broker_id].partition
        assert partition is not None, f"broker {broker_id} is down"
        return partition

    # Controller

    def commit(
        self, *, state: LeaderState | None = None, brokers: dict[int, Registration] | None = None
    ) -> None:
        before = self.now.state
        self.history.append(Snapshot(state or before, brokers or self.now.brokers))
        leader = self.now.state.leader
        if self.is_clean and leader != -1 and self.now.state.leader_epoch != before.leader_epoch:
            self._check_complete(self.brokers[leader], "the elected leader")

    def _changed(
        self,
        brokers: dict[int, Registration],
        isr: tuple[int, ...],
        *,
        prefer: int | None = None,
        gone: int | None = None,
    ) -> LeaderState:
        """The state with this ISR, and a leader from it, or else from the ELR, in which `gone` is no longer."""
        old = self.now.state
        elr = self._elr(isr, gone)
        candidates = ([prefer] if prefer is not None else []) + [old.leader, *old.replicas]
        leader = next((i for i in candidates if i in isr and brokers[i].is_active), -1)
        if leader == -1:
            leader = next((i for i in old.replicas if i in elr and brokers[i].is_active), -1)
            if leader != -1:
                isr, elr = (leader,), tuple(i for i in elr if i != leader)
        if (leader, isr, elr) == (old.leader, old.isr, old.elr):
            return old
        return old._replace(
            leader=leader,
            isr=isr,
            elr=elr,
            leader_epoch=old.leader_epoch + (leader != old.leader),
            partition_epoch=old.partition_epoch + 1,
        )

    def _elr(self, isr: tuple[int, ...], gone: int | None = None) -> tuple[int, ...]:
        """Who stays eligible beside this ISR: whoever left it while it is below the minimum."""
        old = self.now.state
        if not self.has_elr or len(isr) >= min(self.config.min_insync_replicas, len(old.replicas)):
            return ()
        eligible = {*old.isr, *old.elr} - {*isr, gone}
        return tuple(i for i in old.replicas if i in eligible)

    def _without(self, broker_id: int) -> tuple[int, ...]:
        isr = self.now.state.isr
        remaining = tuple(i for i in isr if i != broker_id)
        return remaining if self.has_elr else remaining or isr

    def fence(self, broker_id: int) -> None:
        """The broker's session ended."""
        brokers = {**self.now.brokers, broker_id: replace(self.now.brokers[broker_id], fenced=True)}
        self.commit(state=self._changed(brokers, self._without(broker_id)), brokers=brokers)

    def shut_down(self, broker_id: int) -> None:
        """The broker asked for a controlled shutdown."""
        brokers = {**self.now.brokers, broker_id: replace(self.now.brokers[broker_id], shutting_down=True)}
        self.commit(state=self._changed(brokers, self._without(broker_id)), brokers=brokers)

    def unfence(self, broker_id: int) -> None:
        brokers = {**self.now.brokers, broker_id: replace(self.now.brokers[broker_id], fenced=False)}
        self.commit(state=self._changed(brokers, self.now.state.isr), brokers=brokers)

    @property
    def candidates(self) -> set[int]:
        """Who may be elected."""
        return {*self.now.state.isr, *self.now.state.elr}

    def register(self, broker_id: int) -> None:
        """A new incarnation of the broker: it leaves the ISR (its last member stays) and starts fenced.

        It leaves the ELR, too, unless nobody else is left: then it had been stopped in good order.
        """
        epoch = self._next_epoch()
        gone = broker_id if self.candidates - {broker_id} else None
        brokers = {**self.now.brokers, broker_id: Registration(epoch, fenced=True)}
        self.commit(state=self._changed(brokers, self._without(broker_id), gone=gone), brokers=brokers)
        self.boot(self.brokers[broker_id], epoch)

    def prefer(self, broker_id: int) -> None:
        """A preferred leader election."""
        state = self._changed(self.now.brokers, self.now.state.isr, prefer=broker_id)
        if state != self.now.state:
            self.commit(state=state)

    def elect(self, broker_id: int, *, isr: tuple[int, ...]) -> None:
        """Names a leader and an ISR whatever the rules say; the caller knows what it excuses."""
        old = self.now.state
        self.is_clean = self.is_clean and broker_id in old.isr
        self.commit(
            state=old._replace(
                leader=broker_id,
                isr=isr,
                leader_epoch=old.leader_epoch + 1,
                partition_epoch=old.partition_epoch + 1,
            )
        )

    def decide(self, pending: Pending) -> AlterPartitionResult:
        """The controller's side of AlterPartition."""
        state, proposal = self.now.state, pending.proposal
        leader_id = pending.broker.broker_id
        if self.now.brokers[leader_id].epoch != pending.broker_epoch:
            return AlterPartitionFailed("STALE_BROKER_EPOCH")
        if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
            return AlterPartitionFailed("NOT_CONTROLLER")
        if proposal.leader_epoch < state.leader_epoch:
            return AlterPartitionFailed("FENCED_LEADER_EPOCH")
        if leader_id != state.leader:
            return AlterPartitionFailed("INVALID_REQUEST")
        if proposal.partition_epoch < state.partition_epoch:
            return AlterPartitionFailed("INVALID_UPDATE_VERSION")
        for broker_id, epoch in proposal.new_isr_with_epochs:
            registration = self.now.brokers[broker_id]
            if registration.epoch != epoch or not registration.is_active:
                return AlterPartitionFailed("INELIGIBLE_REPLICA")
        isr = proposal.new_isr
        new = state._replace(isr=isr, elr=self._elr(isr), partition_epoch=state.partition_epoch + 1)
        self.commit(state=new)
        return IsrCommitted(new.leader_epoch, new.partition_epoch, new.isr, new.elr)

    # Brokers

    def boot(self, broker: Broker, broker_epoch: int) -> None:
        """Starts a process on the broker's disk."""
        broker.log.reopen()
        broker.incarnation += 1
        broker.broker_epoch = broker_epoch
        broker.applied = -1
        broker.schedule = LagSchedule()
        broker.states = FetchStates(FetcherSettings(), lambda: 0.5)
        broker.replication = Replication(broker.states, broker)
        broker.partition = Partition(
            KEY,
            TOPIC_ID,
            broker.log,
            ReplicaContext(broker.broker_id, broker, broker, broker.schedule, MAX_LAG_MS),
            high_watermark=broker.checkpointed_high_watermark,
        )
        # A broker comes back with what the metadata says now, not with all that it missed; the entry of
        # its own registration is the first it acts on.
        broker.applied = len(self.history) - 2

    def set_flush_messages(self, count: int) -> None:
        self.config.flush_messages = count
        for broker in self.brokers.values():
            broker.log.reopen()

    def flush(self, broker_id: int) -> None:
        """A flush of the broker's log ends."""
        broker = self.brokers[broker_id]
        broker.log.sync()
        if broker.partition is not None:
            broker.partition.on_flushed(self.now_ms)
            broker.states.touch(KEY)

    def lose_power(self, broker_id: int) -> None:
        """The process is gone, and so is its page cache."""
        self.crash(broker_id)
        self.brokers[broker_id].log.lose_power()

    def crash(self, broker_id: int) -> None:
        """kill -9: the process is gone, its page cache is not."""
        broker = self.brokers[broker_id]
        broker.partition = None
        fetch = self.fetches.pop(broker_id, None)
        if fetch is not None and fetch.response is None:
            self.orphans.append(fetch)

    def publish(self, broker_id: int, *, skip: bool = False) -> None:
        """The broker applies the next metadata entry; `skip`: the newest one, without those between."""
        broker = self.brokers[broker_id]
        if broker.partition is None or broker.applied + 1 >= len(self.history):
            return
        broker.applied = len(self.history) - 1 if skip else broker.applied + 1
        state = self.history[broker.applied].state
        transition = broker.partition.apply_state(state, self.now_ms)
        if transition is Transition.IGNORED:
            return
        if transition is Transition.BECAME_LEADER:
            broker.states.remove(KEY)
            self.say(
                f"{broker_id}: leads epoch {state.leader_epoch} from offset {broker.log.log_end_offset},"
                f" hw={broker.partition.high_watermark}"
            )
        elif transition is Transition.BECAME_FOLLOWER:
            broker.states.remove(KEY)
            self.say(f"{broker_id}: follows {state.leader} in epoch {state.leader_epoch}")
            if state.leader >= 0:
                broker.states.add(
                    FollowedPartition(KEY, TOPIC_ID, state.leader, state.leader_epoch, broker.partition)
                )
        else:
            isr = f", isr={_ids(broker.partition.isr)}" if broker.partition.is_leader else ""
            self.say(f"{broker_id}: hears of partition epoch {state.partition_epoch}{isr}")

    def publish_all(self) -> None:
        """Every running broker catches up with the metadata."""
        for broker in self.brokers.values():
            while broker.partition is not None and broker.applied + 1 < len(self.history):
                self.publish(broker.broker_id)

    def shrink(self, broker_id: int) -> None:
        """The broker's ISR timer."""
        broker = self.brokers[broker_id]
        for partition in broker.schedule.pop_due(self.now_ms):
            partition.maybe_shrink(self.now_ms)

    # Messages

    def send_fetch(self, broker_id: int) -> bool:
        """The follower sends its next fetch; it arrives with `deliver_fetch`."""
        broker = self.brokers[broker_id]
        if broker.partition is None:
            return False
        request = broker.states.build_request(self.now_ms, 0) or broker.states.build_request(self.now_ms, 1)
        state = broker.states.get(KEY)
        if request is None or state is None:
            return False
        if self.config.flush_messages == 1 and request.partitions:
            counted = request.partitions[0].fetch_offset
            assert counted <= broker.log.synced_to, (
                f"{broker_id} lets {counted} count, which is not on its disk"
            )
        self.fetches[broker_id] = InFlightFetch(
            request, state.followed.leader_id, broker_id, broker.broker_epoch, broker.incarnation
        )
        return True

    def deliver_fetch(self, broker_id: int) -> None:
        """The fetch arrives at the broker that it was sent to."""
        fetch = self.fetches.get(broker_id)
        if fetch is None or fetch.response is not None:
            return
        fetch.response = self._serve(fetch)
        if fetch.response is None:
            del self.fetches[broker_id]

    def deliver_orphan(self) -> None:
        """The fetch of a process that is gone arrives."""
        if self.orphans:
            self._serve(self.orphans.pop(0))

    def _serve(self, fetch: InFlightFetch) -> FetchResponse | None:
        leader = self.brokers[fetch.leader_id].partition
        if leader is None:
            return None
        asked = fetch.request.partitions[0]
        question = FollowerFetch(
            fetch.broker_id,
            fetch.broker_epoch,
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )
        try:
            answer = leader.fetch_as_follower(question, max_bytes=1000, now_ms=self.now_ms)
        except (PartitionError, LogError) as error:
            return FetchResponse((FetchedPartition(KEY, error.code),))
        assert answer.records is None or isinstance(answer.records, MemoryRead)
        fetched = FetchedPartition(
            KEY,
            None,
            answer.high_watermark,
            answer.log_start_offset,
            answer.diverging_epoch,
            answer.records.encode() if answer.records else b"",
        )
        return FetchResponse((fetched,))

    def deliver_answer(self, broker_id: int) -> FetchedPartition | None:
        """The leader's answer arrives at the follower."""
        fetch = self.fetches.get(broker_id)
        if fetch is None or fetch.response is None:
            return None
        del self.fetches[broker_id]
        broker = self.brokers[broker_id]
        if fetch.response.partitions[0].error == "OFFSET_OUT_OF_RANGE":
            self.say(f"{broker_id}: is out of the range of {fetch.leader_id}")
        broker.replication.apply_fetch(fetch.request, fetch.response, self.now_ms)
        queries = broker.states.offsets_queries(self.now_ms)
        leader = self.brokers[fetch.leader_id].partition
        if queries and leader is not None:
            offsets = self._bounds(leader, queries[0].current_leader_epoch)
            broker.replication.apply_offsets(queries, {KEY: offsets}, self.now_ms)
        return fetch.response.partitions[0]

    def fetch(self, broker_id: int) -> FetchedPartition | None:
        """A whole fetch: sent, answered, applied."""
        self.fetches.pop(broker_id, None)
        self.send_fetch(broker_id)
        self.deliver_fetch(broker_id)
        return self.deliver_answer(broker_id)

    @staticmethod
    def _bounds(leader: Partition, epoch: int) -> LeaderOffsets:
        try:
            earliest = leader.list_offset(-2, for_client=False, current_leader_epoch=epoch)
            latest = leader.list_offset(-1, for_client=False, current_leader_epoch=epoch)
        except PartitionError as error:
            return LeaderOffsets(error=error.code)
        assert earliest is not None
        assert latest is not None
        return LeaderOffsets(earliest.offset, latest.offset)

    def widen_alter(self, index: int = 0) -> None:
        """The leader is about to send what waits: by now others may join as well."""
        pending = self.outbox[index]
        partition = pending.broker.partition
        if partition is None or pending.broker.incarnation != pending.incarnation or pending.is_abandoned:
            return
        if partition.pending_proposal == pending.proposal:
            widened = partition.widen_proposal()
            assert widened is not None
            if widened != pending.proposal:
                pending.proposal = widened
                isr = ",".join(f"{i}@{e}" for i, e in widened.new_isr_with_epochs)
                self.say(f"{pending.broker.broker_id}: proposes {widened.change.value} to isr={isr} instead")

    def deliver_alter(self, index: int = 0) -> AlterPartitionResult:
        """An AlterPartition arrives at the controller."""
        pending = self.outbox.pop(index)
        result = self.decide(pending)
        self.last_decided = replace(pending, result=result)
        return result

    def deliver_result(self, pending: Pending, result: AlterPartitionResult) -> None:
        """The controller's answer arrives at the leader, if that is still the process that asked, and waits."""
        broker = pending.broker
        if broker.partition is None or broker.incarnation != pending.incarnation or pending.is_abandoned:
            return
        retry = broker.partition.on_alter_partition_result(pending.proposal, result, self.now_ms)
        if retry is not None:
            self.outbox.append(Pending(broker, broker.incarnation, broker.broker_epoch, retry))

    def abandon(self, index: int = 0) -> None:
        """The leader stops waiting for an answer; the request stays on its way."""
        pending = self.outbox[index]
        self.deliver_result(pending, AlterPartitionFailed("REQUEST_TIMED_OUT"))
        pending.is_abandoned = True

    # Oracles

    def committed_by(self, broker: Broker, high_watermark: int) -> None:
        """A leader's high watermark rose: what is below is committed for good (StrongIsr)."""
        partition = broker.partition
        if partition is not None:
            needed = min(self.config.min_insync_replicas, len(partition.replicas))
            assert len(partition.isr) >= needed, f"committed with an ISR of {partition.isr}"
        for offset, record in broker.log.values(high_watermark).items():
            known = self.committed.setdefault(offset, record)
            if not self.is_clean:
                self.committed[offset] = known = record
            assert known == record, (
                f"offset {offset} was committed as {known}, and by {broker.broker_id} as {record}"
            )

    def _check_complete(self, broker: Broker, who: str) -> None:
        has = broker.log.values()
        for offset, record in self.committed.items():
            if offset >= broker.log.log_start_offset:
                assert has.get(offset) == record, (
                    f"{who} {broker.broker_id} lacks {record} at offset {offset}"
                )

    def check(self) -> None:
        """LeaderCandidateCompleteness, LogMatching, and the high watermarks' bound."""
        running = [broker for broker in self.brokers.values() if broker.partition is not None]
        for broker in running:
            assert broker.partition is not None
            assert broker.log.log_start_offset <= broker.partition.high_watermark <= broker.log.log_end_offset
        if not self.is_clean:
            return
        for broker_id in (*self.now.state.isr, *self.now.state.elr):
            broker = self.brokers[broker_id]
            if self.now.brokers[broker_id].epoch == broker.broker_epoch:
                self._check_complete(broker, "the candidate")
        for broker in running:
            assert broker.partition is not None
            below = broker.log.values(broker.partition.high_watermark)
            for offset, record in below.items():
                assert self.committed.get(offset) == record, (
                    f"{broker.broker_id} shows {record}, never committed"
                )

    def each(self, action: Callable[[int], object]) -> None:
        for broker_id in self.brokers:
            action(broker_id)


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"
