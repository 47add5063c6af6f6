"""A group of the classic protocol: its members agree on a generation, and their leader assigns.

The shard of groups calls it with each request, and with the time. The group answers through `Decisions`: at once, or in
a later turn where a JoinGroup waits for the others to join and a SyncGroup for the leader's assignment. No request
makes it raise. The model is Kafka's ClassicGroup and GroupMetadataManager (KIP-62; static members KIP-345 and KIP-814,
member ids that a client takes first KIP-394, bounded size KIP-389).

A record is written when a new group has its first member, when the leader's assignment makes a generation whole, when
the last member is gone, and when a static member is replaced in a stable group. What happens between is in memory only:
after a change of the coordinator members go on in the generation of the last record.

Guarantees:
- a generation has one leader and one protocol, which all its members support; generations only grow;
- no member is in a new generation without having joined it, but static members, whose place is kept for a session;
- each request that waits is answered once: also those of members that are removed, replaced, or ask again;
- the record of a group, and a bounded multiple of it in memory, stay below `record_max_bytes`.

Where Kafka leaves the choice to the order of a hash table (the next leader, a tie of votes) members count in the order
in which they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import structlog

from kraft.coordinator.groups import group_metadata
from kraft.coordinator.groups.context import Client, GroupContext, GroupType
from kraft.coordinator.groups.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kraft.coordinator.shard import Decisions, Moment, Record
from kraft.protocol import consumer_protocol
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.schemas.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kraft.protocol.schemas.group_admin import DescribedGroup, DescribedGroupMember

logger = structlog.get_logger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""How long a new member's JoinGroup may wait: it cannot send heartbeats yet, and may be gone."""
LEAST_POSTPONEMENT_MS: Final = 1_000
"""How often at most a group that nobody joined looks whether that has changed: timeouts are clients' to choose."""

FIRST_REBALANCE_TIMEOUT_VERSION: Final = 1
FIRST_MEMBER_ID_REQUIRED_VERSION: Final = 4
FIRST_MEMBERS_LEAVE_VERSION: Final = 3
FIRST_SKIP_ASSIGNMENT_VERSION: Final = 9

REASON_CHARACTERS: Final = 255
"""What is logged of a client's reason (KIP-800)."""
MEMBER_ID_PREFIX_CHARACTERS: Final = 4_096
"""What a member id takes of a client id or an instance id. No real one is longer, and a string that is must not make
a member id that no answer can carry."""

HELD_FOR_EACH_RECORDED_BYTE: Final = 8
"""How much metadata of all protocols members may have in memory, by what the record has of the chosen one."""
PROTOCOL_OVERHEAD_BYTES: Final = 100
MEMBER_OVERHEAD_BYTES: Final = 64
RECORD_OVERHEAD_BYTES: Final = 256
"""Headers of the batch and the record, and the fields of a fixed size, generously."""


class State(StrEnum):
    """By the names that DescribeGroups and ListGroups tell."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class _Join(NamedTuple):
    """A JoinGroup under way."""

    token: int
    request: JoinGroupRequest
    version: int


class _Member:
    """`protocols` in the order of the member's preference, each with its metadata."""

    __slots__ = (
        "assignment",
        "client",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "weight",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client: Client,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[tuple[str, bytes], ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client = client
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """Its first JoinGroup waits: it has no member id yet to send heartbeats with."""
        self.weight = self._weight()
        """Bytes that the record has of it at most, but for its assignment; or, if that is more, its share of memory."""

    def metadata(self, protocol: str | None) -> bytes | None:
        return next((metadata for name, metadata in self.protocols if name == protocol), None)

    def _weight(self) -> int:
        texts = (self.instance_id or "", self.client.client_id, self.client.host)
        sizes = [len(name.encode()) + len(metadata) for name, metadata in self.protocols]
        held = sum(sizes) + PROTOCOL_OVERHEAD_BYTES * len(sizes)
        return (
            _id_weight(self.member_id)
            + sum(len(text.encode()) for text in texts)
            + max(held // HELD_FOR_EACH_RECORDED_BYTE, *sizes, 0)
        )


def _id_weight(member_id: str) -> int:
    """A member id may be in the record twice: as a member's and as the leader's."""
    return MEMBER_OVERHEAD_BYTES + 2 * len(member_id.encode())


class ClassicGroup:
    """A group, as it is and as its records tell it.

    A new one is not kept unless somebody joins (`is_vacant`): it also gives the answers of a group that does not exist.
    """

    type = GroupType.CLASSIC

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self._context = context
        self._is_recorded = False
        self._state = State.EMPTY
        self._state_before = State.DEAD
        self._since_ms: int | None = None
        """Wall time of the last change of state; None where records do not tell it."""
        self._generation = 0
        self._protocol_type = ""
        self._protocol: str | None = None
        self._leader: str | None = None
        self._members: dict[str, _Member] = {}
        self._static: dict[str, str] = {}
        """Who holds an instance id."""
        self._pending: dict[str, int] = {}
        """Member ids that were given out, and that nobody joined with yet (KIP-394), with their session timeouts."""
        self._pending_sync: set[str] = set()
        """Members of this generation that did not send SyncGroup yet."""
        self._joins: dict[str, int] = {}
        """The tokens of JoinGroups that wait, by member."""
        self._syncs: dict[str, int] = {}
        self._supporters: Counter[str] = Counter()
        """How many members support a protocol."""
        self._weight = 0
        self._has_newcomers = False
        """Somebody joined since the initial delay was last extended."""
        self._rebalance_began_ms: int | None = None
        self._topics: frozenset[str] | None = None
        """What members read, once it was asked for in this generation; None also where it is not known."""
        self._topics_known = False

    @classmethod
    def of_offsets(cls, group_id: str, context: GroupContext) -> ClassicGroup:
        """A group that only has offsets, those of a consumer that assigns its partitions itself: its offsets stand for
        it, it has no record of its own."""
        group = cls(group_id, context)
        group._is_recorded = True
        return group

    # What it is

    @property
    def state(self) -> str:
        return self._state.value

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def protocol_type(self) -> str:
        return self._protocol_type

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def is_empty(self) -> bool:
        return self._state is State.EMPTY

    @property
    def is_vacant(self) -> bool:
        """Whether nothing would be lost with it: no record, no offsets, no members, no member id given out."""
        return not self._is_recorded and not self._members and not self._pending

    @property
    def empty_since_ms(self) -> int | None:
        return self._since_ms if self._state is State.EMPTY else None

    def describe(self) -> DescribedGroup:
        """For DescribeGroups, which is to be asked for a group of this type."""
        is_stable = self._state is State.STABLE
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state,
            protocol_type=self._protocol_type,
            protocol_data=(self._protocol or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client.client_id,
                    client_host=member.client.host,
                    member_metadata=(member.metadata(self._protocol) or b"") if is_stable else b"",
                    member_assignment=member.assignment,
                )
                for member in self._members.values()
            ],
        )

    def is_subscribed_to(self, topic: str) -> bool | None:
        """As of the protocol's `Group`. Of consumers whose metadata cannot be read it is taken for granted."""
        if self._protocol_type != consumer_protocol.PROTOCOL_TYPE:
            return None if self._members else False
        if not self._topics_known:
            self._topics, self._topics_known = self._subscribed_topics(), True
        return self._topics is None or topic in self._topics

    def _subscribed_topics(self) -> frozenset[str] | None:
        topics: set[str] = set()
        for metadata in {member.metadata(self._protocol) for member in self._members.values()}:
            of_member = None if metadata is None else consumer_protocol.subscribed_topics(metadata)
            if of_member is None:
                return None
            topics.update(of_member)
        return frozenset(topics)

    # Offsets and deletion

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, version: int | None
    ) -> ErrorCode:
        """COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or
        REBALANCE_IN_PROGRESS between JoinGroup and the leader's SyncGroup. Whoever is no member may commit while
        there are none. In transactions no state of the group is in the way, and producers may be silent about their
        member: those before KIP-447 cannot tell it."""
        if self._state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self._state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE if version is None else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_generation(member_id, instance_id, generation)
        if error is ErrorCode.NONE and version is not None and self._state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def on_commit(self, member_id: str, now: Moment) -> None:
        """A commit that was accepted keeps its member's session, as a heartbeat does. The shard calls it."""
        member = self._members.get(member_id)
        if member is not None:
            self._expect(member, now)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Anybody may read offsets of a classic group."""
        return ErrorCode.GROUP_ID_NOT_FOUND if self._state is State.DEAD else ErrorCode.NONE

    def delete(self, decisions: Decisions) -> ErrorCode:
        """Ends the group with a tombstone; its offsets are not its own to delete. NON_EMPTY_GROUP while it has members,
        GROUP_ID_NOT_FOUND when it has ended already."""
        if self._state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self._state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        for member_id in list(self._pending):
            self._forget_pending(member_id)
        decisions.write(self.group_id, Record(self._key(), None))
        self._state = State.DEAD
        return ErrorCode.NONE

    # Loading

    def replay(self, value: GroupMetadataValue) -> None:
        """Takes the state of a record: it replaces all before. Raises ProtocolError, and leaves the group as it is, for
        members without a protocol, which no record of Kafka has."""
        if value.members and value.protocol is None:
            raise ProtocolError(f"the record of group {self.group_id} has members and no protocol")
        for member_id in list(self._members):
            self._drop(member_id)
        self._is_recorded = True
        self._state = State.STABLE if value.members else State.EMPTY
        timestamp = value.current_state_timestamp
        self._since_ms = None if timestamp == group_metadata.NO_TIMESTAMP else timestamp
        self._generation = value.generation
        self._protocol_type = value.protocol_type
        self._protocol = value.protocol
        self._topics_known = False
        for stored in value.members:
            timeout_ms = stored.rebalance_timeout
            member = _Member(
                stored.member_id,
                stored.group_instance_id,
                Client(stored.client_id, stored.client_host),
                stored.session_timeout if timeout_ms == -1 else timeout_ms,
                stored.session_timeout,
                ((value.protocol or "", stored.subscription),),
                stored.assignment,
            )
            self._put(member)
        if value.leader in self._members:
            self._leader = value.leader

    def on_loaded(self, now: Moment, decisions: Decisions) -> None:
        """All records are replayed, or the group is asked again after a time in which nobody could be heard: all that
        its members have to do in time they may do from now on. A group that is larger than it may be now rebalances, so
        that members can commit before some have to go."""
        for member in self._members.values():
            self._expect(member, now)
        for member_id in self._pending:
            self._expect_pending(member_id, now)
        if self._state is State.PREPARING_REBALANCE and self._state_before is not State.EMPTY:
            self._limit_join(now)
        elif self._pending_sync:
            self._limit_sync(now)
        count, max_size = len(self._members), self._context.settings.max_size
        if count > max_size and self._state is not State.PREPARING_REBALANCE:
            self._prepare_rebalance(f"it has {count} members, and may have {max_size}", now, decisions)

    # JoinGroup

    def join(
        self,
        token: int,
        request: JoinGroupRequest,
        client: Client,
        version: int,
        now: Moment,
        decisions: Decisions,
    ) -> None:
        """Answers with MEMBER_ID_REQUIRED, with an error, with the generation that there is, or when the next one
        begins. A static member may take the place of its predecessor at once."""
        join = _Join(token, request, version)
        member = self._candidate(join, client)
        error = self._check_join(request, member)
        if error is not ErrorCode.NONE:
            self._refuse_join(token, request.member_id, error, decisions)
        elif not self._accepts(request):
            self._turn_away(join, now, decisions)
        elif not request.member_id:
            self._join_as_new(join, member, now, decisions)
        else:
            self._join_as_known(join, member, now, decisions)
        if not self._is_recorded and not self.is_vacant:
            self._since_ms = now.wall_ms
            self._write(GroupMetadataValue(current_state_timestamp=now.wall_ms), decisions)

    def _candidate(self, join: _Join, client: Client) -> _Member:
        """The member as it asks to be."""
        request = join.request
        member_id, instance_id = request.member_id, request.group_instance_id
        if not member_id:
            prefix = (client.client_id if instance_id is None else instance_id)[:MEMBER_ID_PREFIX_CHARACTERS]
            member_id = f"{prefix}-{self._context.new_id()}"
        known = self._members.get(member_id)
        has_timeout = join.version >= FIRST_REBALANCE_TIMEOUT_VERSION
        return _Member(
            member_id,
            known.instance_id if known is not None else instance_id,
            client,
            request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
            request.session_timeout_ms,
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            b"" if known is None else known.assignment,
        )

    def _check_join(self, request: JoinGroupRequest, member: _Member) -> ErrorCode:
        settings = self._context.settings
        lowest_ms, highest_ms = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if not lowest_ms <= request.session_timeout_ms <= highest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if self._state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        holder = self._holder(request)
        more_bytes = member.weight - (0 if holder is None else holder.weight)
        has_room = self._has_room(more_bytes + len(request.protocol_type.encode()))
        return ErrorCode.NONE if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED

    def _holder(self, request: JoinGroupRequest) -> _Member | None:
        """The member whose place the sender has, or takes."""
        if not request.member_id and request.group_instance_id is not None:
            return self._members.get(self._static.get(request.group_instance_id, ""))
        return self._members.get(request.member_id)

    def _accepts(self, request: JoinGroupRequest) -> bool:
        """While a group prepares, those count who wait: a group that is too large loses those who rejoin last."""
        if self._state is State.EMPTY:
            return True
        holder, max_size = self._holder(request), self._context.settings.max_size
        if self._state is State.PREPARING_REBALANCE:
            return (holder is not None and holder.member_id in self._joins) or len(self._joins) < max_size
        return holder is not None or len(self._members) < max_size

    def _turn_away(self, join: _Join, now: Moment, decisions: Decisions) -> None:
        """The group is full: the sender is not, and no longer, a member of it."""
        member_id = join.request.member_id
        self._forget_pending(member_id)
        if member_id in self._members:
            self._remove(member_id, decisions)
        self._refuse_join(join.token, "", ErrorCode.GROUP_MAX_SIZE_REACHED, decisions)
        self._maybe_complete_join(now, decisions)

    def _supports(self, request: JoinGroupRequest) -> bool:
        if self._state is State.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self._protocol_type and any(
            self._supporters[protocol.name] == len(self._members) for protocol in request.protocols
        )

    def _join_as_new(self, join: _Join, member: _Member, now: Moment, decisions: Decisions) -> None:
        holder = None if member.instance_id is None else self._static.get(member.instance_id)
        if holder is not None:
            self._replace(self._members[holder], member, join, now, decisions)
        elif member.instance_id is None and join.version >= FIRST_MEMBER_ID_REQUIRED_VERSION:
            self._pending[member.member_id] = member.session_timeout_ms
            self._weight += _id_weight(member.member_id)
            self._expect_pending(member.member_id, now)
            self._refuse_join(join.token, member.member_id, ErrorCode.MEMBER_ID_REQUIRED, decisions)
        else:
            self._add(join, member, now, decisions)

    def _join_as_known(self, join: _Join, member: _Member, now: Moment, decisions: Decisions) -> None:
        request, member_id = join.request, member.member_id
        if member_id in self._pending and request.group_instance_id is None:
            self._add(join, member, now, decisions)
            return
        error = self._check_member(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            self._refuse_join(join.token, member_id, error, decisions)
            return
        has_changed = self._members[member_id].protocols != member.protocols
        leads = self._state is State.STABLE and member_id == self._leader
        if self._state is State.PREPARING_REBALANCE or has_changed or leads:
            member.is_new = self._members[member_id].is_new
            self._put(member)
            self._wait_for_join(member_id, join.token, decisions)
            why = "rejoins" if not has_changed else "rejoins with other metadata"
            self._rebalance_or_complete(f"{member_id} {why}: {_reason(request.reason)}", now, decisions)
            return
        # The answer to its last JoinGroup may have been lost.
        self._answer_join(join.token, member_id, decisions)

    def _add(self, join: _Join, member: _Member, now: Moment, decisions: Decisions) -> None:
        if self._state is State.PREPARING_REBALANCE and self._state_before is State.EMPTY:
            self._has_newcomers = True
        if not self._members:
            self._protocol_type = join.request.protocol_type
        self._forget_pending(member.member_id)
        member.is_new = True
        self._put(member)
        self._wait_for_join(member.member_id, join.token, decisions)
        self._expect(member, now)
        why = f"{member.member_id} joins: {_reason(join.request.reason)}"
        self._rebalance_or_complete(why, now, decisions)

    def _replace(self, old: _Member, member: _Member, join: _Join, now: Moment, decisions: Decisions) -> None:
        """A static member came back, without the member id that it had: the one that has it is fenced."""
        leader = self._leader
        is_pending_sync = old.member_id in self._pending_sync
        self._answer_waiting(old.member_id, old.member_id, ErrorCode.FENCED_INSTANCE_ID, decisions)
        self._drop(old.member_id)
        member.assignment = old.assignment
        self._put(member)
        if leader == old.member_id:
            self._leader = member.member_id
        if is_pending_sync:
            self._pending_sync.add(member.member_id)
        self._expect(member, now)
        why = f"{member.member_id} replaces {old.member_id}: {_reason(join.request.reason)}"
        logger.info("a static member is replaced", group=self.group_id, reason=why)
        if self._state is State.STABLE and self._vote() == self._protocol:
            self._topics_known = False
            self._write_generation(decisions)
            self._answer_join(
                join.token,
                member.member_id,
                decisions,
                leader=None if join.version >= FIRST_SKIP_ASSIGNMENT_VERSION else leader,
                skip_assignment=True,
            )
            return
        self._wait_for_join(member.member_id, join.token, decisions)
        self._rebalance_or_complete(why, now, decisions)

    def _wait_for_join(self, member_id: str, token: int, decisions: Decisions) -> None:
        earlier = self._joins.get(member_id)
        if earlier is not None:  # its connection may be gone; if not, the member asks again
            self._refuse_join(earlier, member_id, ErrorCode.REBALANCE_IN_PROGRESS, decisions)
        self._joins[member_id] = token

    def _answer_join(
        self,
        token: int,
        member_id: str,
        decisions: Decisions,
        *,
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> None:
        """Tells a member of this generation. `leader`: who it is to take for the leader, if it is another: its
        version cannot be told to leave the assignment as it is."""
        told = leader or self._leader or ""
        leads = told == member_id
        self._reply(
            decisions,
            token,
            JoinGroupResponse(
                generation_id=self._generation,
                protocol_type=self._protocol_type,
                protocol_name=self._protocol or "",
                leader=told,
                skip_assignment=skip_assignment and leads,
                member_id=member_id,
                members=[
                    JoinGroupResponseMember(
                        member_id=member.member_id,
                        group_instance_id=member.instance_id,
                        metadata=member.metadata(self._protocol) or b"",
                    )
                    for member in self._members.values()
                ]
                if leads
                else [],
            ),
        )

    def _refuse_join(self, token: int, member_id: str, error: ErrorCode, decisions: Decisions) -> None:
        self._reply(decisions, token, JoinGroupResponse(error_code=error, member_id=member_id))

    # Rebalances

    def _rebalance_or_complete(self, reason: str, now: Moment, decisions: Decisions) -> None:
        if self._state is State.PREPARING_REBALANCE:
            self._maybe_complete_join(now, decisions)
        else:
            self._prepare_rebalance(reason, now, decisions)

    def _prepare_rebalance(self, reason: str, now: Moment, decisions: Decisions) -> None:
        """All members have to join anew. A group that was empty gives others a moment to come."""
        settings, timers = self._context.settings, self._context.timers
        if self._state is State.COMPLETING_REBALANCE:
            self._reset_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now, decisions)
        self._pending_sync.clear()
        timers.cancel(self._timer("sync"))
        is_initial = self._state is State.EMPTY
        self._enter(State.PREPARING_REBALANCE, now)
        if self._rebalance_began_ms is None:
            self._rebalance_began_ms = now.monotonic_ms
        logger.info("a group rebalances", group=self.group_id, generation=self._generation, reason=reason)
        if is_initial:
            self._has_newcomers = False
            delay_ms = settings.initial_rebalance_delay_ms
            self._delay_initial(delay_ms, max(self._rebalance_timeout_ms() - delay_ms, 0), now)
        elif self._have_all_joined():
            self._complete_join(now, decisions)
        else:
            self._limit_join(now)

    def _delay_initial(self, delay_ms: int, remaining_ms: int, now: Moment) -> None:
        self._context.timers.set(
            self._timer("join"),
            now.monotonic_ms + delay_ms,
            partial(self._on_initial_delay, delay_ms, remaining_ms),
        )

    def _on_initial_delay(self, delay_ms: int, remaining_ms: int, now: Moment, decisions: Decisions) -> None:
        """Waits on while members come, for a rebalance timeout in all."""
        if not self._has_newcomers or not remaining_ms:
            self._on_join_timeout(now, decisions)
        elif self._state is State.PREPARING_REBALANCE and not self._is_set_anew("join"):
            self._has_newcomers = False
            next_ms = min(self._context.settings.initial_rebalance_delay_ms, remaining_ms)
            self._delay_initial(next_ms, max(remaining_ms - delay_ms, 0), now)

    def _limit_join(self, now: Moment, least_ms: int = 0) -> None:
        at_ms = now.monotonic_ms + max(self._rebalance_timeout_ms(), least_ms)
        self._context.timers.set(self._timer("join"), at_ms, self._on_join_timeout)

    def _on_join_timeout(self, now: Moment, decisions: Decisions) -> None:
        if self._state is State.PREPARING_REBALANCE and not self._is_set_anew("join"):
            self._complete_join(now, decisions)

    def _maybe_complete_join(self, now: Moment, decisions: Decisions) -> None:
        """Not before an initial delay is over."""
        if self._state is not State.PREPARING_REBALANCE or self._state_before is State.EMPTY:
            return
        if self._have_all_joined():
            self._complete_join(now, decisions)

    def _have_all_joined(self) -> bool:
        return len(self._joins) == len(self._members) and not self._pending

    def _complete_join(self, now: Moment, decisions: Decisions) -> None:
        """The next generation begins with those who joined, and with static members, whose place is kept."""
        self._context.timers.cancel(self._timer("join"))
        late = [
            m.member_id
            for m in self._members.values()
            if m.instance_id is None and m.member_id not in self._joins
        ]
        for member_id in late:
            logger.info("a member did not join in time", group=self.group_id, member=member_id)
            self._remove(member_id, decisions)
        if self._members and not self._joins:  # sessions will end, or somebody will join
            self._limit_join(now, LEAST_POSTPONEMENT_MS)
            return
        if self._leader not in self._joins:
            self._leader = next((member_id for member_id in self._members if member_id in self._joins), None)
        self._begin_generation(now, decisions)

    def _begin_generation(self, now: Moment, decisions: Decisions) -> None:
        self._generation += 1
        self._protocol = self._vote() if self._members else None
        self._topics_known = False
        if not self._members:
            self._enter(State.EMPTY, now)
            self._rebalance_began_ms = None
            logger.info("a group is empty", group=self.group_id, generation=self._generation)
            self._write_generation(decisions)
            return
        self._enter(State.COMPLETING_REBALANCE, now)
        for member_id, member in self._members.items():
            token = self._joins.pop(member_id, None)
            if token is not None:
                self._answer_join(token, member_id, decisions)
            member.is_new = False
            self._expect(member, now)
        self._pending_sync = set(self._members)
        self._limit_sync(now)

    def _vote(self) -> str:
        """The protocol that most members like best, of those that all support."""
        common = {name for name, count in self._supporters.items() if count == len(self._members)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self._members.values()
        )
        return max(votes, key=votes.__getitem__)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    # SyncGroup

    def sync(
        self,
        token: int,
        request: SyncGroupRequest,
        client: Client,
        version: int,
        now: Moment,
        decisions: Decisions,
    ) -> None:
        """Answers with the member's assignment: in a stable group at once, else when the leader has sent it."""
        error = self._check_sync(request)
        if error is not ErrorCode.NONE:
            self._refuse_sync(token, error, decisions)
            return
        member_id = request.member_id
        self._pending_sync.discard(member_id)
        if not self._pending_sync:
            self._context.timers.cancel(self._timer("sync"))
        if self._state is State.STABLE:
            self._answer_sync(token, self._members[member_id], decisions)
            return
        earlier = self._syncs.get(member_id)
        if earlier is not None:
            self._refuse_sync(earlier, ErrorCode.REBALANCE_IN_PROGRESS, decisions)
        self._syncs[member_id] = token
        if member_id == self._leader:
            given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
            self._assign(given, now, decisions)

    def _check_sync(self, request: SyncGroupRequest) -> ErrorCode:
        if self._state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._check_generation(request.member_id, request.group_instance_id, request.generation_id)
        if error is not ErrorCode.NONE:
            return error
        for told, own in (
            (request.protocol_type, self._protocol_type),
            (request.protocol_name, self._protocol),
        ):
            if told is not None and own is not None and told != own:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self._state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def _assign(self, given: dict[str, bytes], now: Moment, decisions: Decisions) -> None:
        """The generation is whole. Members that the leader left out get nothing; too much for a record, and all join
        anew."""
        more_bytes = sum(
            len(given.get(member_id, b"")) - len(member.assignment)
            for member_id, member in self._members.items()
        )
        if not self._has_room(more_bytes):
            self._reset_assignments(ErrorCode.UNKNOWN_SERVER_ERROR, now, decisions)
            self._prepare_rebalance("the leader's assignment is too large for a record", now, decisions)
            return
        for member_id, member in self._members.items():
            self._set_assignment(member, given.get(member_id, b""))
        self._write_generation(decisions)
        self._enter(State.STABLE, now)
        counters = self._context.counters
        counters.rebalances[self.type] += 1
        if self._rebalance_began_ms is not None:
            counters.rebalance_ms[self.type] += now.monotonic_ms - self._rebalance_began_ms
        self._rebalance_began_ms = None
        logger.info(
            "a group is stable", group=self.group_id, generation=self._generation, members=len(self._members)
        )
        for member_id, token in self._syncs.items():
            member = self._members[member_id]
            self._answer_sync(token, member, decisions)
            self._expect(member, now)
        self._syncs.clear()

    def _reset_assignments(self, error: ErrorCode, now: Moment, decisions: Decisions) -> None:
        """What was to be assigned in this generation will not be."""
        for member in self._members.values():
            self._set_assignment(member, b"")
        for member_id, token in self._syncs.items():
            self._refuse_sync(token, error, decisions)
            self._expect(self._members[member_id], now)
        self._syncs.clear()

    def _limit_sync(self, now: Moment) -> None:
        at_ms = now.monotonic_ms + self._rebalance_timeout_ms()
        self._context.timers.set(self._timer("sync"), at_ms, self._on_sync_timeout)

    def _on_sync_timeout(self, now: Moment, decisions: Decisions) -> None:
        """Members that joined, and did not ask for their assignment, are gone."""
        is_due = self._state in (State.COMPLETING_REBALANCE, State.STABLE) and not self._is_set_anew("sync")
        if not is_due or not self._pending_sync:
            return
        missing = [member_id for member_id in self._members if member_id in self._pending_sync]
        for member_id in missing:
            logger.info("a member did not sync in time", group=self.group_id, member=member_id)
            self._remove(member_id, decisions)
        self._prepare_rebalance(f"{len(missing)} members did not sync in time", now, decisions)

    def _answer_sync(self, token: int, member: _Member, decisions: Decisions) -> None:
        answer = SyncGroupResponse(
            protocol_type=self._protocol_type, protocol_name=self._protocol, assignment=member.assignment
        )
        self._reply(decisions, token, answer)

    def _refuse_sync(self, token: int, error: ErrorCode, decisions: Decisions) -> None:
        self._reply(decisions, token, SyncGroupResponse(error_code=error))

    # Heartbeat, LeaveGroup, sessions

    def heartbeat(
        self,
        token: int,
        request: HeartbeatRequest,
        client: Client,
        version: int,
        now: Moment,
        decisions: Decisions,
    ) -> None:
        """Keeps the session. REBALANCE_IN_PROGRESS tells the member to join anew."""
        if self._state is State.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            error = self._check_generation(
                request.member_id, request.group_instance_id, request.generation_id
            )
        if error is ErrorCode.NONE:
            self._expect(self._members[request.member_id], now)
            if self._state is State.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._reply(decisions, token, HeartbeatResponse(error_code=error))

    def leave(
        self,
        token: int,
        request: LeaveGroupRequest,
        client: Client,
        version: int,
        now: Moment,
        decisions: Decisions,
    ) -> None:
        """Each member is removed or has its own error."""
        if self._state is State.DEAD:
            answer = LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._reply(decisions, token, answer)
            return
        has_members = version >= FIRST_MEMBERS_LEAVE_VERSION
        leaving = request.members if has_members else [MemberIdentity(member_id=request.member_id)]
        errors = [self._leave(identity, decisions) for identity in leaving]
        if ErrorCode.NONE in errors and self._state is not State.EMPTY:
            self._rebalance_or_complete(f"{errors.count(ErrorCode.NONE)} members left", now, decisions)
        answer = LeaveGroupResponse(error_code=ErrorCode.NONE if has_members else errors[0])
        if has_members:
            answer.members = [
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
                for identity, error in zip(leaving, errors, strict=True)
            ]
        self._reply(decisions, token, answer)

    def _leave(self, identity: MemberIdentity, decisions: Decisions) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            member_id = "" if instance_id is None else self._static.get(instance_id, "")
        if member_id in self._pending:
            self._forget_pending(member_id)
            return ErrorCode.NONE
        error = self._check_member(member_id, instance_id)
        if error is ErrorCode.NONE:
            why = _reason(identity.reason)
            logger.info("a member leaves", group=self.group_id, member=member_id, reason=why)
            self._remove(member_id, decisions)
        return error

    def _expect(self, member: _Member, now: Moment) -> None:
        """Its session begins anew; a new member's does when it is answered."""
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        self._end_session_at(now.monotonic_ms + timeout_ms, member.member_id)

    def _expect_pending(self, member_id: str, now: Moment) -> None:
        self._end_session_at(now.monotonic_ms + self._pending[member_id], member_id)

    def _end_session_at(self, at_ms: int, member_id: str) -> None:
        action = partial(self._on_session_end, member_id)
        self._context.timers.set(self._timer("session", member_id), at_ms, action)

    def _on_session_end(self, member_id: str, now: Moment, decisions: Decisions) -> None:
        if self._is_set_anew("session", member_id):
            return
        if member_id in self._pending:
            self._forget_pending(member_id)
        elif member_id in self._members:
            waits = member_id in self._joins or member_id in self._syncs
            if waits and not self._members[member_id].is_new:
                return  # while it waits for the group it cannot be heard; its session begins anew with the answer
            logger.info("a member's session ended", group=self.group_id, member=member_id)
            self._remove(member_id, decisions)
            if self._state is not State.PREPARING_REBALANCE:
                self._prepare_rebalance(f"the session of {member_id} ended", now, decisions)
                return
        if self._state is State.PREPARING_REBALANCE and self._have_all_joined():
            self._complete_join(now, decisions)

    # Members

    def _check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is not None and holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self._check_member(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self._generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _put(self, member: _Member) -> None:
        """Takes in a member, or what is new about it. The first one leads."""
        known = self._members.get(member.member_id)
        if known is not None:
            self._count(known, -1)
        self._members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self._leader is None:
            self._leader = member.member_id

    def _drop(self, member_id: str) -> None:
        """Takes a member out; if it led, the next one does."""
        member = self._members.pop(member_id)
        self._count(member, -1)
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        self._pending_sync.discard(member_id)
        self._context.timers.cancel(self._timer("session", member_id))
        if self._leader == member_id:
            self._leader = next(iter(self._members), None)

    def _remove(self, member_id: str, decisions: Decisions) -> None:
        """Takes a member out, and answers what it waits for: a consumer that is alive joins as a new member."""
        self._answer_waiting(member_id, "", ErrorCode.UNKNOWN_MEMBER_ID, decisions)
        self._drop(member_id)

    def _answer_waiting(self, member_id: str, told: str, error: ErrorCode, decisions: Decisions) -> None:
        token = self._joins.pop(member_id, None)
        if token is not None:
            self._refuse_join(token, told, error, decisions)
        token = self._syncs.pop(member_id, None)
        if token is not None:
            self._refuse_sync(token, error, decisions)

    def _forget_pending(self, member_id: str) -> None:
        if member_id in self._pending:
            del self._pending[member_id]
            self._weight -= _id_weight(member_id)
            self._context.timers.cancel(self._timer("session", member_id))

    def _count(self, member: _Member, by: int) -> None:
        self._weight += by * (member.weight + len(member.assignment))
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += by
            if not self._supporters[name]:
                del self._supporters[name]

    # State, records, timers

    def _enter(self, state: State, now: Moment) -> None:
        self._state_before, self._state = self._state, state
        self._since_ms = now.wall_ms

    def _has_room(self, more_bytes: int) -> bool:
        """Whether a record of the group may have so many bytes more than it has now."""
        names = len(self.group_id.encode()) + len(self._protocol_type.encode())
        recorded = RECORD_OVERHEAD_BYTES + names + self._weight
        return recorded + more_bytes <= self._context.record_max_bytes

    def _set_assignment(self, member: _Member, assignment: bytes) -> None:
        self._weight += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def _write_generation(self, decisions: Decisions) -> None:
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client.client_id,
                client_host=member.client.host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self._protocol) or b"",
                assignment=member.assignment,
            )
            for member in self._members.values()
        ]
        since_ms = group_metadata.NO_TIMESTAMP if self._since_ms is None else self._since_ms
        value = GroupMetadataValue(
            protocol_type=self._protocol_type,
            generation=self._generation,
            protocol=self._protocol,
            leader=self._leader,
            current_state_timestamp=since_ms,
            members=members,
        )
        self._write(value, decisions)

    def _write(self, value: GroupMetadataValue, decisions: Decisions) -> None:
        self._is_recorded = True
        decisions.write(self.group_id, Record(self._key(), group_metadata.VALUE.encode(value)))

    def _key(self) -> bytes:
        return group_metadata.KEY.encode(GroupMetadataKey(group=self.group_id))

    def _reply(self, decisions: Decisions, token: int, response: object) -> None:
        decisions.reply(self.group_id, token, response)

    def _timer(self, kind: str, member_id: str = "") -> Hashable:
        return kind, self.group_id, member_id

    def _is_set_anew(self, kind: str, member_id: str = "") -> bool:
        """Whether a timer that has run out was set again since: by another that ran out at the same time."""
        return self._timer(kind, member_id) in self._context.timers


def _reason(told: str | None) -> str:
    return "not provided" if told is None else told[:REASON_CHARACTERS]
