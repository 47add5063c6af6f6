"""A consumer group of KIP-848: the coordinator assigns, and members reconcile heartbeat by heartbeat.

The shard calls it with requests, changes of topics and records. Every change of its state is a record that `replay`
takes in, live as at loading: there is no other way to change it. A change of members, subscriptions or topics raises
the group's epoch; the next heartbeat computes the target assignment of that epoch; each member then goes to it by
itself (`reconciliation`). (Kafka's ConsumerGroup, and the part of its GroupMetadataManager that serves it.)

Where there is an authorizer an expression comes to the topics that match and that the member may describe with whose
heartbeat it is resolved; members with the same expression share that, as in Kafka. It is resolved anew with the next
heartbeat of a member that has it when ACLs change, when a topic comes that matches, and after loading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

import structlog

from kraft.coordinator.groups import consumer_records as records
from kraft.coordinator.groups.assignors import ASSIGNORS, Assignment, AssignorMember
from kraft.coordinator.groups.consumer_records import Change
from kraft.coordinator.groups.context import (
    Client,
    GroupContext,
    GroupSettings,
    GroupType,
    MayDescribe,
    TopicPartitions,
    describes_all,
)
from kraft.coordinator.groups.reconciliation import (
    CurrentAssignment,
    MemberState,
    Owned,
    UnknownState,
    reconcile,
)
from kraft.coordinator.groups.topic_patterns import InvalidPattern, check_pattern, matching
from kraft.coordinator.shard import Decisions, Moment, Record
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.schema import Message
from kraft.protocol.schemas.consumer_groups import (
    CONSUMER_GENERATED_MEMBER_ID_REQUIRED_VERSION,
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedGroup,
    DescribedMember,
    DescribedTopicPartitions,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH: Final = 9
CONSUMER_MEMBER_TYPE: Final = 1
BATCH_OVERHEAD_BYTES: Final = 100
"""What a batch of one record has beside key and value, at most."""

_log = structlog.get_logger(__name__)


class Subscription(NamedTuple):
    """What a member wants to read: topics by name, and those that a regular expression matches."""

    names: frozenset[str] = frozenset()
    regex: str | None = None


class Member(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscription: Subscription = Subscription()
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    current: CurrentAssignment = CurrentAssignment()


class _Refused(Exception):
    """A request is answered with an error, and nothing changes."""

    def __init__(self, error: ErrorCode, sentence: str) -> None:
        super().__init__(sentence)
        self.error = error


class _Asker(NamedTuple):
    """The member whose heartbeat it is: its expression, and what it may describe."""

    regex: str | None
    may_describe: MayDescribe


class _Review(NamedTuple):
    """The topics that a group would be subscribed to."""

    resolved: Mapping[str, frozenset[str]]
    metadata_hash: int
    changes: list[Change]


class ConsumerGroup:
    """One group. A new one has no epoch, and exists only when a member has joined it (`exists`)."""

    type = GroupType.CONSUMER

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.assignment_epoch = 0
        """The group epoch that the target assignment is of."""
        self._context = context
        self._metadata_hash = 0
        self._epoch_since_ms: int | None = None
        self._is_dead = False
        self._has_partition_metadata = False
        self._members: dict[str, Member] = {}
        self._static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self._target: dict[str, Assignment] = {}
        self._owners: dict[bytes, dict[int, str]] = {}
        """Who has a partition, or has not yet given it up."""
        self._subscriptions: dict[Subscription, tuple[Subscription, int]] = {}
        """One object for all members with the same, and how many they are."""
        self._resolved: dict[str, frozenset[str]] = {}
        """The topics that each regular expression came to."""
        self._stale: set[str] = set()
        """Resolved expressions that are to be resolved anew for a member that has them; none without an authorizer."""
        self._unreconciled: set[str] | None = set()
        """Members that are not at the target; None: to be counted anew when somebody asks."""
        self._must_review = False
        """Whether topics may have changed while no coordinator looked; the next heartbeat sees to it."""
        self._rebalancing_since_ms: int | None = None

    # What it tells

    @property
    def exists(self) -> bool:
        """Whether anything is recorded of it; if not, the shard drops it."""
        return self.group_epoch > 0

    @property
    def state(self) -> str:
        if self._is_dead:
            return "Dead"
        if not self._members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if self._unreconciled is None:
            members = self._members.values()
            self._unreconciled = {m.member_id for m in members if not m.current.is_at(self.assignment_epoch)}
        return "Reconciling" if self._unreconciled else "Stable"

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def empty_since_ms(self) -> int | None:
        """When its last epoch began: whoever leaves raises it, and in an empty group nothing does."""
        return self._epoch_since_ms if self.is_empty else None

    @property
    def assignor(self) -> str:
        """The one that most members ask for; the first configured one if none does."""
        return self._preferred_assignor(self._members.values())

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, version: int | None
    ) -> ErrorCode:
        if generation < 0 and not self._members:
            return ErrorCode.NONE
        member = self._members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version is not None and version < FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if generation == member.current.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if not member_id and member_epoch < 0:
            return ErrorCode.NONE
        member = self._members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.current.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def is_subscribed_to(self, topic: str) -> bool:
        return any(
            topic in subscription.names or topic in self._resolved.get(subscription.regex or "", ())
            for subscription in self._subscriptions
        )

    def describe(self) -> DescribedGroup:
        """For ConsumerGroupDescribe; the authorized operations are the caller's."""
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state,
            group_epoch=self.group_epoch,
            assignment_epoch=self.assignment_epoch,
            assignor_name=self.assignor,
            members=[self._described(member) for _, member in sorted(self._members.items())],
        )

    def _described(self, member: Member) -> DescribedMember:
        return DescribedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.current.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscription.names),
            subscribed_topic_regex=member.subscription.regex,
            assignment=self._described_assignment(member.current.assigned),
            target_assignment=self._described_assignment(self._target.get(member.member_id, {})),
            member_type=CONSUMER_MEMBER_TYPE,
        )

    def _described_assignment(self, assignment: Assignment) -> DescribedAssignment:
        """Without the topics that are gone: they have no name."""
        existing = ((self._context.topics.with_id(topic_id), parts) for topic_id, parts in assignment.items())
        named = sorted(
            (topic.name, topic.topic_id, sorted(parts)) for topic, parts in existing if topic is not None
        )
        return DescribedAssignment(
            [DescribedTopicPartitions(topic_id, name, partitions) for name, topic_id, partitions in named]
        )

    # Heartbeats

    def heartbeat(
        self,
        token: int,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        version: int,
        now: Moment,
        decisions: Decisions,
        may_describe: MayDescribe = describes_all,
    ) -> None:
        """ConsumerGroupHeartbeat, of versions 0 and 1: a member joins, lives on, or leaves. `may_describe`: what the
        sender may know of, while there is an authorizer."""
        try:
            _check_heartbeat(request, version, self._context.settings)
            if not self.exists and request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
                raise _Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no consumer group {self.group_id}.")
            if request.member_epoch < 0:
                response = self._leave(request, now, decisions)
            else:
                response = self._live_on(request, client, may_describe, now, decisions)
        except _Refused as refused:
            response = ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=str(refused))
        decisions.reply(self.group_id, token, response)

    def _live_on(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        may_describe: MayDescribe,
        now: Moment,
        decisions: Decisions,
    ) -> ConsumerGroupHeartbeatResponse:
        old, replaced_id = self._member_of(request)
        new = self._updated(old, request, client)
        former_id = new.member_id if replaced_id is None else replaced_id
        changes = [] if replaced_id is None else self._removal_of(replaced_id)
        if self._members.get(new.member_id) != new:
            changes.append(self._metadata_of(new))
        if replaced_id is not None and replaced_id in self._target:
            changes.append(self._target_of(new.member_id, self._target[replaced_id]))

        epoch, resolved = self.group_epoch, self._resolved
        must_raise = not self.exists or new.subscription != old.subscription
        asker = _Asker(new.subscription.regex, may_describe)
        if must_raise or self._must_review or self._is_to_resolve(asker.regex):
            look_at = self._all_topics() if self._must_review and self._resolved else frozenset()
            review = self._review(self._subscriptions_with(former_id, new), now, look_at, asker)
            changes += review.changes
            resolved = dict(review.resolved)
            if must_raise or review.changes or review.metadata_hash != self._metadata_hash:
                epoch += 1
                changes += self._epoch_changes(epoch, review.metadata_hash)

        target, target_epoch = self._target.get(former_id, {}), self.assignment_epoch
        if epoch > target_epoch:
            targets = self._assign(former_id, new, resolved)
            changes += self._target_changes(targets, former_id, new.member_id, epoch, now)
            target, target_epoch = targets[new.member_id], epoch

        new = self._reconciled(new, target_epoch, target, request)
        if new.current != old.current or replaced_id is not None:
            changes.append(self._current_of(new))
        encoded = self._encoded(changes, joining=request.member_epoch == JOIN_GROUP_MEMBER_EPOCH)

        self._apply(changes, encoded, now, decisions)
        self._must_review = False
        self._stale.discard(asker.regex or "")
        if replaced_id is not None:
            self._cancel_timers(replaced_id)
        self._set_session_timer(new.member_id, now)
        if new.current != old.current:
            self._set_rebalance_timer(new, now)
        return self._response_to(request, old, new)

    def _response_to(
        self, request: ConsumerGroupHeartbeatRequest, old: Member, new: Member
    ) -> ConsumerGroupHeartbeatResponse:
        """With the assignment where the member joins, says all that it knows, or has to learn of a change."""
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        assignment = None
        if is_joining or is_full or new.current.assigned != old.current.assigned:
            assignment = HeartbeatAssignment(
                [
                    HeartbeatTopicPartitions(topic_id, sorted(partitions))
                    for topic_id, partitions in sorted(new.current.assigned.items())
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=new.member_id,
            member_epoch=new.current.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms,
            assignment=assignment,
        )

    # Who sends it

    def _member_of(self, request: ConsumerGroupHeartbeatRequest) -> tuple[Member, str | None]:
        """The member as it is, or a new one; and the id of the one that it replaces."""
        is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        if request.instance_id is not None:
            holder_id = self._static_members.get(request.instance_id)
            if is_joining and holder_id is not None and holder_id != request.member_id:
                return self._successor_of(self._members[holder_id], request), holder_id
            if not is_joining:
                self._check_holder(request)
        member = self._members.get(request.member_id)
        if member is not None:
            _check_epoch(member, request)
            return member, None
        if not is_joining:
            raise _Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{request.member_id} is no member of group {self.group_id}: join with member epoch 0.",
            )
        if len(self._members) >= self._context.settings.consumer_max_size:
            raise _Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"Group {self.group_id} has as many members as group.consumer.max.size allows: "
                f"{self._context.settings.consumer_max_size}.",
            )
        return Member(request.member_id or self._context.new_id()), None

    def _successor_of(self, holder: Member, request: ConsumerGroupHeartbeatRequest) -> Member:
        """A static member that comes back under another member id takes over what the one before it had."""
        if holder.current.epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            raise _Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Instance id {request.instance_id} is held by member {holder.member_id}, which has not left yet.",
            )
        current = holder.current._replace(epoch=0, previous_epoch=0)
        return holder._replace(member_id=request.member_id or self._context.new_id(), current=current)

    def _check_holder(self, request: ConsumerGroupHeartbeatRequest) -> None:
        holder_id = self._static_members.get(request.instance_id or "")
        if holder_id is None:
            raise _Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Group {self.group_id} has no member with instance id {request.instance_id}.",
            )
        if holder_id != request.member_id:
            raise _Refused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Instance id {request.instance_id} is held by member {holder_id}, not by {request.member_id}.",
            )

    def _updated(self, member: Member, request: ConsumerGroupHeartbeatRequest, client: Client) -> Member:
        """With what the request tells; what it leaves out stays."""
        names, regex = member.subscription
        if request.subscribed_topic_names is not None:
            names = frozenset(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            regex = request.subscribed_topic_regex or None
        subscription = Subscription(names, regex)
        if subscription == member.subscription:
            subscription = member.subscription
        elif regex is not None and regex not in self._resolved:
            _check_regex(regex)
        timeout_ms = request.rebalance_timeout_ms
        return member._replace(
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=client.client_id,
            client_host=client.host,
            subscription=subscription,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            server_assignor=request.server_assignor or member.server_assignor,
        )

    # Topics

    def on_topics_changed(self, names: Iterable[str], now: Moment, decisions: Decisions) -> None:
        """Topics were created, grown or deleted: the epoch rises if any member reads one of them.

        A group that has nothing to do with them costs a look at its subscriptions, and a match of each name with each
        of its regular expressions.
        """
        changed = frozenset(names)
        if not self._members or not self._is_touched_by(changed):
            return
        if self._context.authorizes:
            self._stale.update(
                regex for regex, known in self._resolved.items() if matching(regex, changed - known)
            )
        review = self._review(self._subscriptions, now, changed)
        if review.metadata_hash == self._metadata_hash and not review.changes:
            return
        changes = [*review.changes, *self._epoch_changes(self.group_epoch + 1, review.metadata_hash)]
        try:
            encoded = self._encoded(changes, joining=False)
        except _Refused as refused:
            _log.warning("a group keeps its former topics", group=self.group_id, reason=str(refused))
            return
        self._apply(changes, encoded, now, decisions)

    def on_acls_changed(self) -> None:
        """What members may describe changed; there is an authorizer."""
        self._stale = set(self._resolved)

    def _is_to_resolve(self, regex: str | None) -> bool:
        """Whether an expression waits for a member that has it."""
        return self._context.authorizes and regex is not None and self._is_open(regex)

    def _is_open(self, regex: str) -> bool:
        return regex not in self._resolved or regex in self._stale

    def _is_touched_by(self, names: frozenset[str]) -> bool:
        for subscription in self._subscriptions:
            if not names.isdisjoint(subscription.names):
                return True
            if subscription.regex is not None and (
                not names.isdisjoint(self._resolved.get(subscription.regex, frozenset()))
                or matching(subscription.regex, names)
            ):
                return True
        return False

    def _subscriptions_with(self, former_id: str, new: Member) -> set[Subscription]:
        """Of all members, with `new` instead of the one of `former_id`."""
        counts = {subscription: count for subscription, (_, count) in self._subscriptions.items()}
        former = self._members.get(former_id)
        if former is not None:
            counts[former.subscription] -= 1
        subscriptions = {subscription for subscription, count in counts.items() if count}
        subscriptions.add(new.subscription)
        return subscriptions

    def _review(
        self,
        subscriptions: Iterable[Subscription],
        now: Moment,
        look_at: frozenset[str] = frozenset(),
        asker: _Asker | None = None,
    ) -> _Review:
        """What the subscriptions come to. Expressions that are new are matched with all topics, the known ones with
        the topics of `look_at`: it holds those that may have changed."""
        subscriptions = list(subscriptions)
        patterns = {subscription.regex for subscription in subscriptions if subscription.regex is not None}
        existing = (
            {name for name in look_at if self._context.topics.named(name) is not None} if patterns else set()
        )
        resolved: dict[str, frozenset[str]] = {}
        changes: list[Change] = [
            (records.ConsumerGroupRegularExpressionKey(self.group_id, pattern), None)
            for pattern in sorted(self._resolved.keys() - patterns)
        ]
        for pattern in sorted(patterns):
            known = self._resolved.get(pattern)
            if self._context.authorizes:
                topics = self._visible(pattern, look_at - existing, asker)
            elif known is None:
                topics = matching(pattern, self._context.topics.names())
            else:
                topics = (known - look_at) | matching(pattern, existing) if look_at else known
            if topics is None:
                continue
            resolved[pattern] = topics
            if topics != known:
                value = records.ConsumerGroupRegularExpressionValue(sorted(topics), 0, now.wall_ms)
                changes.append((records.ConsumerGroupRegularExpressionKey(self.group_id, pattern), value))
        return _Review(resolved, self._hash_of(subscriptions, resolved), changes)

    def _visible(self, pattern: str, gone: Set[str], asker: _Asker | None) -> frozenset[str] | None:
        """What an expression comes to where there is an authorizer: nobody but a member that has it adds topics. None
        until one has asked."""
        if asker is not None and asker.regex == pattern and self._is_open(pattern):
            matched = matching(pattern, self._context.topics.names())
            return frozenset(name for name in matched if asker.may_describe(name))
        known = self._resolved.get(pattern)
        return None if known is None else known - gone

    def _all_topics(self) -> frozenset[str]:
        """Those that exist, and those that expressions matched when they did."""
        return frozenset(self._context.topics.names()).union(*self._resolved.values())

    def _hash_of(self, subscriptions: Iterable[Subscription], resolved: Mapping[str, frozenset[str]]) -> int:
        """Of the topics, as they are: a broker that takes over sees by it whether they changed meanwhile."""
        names: set[str] = set()
        for subscription in subscriptions:
            names |= subscription.names
            names |= resolved.get(subscription.regex or "", frozenset())
        total = 0
        for name in names:
            topic = self._context.topics.named(name)
            if topic is not None:
                fact = b"%b %d %b" % (topic.topic_id, topic.partitions, name.encode())
                total += int.from_bytes(blake2b(fact, digest_size=8).digest(), "big")
        return int.from_bytes((total % 2**64).to_bytes(8, "big"), "big", signed=True)

    # The target assignment

    def _assign(
        self, former_id: str, new: Member, resolved: Mapping[str, frozenset[str]]
    ) -> dict[str, Assignment]:
        members = {**self._members, new.member_id: new}
        if former_id != new.member_id:
            del members[former_id]
        topics: dict[Subscription, tuple[TopicPartitions, ...]] = {}
        asked = []
        for member in members.values():
            of_member = topics.get(member.subscription)
            if of_member is None:
                of_member = topics[member.subscription] = self._existing(member.subscription, resolved)
            current = self._target.get(former_id if member is new else member.member_id, {})
            asked.append(AssignorMember(member.member_id, member.instance_id, of_member, current))
        return ASSIGNORS[self._preferred_assignor(members.values())](asked)

    def _existing(
        self, subscription: Subscription, resolved: Mapping[str, frozenset[str]]
    ) -> tuple[TopicPartitions, ...]:
        names = subscription.names | resolved.get(subscription.regex or "", frozenset())
        found = (self._context.topics.named(name) for name in sorted(names))
        return tuple(topic for topic in found if topic is not None)

    def _preferred_assignor(self, members: Iterable[Member]) -> str:
        votes = dict.fromkeys(self._context.settings.consumer_assignors, 0)
        for member in members:
            if member.server_assignor in votes:
                votes[member.server_assignor] += 1
        return max(votes, key=votes.__getitem__)  # the first of those with the most

    def _target_changes(
        self, targets: Mapping[str, Assignment], former_id: str, new_id: str, epoch: int, now: Moment
    ) -> list[Change]:
        changes = []
        for member_id, target in targets.items():
            known = self._target.get(former_id if member_id == new_id else member_id)
            if target != known:
                changes.append(self._target_of(member_id, target))
        key = records.ConsumerGroupTargetAssignmentMetadataKey(self.group_id)
        changes.append((key, records.ConsumerGroupTargetAssignmentMetadataValue(epoch, now.wall_ms)))
        return changes

    def _reconciled(
        self,
        member: Member,
        target_epoch: int,
        target: Assignment,
        request: ConsumerGroupHeartbeatRequest,
    ) -> Member:
        def is_free(topic_id: bytes, partition: int) -> bool:
            return self._owners.get(topic_id, {}).get(partition) in (None, member.member_id)

        try:
            current = reconcile(member.current, target_epoch, target, _owned(request), is_free)
        except UnknownState:
            raise _Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member {member.member_id} is in a state of a later version: it must give up all and join again.",
            ) from None
        return member._replace(current=current)

    # Leaving

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now: Moment, decisions: Decisions
    ) -> ConsumerGroupHeartbeatResponse:
        if request.instance_id is not None:
            self._check_holder(request)
        member = self._members.get(request.member_id)
        if member is None:
            raise _Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of group {self.group_id}."
            )
        if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            current = member.current._replace(epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH, pending_revocation={})
            changes = [self._current_of(member._replace(current=current))]
            self._apply(changes, self._encoded(changes, joining=False), now, decisions)
            self._context.timers.cancel(self._timer("rebalance", member.member_id))
        else:
            self._remove([member.member_id], now, decisions)
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def remove_members(
        self, members: Sequence[tuple[str, str | None]], now: Moment, decisions: Decisions
    ) -> list[ErrorCode]:
        """An operator's LeaveGroup: members by id, or by instance id with an empty member id."""
        errors, leaving = [], []
        for member_id, instance_id in members:
            if instance_id is not None:
                holder_id = self._static_members.get(instance_id)
                if holder_id is not None and member_id and member_id != holder_id:
                    errors.append(ErrorCode.FENCED_INSTANCE_ID)
                    continue
                member_id = holder_id or ""
            known = member_id in self._members and member_id not in leaving
            errors.append(ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID)
            if known:
                leaving.append(member_id)
        if leaving:
            self._remove(leaving, now, decisions)
        return errors

    def _remove(self, member_ids: Sequence[str], now: Moment, decisions: Decisions) -> None:
        """Their partitions are free at once; the others' heartbeats find a new target."""
        changes = [change for member_id in member_ids for change in self._removal_of(member_id)]
        counts = {subscription: count for subscription, (_, count) in self._subscriptions.items()}
        for member_id in member_ids:
            counts[self._members[member_id].subscription] -= 1
        review = self._review([subscription for subscription, count in counts.items() if count], now)
        changes += review.changes
        changes += self._epoch_changes(self.group_epoch + 1, review.metadata_hash)
        self._apply(changes, [records.encode(change) for change in changes], now, decisions)
        for member_id in member_ids:
            self._cancel_timers(member_id)

    def delete(self, decisions: Decisions) -> ErrorCode:
        """Ends an empty group: deleted, expired, or about to be one of the other protocol. NON_EMPTY_GROUP while it has
        members, GROUP_ID_NOT_FOUND when it does not exist."""
        if not self.exists:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self._members:
            return ErrorCode.NON_EMPTY_GROUP
        changes: list[Change] = [
            (records.ConsumerGroupRegularExpressionKey(self.group_id, pattern), None)
            for pattern in self._resolved
        ]
        changes.append((records.ConsumerGroupTargetAssignmentMetadataKey(self.group_id), None))
        changes += self._partition_metadata_end()
        changes.append((records.ConsumerGroupMetadataKey(self.group_id), None))
        for change in changes:
            decisions.write(self.group_id, records.encode(change))
            self.replay(*change)
        return ErrorCode.NONE

    # Timers

    def _set_session_timer(self, member_id: str, now: Moment) -> None:
        at_ms = now.monotonic_ms + self._session_timeout_ms
        self._context.timers.set(
            self._timer("session", member_id), at_ms, partial(self._on_session_timeout, member_id)
        )

    def _set_rebalance_timer(self, member: Member, now: Moment) -> None:
        """Runs while the member has to give up partitions."""
        key = self._timer("rebalance", member.member_id)
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            at_ms = now.monotonic_ms + max(member.rebalance_timeout_ms, 0)
            action = partial(self._on_rebalance_timeout, member.member_id, member.current.epoch)
            self._context.timers.set(key, at_ms, action)
        else:
            self._context.timers.cancel(key)

    def _cancel_timers(self, member_id: str) -> None:
        self._context.timers.cancel(self._timer("session", member_id))
        self._context.timers.cancel(self._timer("rebalance", member_id))

    def _timer(self, kind: str, member_id: str) -> tuple[str, str, str]:
        return kind, self.group_id, member_id

    def _on_session_timeout(self, member_id: str, now: Moment, decisions: Decisions) -> None:
        if self._timer("session", member_id) in self._context.timers:
            return  # set anew after its time had come
        if member_id in self._members:
            _log.info("a member's session ended", group=self.group_id, member=member_id)
            self._remove([member_id], now, decisions)

    def _on_rebalance_timeout(self, member_id: str, epoch: int, now: Moment, decisions: Decisions) -> None:
        if self._timer("rebalance", member_id) in self._context.timers:
            return
        member = self._members.get(member_id)
        if (
            member is not None
            and member.current.epoch == epoch
            and member.current.state is MemberState.UNREVOKED_PARTITIONS
        ):
            _log.info(
                "a member did not give up its partitions in time", group=self.group_id, member=member_id
            )
            self._remove([member_id], now, decisions)

    @property
    def _session_timeout_ms(self) -> int:
        settings = self._context.settings
        return self._config(
            "consumer.session.timeout.ms",
            settings.consumer_session_timeout_ms,
            settings.consumer_min_session_timeout_ms,
            settings.consumer_max_session_timeout_ms,
        )

    @property
    def _heartbeat_interval_ms(self) -> int:
        settings = self._context.settings
        return self._config(
            "consumer.heartbeat.interval.ms",
            settings.consumer_heartbeat_interval_ms,
            settings.consumer_min_heartbeat_interval_ms,
            settings.consumer_max_heartbeat_interval_ms,
        )

    def _config(self, name: str, default: int, lowest: int, highest: int) -> int:
        """The group's own, within the broker's limits of today; the broker's if it has none."""
        text = self._context.group_configs(self.group_id).get(name, "")
        return min(max(int(text), lowest), highest) if text.isdecimal() else default

    # Records

    def _metadata_of(self, member: Member) -> Change:
        value = records.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscription.names),
            subscribed_topic_regex=member.subscription.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
        )
        return records.ConsumerGroupMemberMetadataKey(self.group_id, member.member_id), value

    def _current_of(self, member: Member) -> Change:
        current = member.current
        value = records.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=current.state,
            assigned_partitions=_recorded(current.assigned),
            partitions_pending_revocation=_recorded(current.pending_revocation),
        )
        return records.ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member.member_id), value

    def _target_of(self, member_id: str, target: Assignment) -> Change:
        value = records.ConsumerGroupTargetAssignmentMemberValue(_recorded(target))
        return records.ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), value

    def _removal_of(self, member_id: str) -> list[Change]:
        return [
            (records.ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member_id), None),
            (records.ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), None),
            (records.ConsumerGroupMemberMetadataKey(self.group_id, member_id), None),
        ]

    def _epoch_changes(self, epoch: int, metadata_hash: int) -> list[Change]:
        value = records.ConsumerGroupMetadataValue(epoch, metadata_hash)
        return [(records.ConsumerGroupMetadataKey(self.group_id), value), *self._partition_metadata_end()]

    def _partition_metadata_end(self) -> list[Change]:
        if not self._has_partition_metadata:
            return []
        return [(records.ConsumerGroupPartitionMetadataKey(self.group_id), None)]

    def _encoded(self, changes: Iterable[Change], *, joining: bool) -> list[Record]:
        """Raises _Refused for what the log would not take: nothing is decided then."""
        limit_bytes = self._context.record_max_bytes - BATCH_OVERHEAD_BYTES
        encoded = []
        for change in changes:
            try:
                record = records.encode(change)
            except ProtocolError as error:
                raise _Refused(ErrorCode.INVALID_REQUEST, f"This cannot be recorded: {error}.") from None
            size_bytes = len(record.key) + len(record.value or b"")
            if size_bytes > limit_bytes:
                raise _Refused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED if joining else ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"A record of group {self.group_id} would have {size_bytes} bytes, of which the offsets topic "
                    f"takes {limit_bytes}: subscribe to fewer topics, or raise its max.message.bytes.",
                )
            encoded.append(record)
        return encoded

    def _apply(
        self, changes: Sequence[Change], encoded: Sequence[Record], now: Moment, decisions: Decisions
    ) -> None:
        epoch = self.group_epoch
        for (key, value), record in zip(changes, encoded, strict=True):
            decisions.write(self.group_id, record)
            self.replay(key, value, now.wall_ms)
        counters = self._context.counters
        if self.group_epoch > epoch and self._members:
            counters.rebalances[GroupType.CONSUMER] += 1
            if self._rebalancing_since_ms is None:
                self._rebalancing_since_ms = now.monotonic_ms
        if self._rebalancing_since_ms is not None and self.state not in ("Assigning", "Reconciling"):
            counters.rebalance_ms[GroupType.CONSUMER] += now.monotonic_ms - self._rebalancing_since_ms
            self._rebalancing_since_ms = None

    # State, from records alone

    def replay(self, key: Message, value: Message | None, timestamp_ms: int | None = None) -> None:
        """Takes in a record of the group: its key, its value or None for a tombstone, and the record's time.

        After the tombstone of ConsumerGroupMetadataKey the group does not exist any more.
        """
        match key, value:
            case records.ConsumerGroupMetadataKey(), records.ConsumerGroupMetadataValue():
                self.group_epoch, self._metadata_hash = value.epoch, value.metadata_hash
                self._epoch_since_ms, self._is_dead = timestamp_ms, False
            case records.ConsumerGroupMetadataKey(), None:
                self.group_epoch, self._metadata_hash = 0, 0
                self._epoch_since_ms, self._is_dead = None, True
            case records.ConsumerGroupPartitionMetadataKey(), _:
                self._has_partition_metadata = value is not None
            case records.ConsumerGroupMemberMetadataKey(), records.ConsumerGroupMemberMetadataValue():
                self._put(_with_metadata(self._members.get(key.member_id) or Member(key.member_id), value))
            case records.ConsumerGroupMemberMetadataKey(), None:
                self._forget(key.member_id)
            case records.ConsumerGroupTargetAssignmentMetadataKey(), _:
                self._set_assignment_epoch(value)
            case records.ConsumerGroupTargetAssignmentMemberKey(), None:
                self._target.pop(key.member_id, None)
            case (
                records.ConsumerGroupTargetAssignmentMemberKey(),
                records.ConsumerGroupTargetAssignmentMemberValue(),
            ):
                self._target[key.member_id] = _assignment(value.topic_partitions)
            case records.ConsumerGroupCurrentMemberAssignmentKey(), _:
                self._set_current(key.member_id, value)
            case records.ConsumerGroupRegularExpressionKey(), records.ConsumerGroupRegularExpressionValue():
                self._resolved[key.regular_expression] = frozenset(value.topics)
            case records.ConsumerGroupRegularExpressionKey(), None:
                self._resolved.pop(key.regular_expression, None)
                self._stale.discard(key.regular_expression)

    def on_loaded(self, now: Moment, decisions: Decisions) -> None:
        """All records are replayed, or nobody could be heard for a while: every member has a whole session from now,
        and all its time to give up partitions. Whether topics changed is looked at with the next heartbeat."""
        self._must_review = True
        if self._context.authorizes:
            self.on_acls_changed()
        for member in self._members.values():
            self._set_session_timer(member.member_id, now)
            self._set_rebalance_timer(member, now)

    def _set_assignment_epoch(self, value: Message | None) -> None:
        known = isinstance(value, records.ConsumerGroupTargetAssignmentMetadataValue)
        self.assignment_epoch = value.assignment_epoch if known else 0  # type: ignore[union-attr]
        self._unreconciled = None

    def _set_current(self, member_id: str, value: Message | None) -> None:
        member = self._members.get(member_id)
        if isinstance(value, records.ConsumerGroupCurrentMemberAssignmentValue):
            self._put((member or Member(member_id))._replace(current=_current(value)))
        elif member is not None:
            self._put(member._replace(current=CurrentAssignment()))

    def _put(self, member: Member) -> None:
        known = self._members.get(member.member_id)
        if known is None or known.current is not member.current:
            self._disown(known)
            self._own(member)
        if known is None or known.subscription != member.subscription:
            self._unsubscribe(known)
            member = member._replace(subscription=self._subscribed(member.subscription))
        else:
            member = member._replace(subscription=known.subscription)
        if known is not None and known.instance_id != member.instance_id:
            self._release_instance(known)
        if member.instance_id is not None:
            self._static_members[member.instance_id] = member.member_id
        self._members[member.member_id] = member
        if self._unreconciled is not None:
            self._unreconciled.discard(member.member_id)
            if not member.current.is_at(self.assignment_epoch):
                self._unreconciled.add(member.member_id)

    def _forget(self, member_id: str) -> None:
        member = self._members.pop(member_id, None)
        if member is not None:
            self._disown(member)
            self._unsubscribe(member)
            self._release_instance(member)
            if self._unreconciled is not None:
                self._unreconciled.discard(member_id)

    def _own(self, member: Member) -> None:
        for assignment in (member.current.assigned, member.current.pending_revocation):
            for topic_id, partitions in assignment.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))

    def _disown(self, member: Member | None) -> None:
        if member is None:
            return
        for assignment in (member.current.assigned, member.current.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _subscribed(self, subscription: Subscription) -> Subscription:
        shared, count = self._subscriptions.get(subscription, (subscription, 0))
        self._subscriptions[shared] = (shared, count + 1)
        return shared

    def _unsubscribe(self, member: Member | None) -> None:
        if member is None:
            return
        shared, count = self._subscriptions[member.subscription]
        if count > 1:
            self._subscriptions[shared] = (shared, count - 1)
        else:
            del self._subscriptions[shared]

    def _release_instance(self, member: Member) -> None:
        if (
            member.instance_id is not None
            and self._static_members.get(member.instance_id) == member.member_id
        ):
            del self._static_members[member.instance_id]


def _check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, settings: GroupSettings) -> None:
    """Raises _Refused as Kafka does for what contradicts itself."""
    epoch = request.member_epoch
    needs_member_id = (
        epoch != JOIN_GROUP_MEMBER_EPOCH or version >= CONSUMER_GENERATED_MEMBER_ID_REQUIRED_VERSION
    )
    joins = epoch == JOIN_GROUP_MEMBER_EPOCH
    faults = (
        (not request.group_id, "GroupId can't be empty."),
        (request.instance_id == "", "InstanceId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH, f"MemberEpoch {epoch} is invalid."),
        (needs_member_id and not request.member_id, "MemberId can't be empty."),
        (joins and request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be given when joining."),
        (
            joins and (request.topic_partitions is None or len(request.topic_partitions) > 0),
            "TopicPartitions must be given, and empty, when joining.",
        ),
        (
            joins and request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
            "SubscribedTopicNames or SubscribedTopicRegex must be given when joining.",
        ),
        (
            epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None,
            "InstanceId must be given by a static member that leaves for a while.",
        ),
    )
    for is_fault, sentence in faults:
        if is_fault:
            raise _Refused(ErrorCode.INVALID_REQUEST, sentence)
    if request.server_assignor is not None and request.server_assignor not in settings.consumer_assignors:
        raise _Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported; these are: "
            f"{', '.join(settings.consumer_assignors)}.",
        )


def _check_regex(regex: str) -> None:
    try:
        check_pattern(regex)
    except InvalidPattern as invalid:
        sentence = f"The regular expression {regex!r} is not valid for RE2: {invalid}."
        raise _Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, sentence) from None


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises _Refused for an epoch that is neither the member's, nor the one before of a lost answer, nor 0."""
    epoch, current = request.member_epoch, member.current
    if epoch in (JOIN_GROUP_MEMBER_EPOCH, current.epoch):
        return
    if (
        epoch == current.previous_epoch
        and epoch < current.epoch
        and _has_only(current.assigned, _owned(request))
    ):
        return
    raise _Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"Member {member.member_id} is at epoch {current.epoch}, not at {epoch}: it must give up all its partitions "
        "and join again.",
    )


def _has_only(assigned: Assignment, owned: Owned | None) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for topic in request.topic_partitions:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(topic.partitions)
    return owned


def _with_metadata(member: Member, value: records.ConsumerGroupMemberMetadataValue) -> Member:
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscription=Subscription(
            frozenset(value.subscribed_topic_names), value.subscribed_topic_regex or None
        ),
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
    )


def _current(value: records.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    known = value.state in MemberState._value2member_map_
    return CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state) if known else MemberState.UNKNOWN,
        _assignment(value.assigned_partitions),
        _assignment(value.partitions_pending_revocation),
    )


def _recorded(assignment: Assignment) -> list[records.RecordedTopicPartitions]:
    return [
        records.RecordedTopicPartitions(topic_id, sorted(partitions))
        for topic_id, partitions in sorted(assignment.items())
    ]


def _assignment(recorded: Iterable[records.RecordedTopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in recorded if topic.partitions}
