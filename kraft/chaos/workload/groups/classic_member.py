"""The member of a classic group: JoinGroup, the leader's assignment by SyncGroup, heartbeats, LeaveGroup."""

from __future__ import annotations

from kraft.chaos.group_history import GroupAction, GroupProtocol
from kraft.chaos.history import OperationStatus, TopicKey
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings
from kraft.chaos.workload.client import PartitionName
from kraft.chaos.workload.groups import consumer_protocol
from kraft.chaos.workload.groups.member import LEAVE_ATTEMPTS, GroupMember
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
SESSION_TIMEOUTS_MS = (1_000, 2_000, 3_000)
REBALANCE_TIMEOUTS_MS = (1_000, 2_000)
ANSWER_WITHIN_S = 2.0
"""Beside the time that the group may take to come together."""
GONE = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID))
AGAIN = frozenset((ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION))


class ClassicMember(GroupMember):
    """One member of a classic group."""

    protocol = GroupProtocol.CLASSIC

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        self._session_ms = self.rng.choice(SESSION_TIMEOUTS_MS)
        self._rebalance_ms = self.rng.choice(REBALANCE_TIMEOUTS_MS)
        self._owned: frozenset[PartitionName] = frozenset()
        self._spread: frozenset[TopicKey] | None = None
        """What it gave to the members of this generation, if it leads."""

    @property
    def heartbeat_s(self) -> float:
        return self._session_ms / 4_000

    async def join(self) -> bool:
        """One attempt to get into the next generation."""
        self.around.board.stands(self.spec.group, self.name, None)
        joined = await self._joined()
        if joined is None:
            return False
        self.generation, self._spread = joined.generation_id, None
        assignments = await self._assign(joined) if joined.leader == joined.member_id else {}
        broker = await self.find_coordinator()
        history, sender = self.around.groups.history, self.sender
        operation = history.ask(GroupAction.ASSIGNED, sender, self.epoch_of(broker))
        request = SyncGroupRequest(
            group_id=sender.group,
            generation_id=sender.generation,
            member_id=sender.member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[SyncGroupRequestAssignment(*one) for one in assignments.items()],
        )
        asked_s = self.around.now_s
        answer = await self.ask(broker, request, SYNC_VERSION, SyncGroupResponse, self._waits_s)
        if answer is None:
            return False
        code = self.code_of(broker, "SyncGroup", answer.error_code, GONE | AGAIN)
        if code in GONE:
            self.fenced()
            self.forget()
        if code is not ErrorCode.NONE:
            return False
        self._owned = consumer_protocol.assigned(bytes(answer.assignment))
        keys = [(topic.encode(), number) for topic, number in self._owned]  # leaders assign by name
        history.answer(operation, OperationStatus.OK, self.epoch_of(broker), owned=keys)
        self.positions.clear()
        await self.own(self._owned)
        self.stands(self._owned, asked_s)
        return True

    @property
    def _waits_s(self) -> float:
        return max(REBALANCE_TIMEOUTS_MS) / 1_000 + ANSWER_WITHIN_S

    async def _joined(self) -> JoinGroupResponse | None:
        broker = await self.find_coordinator()
        request = JoinGroupRequest(
            group_id=self.spec.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.member_id,
            protocol_type=consumer_protocol.PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    consumer_protocol.PROTOCOL, consumer_protocol.subscription(self.subscribed)
                )
            ],
        )
        answer = await self.ask(broker, request, JOIN_VERSION, JoinGroupResponse, self._waits_s)
        if answer is None:
            return None
        code = self.code_of(
            broker, "JoinGroup", answer.error_code, GONE | AGAIN | {ErrorCode.MEMBER_ID_REQUIRED}
        )
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code in GONE:
            self.fenced()
            self.forget()
        if code is not ErrorCode.NONE:
            return None
        self.member_id = answer.member_id
        return answer

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """What the leader gives each member: the partitions that it knows of."""
        await self.client.refresh()
        names = [name for topic in self.subscribed for name in self.client.partitions_of(topic)]
        self._spread = self._known
        members = [member.member_id for member in joined.members]
        spread = consumer_protocol.spread(names, members)
        return {member_id: consumer_protocol.assignment(given) for member_id, given in spread.items()}

    @property
    def _known(self) -> frozenset[TopicKey]:
        """The partitions of its topics, as its metadata has them."""
        ids = self.client.topic_ids
        return frozenset(
            (ids[topic], number)
            for topic in self.subscribed
            for _, number in self.client.partitions_of(topic)
        )

    async def beat(self) -> bool:
        """As every leader it looks whether its topics have changed: then all join anew."""
        self.client.want_metadata()
        if self._spread is not None and self._spread != self._known:
            return False
        broker = await self.find_coordinator()
        request = HeartbeatRequest(
            group_id=self.spec.group, generation_id=self.generation, member_id=self.member_id
        )
        asked_s = self.around.now_s
        answer = await self.ask(broker, request, HEARTBEAT_VERSION, HeartbeatResponse)
        if answer is None:
            return True
        code = self.code_of(broker, "Heartbeat", answer.error_code, GONE | AGAIN)
        if code is ErrorCode.NONE:
            self.stands(self._owned, asked_s)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS and self.positions:
            await self.commit(self._some())
        elif code in GONE:
            self.fenced()
            self.forget()
        return code not in GONE | AGAIN

    async def leave(self) -> None:
        """Tries a few times; if that is in vain its session will end."""
        for _ in range(LEAVE_ATTEMPTS if self.member_id else 0):
            broker = await self.find_coordinator()
            request = LeaveGroupRequest(
                group_id=self.spec.group, members=[MemberIdentity(member_id=self.member_id)]
            )
            answer = await self.ask(broker, request, LEAVE_VERSION, LeaveGroupResponse)
            if answer is not None and self._has_left(broker, answer):
                break
            await self.client.back_off()
        self.forget()

    def _has_left(self, broker: int, answer: LeaveGroupResponse) -> bool:
        code = self.code_of(broker, "LeaveGroup", answer.error_code)
        if code is ErrorCode.NONE:
            code = self.code_of(broker, "LeaveGroup", answer.members[0].error_code, GONE)
        return code is ErrorCode.NONE or code in GONE
