"""The idempotent producer: acks=-1, several batches in flight, retries in order under one sequence.

It never gives up: a batch is sent again until it is acknowledged, always behind the batches before it (KIP-98). The
first batch of a producer id in a partition goes alone, since a log that does not know the producer takes any
sequence. If the oldest batch in line is refused for good and no fault explains it, that is an answer that a correct
client must never see.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from kraft.chaos.history import Operation, OperationStatus, TopicKey
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.batches import encode_values
from kraft.chaos.workload.client import BACKOFF_S, REQUEST_TIMEOUT_S, Client, PartitionName
from kraft.chaos.workload.produce import NEVER, PRODUCE_VERSION, produce_answers, produce_request
from kraft.chaos.world.host import Process
from kraft.protocol.errors import ErrorCode

WINDOW_BATCHES = 4
"""Open for one partition; brokers remember five."""
BATCHES_AT_ONCE = (1, 3, 6, 12)
"""Batches begun at one instant: those to one leader share a request and its effects."""
DRAIN_TICK_S = 0.05


@dataclass(slots=True)
class Batch:
    """Some records of one partition under one sequence."""

    operation: Operation
    records: bytes


@dataclass(slots=True, eq=False)
class PartitionState:
    """The producer's open batches in one partition."""

    name: PartitionName
    key: TopicKey
    next_sequence: int = 0
    window: deque[Batch] = field(default_factory=deque)
    """Not acknowledged yet, in order of their sequences."""
    unsent: deque[Batch] = field(default_factory=deque)
    in_flight: int = 0
    failed: bool = False
    """Whether the oldest batch failed: the whole window is sent again, once none of it is in flight."""
    resume_s: float = 0.0
    last_acknowledged: Operation | None = None

    @property
    def limit(self) -> int:
        """How many batches may be open."""
        return 1 if self.last_acknowledged is None else WINDOW_BATCHES


class IdempotentProducer(Workload):
    """One producer id after another: each life begins a new one, and so does an explained loss."""

    keeps_writing = True
    _process: Process
    _client: Client

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        self._states: list[PartitionState] = []
        self._producer_id = -1
        self._identities = 0

    @property
    def process_name(self) -> str:
        """An identity is a process of its own: records after a loss need not lie behind those before."""
        return f"{super().process_name}.{self._identities}"

    async def run(self, process: Process, client: Client) -> None:
        self._process, self._client = process, client
        await client.wait_for_topics()
        await self._new_identity()
        while not self.is_over:
            begun = self._begin_batches()
            self._resume_and_send()
            await self._sleep(self.pause_s(begun))
        while any(state.window for state in self._states):
            self._resume_and_send()
            await self._sleep(DRAIN_TICK_S)
            self._give_up_what_nobody_takes()

    @property
    def has_open_operations(self) -> bool:
        return any(state.window for state in self._states)

    def abandon(self, why: str) -> None:
        for state in self._states:
            self._abandon_partition(state, why)

    def _abandon_partition(self, state: PartitionState, why: str) -> None:
        for batch in state.window:
            self.complete(batch.operation, OperationStatus.INFO, error=why)
        state.window.clear()
        state.unsent.clear()

    def _give_up_what_nobody_takes(self) -> None:
        """Gives up old batches, as delivery.timeout.ms does; their outcome stays unknown."""
        for state in self._states:
            if state.window and not state.in_flight and self.is_beyond_repair(state.name):
                self._abandon_partition(state, "the partition is beyond repair")

    async def _sleep(self, seconds: float) -> None:
        """Sleeps; a producer that lost its identity meanwhile gets a new one."""
        await asyncio.sleep(seconds)
        if self._producer_id < 0:
            await self._new_identity()

    async def _new_identity(self) -> None:
        self._producer_id = await self._client.new_producer_id()
        self._identities += 1
        ids = self._client.topic_ids
        self._states = [PartitionState(name, (ids[name[0]], name[1])) for name in self.partitions()]

    # -- sending

    def _begin_batches(self) -> int:
        """Begins new batches in partitions drawn at random, a few or many; returns how many."""
        begun = 0
        for _ in range(self.rng.choice(BATCHES_AT_ONCE)):
            state = self.rng.choice(self._states)
            if len(state.window) < state.limit and not self.is_over:
                self._begin_batch(state)
                begun += 1
        return max(1, begun)

    def _begin_batch(self, state: PartitionState) -> None:
        topic, partition = state.name
        first = state.next_sequence
        values = self.draw_values(topic, partition, first)
        state.next_sequence += len(values)
        records = encode_values(
            values,
            self._process.now_ms(),
            keyed=self.around.topics[topic].is_compacted,
            producer_id=self._producer_id,
            base_sequence=first,
        )
        batch = Batch(self.invoke_send(state.key, topic, values, idempotent=True), records)
        state.window.append(batch)
        if not state.failed:
            state.unsent.append(batch)

    def _resume_and_send(self) -> None:
        now_s = self._client.loop.time()
        for state in self._states:
            if state.failed and not state.in_flight and now_s >= state.resume_s:
                state.failed = False
                state.unsent = deque(state.window)
        while self._send_round():
            pass

    def _send_round(self) -> bool:
        """Sends the next batch of every partition that has one, one request for each leader."""
        by_leader: dict[int, list[PartitionState]] = {}
        for state in self._states:
            if state.unsent and (leader := self._client.leader(state.name)) is not None:
                by_leader.setdefault(leader.broker, []).append(state)
        sent_any = False
        for broker, states in by_leader.items():
            connection = self._client.connection(broker)
            if connection is None:
                continue
            sent = [(state, state.unsent.popleft()) for state in states]
            for state in states:
                state.in_flight += 1
            request = produce_request({state.name: batch.records for state, batch in sent}, -1)
            connection.request(request, PRODUCE_VERSION, REQUEST_TIMEOUT_S, partial(self._take, broker, sent))
            sent_any = True
        return sent_any

    # -- answers

    def _take(self, broker: int, sent: list[tuple[PartitionState, Batch]], body: memoryview | None) -> None:
        answers = produce_answers(self._client, broker, body, [state.name for state, _ in sent])
        for state, batch in sent:
            state.in_flight -= 1
            code, offset = answers[state.name]
            if state.failed or not any(batch is one for one in state.window):
                continue  # one before it failed: it is sent again behind that one
            if state.window[0] is not batch:
                # The batch before it went to the former leader, which is slower to answer.
                self._send_again(state)
                continue
            if code is ErrorCode.NONE:
                self._acknowledge(state, batch, offset)
            else:
                self._fail(state, batch, broker, code)

    def _acknowledge(self, state: PartitionState, batch: Batch, offset: int) -> None:
        state.window.popleft()
        state.last_acknowledged = batch.operation
        self.complete(batch.operation, OperationStatus.OK, base_offset=offset)

    def _send_again(self, state: PartitionState) -> None:
        """Sends the whole window again, once none of it is in flight."""
        state.failed = True
        state.unsent.clear()
        state.resume_s = self._client.loop.time() + self.rng.uniform(*BACKOFF_S)

    def _fail(self, state: PartitionState, batch: Batch, broker: int, code: ErrorCode) -> None:
        """Handles the failure of the oldest batch in line; its error must be a transient one."""
        self._send_again(state)
        self._client.forget_leader(state.name, broker)
        if code.retriable and code not in NEVER:
            return
        if not self._is_explained(state, code):
            first = state.next_sequence - sum(len(open_.operation.values) for open_ in state.window)
            text = f"the oldest batch of {state.name} (sequence {first}) was refused with {code.name}"
            self._client.surprise(broker, text)
        self.abandon(f"refused with {code.name}")
        self._producer_id = -1

    def _is_explained(self, state: PartitionState, code: ErrorCode) -> bool:
        """Whether faults explain the refusal: a log that rightly lost the last acknowledged batch refuses the next."""
        last = state.last_acknowledged
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or last is None or last.key is None:
            return False
        final = len(last.values) - 1
        return self.around.explains(last.key, last.base_offset + final, last.values[final])
