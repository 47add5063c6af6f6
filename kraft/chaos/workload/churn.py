"""Topic churn: topics come and go, some of them under earlier names.

Each topic is created, written to with acks=-1, read, and deleted by its id. A name is used again only if no send to it
may still be under way: Produce names topics, not topic ids, so that a late send would reach the next topic of the name.
"""

from __future__ import annotations

import asyncio

from kraft.chaos.history import Operation, OperationStatus
from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from kraft.chaos.workload.admin import Admin
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.batches import draw_values, encode_values
from kraft.chaos.workload.client import CallFailedError, Client, PartitionName
from kraft.chaos.workload.produce import PRODUCE_VERSION, produce_request
from kraft.chaos.workload.reader import Position, Reader
from kraft.chaos.world.host import Process
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import ProduceResponse

SENDS = (1, 6)
PARTITIONS = (1, 3)
REUSE_SHARE = 0.5
GIVE_UP_AFTER_S = 3.0


class TopicChurn(Workload):
    """One topic after another."""

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        self.topics = []
        self._admin: Admin | None = None
        self._open: Operation | None = None
        self._names = 0
        self._free: str | None = None
        """A name that may be used again."""
        self._left: str | None = None
        """A topic that exists, or may exist."""
        self._sequence = 0
        self._is_doubtful = False
        """Whether a send to the present topic may still be under way."""

    async def run(self, process: Process, client: Client) -> None:
        self._admin = admin = Admin(self, client)
        if self._left is not None:
            await admin.delete(self._left)
            self._left = None
        while not self.is_over:
            before = self.begun
            await self._churn(process, client, admin)
            await asyncio.sleep(self.pause_s(self.begun - before))

    @property
    def has_open_operations(self) -> bool:
        return self._open is not None

    @property
    def must_come_back(self) -> bool:
        """True while a topic exists: undeleted, it would never be read to its end."""
        return self._left is not None

    def abandon(self, why: str) -> None:
        if self._admin is not None:
            self._admin.abandon(why)
        if self._open is not None:
            operation, self._open = self._open, None
            self.complete(operation, OperationStatus.INFO, error=why)

    async def _churn(self, process: Process, client: Client, admin: Admin) -> None:
        """The life of one topic."""
        topic = self._new_topic()
        self._left, self._is_doubtful = topic.name, False
        await admin.create(topic)
        client.topics[topic.name] = None
        await client.wait_for_topics()
        for _ in range(self.rng.randint(*SENDS)):
            if self.stopping:
                break
            await self._send(process, client, (topic.name, self.rng.randrange(topic.partitions)))
        await self._read(client, topic)
        await admin.delete(topic.name, client.topic_ids[topic.name])
        client.forget_topic(topic.name)
        self._left = None
        self._free = None if self._is_doubtful else topic.name

    def _new_topic(self) -> TopicSpec:
        rng = self.rng
        name, self._free = self._free, None
        if name is None or rng.random() >= REUSE_SHARE:
            self._names += 1
            name = f"churn-{self.spec.stream}-{self._names}"
        brokers = len(self.around.cluster.broker_ids)
        factor = min(brokers, rng.choice((1, 2, 3, 3)))
        return TopicSpec(name, rng.randint(*PARTITIONS), factor)

    async def _send(self, process: Process, client: Client, name: PartitionName) -> None:
        """Sends one batch with acks=-1; it ends as unknown if that takes too long."""
        values = draw_values(self.rng, f"{name[0]}-{name[1]}/{self.process_name}", self._sequence)
        self._sequence += len(values)
        records = encode_values(values, process.now_ms())
        key = (client.topic_ids[name[0]], name[1])
        self._open = operation = self.invoke_send(key, name[0], values)
        status, offset, error = await self._outcome(client, name, records)
        self._open = None
        self.complete(operation, status, base_offset=offset, error=error)

    async def _outcome(
        self, client: Client, name: PartitionName, records: bytes
    ) -> tuple[OperationStatus, int, str]:
        deadline_s = client.loop.time() + GIVE_UP_AFTER_S
        error, is_doubtful = "no leader", False
        while client.loop.time() < deadline_s:
            leader = client.leader(name)
            if leader is not None:
                request = produce_request({name: records}, -1)
                try:
                    answer = await client.call(leader.broker, request, PRODUCE_VERSION, ProduceResponse)
                except CallFailedError as failure:
                    error = str(failure)
                    is_doubtful = is_doubtful or not failure.was_not_sent
                else:
                    found = answer.responses[0].partition_responses[0]
                    code = ErrorCode.of(found.error_code)
                    if code is ErrorCode.NONE:
                        self._is_doubtful = self._is_doubtful or is_doubtful
                        return OperationStatus.OK, found.base_offset, ""
                    if not code.retriable or code is ErrorCode.CORRUPT_MESSAGE:
                        client.surprise(leader.broker, f"a send to {name} was refused with {code.name}")
                    error = code.name
                    is_doubtful = is_doubtful or code is not ErrorCode.NOT_ENOUGH_REPLICAS
                client.forget_leader(name, leader.broker)
            await client.back_off()
        self._is_doubtful = self._is_doubtful or is_doubtful
        return (OperationStatus.INFO if is_doubtful else OperationStatus.FAIL), -1, error

    async def _read(self, client: Client, topic: TopicSpec) -> None:
        """Reads every partition to its end, as far as that is possible in time."""
        reader = Reader(self, client)
        deadline_s = client.loop.time() + GIVE_UP_AFTER_S
        topic_id = client.topic_ids[topic.name]
        unread = [Position((topic.name, number), topic_id) for number in range(topic.partitions)]
        while unread and client.loop.time() < deadline_s:
            leader = client.leader(unread[0].name)
            if leader is None:
                await client.back_off()
                continue
            together = [position for position in unread if client.leader(position.name) == leader]
            if await reader.fetch(leader.broker, together, 0) < 0:
                await client.back_off()
            unread = [position for position in unread if not position.is_at_end]
