"""Random lives of transactional ids: producers, their retries and their zombies, reloads at any point, markers that are
late, doubled or lost, deleted topics, and timeouts.

Of every id the epochs only grow, a transaction has one outcome, which is the one that was told, and who was fenced
changes nothing any more. Every request is answered once. Once markers are answered nothing hangs.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.coordinator.transactions import records
from kraft.coordinator.transactions.context import TransactionSettings
from kraft.coordinator.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    SendMarkers,
    TransactionRequest,
)
from kraft.coordinator.transactions.transaction import COMES_FROM, EPOCH_MAX, PREPARED, State, Transaction
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.producers import InitProducerIdResponse
from kraft.protocol.schemas.transactions import EndTxnResponse
from partitions.topic_partition import TopicPartition
from tests.support.examples import examples
from tests.support.transactions_world import TransactionsWorld

IDS = ("t", "u")
INSTANCES = 3
PARTITIONS = [TopicPartition(topic, number) for topic in ("x", "y") for number in range(2)]
TIMEOUT_MS = 2_000
SETTINGS = TransactionSettings(
    max_timeout_ms=TIMEOUT_MS,
    id_expiration_ms=6_000,
    id_expiration_check_interval_ms=1_000,
    waiting_per_id_max=3,
    waiting_max=4,
)

ids = st.sampled_from(IDS)
instances = st.integers(0, INSTANCES - 1)
versions = st.sampled_from([0, 2])
some_partitions = st.frozensets(st.sampled_from(PARTITIONS), min_size=1)
counts = st.integers(0, 1_000)


class TransactionalLife(RuleBasedStateMachine):
    @initialize(epoch=st.sampled_from([-1, EPOCH_MAX - 4, EPOCH_MAX - 2]), level=st.sampled_from([1, 2]))
    def begin(self, epoch: int, level: int) -> None:
        self.world = TransactionsWorld(SETTINGS, level)
        if epoch >= 0:  # one id that will soon be exhausted
            known = Transaction("t", 500, epoch, TIMEOUT_MS, updated_ms=self.world.now.wall_ms)
            self.world.log.append(records.encode("t", known.to_value(), 1))
            self.world.commit()
            self.world.crash()
        self.has: dict[tuple[str, int], ProducerIdAndEpoch] = {}
        self.taken: dict[str, ProducerIdAndEpoch] = {}
        """What was told last to an instance that took the id from all others."""
        self.taken_before: dict[str, ProducerIdAndEpoch] = {}
        """The same, when this client asked."""
        self.past: list[tuple[int, TransactionRequest]] = []
        self.issued: list[SendMarkers] = []
        self.written: dict[int, set[TopicPartition]] = {}
        """By the serial of the end: where its markers are written, or not needed."""
        self.read = 0
        self.histories: dict[str, list[Transaction]] = {}
        """Also of ids that expired: an answer of before may be told together with that."""

    # What producers do

    @rule(name=ids, instance=instances, goes_on=st.booleans())
    def initialize_producer(self, name: str, instance: int, goes_on: bool) -> None:
        expected = self.has.get((name, instance)) if goes_on else None
        self._ask(instance, InitProducer(name, TIMEOUT_MS, expected, None))

    @rule(name=ids, instance=instances, partitions=some_partitions, verify=st.booleans(), version=versions)
    def add(
        self, name: str, instance: int, partitions: frozenset[TopicPartition], verify: bool, version: int
    ) -> None:
        if (name, instance) in self.has:
            producer = self.has[name, instance]
            self._ask(instance, AddPartitions(name, producer, partitions, verify, version))

    @rule(name=ids, instance=instances, is_commit=st.booleans(), version=versions)
    def end(self, name: str, instance: int, is_commit: bool, version: int) -> None:
        if (name, instance) in self.has:
            self._ask(instance, EndTransaction(name, self.has[name, instance], is_commit, version, None))

    @rule(name=ids, instance=instances, is_commit=st.booleans(), version=versions)
    def transact(self, name: str, instance: int, is_commit: bool, version: int) -> None:
        """A whole transaction, if nothing comes between."""
        self.add(name, instance, frozenset(PARTITIONS[:2]), False, version)
        self.end(name, instance, is_commit, version)
        if self.issued:
            self.write_markers(0, True, frozenset(), True)

    @precondition(lambda self: self.past)
    @rule(number=counts, is_last=st.booleans())
    def retry(self, number: int, is_last: bool) -> None:
        """An answer was lost, or a network delivers twice, and late."""
        self._ask(*self.past[-1 if is_last else number % len(self.past)])

    def _ask(self, instance: int, request: Any) -> None:
        self.past.append((instance, request))
        client, name = f"{instance}:{len(self.past)}", request.transactional_id
        if name in self.taken and name in self.world.shard.transactions:
            self.taken_before[client] = self.taken[name]
        self.world.ask(client, request)
        self._keep_account()

    # What happens to the coordinator

    @precondition(lambda self: self.issued)
    @rule(number=counts, is_last=st.booleans(), partitions=some_partitions, is_all=st.booleans())
    def write_markers(
        self, number: int, is_last: bool, partitions: frozenset[TopicPartition], is_all: bool
    ) -> None:
        sent = self.issued[-1 if is_last else number % len(self.issued)]
        written = sent.partitions if is_all else sent.partitions & partitions
        self.written[sent.serial] |= written
        ending = self.world.shard.transactions.get(sent.transactional_id)
        serial = ending.serial if ending is not None and ending.state in PREPARED else None
        self.world.written(sent, written)
        if serial in self.written and (ending.is_at_rest or ending.serial != serial):  # type: ignore[union-attr]
            wanted = {one for order in self.issued if order.serial == serial for one in order.partitions}
            assert wanted <= self.written[serial], "complete, though markers are missing"
        self._keep_account()

    @rule(topic=st.sampled_from(["x", "y"]))
    def delete_topic(self, topic: str) -> None:
        for written in self.written.values():
            written.update(one for one in PARTITIONS if one.topic == topic)
        self.world.delete_topics([topic])
        self._keep_account()

    @rule(ms=st.sampled_from([1, 50, 100, 1_000, 5_000]))
    def tick(self, ms: int) -> None:
        self.world.tick(ms)
        self._keep_account()

    @rule(is_committing=st.booleans())
    def commit(self, is_committing: bool) -> None:
        self.world.is_committing = is_committing
        if is_committing:
            self.world.commit()
        self._keep_account()

    @rule(is_compacted=st.booleans())
    def crash(self, is_compacted: bool) -> None:
        self.world.crash(is_compacted=is_compacted)
        self._keep_account()

    @rule()
    def resume(self) -> None:
        self.world.resume()
        self._keep_account()

    @rule(level=st.sampled_from([1, 2]))
    def change_level(self, level: int) -> None:
        self.world.level = level

    # What must hold

    def _keep_account(self) -> None:
        self._read_log()
        for sent in self.world.markers:
            newest = self.histories[sent.transactional_id][-1]
            assert newest.state in PREPARED, "markers of what is not decided"
            assert sent.marker == newest.marker
            assert sent.partitions <= newest.partitions
            self.issued.append(sent)
            self.written.setdefault(sent.serial, set())
        self.world.markers.clear()
        for answer in self.world.answers:
            self._judge(answer.client, answer.request, answer.response)
        self.world.answers.clear()

    def _read_log(self) -> None:
        """What is committed now; a crash takes nothing of it."""
        for record in self.world.log[self.read : self.world.committed]:
            name = records.KEY.decode(record.key).transactional_id
            history = self.histories.setdefault(name, [])
            if record.value is None:
                assert history[-1].state in COMES_FROM[State.DEAD]
                self.taken.pop(name, None)
                continue
            after = Transaction.of_value(name, records.VALUE.decode(record.value))
            if history:
                before = history[-1]
                assert before.state in COMES_FROM[after.state]
                if after.state in PREPARED and after.client_version >= 2:
                    assert after.epoch == before.epoch + 1, "a late batch could join the next transaction"
                if after.producer_id == before.producer_id:
                    assert after.epoch >= before.epoch
                else:
                    assert after.epoch == 0
                    assert after.producer_id not in {one.producer_id for one in history}
            history.append(after)
        self.read = self.world.committed

    def _judge(self, client: str, request: Any, response: Any) -> None:
        name = request.transactional_id
        history = self.histories.get(name, [])
        if isinstance(response, InitProducerIdResponse):
            if not response.error_code:
                self._must_not_be_fenced(client, name, request.expected)
                granted = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                self._judge_grant(client, request, granted)
            return
        if isinstance(response, EndTxnResponse):
            if response.error_code:
                return
            self._must_not_be_fenced(client, name, request.producer)
            bumps = request.transaction_version >= 2
            ended_as = (request.producer.producer_id, request.producer.epoch + 1)
            # Below version 2 a retry is not told from who goes on after version 2 and ends nothing, as in Kafka.
            outcomes = {
                one.state
                for one in history
                if one.state in PREPARED
                and (
                    one.producer == ended_as and one.client_version >= 2
                    if bumps
                    else one.continues_as == request.producer
                )
            }
            told = State.PREPARE_COMMIT if request.is_commit else State.PREPARE_ABORT
            assert told in outcomes, "it was told what is not so"
            assert not bumps or outcomes == {told}, "it has two outcomes"
            self._has(client, name, ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
            return
        for partition, code in response.items():
            if code is ErrorCode.NONE:
                self._must_not_be_fenced(client, name, request.producer)
                assert any(
                    one.producer == request.producer and partition in one.partitions
                    for one in history
                    if one.state is State.ONGOING
                )
        assert response.keys() == request.partitions

    def _must_not_be_fenced(self, client: str, name: str, producer: ProducerIdAndEpoch | None) -> None:
        taken = self.taken_before.get(client)
        if taken is None or producer is None:
            return
        known = list(dict.fromkeys(one.producer_id for one in self.histories[name]))
        if producer.producer_id in known and taken.producer_id in known:
            assert (known.index(producer.producer_id), producer.epoch) >= (
                known.index(taken.producer_id),
                taken.epoch,
            ), "another instance had taken the id"

    def _judge_grant(self, client: str, request: InitProducer, granted: ProducerIdAndEpoch) -> None:
        name = request.transactional_id
        assert granted.epoch < EPOCH_MAX
        assert granted in {one.producer for one in self.histories[name]}
        if request.expected is None:
            self.taken[name] = granted
        self._has(client, name, granted)

    def _has(self, client: str, name: str, producer: ProducerIdAndEpoch) -> None:
        assert producer.epoch < EPOCH_MAX, "the last epoch is for fences"
        self.has[name, int(client.partition(":")[0])] = producer

    @invariant()
    def who_waits_is_bounded(self) -> None:
        if hasattr(self, "world"):
            assert self.world.shard.waiting <= SETTINGS.waiting_max

    def teardown(self) -> None:
        """Faults end: everybody is answered, and every transaction ends."""
        if not hasattr(self, "world"):
            return
        self.world.is_committing = True
        self.world.commit()
        self._keep_account()
        self.world.tick(SETTINGS.markers_wait_ms)
        assert not self.world.asked, "somebody waits"
        self.world.resume()
        self.world.tick(TIMEOUT_MS)
        self._keep_account()
        for sent in self.issued:
            self.world.written(sent, sent.partitions)
        assert all(one.is_at_rest for one in self.world.shard.transactions.values())
        assert not self.world.shard.waiting


TestTransactionalLife = TransactionalLife.TestCase
TestTransactionalLife.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
