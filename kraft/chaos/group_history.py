"""What the members of consumer groups did and were told, for the judges of groups.

A member's operation has two places in one order of the whole run: when it was asked and when it was answered. Each
commit carries a text of its own as its metadata, so that every answer tells which commit it is about. Pure: times,
names and the coordinator's leader epoch come from the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kraft.chaos.history import OperationStatus, TopicKey

NO_EPOCH = -1
"""The broker that was asked hosted no coordinator of the group, as far as the white box knows."""
PENDING = -1


class GroupProtocol(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    """KIP-848."""


class Sender(NamedTuple):
    """Who asks: a member of a group in its generation, or member epoch (KIP-848)."""

    group: str
    protocol: GroupProtocol
    member_id: str
    generation: int


class LogPlace(NamedTuple):
    """Where a commit's record lies. Places of one partition compare as the coordinators' order does."""

    offset: int
    epoch: int
    """The leader epoch of the coordinator that appended it."""


class GroupAction(StrEnum):
    ASSIGNED = "assigned"
    """A member was told its partitions: by SyncGroup, or by a ConsumerGroupHeartbeat. After the latter `owned` is all
    that it holds, also where the answer changed nothing."""
    COMMIT = "commit"
    """Of one partition."""
    FETCH = "fetch of offsets"
    """Of one partition."""


@dataclass(slots=True)
class GroupOperation:
    """One operation of one member; one for each partition of a commit or fetch."""

    action: GroupAction
    sender: Sender
    asked: int
    """Its place in the order of all questions and answers."""
    epoch: int
    """The leader epoch in which the broker that was asked coordinated the group then; NO_EPOCH: it did not."""
    key: TopicKey | None = None
    """Of a commit or fetch."""
    offset: int = -1
    """Committed, or told; -1: nothing is committed."""
    tag: str = ""
    """The commit's text: of this commit, or the one told."""
    owned: tuple[TopicKey, ...] = ()
    """Of ASSIGNED."""
    status: OperationStatus = OperationStatus.PENDING
    answered: int = PENDING
    answer_epoch: int = NO_EPOCH
    """As `epoch`, when the answer came."""
    error: str = ""


@dataclass
class GroupHistory:
    """All operations of all groups, in the order of their questions."""

    operations: list[GroupOperation] = field(default_factory=list)
    commits: dict[str, GroupOperation] = field(default_factory=dict)
    """By their texts."""
    _last: int = 0

    def ask(
        self,
        action: GroupAction,
        sender: Sender,
        epoch: int,
        *,
        key: TopicKey | None = None,
        offset: int = -1,
        tag: str = "",
    ) -> GroupOperation:
        """Enters an operation that begins now."""
        operation = GroupOperation(action, sender, self._next(), epoch, key, offset, tag)
        self.operations.append(operation)
        if action is GroupAction.COMMIT:
            self.commits[tag] = operation
        return operation

    def answer(
        self,
        operation: GroupOperation,
        status: OperationStatus,
        epoch: int = NO_EPOCH,
        *,
        sender: Sender | None = None,
        offset: int | None = None,
        tag: str | None = None,
        owned: Sequence[TopicKey] = (),
        error: str = "",
    ) -> None:
        """Ends an operation, once. `sender`: who the answer made of it."""
        assert operation.status is OperationStatus.PENDING, "an operation ends once"
        operation.status, operation.answered, operation.error = status, self._next(), error
        operation.answer_epoch = epoch
        operation.sender = operation.sender if sender is None else sender
        operation.offset = operation.offset if offset is None else offset
        operation.tag = operation.tag if tag is None else tag
        operation.owned = tuple(owned)

    def _next(self) -> int:
        self._last += 1
        return self._last
