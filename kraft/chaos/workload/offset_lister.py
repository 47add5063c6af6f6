"""The client that asks for log ends and for the offsets of times (ListOffsets), during storms.

It asks a new leader at once and repeatedly. That leader may not know yet how far the former one had committed; then
it must answer OFFSET_NOT_AVAILABLE, and never a LATEST below an earlier answer (KIP-207). Each answer goes to the
judge with the state at its question. Now and then it asks where the leader's epoch ends (OffsetForLeaderEpoch),
like a consumer that checks whether the records that it has read are still there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kraft.chaos.history import OperationKind, OperationStatus
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.client import CallFailedError, Client, Leader, PartitionName
from kraft.chaos.workload.reader import LIST_OFFSETS_VERSION
from kraft.chaos.world.host import Process
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.offsets import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

NOT_AVAILABLE_YET = "LATEST not available yet"
"""The counter of questions that a new leader put off."""
ASKS_NEW_LEADER = 4
LOOKS_BACK_MAX_MS = 20_000
EPOCH_END_VERSION = 4
EPOCH_END_SHARE = 0.3
"""The part of questions to an older leader that ask about its epoch."""


class OffsetLister(Workload):
    """Asks one question after another, about one partition of its topic each."""

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        around.verdicts.declare((NOT_AVAILABLE_YET,))
        self._asked_of: dict[PartitionName, tuple[Leader, int]] = {}
        """The leader of each partition that was asked last, and how often it was asked for LATEST."""

    async def run(self, process: Process, client: Client) -> None:
        await client.wait_for_topics()
        while not self.is_over:
            name, leader = self._next(client)
            if leader is None:
                await client.back_off()
                continue
            is_new = self._asked_of[name][1] <= ASKS_NEW_LEADER
            if not is_new and self.rng.random() < EPOCH_END_SHARE:
                await self._ask_epoch_end(client, name, leader)
            else:
                await self._ask(client, name, leader, self._timestamp(process, is_new))
            await (client.back_off() if is_new else asyncio.sleep(self.pause_s(1)))

    def abandon(self, why: str) -> None:
        """Does nothing: an unanswered question leaves no trace in the history."""

    @property
    def has_open_operations(self) -> bool:
        return True  # a question, mostly

    def _next(self, client: Client) -> tuple[PartitionName, Leader | None]:
        """A partition whose leader is new, or else any."""
        names = self.partitions()
        for name in names:
            leader = client.leader(name)
            if leader is not None:
                known, asked = self._asked_of.get(name, (None, 0))
                if known != leader or asked < ASKS_NEW_LEADER:
                    self._asked_of[name] = leader, asked + 1 if known == leader else 1
                    return name, leader
        name = self.rng.choice(names)
        leader = client.leader(name)
        if leader is not None:
            self._asked_of[name] = leader, ASKS_NEW_LEADER + 1
        return name, leader

    def _timestamp(self, process: Process, is_new: bool) -> int:
        if is_new:
            return LATEST_TIMESTAMP
        recent = process.now_ms() - self.rng.randint(0, LOOKS_BACK_MAX_MS)
        return self.rng.choice((LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, recent))

    async def _ask(self, client: Client, name: PartitionName, leader: Leader, timestamp: int) -> None:
        (topic, partition), around = name, self.around
        key, began_s = (client.topic_ids[topic], partition), around.now_s
        epoch = leader.epoch if self.rng.random() < 0.5 else -1
        wanted = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        judge = around.on_list_offsets(key, timestamp, leader.broker)
        found = await self._answer(client, name, leader, request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        if found is not None:
            judge(found.offset, found.leader_epoch, found.timestamp)
            self._enter(key, topic, began_s, timestamp, found)

    async def _ask_epoch_end(self, client: Client, name: PartitionName, leader: Leader) -> None:
        """Asks for the end of the leader's own epoch; if another leads by now, it must not answer (KIP-320)."""
        topic, partition = name
        wanted = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=leader.epoch, leader_epoch=leader.epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        )
        found = await self._answer(
            client, name, leader, request, EPOCH_END_VERSION, OffsetForLeaderEpochResponse
        )
        if found is None:
            return
        if not _is_end_of(found, leader.epoch):
            text = (
                f"epoch {leader.epoch} of {name} ends with epoch {found.leader_epoch} at {found.end_offset}"
            )
            client.surprise(leader.broker, text)
        else:
            self.begun += 1
            self.acknowledged += 1

    async def _answer(
        self,
        client: Client,
        name: PartitionName,
        leader: Leader,
        request: Message,
        version: int,
        response: type[Message],
    ) -> Any:
        """The answer about the one partition of the question; None if there is none for now."""
        try:
            answer: Any = await client.call(leader.broker, request, version, response)
        except CallFailedError:
            client.forget_leader(name, leader.broker)
            return None
        found = answer.topics[0].partitions[0]
        code = ErrorCode.of(found.error_code)
        if code is ErrorCode.NONE:
            return found
        self._failed(client, name, leader, code)
        return None

    def _failed(self, client: Client, name: PartitionName, leader: Leader, code: ErrorCode) -> None:
        """Judges an error, which must be a transient one."""
        if code is ErrorCode.OFFSET_NOT_AVAILABLE:
            self.around.verdicts.happened(NOT_AVAILABLE_YET, f"{name} at node {leader.broker}")
            known, asked = self._asked_of[name]
            self._asked_of[name] = known, min(asked, ASKS_NEW_LEADER - 1)
            return
        client.forget_leader(name, leader.broker)
        if not code.retriable:
            client.surprise(leader.broker, f"ListOffsets of {name} failed: {code.name}")

    def _enter(
        self,
        key: tuple[bytes, int],
        topic: str,
        began_s: float,
        timestamp: int,
        found: ListOffsetsPartitionResponse,
    ) -> None:
        """Enters an answer into the history; `position` is the requested timestamp."""
        self.begun += 1
        history = self.around.history
        operation = history.invoke(
            self.process_name,
            OperationKind.LIST_OFFSETS,
            began_s,
            key=key,
            topic=topic,
            position=timestamp,
        )
        history.complete(operation, OperationStatus.OK, self.around.now_s, next_offset=found.offset)
        self.acknowledged += 1


def _is_end_of(found: EpochEndOffset, epoch: int) -> bool:
    """Whether this may answer for the epoch: it is that epoch's end, or an older one's if it wrote nothing
    (KIP-279)."""
    if found.leader_epoch == -1:
        return found.end_offset == -1
    return found.leader_epoch <= epoch and found.end_offset >= 0
