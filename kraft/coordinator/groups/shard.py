"""The shard of groups: one partition of __consumer_offsets as a state machine.

It finds the group of a request, of a record, and of a topic that changed; the groups themselves decide
(`classic.py`, `consumer.py`), and `offsets.py` keeps what they committed. A group id names one group, of one protocol.
An empty group becomes one of the other protocol when somebody joins by that; one with members does not
(`group.consumer.migration.policy=disabled`). Pure; hosted by `kraft.coordinator.runtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from kraft.coordinator.groups import group_metadata
from kraft.coordinator.groups.classic import ClassicGroup
from kraft.coordinator.groups.consumer import ConsumerGroup
from kraft.coordinator.groups.consumer_records import CONSUMER_GROUP_RECORDS
from kraft.coordinator.groups.context import Client, GroupContext, GroupType, MayDescribe, describes_all
from kraft.coordinator.groups.offset_records import KEY_TYPES as OFFSET_KEY_TYPES
from kraft.coordinator.groups.offsets import GroupOffsets
from kraft.coordinator.record_schema import type_of_key
from kraft.coordinator.shard import (
    Decisions,
    Moment,
    ShardTimers,
    StoredMarker,
    StoredRecord,
    TransactionMarker,
)
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.schemas.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kraft.protocol.schemas.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kraft.protocol.schemas.group_admin import DeletableGroupResult, ListedGroup
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequestGroup,
    TxnOffsetCommitRequest,
)

log = structlog.get_logger(__name__)

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup

FIRST_LEAVE_VERSION_WITH_MEMBERS: Final = 3
_SWEEP = "offsets of topics that are gone"
_EXPIRY = "offsets that expire"


class GroupRequest(NamedTuple):
    """What a shard is asked: `body` is a request of the protocol about one group, or one of the questions below."""

    body: Any
    version: int
    client: Client
    may_describe: MayDescribe = describes_all
    """Of whoever asks; the group asks it when it decides."""


class FetchOffsets(NamedTuple):
    """Replied to with an OffsetFetchResponseGroup."""

    group: OffsetFetchRequestGroup
    require_stable: bool


class ListGroups(NamedTuple):
    """Replied to with a list of ListedGroup; an empty filter lets all through."""

    states: tuple[str, ...]
    types: tuple[str, ...]


class DescribeGroup(NamedTuple):
    """Replied to with the DescribedGroup of a classic group, or GROUP_ID_NOT_FOUND."""

    group_id: str


class DescribeConsumerGroup(NamedTuple):
    """Replied to with the DescribedGroup of a consumer group, or GROUP_ID_NOT_FOUND."""

    group_id: str


class DeleteGroup(NamedTuple):
    """Replied to with a DeletableGroupResult."""

    group_id: str


class EndTransaction(NamedTuple):
    """Replied to with an ErrorCode when the marker is committed. Whoever asks has judged it by the log."""

    marker: TransactionMarker


class AwaitCommitted(NamedTuple):
    """Replied to with NONE when all that was decided before is committed."""


class GroupShard:
    """The groups of one partition. (A `Shard` of the runtime.)"""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.timers: ShardTimers = context.timers
        self._groups: dict[str, AnyGroup] = {}
        self.offsets = GroupOffsets(context, self._make_group_of_offsets)

    @property
    def groups(self) -> Mapping[str, AnyGroup]:
        """By id, to look at."""
        return self._groups

    # -- loading

    def replay(self, record: StoredRecord) -> None:
        """Takes in a record of the log. One that cannot be read is left out, and logged."""
        if record.key in self.offsets.known_keys:
            self.offsets.replay(record, record.producer_id)
            return
        kind = type_of_key(record.key)
        if kind in OFFSET_KEY_TYPES:
            self.offsets.replay(record, record.producer_id)
            return
        try:
            if kind == group_metadata.KEY_TYPE:
                self._replay_classic(record)
            elif kind in CONSUMER_GROUP_RECORDS:
                self._replay_consumer(kind, record)
            else:
                log.warning("a record of an unknown type is left out", offset=record.offset, type=kind)
        except ProtocolError as error:
            log.warning("a record of a group is left out", offset=record.offset, reason=str(error))

    def _replay_classic(self, record: StoredRecord) -> None:
        group_id = group_metadata.KEY.decode(record.key).group
        group = self._groups.get(group_id)
        if record.value is None:
            if isinstance(group, ClassicGroup):  # else it has become a consumer group
                del self._groups[group_id]
            return
        value = group_metadata.VALUE.decode(record.value)
        if not isinstance(group, ClassicGroup):
            group = ClassicGroup(group_id, self._context)
        group.replay(value)
        self._groups[group_id] = group

    def _replay_consumer(self, kind: int, record: StoredRecord) -> None:
        schemas = CONSUMER_GROUP_RECORDS[kind]
        key = schemas.key.decode(record.key)
        value = None if record.value is None else schemas.value.decode(record.value)
        group_id: str = key.group_id
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return  # it has become a classic group
            group = self._groups[group_id] = ConsumerGroup(group_id, self._context)
        group.replay(key, value, record.timestamp_ms)

    def replay_marker(self, marker: StoredMarker) -> None:
        """A transaction ended: the offsets that it committed stand, or are forgotten."""
        self.offsets.replay_marker(marker.producer_id, marker.is_commit)

    def on_replayed(self) -> None:
        """Groups of which only offsets are left stand by them."""
        self.offsets.on_loaded()
        for group_id in [group_id for group_id, group in self._groups.items() if not _is_there(group)]:
            del self._groups[group_id]
        for group_id in self.offsets.group_ids():
            if group_id not in self._groups:
                self._make_group_of_offsets(group_id)

    def on_loaded(self, now: Moment, decisions: Decisions) -> None:
        """Sessions begin, also where the runtime could not ask the shard for a while; topics may have changed then."""
        self.on_replayed()
        for group in list(self._groups.values()):
            group.on_loaded(now, decisions)
        self._sweep(now, decisions)
        if _EXPIRY not in self.timers:
            self._set(_EXPIRY, now, self._context.settings.offsets_retention_check_interval_ms, self._expire)

    # -- requests

    def handle(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        """Decides on one request. One that would make a group where there are too many is refused."""
        body = request.body
        is_full = len(self._groups) >= self._context.settings.groups_max
        if is_full and isinstance(body, _MAKING_GROUPS) and body.group_id not in self._groups:
            decisions.reply(body.group_id, token, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        _DECISIONS[type(request.body)](self, token, request, now, decisions)

    def _join(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        body: JoinGroupRequest = request.body
        group = self._groups.get(body.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            decisions.reply(
                body.group_id, token, JoinGroupResponse(error_code=code, member_id=body.member_id)
            )
            return
        classic = group if isinstance(group, ClassicGroup) else ClassicGroup(body.group_id, self._context)
        joined = Decisions()
        classic.join(token, body, request.client, request.version, now, joined)
        if isinstance(group, ConsumerGroup) and _is_there(classic):
            group.delete(decisions)
        self._keep(classic, group)
        decisions.extend(joined)

    def _sync(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        body: SyncGroupRequest = request.body
        group = self._classic(body.group_id)
        if group is None:
            decisions.reply(body.group_id, token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return
        group.sync(token, body, request.client, request.version, now, decisions)

    def _heartbeat(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        body: HeartbeatRequest = request.body
        group = self._classic(body.group_id)
        if group is None:
            decisions.reply(body.group_id, token, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return
        group.heartbeat(token, body, request.client, request.version, now, decisions)

    def _leave(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        body: LeaveGroupRequest = request.body
        group = self._groups.get(body.group_id)
        if isinstance(group, ConsumerGroup):
            self._remove_consumers(group, token, request, now, decisions)
            return
        classic = group or ClassicGroup(body.group_id, self._context)
        classic.leave(token, body, request.client, request.version, now, decisions)
        self._keep(classic, group)

    def _remove_consumers(
        self, group: ConsumerGroup, token: int, request: GroupRequest, now: Moment, decisions: Decisions
    ) -> None:
        """An administrator's: members of a consumer group leave by their heartbeats."""
        body: LeaveGroupRequest = request.body
        response = LeaveGroupResponse()
        if request.version < FIRST_LEAVE_VERSION_WITH_MEMBERS:
            response.error_code = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            named = [(member.member_id, member.group_instance_id) for member in body.members]
            response.members = [
                MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
                for (member_id, instance_id), code in zip(
                    named, group.remove_members(named, now, decisions), strict=True
                )
            ]
        decisions.reply(body.group_id, token, response)

    def _consumer_heartbeat(
        self, token: int, request: GroupRequest, now: Moment, decisions: Decisions
    ) -> None:
        body: ConsumerGroupHeartbeatRequest = request.body
        group = self._groups.get(body.group_id)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            message = (
                f"Group {body.group_id} is a classic group with members: it cannot change its protocol now."
            )
            code = ErrorCode.GROUP_ID_NOT_FOUND
            refused = ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
            decisions.reply(body.group_id, token, refused)
            return
        consumer = group if isinstance(group, ConsumerGroup) else ConsumerGroup(body.group_id, self._context)
        told = Decisions()
        consumer.heartbeat(token, body, request.client, request.version, now, told, request.may_describe)
        if isinstance(group, ClassicGroup) and consumer.exists:
            group.delete(decisions)
        self._keep(consumer, group)
        decisions.extend(told)

    def _commit(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        body: OffsetCommitRequest = request.body
        group = self._groups.get(body.group_id)
        is_admitted = self.offsets.commit(token, body, request.version, group, now, decisions)
        if is_admitted and isinstance(group, ClassicGroup):
            group.on_commit(body.member_id, now)

    def _commit_in_transaction(
        self, token: int, request: GroupRequest, now: Moment, decisions: Decisions
    ) -> None:
        body: TxnOffsetCommitRequest = request.body
        self.offsets.commit_in_transaction(token, body, self._groups.get(body.group_id), now, decisions)

    def _end_transaction(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        asked: EndTransaction = request.body
        self.offsets.end_transaction(token, asked.marker, decisions)

    def _await_committed(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        decisions.reply(None, token, ErrorCode.NONE)

    def _fetch(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        asked: FetchOffsets = request.body
        group = self._groups.get(asked.group.group_id)
        part = self.offsets.fetch_group(asked.group, request.version, group, asked.require_stable)
        decisions.reply(asked.group.group_id, token, part)

    def _delete_offsets(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        body: OffsetDeleteRequest = request.body
        self.offsets.delete(token, body, self._groups.get(body.group_id), decisions)

    def _list(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        asked: ListGroups = request.body
        states = {state.lower() for state in asked.states}
        types = {name.lower() for name in asked.types}
        listed = [
            group
            for group, _ in self.listed()
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type in types)
        ]
        decisions.reply(None, token, listed)

    def listed(self) -> Iterator[tuple[ListedGroup, int]]:
        """The groups that there are, and how many members each has."""
        for group in self._groups.values():
            if _is_there(group):
                listed = ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.type.value,
                )
                yield listed, group.member_count

    def _describe(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        self._describe_as(ClassicGroup, token, request.body.group_id, decisions)

    def _describe_consumer(
        self, token: int, request: GroupRequest, now: Moment, decisions: Decisions
    ) -> None:
        self._describe_as(ConsumerGroup, token, request.body.group_id, decisions)

    def _describe_as(self, kind: type[AnyGroup], token: int, group_id: str, decisions: Decisions) -> None:
        group = self._groups.get(group_id)
        known = isinstance(group, kind) and _is_there(group)
        decisions.reply(group_id, token, group.describe() if known else ErrorCode.GROUP_ID_NOT_FOUND)  # type: ignore[union-attr]  # known is there

    def _delete_group(self, token: int, request: GroupRequest, now: Moment, decisions: Decisions) -> None:
        asked: DeleteGroup = request.body
        group = self._groups.get(asked.group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND
        if group is not None and _is_there(group):
            code = ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP
            if group.is_empty:
                self.offsets.delete_group(asked.group_id, decisions)
                self._end(group, decisions)
        result = DeletableGroupResult(group_id=asked.group_id, error_code=code)
        decisions.reply(asked.group_id, token, result)

    # -- topics and time

    def on_topics(
        self, changed: Collection[str], deleted: Mapping[bytes, str], now: Moment, decisions: Decisions
    ) -> None:
        """Topics of these names were created, grown or deleted; `deleted` are the ids and names of the last."""
        if deleted:
            self.offsets.topics_deleted((name, topic_id) for topic_id, name in deleted.items())
            self._sweep(now, decisions)
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.on_topics_changed(changed, now, decisions)

    def on_acls(self) -> None:
        """Permissions changed: what expressions matched may be seen by others now."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.on_acls_changed()

    def _sweep(self, now: Moment, decisions: Decisions) -> None:
        if self.offsets.drop_dead(decisions):
            self._set(_SWEEP, now, 0, self._sweep)

    def _expire(self, now: Moment, decisions: Decisions) -> None:
        expired = self.offsets.expire(self._groups, now, decisions)
        for group_id in expired.without_offsets:
            group = self._groups.get(group_id)
            if group is not None and group.is_empty:
                self._end(group, decisions)
        interval_ms = 0 if expired.more else self._context.settings.offsets_retention_check_interval_ms
        self._set(_EXPIRY, now, interval_ms, self._expire)

    def _set(
        self, name: str, now: Moment, after_ms: int, action: Callable[[Moment, Decisions], None]
    ) -> None:
        self.timers.set(name, now.monotonic_ms + after_ms, action)

    # -- the table

    def _classic(self, group_id: str) -> ClassicGroup | None:
        """The classic group, or one that answers as a group that does not exist does; None for a consumer group."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return None
        return group or ClassicGroup(group_id, self._context)

    def _keep(self, group: AnyGroup, before: AnyGroup | None) -> None:
        """The group was asked something: it is kept if there is anything to it, instead of the one before."""
        if _is_there(group):
            self._groups[group.group_id] = group
        elif group is before:
            del self._groups[group.group_id]

    def _make_group_of_offsets(self, group_id: str) -> None:
        self._groups[group_id] = ClassicGroup.of_offsets(group_id, self._context)

    def _end(self, group: AnyGroup, decisions: Decisions) -> None:
        """Ends an empty group."""
        group.delete(decisions)
        del self._groups[group.group_id]

    def states(self) -> Iterator[tuple[GroupType, str]]:
        """The type and state of each group that is there now, for metrics. Who reads them may stop in between, though
        groups come and go."""
        return ((group.type, group.state) for group in list(self._groups.values()) if _is_there(group))


def _is_there(group: AnyGroup) -> bool:
    """Whether anything would be lost with it."""
    return group.exists if isinstance(group, ConsumerGroup) else not group.is_vacant


_MAKING_GROUPS = (JoinGroupRequest, ConsumerGroupHeartbeatRequest, OffsetCommitRequest,
                  TxnOffsetCommitRequest)  # fmt: skip
_DECISIONS: Mapping[type, Callable[[GroupShard, int, GroupRequest, Moment, Decisions], None]] = {
    JoinGroupRequest: GroupShard._join,
    SyncGroupRequest: GroupShard._sync,
    HeartbeatRequest: GroupShard._heartbeat,
    LeaveGroupRequest: GroupShard._leave,
    ConsumerGroupHeartbeatRequest: GroupShard._consumer_heartbeat,
    OffsetCommitRequest: GroupShard._commit,
    TxnOffsetCommitRequest: GroupShard._commit_in_transaction,
    EndTransaction: GroupShard._end_transaction,
    AwaitCommitted: GroupShard._await_committed,
    FetchOffsets: GroupShard._fetch,
    OffsetDeleteRequest: GroupShard._delete_offsets,
    ListGroups: GroupShard._list,
    DescribeGroup: GroupShard._describe,
    DescribeConsumerGroup: GroupShard._describe_consumer,
    DeleteGroup: GroupShard._delete_group,
}
"""Who decides on what."""
