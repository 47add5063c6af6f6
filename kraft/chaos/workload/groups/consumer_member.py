"""The member of a group of KIP-848: heartbeats alone, in which the coordinator assigns and the member gives up."""

from __future__ import annotations

import uuid

from kraft.chaos.group_history import GroupAction, GroupProtocol
from kraft.chaos.history import OperationStatus, TopicKey
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings
from kraft.chaos.workload.client import PartitionName
from kraft.chaos.workload.groups.member import LEAVE_ATTEMPTS, GroupMember, topic_of
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.consumer_groups import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

HEARTBEAT_VERSION = 1
HEARTBEAT_S = 0.3
REBALANCE_TIMEOUTS_MS = (1_000, 2_000)
GONE = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH))


class ConsumerMember(GroupMember):
    """One member of a group of KIP-848."""

    protocol = GroupProtocol.CONSUMER

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        self._rebalance_ms = self.rng.choice(REBALANCE_TIMEOUTS_MS)
        self._owned: frozenset[TopicKey] = frozenset()
        self._reported: frozenset[TopicKey] | None = None
        """What the coordinator knows of what it owns; None: the next heartbeat tells all."""

    @property
    def heartbeat_s(self) -> float:
        return HEARTBEAT_S

    def forget(self) -> None:
        super().forget()
        self._owned, self._reported = frozenset(), None

    async def join(self) -> bool:
        if not self.member_id:
            self.member_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        self.generation = JOIN_GROUP_MEMBER_EPOCH
        return await self.beat() and self.generation > JOIN_GROUP_MEMBER_EPOCH

    async def beat(self) -> bool:
        broker = await self.find_coordinator()
        history = self.around.groups.history
        operation = history.ask(GroupAction.ASSIGNED, self.sender, self.epoch_of(broker))
        asked_s, owned = self.around.now_s, self._owned
        answer = await self.ask(broker, self._heartbeat(), HEARTBEAT_VERSION, ConsumerGroupHeartbeatResponse)
        if answer is None:
            self._reported = None
            return True
        code = self.code_of(broker, "ConsumerGroupHeartbeat", answer.error_code, GONE)
        if code in GONE:
            self._gave_up()
            return False
        if code is not ErrorCode.NONE:
            self._reported = None
            return True
        self._reported = owned
        self.generation = answer.member_epoch
        if answer.assignment is not None:
            self._owned = frozenset(
                (topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            )
        history.answer(
            operation,
            OperationStatus.OK,
            self.epoch_of(broker),
            sender=self.sender,
            owned=sorted(self._owned),
        )
        names = self._names()
        self.stands(names, asked_s)
        await self.own(names)
        return True

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """All that there is to tell, where the coordinator may not know it; else what changed."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.spec.group, member_id=self.member_id, member_epoch=self.generation
        )
        if self._reported is None:
            request.rebalance_timeout_ms = self._rebalance_ms
            request.subscribed_topic_names = [self.spec.topic, topic_of(self.spec.group)]
        if self._reported != self._owned:
            by_topic: dict[bytes, list[int]] = {}
            for topic_id, number in sorted(self._owned):
                by_topic.setdefault(topic_id, []).append(number)
            request.topic_partitions = [HeartbeatTopicPartitions(*one) for one in by_topic.items()]
        return request

    def _names(self) -> list[PartitionName]:
        """The names of what it owns, of the topics that its metadata has."""
        names = {topic_id: name for name, topic_id in self.client.topic_ids.items()}
        self.client.want_metadata()
        return [(names[topic_id], number) for topic_id, number in sorted(self._owned) if topic_id in names]

    def _gave_up(self) -> None:
        """It was fenced: it holds nothing any more, and joins under its member id."""
        self.fenced()
        history, member_id = self.around.groups.history, self.member_id
        if self._owned:
            history.answer(history.ask(GroupAction.ASSIGNED, self.sender, -1), OperationStatus.OK)
        self.forget()
        self.member_id = member_id

    async def leave(self) -> None:
        """Tries a few times; if that is in vain its session will end."""
        for _ in range(LEAVE_ATTEMPTS if self.generation > JOIN_GROUP_MEMBER_EPOCH else 0):
            broker = await self.find_coordinator()
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.spec.group, member_id=self.member_id, member_epoch=LEAVE_GROUP_MEMBER_EPOCH
            )
            answer = await self.ask(broker, request, HEARTBEAT_VERSION, ConsumerGroupHeartbeatResponse)
            if answer is not None:
                code = self.code_of(broker, "ConsumerGroupHeartbeat", answer.error_code, GONE)
                if code is ErrorCode.NONE or code in GONE:
                    break
            await self.client.back_off()
        self.forget()
