"""Where a history is played: brokers, controller and clients, and what the script can do to them.

Nothing happens by itself: a fetch is sent, arrives and is answered when the script says so, metadata reaches a
broker when it is published to it, a session ends when the script lets time pass. Every operation of a client
goes into a `History`, and after each step the state of every replica is noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fetcher.leader_endpoint import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    LeaderOffsets,
    PartitionKey,
)
from kraft.chaos.history import History, Operation, OperationKind, OperationStatus, TopicKey, Value
from kraft.chaos.replay.broker import PARTITION, ReplayBroker, ReplayError, SentProposal
from kraft.chaos.replay.controller import ReplayController
from kraft.chaos.replay.rules import Rule
from kraft.chaos.replay.story import ReplicaView, Step, StoredRecord
from kraft.chaos.transaction_history import TransactionHistory
from kraft.chaos.workload.batches import Decoder
from kraft.protocol.fetch import AbortedTransaction
from partitions.errors import PartitionError
from partitions.isr import UNKNOWN_BROKER_EPOCH, AlterPartitionFailed, AlterPartitionResult, IsrCommitted
from partitions.log.config import LogConfig
from partitions.log.errors import LogError
from partitions.log.log import PartitionLog
from partitions.partition import AckStatus, FollowerFetch, Partition
from partitions.reads import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from partitions.records.batch import CorruptBatchError, decode_records, iter_batches, verify_crc
from partitions.records.builder import build_batch
from partitions.records.markers import read_marker
from partitions.replica_log import ReadResult
from quorum.rpc.messages import (
    NO_ERROR,
    PREFERRED_ELECTION,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

READ_BYTES = 1 << 20
ROUNDS_MAX = 10
MARKERS = "<commit>", "<abort>"
"""How markers of transactions show in a log."""


@dataclass(eq=False)
class InFlightFetch:
    """A follower's fetch, sent by one process of it to one leader."""

    request: FetchRequest
    follower_id: int
    broker_epoch: int
    leader_id: int
    response: FetchResponse | None = None


@dataclass(frozen=True)
class _Sent:
    """An acks=all produce that waits."""

    operation: Operation
    value: str
    broker: ReplayBroker
    replica: Partition
    offset: int
    leader_epoch: int


class Stage:
    """One play of a history under one rule."""

    def __init__(self, rule: Rule, brokers: int, configs: Mapping[str, str]) -> None:
        """Brokers 1 to `brokers` run and are unfenced; there is no topic yet."""
        self.rule = rule
        self.history = History()
        self.transactions = TransactionHistory()
        self.steps: list[Step] = []
        self.controller = ReplayController()
        self.controller.set_features(rule.features)
        config = LogConfig().with_overrides(configs)
        self._outbox: list[SentProposal] = []
        self.brokers = {
            n: ReplayBroker(n, rule, config, lambda: self.controller.now_ms, self._outbox.append)
            for n in range(1, brokers + 1)
        }
        self._configs = configs
        self._waiting: list[_Sent] = []
        self._seen: list[str] = []
        self._clients = 0
        self._lost: dict[int, set[StoredRecord]] = {broker_id: set() for broker_id in self.brokers}
        """What each broker has lost to an injected power loss."""
        self._given_up: set[tuple[int, bytes]] = set()
        """Offsets and values that all who might have led had lost so, at some time."""
        self.excused: set[tuple[int, bytes]] = set()
        """Those that a judge asked about."""
        for broker_id in self.brokers:
            self.start(broker_id)

    # -- steps

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """One step of the script: its text, and the state at its end."""
        yield
        self._settle_produces()
        self._note_what_is_given_up()
        state = self.controller.partition
        replicas = tuple(self._view(broker) for broker in self.brokers.values())
        self.steps.append(
            Step(
                len(self.steps) + 1,
                text,
                replicas,
                state.leader,
                state.leader_epoch,
                state.isr,
                state.elr,
                tuple(self._seen),
            )
        )
        self._seen.clear()

    def says(self, text: str) -> None:
        """Something that a client or a coordinator said in this step."""
        self._seen.append(text)

    def _view(self, broker: ReplayBroker) -> ReplicaView:
        replica, log = broker.replica, broker.log
        if replica is None or log is None:
            return ReplicaView(broker.broker_id, "down")
        role = "leader" if replica.is_leader else "follower" if replica.leader_id >= 0 else "no leader"
        return ReplicaView(
            broker.broker_id,
            role,
            tuple(_stored(log)),
            log.log_end_offset,
            replica.high_watermark,
            replica.leader_epoch,
            tuple((entry.epoch, entry.start_offset) for entry in log.epochs.entries),
        )

    # -- the cluster

    def create_topic(self, *replicas: int) -> None:
        """The topic's one partition on these brokers, preferred leader first."""
        self.controller.create_topic(replicas, self._configs)
        self.publish(*self.brokers)

    def start(self, broker_id: int) -> None:
        """A process of the broker starts, registers, catches up with the metadata and is unfenced."""
        broker = self.brokers[broker_id]
        known = self.controller.image.brokers.get(broker_id)
        if known is not None and not known.fenced:
            self.end_session(broker_id)
        previous_epoch = broker.broker_epoch if broker.is_clean else UNKNOWN_BROKER_EPOCH
        broker.boot(self.controller.register(broker_id, broker.incarnation + 1, previous_epoch))
        self.publish(broker_id)
        self.controller.heartbeat(broker_id)
        self.publish(broker_id)

    def stop(self, broker_id: int) -> None:
        """The broker closes its log and ends; its session ends with it."""
        self.brokers[broker_id].stop()
        self.end_session(broker_id)

    def kill(self, broker_id: int) -> None:
        """The broker ends as by kill -9, and its session some time later."""
        self.brokers[broker_id].crash()
        self.end_session(broker_id)

    def lose_power(self, *broker_ids: int) -> None:
        """These brokers end at once, and keep of what they wrote only what was flushed."""
        for broker_id in broker_ids:
            broker = self.brokers[broker_id]
            before = set() if broker.log is None else set(_stored(broker.log))
            broker.lose_power()
            self._lost[broker_id].update(before.difference(_sound(broker.data_on_disk)))

    def _note_what_is_given_up(self) -> None:
        """The excuse of a lost record: every member of ISR and ELR had lost it to an injected power loss."""
        state = self.controller.partition
        members = {*state.isr, *state.elr}
        lost = [self._lost[broker_id] for broker_id in members]
        if lost:
            together = set.intersection(*lost)
            self._given_up.update((record.offset, record.value.encode()) for record in together)

    def is_excused(self, key: TopicKey, offset: int, value: Value) -> bool:
        """Whether the record is gone, and injected faults explain it."""
        records = self._view(self.brokers[self.controller.partition.leader]).records
        is_there = any((one.offset, one.value.encode()) == (offset, value) for one in records)
        if is_there or (offset, value) not in self._given_up:
            return False
        self.excused.add((offset, value))
        return True

    def publish(self, *broker_ids: int) -> None:
        """The newest metadata reaches these brokers, where they run."""
        for broker_id in broker_ids:
            broker = self.brokers[broker_id]
            if broker.is_running:
                broker.publish(self.controller.image, self.leader)

    def publish_all(self) -> None:
        self.publish(*self.brokers)

    def end_session(self, broker_id: int) -> None:
        """The controller has not heard of the broker for so long that it fences it."""
        self.controller.end_session(broker_id)

    def prefer(self, broker_id: int) -> None:
        """The preferred leader, which this broker is, is elected."""
        request = ElectLeadersRequest(PREFERRED_ELECTION, ((PARTITION.topic, PARTITION.partition),))
        self.controller.call(request, ElectLeadersResponse)
        if self.controller.partition.leader != broker_id:
            raise ReplayError(f"broker {broker_id} was not elected")

    def leader(self) -> Partition:
        """The replica that leads now."""
        leader = self.controller.partition.leader
        if leader < 0:
            raise ReplayError("there is no leader")
        return self.brokers[leader].running

    # -- ISR changes

    def deliver_proposals(self) -> None:
        """What leaders have proposed reaches the controller, and the answers reach them."""
        waiting = self._outbox.copy()
        self._outbox.clear()
        for proposed in waiting:
            result = self._decide(proposed)
            if self.brokers[proposed.broker_id].replica is proposed.replica:
                proposed.replica.on_alter_partition_result(proposed.proposal, result, self.controller.now_ms)

    def change_isr(self) -> None:
        """What leaders have proposed is decided, and everybody hears of it."""
        self.deliver_proposals()
        self.publish_all()

    def _decide(self, proposed: SentProposal) -> AlterPartitionResult:
        proposal = proposed.proposal
        item = AlterPartitionItem(
            PARTITION.partition,
            proposal.leader_epoch,
            tuple(BrokerState(n, epoch) for n, epoch in proposal.new_isr_with_epochs),
            proposal.partition_epoch,
        )
        topic = AlterPartitionTopic(self.controller.topic_id, (item,))
        request = AlterPartitionRequest(proposed.broker_id, proposed.broker_epoch, (topic,))
        request = self.rule.arriving_proposal(request, self.controller.image)
        answer = self.controller.call(request, AlterPartitionResponse).topics[0].partitions[0]
        isr = ",".join(map(str, proposal.new_isr))
        if answer.error != NO_ERROR:
            self._seen.append(f"ISR {isr} refused: {answer.error}")
            return AlterPartitionFailed(answer.error)
        self._seen.append(f"ISR {isr} committed")
        return IsrCommitted(answer.leader_epoch, answer.partition_epoch, answer.isr, answer.elr)

    # -- replication

    def send_fetch(self, follower_id: int) -> InFlightFetch:
        """The follower sends its next fetch."""
        broker = self.brokers[follower_id]
        now_ms = self.controller.now_ms
        request = broker.states.build_request(now_ms, 0) or broker.states.build_request(now_ms, 1)
        state = broker.states.get(PARTITION)
        if request is None or state is None:
            raise ReplayError(f"broker {follower_id} has nothing to fetch")
        return InFlightFetch(request, follower_id, broker.broker_epoch, state.followed.leader_id)

    def deliver_fetch(self, fetch: InFlightFetch) -> None:
        """The fetch arrives at the broker that it was sent to."""
        replica = self.brokers[fetch.leader_id].running
        asked = fetch.request.partitions[0]
        question = FollowerFetch(
            fetch.follower_id,
            fetch.broker_epoch,
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )
        question = self.rule.arriving_fetch(question, replica)
        now_ms = self.controller.now_ms
        try:
            answer = replica.fetch_as_follower(question, max_bytes=READ_BYTES, now_ms=now_ms)
        except (PartitionError, LogError) as error:
            self._seen.append(f"the fetch of {fetch.follower_id} is refused: {error.code}")
            fetched = FetchedPartition(PARTITION, error.code)
        else:
            fetched = FetchedPartition(
                PARTITION,
                None,
                answer.high_watermark,
                answer.log_start_offset,
                answer.diverging_epoch,
                b"" if answer.records is None else _data(answer.records),
            )
        fetch.response = FetchResponse((fetched,))

    def deliver_answer(self, fetch: InFlightFetch) -> None:
        """The leader's answer arrives at the follower."""
        if fetch.response is None:
            raise ReplayError("the fetch has not been answered")
        broker, now_ms = self.brokers[fetch.follower_id], self.controller.now_ms
        broker.replication.apply_fetch(fetch.request, fetch.response, now_ms)
        queries = broker.states.offsets_queries(now_ms)
        if queries:
            leader = self.brokers[fetch.leader_id].running
            epoch = queries[0].current_leader_epoch
            first, last = (
                leader.list_offset(timestamp, for_client=False, current_leader_epoch=epoch)
                for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
            )
            assert first is not None
            assert last is not None
            bounds: dict[PartitionKey, LeaderOffsets] = {PARTITION: LeaderOffsets(first.offset, last.offset)}
            broker.replication.apply_offsets(queries, bounds, now_ms)

    def fetch(self, follower_id: int) -> None:
        """A whole fetch: sent, answered, applied."""
        fetch = self.send_fetch(follower_id)
        self.deliver_fetch(fetch)
        self.deliver_answer(fetch)

    def replicate(self, *follower_ids: int) -> None:
        """These followers fetch until they have everything and know the high watermark."""
        before: object = None
        for _ in range(ROUNDS_MAX):
            for follower_id in follower_ids:
                self.fetch(follower_id)
            now = [self._view(broker) for broker in self.brokers.values()]
            if now == before:
                return
            before = now
        raise ReplayError(f"the logs were not equal after {ROUNDS_MAX} fetches")

    # -- clients

    def produce(self, value: str, *, acks: int = -1, to: int | None = None) -> None:
        """One record, sent to the leader that the controller knows of, or to the broker `to`."""
        broker = self.brokers[self.controller.partition.leader if to is None else to]
        replica, now_ms = broker.running, self.controller.now_ms
        send = self.history.invoke(
            "producer",
            OperationKind.SEND,
            now_ms / 1000,
            key=(self.controller.topic_id, PARTITION.partition),
            topic=PARTITION.topic,
            acks=acks,
            values=[value.encode()],
        )
        batch = build_batch([(now_ms, None, value.encode(), ())])
        try:
            info = replica.append_records(batch, acks=acks, now_ms=now_ms)
        except (PartitionError, LogError) as error:
            self._seen.append(f"{value} refused: {error.code}")
            self.history.complete(send, OperationStatus.FAIL, now_ms / 1000, error=error.code)
            return
        if acks == -1:
            offset, epoch = info.last_offset + 1, replica.leader_epoch
            self._waiting.append(_Sent(send, value, broker, replica, offset, epoch))
        else:
            self._acknowledge(send, value, info.last_offset, acks)

    def _acknowledge(self, send: Operation, value: str, offset: int, acks: int) -> None:
        now_s = self.controller.now_ms / 1000
        self.history.complete(send, OperationStatus.OK, now_s, base_offset=offset)
        self._seen.append(f"{value} acknowledged at {offset} (acks={'all' if acks == -1 else acks})")

    def _settle_produces(self) -> None:
        """Whoever waits and can be answered is."""
        waiting, self._waiting = self._waiting, []
        for sent in waiting:
            is_same_process = sent.broker.replica is sent.replica
            status = sent.replica.ack_status(sent.offset, sent.leader_epoch) if is_same_process else None
            if status is AckStatus.PENDING:
                self._waiting.append(sent)
            elif status is AckStatus.OK:
                self._acknowledge(sent.operation, sent.value, sent.offset - 1, -1)
            else:
                error = "connection lost" if status is None else status.value
                now_s = self.controller.now_ms / 1000
                self.history.complete(sent.operation, OperationStatus.INFO, now_s, error=error)
                self._seen.append(f"{sent.value} not acknowledged: {error}")

    def consume(self, *, final: bool = False) -> None:
        """A new consumer reads, from the start, all that the leader shows."""
        self._settle_produces()
        self._clients += 1
        replica = self.leader()
        now_s = self.controller.now_ms / 1000
        start = replica.log_start_offset
        answer = replica.read_for_consumer(start, max_bytes=READ_BYTES)
        found = [] if answer.records is None else _records(_data(answer.records))
        records = [record for record in found if record.value not in MARKERS]
        poll = self.history.invoke(
            f"consumer-{self._clients}",
            OperationKind.POLL,
            now_s,
            key=(self.controller.topic_id, PARTITION.partition),
            topic=PARTITION.topic,
            position=start,
            final=final,
            sought=True,
        )
        self.history.complete(
            poll,
            OperationStatus.OK,
            now_s,
            records=[(record.offset, record.value.encode()) for record in records],
            next_offset=records[-1].offset + 1 if records else start,
        )
        self._seen.append(f"a consumer reads {_shown(records)}")

    def consume_committed(self, *, final: bool = False) -> None:
        """As `consume`, of committed records (isolation.level=read_committed)."""
        self._clients += 1
        replica, key = self.leader(), (self.controller.topic_id, PARTITION.partition)
        start = replica.log_start_offset
        answer = replica.read_for_consumer(start, max_bytes=READ_BYTES, read_committed=True)
        data = b"" if answer.records is None else _data(answer.records)
        aborted = [
            AbortedTransaction(one.producer_id, one.first_offset)
            for one in replica.log.aborted_transactions(start, answer.last_stable_offset)
        ]
        found, end = Decoder().read(memoryview(data), start, aborted)
        self.transactions.polled(
            f"consumer-{self._clients}", key, self.controller.now_ms / 1000, start, found, end, final=final
        )
        self.transactions.names[key[0]] = PARTITION.topic
        if final:
            self.transactions.log_starts[key] = start
        records = [StoredRecord(offset, value.decode(), 0) for offset, value in found]
        stable = f"(stable up to {answer.last_stable_offset} of {answer.high_watermark})"
        self._seen.append(f"a consumer of committed records reads {_shown(records)} {stable}")


def _shown(records: Sequence[StoredRecord]) -> str:
    return " ".join(f"{record.offset}:{record.value}" for record in records) or "nothing"


def _data(read: ReadResult) -> bytes:
    return b"".join(part.read() for part in read.slices)


def _stored(log: PartitionLog) -> list[StoredRecord]:
    """All that a log holds."""
    if log.log_end_offset == log.log_start_offset:
        return []
    return _records(_data(log.read(log.log_start_offset, READ_BYTES, up_to_offset=log.log_end_offset)))


def _sound(data: bytes) -> list[StoredRecord]:
    """What stands in a file before the first batch that is torn."""
    end = 0
    with suppress(CorruptBatchError):
        for position, header in iter_batches(data):
            verify_crc(data, position, header)
            end = position + header.size_bytes
    return _records(data[:end])


def _records(data: bytes) -> list[StoredRecord]:
    """The records of some batches; a transaction's marker is one, by its name."""
    records = []
    for position, header in iter_batches(data):
        verify_crc(data, position, header)
        marker = read_marker(data, position, header) if header.is_control else None
        if marker is not None:
            kind = MARKERS[marker.is_abort]
            records.append(StoredRecord(header.base_offset, kind, header.partition_leader_epoch))
            continue
        for record in decode_records(data, position, header, max_decompressed_bytes=READ_BYTES):
            value = b"" if record.value is None else record.value
            records.append(StoredRecord(record.offset, value.decode(), header.partition_leader_epoch))
    return records
