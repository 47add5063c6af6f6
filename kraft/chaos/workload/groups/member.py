"""What members of both protocols have in common: they read their partitions, commit what they read, and fetch offsets.

A member crashes as every client does; it freezes, comes back as a zombie that believes to be a member still, and may
commit before it learns better; it leaves and joins anew. It reads one topic that stays, and the group's own one, which
comes, grows and goes (`topic.py`): nobody writes to that, and the numbers that are committed for it are made up.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from kraft.chaos.group_history import GroupAction, GroupOperation, GroupProtocol, Sender
from kraft.chaos.history import OperationStatus
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.transaction_history import OffsetTold
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.client import REQUEST_TIMEOUT_S, CallFailedError, Client, PartitionName
from kraft.chaos.workload.groups.board import Standing
from kraft.chaos.workload.reader import Position, Reader
from kraft.chaos.world.host import Process
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

FIND_VERSION = 4
COMMIT_VERSIONS = FETCH_VERSIONS = (9, 10)
"""By name, and by topic id."""
FIRST_WITH_TOPIC_IDS = 10
COMMIT_ODDS, FETCH_ODDS = 0.7, 0.15
"""Of each step of a member."""
LEAVE_ODDS = 0.05
"""For each second."""
FREEZING_SHARE = 0.5
FREEZE_AFTER_S = (2.0, 15.0)
FREEZE_S = (0.3, 5.0)
LEAVE_ATTEMPTS = 5

FROZE = "group member froze"
LEFT = "group member left"
FENCED = "group member fenced"
COMMIT_REFUSED = "commit of a fenced member refused"
NOTHING_COMMITTED = "fetch of offsets found nothing"
COUNTERS = FROZE, LEFT, FENCED, COMMIT_REFUSED, NOTHING_COMMITTED

ELSEWHERE = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
OUTDATED = frozenset(
    (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )
)
"""The group went on without the sender."""
NO_TOPIC = frozenset((ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

Answer = TypeVar("Answer", bound=Message)


def topic_of(group: str) -> str:
    """The topic of a group that comes, grows and goes."""
    return f"topic-of-{group}"


class _NoCoordinatorError(Exception):
    """The run ends, and only an operator could give the group a coordinator again."""


class GroupMember(Workload):
    """One member, life after life."""

    protocol: GroupProtocol
    requires_stable = False
    """Whether it wants to be told no offsets of open transactions."""

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        around.verdicts.declare(COUNTERS)
        around.board.enlist(spec.group, self.name, self.partitions())
        self.client: Client
        self.reader: Reader
        self.member_id = ""
        self.generation = -1
        self.positions: dict[PartitionName, Position] = {}
        """Of the partitions that it owns, and has fetched the offsets of."""
        self._coordinator: int | None = None
        self._commits = 0

    # -- life

    def _begin_life(self) -> None:
        super()._begin_life()
        self.around.board.stands(self.spec.group, self.name, None)
        if self.rng.random() < FREEZING_SHARE:
            self._freeze_later(self.lives)

    def _crash(self, looks_left: int) -> None:
        """Not once the faults are over: a group is whole only if all its members live on."""
        if not self.is_calm:
            super()._crash(looks_left)

    def _freeze_later(self, life: int) -> None:
        self.around.cluster.simulation.call_later(self.rng.uniform(*FREEZE_AFTER_S), self._freeze, life)

    def _freeze(self, life: int) -> None:
        """As SIGSTOP: what it has asked is answered, and it does not hear it."""
        if self.is_calm or self.stopping or life != self.lives or self._host is None or not self._host.alive:
            return
        self.around.verdicts.happened(FROZE, self.process_name)
        self._host.pause(self.rng.uniform(*FREEZE_S))
        self._freeze_later(life)

    async def _live(self, process: Process) -> None:
        client = Client(
            self.around.cluster.addresses,
            self.rng,
            self.topics,
            self._on_surprise,
            follows_names=True,
            credentials=self.credentials,
        )
        await client.wait_for_topics()
        client.topics.update(dict.fromkeys(self.subscribed))
        self.client, self.reader = client, self.new_reader(client)
        self._coordinator = None
        self.forget()
        await self.run(process, client)
        self.drained = True

    def new_reader(self, client: Client) -> Reader:
        """What a life of it reads with."""
        return Reader(self, client)

    async def run(self, process: Process, client: Client) -> None:
        try:
            while not self.is_over:
                if await self.join():
                    await self._take_part()
                else:
                    await client.back_off()
            await self.leave()
        except _NoCoordinatorError:
            self.forget()

    async def _take_part(self) -> None:
        """As long as the group knows it, or until it leaves for a while. After a pause it first goes on with its work:
        a zombie commits before it hears that it is one."""
        beat_s = self.client.loop.time() + self.heartbeat_s
        while not self.is_over:
            await self._step()
            if self.client.loop.time() >= beat_s:
                beat_s = self.client.loop.time() + self.heartbeat_s
                if not await self.beat():
                    return
            if not self.is_calm and self.rng.random() < LEAVE_ODDS / self.spec.per_second:
                self.around.verdicts.happened(LEFT, self.process_name)
                await self.leave()
                return
            await asyncio.sleep(self.pause_s(1))

    def abandon(self, why: str) -> None:
        self.around.board.stands(self.spec.group, self.name, None)

    @property
    def has_open_operations(self) -> bool:
        return True  # some request, mostly

    # -- for the protocols

    @property
    def subscribed(self) -> list[str]:
        """The topics that it reads."""
        return [self.spec.topic, topic_of(self.spec.group)]

    @property
    @abstractmethod
    def heartbeat_s(self) -> float:
        """How often it is heard, at least while requests are answered."""

    @abstractmethod
    async def join(self) -> bool:
        """Whether it is a member now."""

    @abstractmethod
    async def beat(self) -> bool:
        """Sends a heartbeat; False: join anew."""

    @abstractmethod
    async def leave(self) -> None:
        """Tells the coordinator, if there is anything to tell."""

    def forget(self) -> None:
        """It is no member any more, as far as it knows."""
        self.member_id, self.generation = "", -1
        self.positions.clear()
        self.around.board.stands(self.spec.group, self.name, None)

    def fenced(self) -> None:
        """The coordinator does not know it."""
        self.around.verdicts.happened(FENCED, f"{self.process_name} {self.member_id}")

    # -- the coordinator

    @property
    def sender(self) -> Sender:
        return Sender(self.spec.group, self.protocol, self.member_id, self.generation)

    async def find_coordinator(self) -> int:
        """The broker that coordinates the group, as some broker says. Asks until one says."""
        request = FindCoordinatorRequest(coordinator_keys=[self.spec.group])
        while self._coordinator is None:
            broker, answer = await self.client.call_any(request, FIND_VERSION, FindCoordinatorResponse)
            found = answer.coordinators[0]
            code = ErrorCode.of(found.error_code)
            if code is ErrorCode.NONE:
                self._coordinator = found.node_id
                break
            if not code.retriable:
                self.client.surprise(broker, f"FindCoordinator was answered with {code.name}")
            if self.stopping and self.around.groups.is_beyond_repair(self.spec.group):
                raise _NoCoordinatorError
            await self.client.back_off()
        return self._coordinator

    async def ask(
        self,
        broker: int,
        message: Message,
        version: int,
        answers: type[Answer],
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Answer | None:
        """The coordinator's answer; None where there is none."""
        self.begun += 1
        try:
            return await self.client.call(broker, message, version, answers, timeout_s)
        except CallFailedError:
            self._coordinator = None
            return None

    def code_of(
        self, broker: int, what: str, error_code: int, expected: Collection[ErrorCode] = ()
    ) -> ErrorCode:
        """Judges an error, which must be a transient one or be expected. A group whose records are gone with an excuse
        may have gone with them: for its members that is as if they had been removed."""
        code = ErrorCode.of(error_code)
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.around.groups.is_excused(self.spec.group):
            return ErrorCode.UNKNOWN_MEMBER_ID
        if code in ELSEWHERE:
            self._coordinator = None
        elif code is not ErrorCode.NONE and not code.retriable and code not in expected:
            self.client.surprise(broker, f"{what} of group {self.spec.group} was answered with {code.name}")
        return code

    def epoch_of(self, broker: int) -> int:
        return self.around.groups.epoch_of(self.spec.group, broker)

    def stands(self, owned: Collection[PartitionName], asked_s: float) -> None:
        """A heartbeat of then was answered."""
        standing = Standing(self.generation, frozenset(owned), asked_s)
        self.around.board.stands(self.spec.group, self.name, standing)

    # -- reading and committing

    async def own(self, names: Collection[PartitionName]) -> None:
        """It owns these now, and begins behind what is committed; of those that it had it goes on."""
        ids = self.client.topic_ids
        self.positions = {
            name: position
            for name, position in self.positions.items()
            if name in names and position.topic_id == ids.get(name[0])
        }
        fresh = [name for name in sorted(names) if name not in self.positions and name[0] in ids]
        if fresh:
            await self._fetch_offsets(fresh)

    async def _step(self) -> None:
        """Reads on; commits some positions; now and then looks at what is committed."""
        by_leader: dict[int, list[Position]] = {}
        for position in list(self.positions.values()):
            if position.name[0] != self.spec.topic:
                position.offset += 1
            elif (broker := self.reader.target(position)) is not None:
                by_leader.setdefault(broker, []).append(position)
        for broker, together in by_leader.items():
            await self.reader.fetch(broker, together, 0)
        if self.positions and self.rng.random() < COMMIT_ODDS:
            await self.commit(self._some())
        if self.positions and self.rng.random() < FETCH_ODDS:
            await self._fetch_offsets([position.name for position in self._some()])

    def _some(self) -> list[Position]:
        return self.rng.sample(list(self.positions.values()), self.rng.randint(1, len(self.positions)))

    async def commit(self, positions: Sequence[Position]) -> None:
        """Commits where these are. Each is an operation with a text of its own, and is sent once."""
        version = self.rng.choice(COMMIT_VERSIONS)
        chosen = [
            one for one in positions if version >= FIRST_WITH_TOPIC_IDS or one.name[0] == self.spec.topic
        ]
        if not chosen:
            return
        broker = await self.find_coordinator()
        watch, sender, epoch = self.around.groups, self.sender, self.epoch_of(broker)
        request = OffsetCommitRequest(
            group_id=sender.group,
            generation_id_or_member_epoch=sender.generation,
            member_id=sender.member_id,
        )
        operations = []
        for position in chosen:
            topic, number = position.name
            self._commits += 1
            tag = f"{self.process_name}/{self._commits}"
            key = position.topic_id, number
            operations.append(
                watch.history.ask(GroupAction.COMMIT, sender, epoch, key=key, offset=position.offset, tag=tag)
            )
            part = OffsetCommitRequestPartition(number, position.offset, committed_metadata=tag)
            request.topics.append(OffsetCommitRequestTopic(topic, position.topic_id, [part]))
        answer = await self.ask(broker, request, version, OffsetCommitResponse)
        if answer is None:
            return
        for operation, told in zip(operations, answer.topics, strict=True):
            code = self.code_of(broker, "OffsetCommit", told.partitions[0].error_code, OUTDATED | NO_TOPIC)
            if code is ErrorCode.NONE:
                watch.told(sender.group, operation.tag, "that it was accepted")
                self.acknowledged += 1
            elif code in OUTDATED:
                self.around.verdicts.happened(COMMIT_REFUSED, f"{operation.tag}: {code.name}")
            is_fine = code is ErrorCode.NONE
            status = OperationStatus.OK if is_fine else OperationStatus.INFO
            watch.history.answer(operation, status, self.epoch_of(broker), error=code.name)

    async def _fetch_offsets(self, names: Sequence[PartitionName]) -> None:
        """Asks what is committed; the positions of partitions that are new begin there."""
        version = self.rng.choice(FETCH_VERSIONS)
        chosen = [name for name in names if version >= FIRST_WITH_TOPIC_IDS or name[0] == self.spec.topic]
        if not chosen:
            return
        broker = await self.find_coordinator()
        watch, sender, epoch = self.around.groups, self.sender, self.epoch_of(broker)
        ids = self.client.topic_ids
        operations = {
            name: watch.history.ask(GroupAction.FETCH, sender, epoch, key=(ids[name[0]], name[1]))
            for name in chosen
        }
        by_consumer = self.protocol is GroupProtocol.CONSUMER
        group = OffsetFetchRequestGroup(
            group_id=sender.group,
            member_id=sender.member_id if by_consumer else None,
            member_epoch=sender.generation if by_consumer else -1,
            topics=[OffsetFetchRequestTopics(topic, ids[topic], [number]) for topic, number in chosen],
        )
        request = OffsetFetchRequest(groups=[group], require_stable=self.requires_stable)
        answer = await self.ask(broker, request, version, OffsetFetchResponse)
        if answer is not None:
            self._take_offsets(broker, operations, answer)

    def _take_offsets(
        self, broker: int, asked: Mapping[PartitionName, GroupOperation], answer: OffsetFetchResponse
    ) -> None:
        """Takes the offsets that are told, in the order of the questions; nothing where there is an error."""
        watch, (found,) = self.around.groups, answer.groups
        if self.code_of(broker, "OffsetFetch", found.error_code, OUTDATED) is not ErrorCode.NONE:
            return
        for (name, operation), topic in zip(asked.items(), found.topics, strict=True):
            told, key = topic.partitions[0], operation.key
            code = self.code_of(broker, "OffsetFetch", told.error_code, NO_TOPIC)
            if code is not ErrorCode.NONE or key is None:
                continue
            tag, offset = told.metadata or "", told.committed_offset
            if offset >= 0:
                watch.told(self.spec.group, tag, "what is committed")
                if self.requires_stable:
                    self.around.transactions.history.told.append(OffsetTold(tag, self.around.now_s))
            else:
                self.around.verdicts.coverage[NOTHING_COMMITTED] += 1
            watch.history.answer(operation, OperationStatus.OK, self.epoch_of(broker), offset=offset, tag=tag)
            self.acknowledged += 1
            self.positions.setdefault(name, Position(name, key[0], max(offset, 0)))
