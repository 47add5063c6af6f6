"""The producer without an identity: acks 0, 1 or -1, one batch in flight for each partition.

A send ends as a Kafka client would report it. It failed only if no attempt can have been appended. After an attempt
with an unknown outcome, half of the sends are tried again (and may double their records), the other half end as
unknown. With acks=0 there is no answer: a send counts once it is written to the connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from kraft.chaos.history import Operation, OperationStatus, TopicKey
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.batches import encode_values
from kraft.chaos.workload.client import BACKOFF_S, REQUEST_TIMEOUT_S, Client, PartitionName
from kraft.chaos.workload.produce import NEVER, PRODUCE_VERSION, produce_answers, produce_request
from kraft.chaos.workload.producer import DRAIN_TICK_S
from kraft.chaos.world.host import Process
from kraft.protocol.errors import ErrorCode

DELIVERY_TIMEOUT_S = 6.0
ATTEMPTS_MAX = 5
RETRIES_IN_DOUBT_SHARE = 0.5
NOT_APPENDED_WHOEVER_ASKS = frozenset((ErrorCode.NOT_ENOUGH_REPLICAS,))
NOT_APPENDED_WITH_ACKS_1 = NOT_APPENDED_WHOEVER_ASKS | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
}
"""With acks=-1, or where a flush is waited for, the possible answers if the leader was deposed meanwhile."""


@dataclass(slots=True, eq=False)
class Send:
    """One batch under way."""

    operation: Operation
    records: bytes
    attempts_left: int
    retries_in_doubt: bool
    deadline_s: float
    resume_s: float = 0.0
    in_flight: bool = False
    is_doubtful: bool = False
    """An attempt may have been appended."""


@dataclass(slots=True, eq=False)
class PartitionState:
    """The one batch that is open in a partition."""

    name: PartitionName
    key: TopicKey
    open: Send | None = None


class PlainProducer(Workload):
    """A producer with the acks of its spec."""

    keeps_writing = True
    _process: Process
    _client: Client

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        self._states: list[PartitionState] = []
        self._sequence = 0

    async def run(self, process: Process, client: Client) -> None:
        self._process, self._client = process, client
        await client.wait_for_topics()
        ids = client.topic_ids
        self._states = [PartitionState(name, (ids[name[0]], name[1])) for name in self.partitions()]
        while not self.is_over:
            begun = self._begin_batches()
            self._send()
            await asyncio.sleep(self.pause_s(begun))
        while any(state.open for state in self._states):
            self._send()
            await asyncio.sleep(DRAIN_TICK_S)

    @property
    def has_open_operations(self) -> bool:
        return any(state.open for state in self._states)

    def abandon(self, why: str) -> None:
        for state in self._states:
            if state.open is not None:
                self._end(state, OperationStatus.INFO, why)

    def _begin_batches(self) -> int:
        rng = self.rng
        begun = 0
        for state in rng.sample(self._states, rng.choice((1, len(self._states), len(self._states)))):
            if state.open is None and not self.is_over:
                state.open = self._new_send(state)
                begun += 1
        return max(1, begun)

    def _new_send(self, state: PartitionState) -> Send:
        topic, partition = state.name
        rng = self.rng
        values = self.draw_values(topic, partition, self._sequence)
        self._sequence += len(values)
        return Send(
            operation=self.invoke_send(state.key, topic, values, acks=self.spec.acks),
            records=encode_values(
                values, self._process.now_ms(), keyed=self.around.topics[topic].is_compacted
            ),
            attempts_left=rng.randint(1, ATTEMPTS_MAX),
            retries_in_doubt=rng.random() < RETRIES_IN_DOUBT_SHARE,
            deadline_s=self._client.loop.time() + DELIVERY_TIMEOUT_S,
        )

    def _send(self) -> None:
        """Sends the due batches, one request for each leader; gives up late ones."""
        now_s = self._client.loop.time()
        by_leader: dict[int, list[PartitionState]] = {}
        for state in self._states:
            send = state.open
            if send is None or send.in_flight or now_s < send.resume_s:
                continue
            leader = self._client.leader(state.name)
            if now_s >= send.deadline_s:
                self._give_up(state, send, "delivery timeout")
            elif leader is not None:
                by_leader.setdefault(leader.broker, []).append(state)
        for broker, states in by_leader.items():
            self._send_to(broker, states)

    def _send_to(self, broker: int, states: list[PartitionState]) -> None:
        connection = self._client.connection(broker)
        if connection is None:
            return
        sent = [(state, state.open) for state in states if state.open is not None]
        request = produce_request({state.name: send.records for state, send in sent}, self.spec.acks)
        if self.spec.acks == 0:
            connection.request(request, PRODUCE_VERSION, REQUEST_TIMEOUT_S, None)
            for state, _ in sent:
                self._end(state, OperationStatus.OK)
            return
        for _, send in sent:
            send.in_flight = True
            send.attempts_left -= 1
        connection.request(request, PRODUCE_VERSION, REQUEST_TIMEOUT_S, partial(self._take, broker, sent))

    def _take(self, broker: int, sent: list[tuple[PartitionState, Send]], body: memoryview | None) -> None:
        answers = produce_answers(self._client, broker, body, [state.name for state, _ in sent])
        for state, send in sent:
            code, offset = answers[state.name]
            if state.open is not send:
                continue
            send.in_flight = False
            if code is ErrorCode.NONE:
                self._end(state, OperationStatus.OK, base_offset=offset)
            else:
                self._failed(state, send, broker, code)

    def _failed(self, state: PartitionState, send: Send, broker: int, code: ErrorCode) -> None:
        """Handles a failed attempt: the send is tried again, or over."""
        if not code.retriable or code in NEVER:
            self._client.surprise(broker, f"a send to {state.name} was refused with {code.name}")
        is_answered_at_once = self.spec.acks == 1 and not self.around.waits_for_flushes(state.name[0])
        in_doubt = code not in (
            NOT_APPENDED_WITH_ACKS_1 if is_answered_at_once else NOT_APPENDED_WHOEVER_ASKS
        )
        send.is_doubtful = send.is_doubtful or in_doubt
        send.resume_s = self._client.loop.time() + self.rng.uniform(*BACKOFF_S)
        self._client.forget_leader(state.name, broker)
        if send.attempts_left <= 0 or (in_doubt and not send.retries_in_doubt):
            self._give_up(state, send, code.name)

    def _give_up(self, state: PartitionState, send: Send, error: str) -> None:
        self._end(state, OperationStatus.INFO if send.is_doubtful else OperationStatus.FAIL, error)

    def _end(
        self, state: PartitionState, status: OperationStatus, error: str = "", *, base_offset: int = -1
    ) -> None:
        assert state.open is not None, "only what is open ends"
        send, state.open = state.open, None
        self.complete(send.operation, status, base_offset=base_offset, error=error)
