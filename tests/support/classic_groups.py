"""One classic group with its log, its clock and its clients, as golden stories and property tests drive it.

The runtime is modelled at its simplest: what is written is committed at once, and a crash of the coordinator loses all
but the last record. After every call the world checks what must hold of any group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from kraft.coordinator.groups import group_metadata
from kraft.coordinator.groups.classic import ClassicGroup, State
from kraft.coordinator.groups.context import (
    Client,
    GroupContext,
    GroupCounters,
    GroupSettings,
    TopicPartitions,
)
from kraft.coordinator.groups.group_metadata import GroupMetadataValue
from kraft.coordinator.shard import Decisions, Moment, ShardTimers, Written
from kraft.coordinator.timers import Timers
from kraft.protocol.compiler import compile_codec
from kraft.protocol.errors import ErrorCode
from kraft.protocol.primitives import Codec
from kraft.protocol.schema import Message
from kraft.protocol.schemas.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

GROUP_ID = "g"
WALL_START_MS = 1_000_000
FIRST_FLEXIBLE: dict[type[Message], int] = {
    JoinGroupResponse: 6,
    SyncGroupResponse: 4,
    HeartbeatResponse: 4,
    LeaveGroupResponse: 4,
}
GRACE_BYTES = 100
"""What the headers of a batch and of a record in it have, at most."""


@cache
def codec(of: type[Message], version: int) -> Codec:
    return compile_codec(of, version, version >= FIRST_FLEXIBLE[of])


def subscription(topics: Iterable[str], *, version: int = 0) -> bytes:
    """The metadata of a consumer that reads the topics."""
    names = [topic.encode() for topic in topics]
    listed = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    no_user_data = (-1).to_bytes(4, "big", signed=True)
    return version.to_bytes(2, "big") + len(names).to_bytes(4, "big") + listed + no_user_data


class NoTopics:
    def named(self, name: str) -> TopicPartitions | None:
        return None

    def with_id(self, topic_id: bytes) -> TopicPartitions | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


class Answer(NamedTuple):
    """What a client was told."""

    client: str
    response: Any


class World:
    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.now_ms = 0
        self.ids_made = 0
        self.tokens = 0
        self.waiting: dict[int, str] = {}
        """Whose request a token is."""
        self.versions: dict[int, int] = {}
        self.log: list[bytes | None] = []
        """The values that were written."""
        self.counters = GroupCounters()
        self.timers: ShardTimers = Timers()
        self.group = ClassicGroup(GROUP_ID, self._context())

    def _context(self) -> GroupContext:
        return GroupContext(self.settings, self.timers, NoTopics(), self._new_id, self.counters)

    def _new_id(self) -> str:
        self.ids_made += 1
        return str(self.ids_made)

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, WALL_START_MS + self.now_ms)

    def last_record(self) -> GroupMetadataValue | None:
        data = self.log[-1] if self.log else None
        return None if data is None else group_metadata.VALUE.decode(data)

    # Requests

    def join(
        self,
        client: str,
        member_id: str,
        protocols: dict[str, bytes],
        *,
        instance_id: str | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        version: int = 9,
        reason: str | None = None,
    ) -> list[Answer]:
        request = JoinGroupRequest(
            group_id=GROUP_ID,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols.items()],
            reason=reason,
        )
        return self.call(client, self.group.join, request, version)

    def sync(
        self,
        client: str,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes],
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> list[Answer]:
        request = SyncGroupRequest(
            group_id=GROUP_ID,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[SyncGroupRequestAssignment(*assignment) for assignment in assignments.items()],
        )
        return self.call(client, self.group.sync, request, 5)

    def heartbeat(
        self, client: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> list[Answer]:
        request = HeartbeatRequest(
            group_id=GROUP_ID, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return self.call(client, self.group.heartbeat, request, 4)

    def leave(self, client: str, request: LeaveGroupRequest, version: int = 5) -> list[Answer]:
        return self.call(client, self.group.leave, request, version)

    def call(self, client: str, method: Callable[..., None], request: object, version: int) -> list[Answer]:
        self.tokens += 1
        self.waiting[self.tokens] = client
        self.versions[self.tokens] = version
        decisions = Decisions()
        method(self.tokens, request, Client(client, f"/10.0.0.{len(client)}"), version, self.now, decisions)
        return self._take(decisions)

    # Time, crashes

    def tick(self, ms: int) -> list[Answer]:
        """Time passes; each timer that runs out acts at its own time."""
        answers, end_ms = [], self.now_ms + ms
        while (next_ms := self.timers.next_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            answers += self.fire()
        self.now_ms = end_ms
        return answers

    def leap(self, ms: int) -> list[Answer]:
        """Time passes at once, as for a process that was frozen: many timers have run out at the same time."""
        self.now_ms += ms
        return self.fire()

    def fire(self) -> list[Answer]:
        decisions = Decisions()
        for action in self.timers.pop_due(self.now_ms):
            action(self.now, decisions)
        return self._take(decisions)

    def crash(self) -> list[Answer]:
        """Another coordinator loads the log. Clients that waited hear nothing."""
        self.waiting.clear()
        self.timers = Timers()
        record = self.last_record()
        self.group = ClassicGroup(GROUP_ID, self._context())
        if record is not None:
            self.group.replay(record)
        decisions = Decisions()
        self.group.on_loaded(self.now, decisions)
        return self._take(decisions)

    def suspend(self, ms: int) -> list[Answer]:
        """For a time the shard cannot be asked: no request reaches it, and no timer. Then it is told, and goes on."""
        self.now_ms += ms
        decisions = Decisions()
        self.group.on_loaded(self.now, decisions)
        return [*self._take(decisions), *self.fire()]

    def delete(self) -> ErrorCode:
        decisions = Decisions()
        error = self.group.delete(decisions)
        self._take(decisions)
        return error

    def _take(self, decisions: Decisions) -> list[Answer]:
        for one in decisions.written:
            assert isinstance(one, Written)
            assert (one.about, one.producer) == (GROUP_ID, None)
            record = one.record
            assert group_metadata.KEY.decode(record.key).group == GROUP_ID
            size = len(record.key) + len(record.value or b"")
            assert size + GRACE_BYTES <= self.settings.record_max_bytes, "a record is too large"
            self.log.append(record.value)
        answers = []
        for reply in decisions.replies:
            assert reply.about == GROUP_ID
            answers.append(Answer(self.waiting.pop(reply.token), reply.response))
            codec(type(reply.response), self.versions[reply.token]).encode(reply.response)  # it can be sent
        check(self.group, set(self.waiting))
        return answers


def check(group: ClassicGroup, waiting: set[int], *, loaded: bool = True) -> None:
    """What holds of any group between two requests; before it is loaded it has no timers."""
    members = group._members
    tokens = [*group._joins.values(), *group._syncs.values()]
    assert sorted(tokens) == sorted(waiting), "a request waits that the group does not know of"
    assert {*group._joins, *group._syncs} <= set(members)
    assert not set(group._pending) & set(members)
    assert group._pending_sync <= set(members)
    assert group._static == {
        member.instance_id: member_id
        for member_id, member in members.items()
        if member.instance_id is not None
    }
    assert (group._leader in members) if members else (group._leader is None)
    assert not group._syncs or group._state is State.COMPLETING_REBALANCE
    assert not group._joins or group._state is State.PREPARING_REBALANCE
    if group._state in (State.COMPLETING_REBALANCE, State.STABLE):
        assert members
        assert all(member.metadata(group._protocol) is not None for member in members.values())
    if group._state in (State.EMPTY, State.DEAD):
        assert not members
    pending = sum(64 + 2 * len(member_id.encode()) for member_id in group._pending)
    held = sum(member.weight + len(member.assignment) for member in members.values())
    assert group._weight == pending + held
    names = {name for member in members.values() for name, _ in member.protocols}
    for name in names | set(group._supporters):
        supporters = [m for m in members.values() if name in dict(m.protocols)]
        assert group._supporters[name] == len(supporters) > 0
    if loaded:
        _check_timers(group)


def _check_timers(group: ClassicGroup) -> None:
    timers = group._context.timers
    for member_id in group._members:
        waits = member_id in group._joins or member_id in group._syncs
        assert waits or group._timer("session", member_id) in timers, f"{member_id} may stay for ever"
    for member_id in group._pending:
        assert group._timer("session", member_id) in timers, f"{member_id} may be awaited for ever"
    if group._state is State.PREPARING_REBALANCE:
        assert group._timer("join") in timers, "the rebalance may last for ever"
    if group._state is State.COMPLETING_REBALANCE:
        assert group._timer("sync") in timers or not group._pending_sync
    if group._state in (State.EMPTY, State.DEAD):
        assert len(timers) == len(group._pending), "a group without members needs no timers"


def is_join(answer: Answer) -> bool:
    return isinstance(answer.response, JoinGroupResponse)


def is_sync(answer: Answer) -> bool:
    return isinstance(answer.response, SyncGroupResponse)
