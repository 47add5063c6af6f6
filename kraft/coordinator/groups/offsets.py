"""The offsets of all groups of a shard: committed, fetched, deleted, expired; dead with their topics.

Pure. The shard hands requests to it together with their group, or None where there is no such group; it answers bad
input with an error code and never raises. Decisions are Kafka 4's OffsetMetadataManager's. Three promises:

- What lies in memory is what the records say: a shard that loads comes to the same offsets (`replay`).
- An offset belongs to a topic's id. Those of a topic that was deleted are never told, even before their tombstones are
  written, so that a topic made anew under the name begins without any.
- Long work goes in steps: `drop_dead` and `expire` look at some 1,000 offsets a call and say whether more is left.

That a topic is unknown here is reason enough to delete its offsets: who leads a partition has applied the metadata up
to its election, and a commit was accepted under an earlier leader only for a topic of still earlier metadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import structlog

from kraft.coordinator.groups.context import Group, GroupContext, GroupType, TopicPartitions
from kraft.coordinator.groups.offset_records import (
    NO_EXPIRY_MS,
    Committed,
    Place,
    decode_key,
    decode_value,
    encode,
    encode_tombstone,
    expiring,
)
from kraft.coordinator.groups.pending_offsets import PendingOffsets
from kraft.coordinator.groups.txn_offset_commit import as_commit, as_response
from kraft.coordinator.shard import (
    NO_PRODUCER_ID,
    Decisions,
    Moment,
    ProducerIdAndEpoch,
    Record,
    StoredRecord,
    TransactionMarker,
)
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.primitives import ZERO_UUID
from kraft.protocol.schemas.group_offsets import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_RETENTION_MS,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    TxnOffsetCommitRequest,
)
from partitions.records.header import HEADER_BYTES

log = structlog.get_logger(__name__)

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
"""Of OffsetCommit and OffsetFetch."""
_VERSION_WITH_NAMES: Final = FIRST_VERSION_WITH_TOPIC_IDS - 1
FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 9
"""Of OffsetCommit; before it an unknown group's member is told ILLEGAL_GENERATION."""
STEP_OFFSETS: Final = 1_000
"""How many offsets a step of a sweep looks at; it ends with the topic at which it comes to that many."""
MAX_KNOWN_KEYS: Final = 200_000
"""Keys of records that are remembered while a shard loads, so that a record that replaces another costs no parsing."""
RECORD_OVERHEAD_BYTES: Final = 21
"""At most, beside key and value: a record's length, attributes, deltas, lengths of key and value, number of headers."""
_MAX_INT64: Final = 2**63 - 1
_CONSUMERS: Final = "consumer"
"""The protocol type of consumers, by Kafka's name."""

OffsetsByTopic: TypeAlias = dict[str, dict[int, Committed]]


class Expired(NamedTuple):
    """What a step of `expire` came to."""

    more: bool
    """The check goes on: call again soon."""
    without_offsets: list[str]
    """Groups without members that have no offsets, not even in open transactions: Kafka deletes them now."""


class _Asked(NamedTuple):
    """A partition of a commit that exists, and its part of the answer."""

    topic: TopicPartitions
    wanted: OffsetCommitRequestPartition
    answer: OffsetCommitResponsePartition


class _Commit(NamedTuple):
    """A commit that may be made."""

    place: Place
    committed: Committed
    record: Record
    answer: OffsetCommitResponsePartition


class GroupOffsets:
    """`make_group(group_id)` makes a group that has offsets only: somebody commits who is no member of any."""

    def __init__(self, context: GroupContext, make_group: Callable[[str], None]) -> None:
        self._context = context
        self._make_group = make_group
        self._groups: dict[str, OffsetsByTopic] = {}
        self._count = 0
        self._pending = PendingOffsets()
        self._tables: dict[bytes, dict[int, Committed]] = {}
        """While a shard loads: the offsets among which those of a record's key are."""
        self.known_keys: Collection[bytes] = self._tables.keys()
        """While a shard loads: keys of offsets; what a record of another is of has to be looked at."""
        self._indexes: dict[bytes, int] = {}
        """The partition of such a key. Neither makes an object for each key that the collector would walk through."""
        self._topic_ids: dict[bytes, bytes] = {}
        """While a shard loads: one object for each topic id."""
        self._dead: deque[Iterator[tuple[str, str, bytes | None]]] = deque()
        """Where offsets without a topic may lie: group, topic, and the topic's id if its deletion was seen."""
        self._check: Iterator[tuple[str, str, bytes | None]] = iter(())
        """The one of these that looks everywhere."""
        self._expiring: Iterator[tuple[str, str | None]] | None = None
        """Group, topic; a group ends with None."""

    @property
    def count(self) -> int:
        """How many offsets there are, for metrics."""
        return self._count

    def group_ids(self) -> set[str]:
        """The groups that have offsets, be it in an open transaction. Once all records are read, the shard makes
        those that no other record told of."""
        return self._groups.keys() | self._pending.by_group.keys()

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        """What a group committed, by topic and partition; without what died with its topic."""
        found: dict[str, dict[int, Committed]] = {}
        for name, partitions in self._groups.get(group_id, {}).items():
            alive = self._alive(name, partitions)
            if alive:
                found[name] = alive
        return found

    # Commits

    def commit(
        self,
        token: int,
        request: OffsetCommitRequest,
        version: int,
        group: Group | None,
        now: Moment,
        decisions: Decisions,
    ) -> bool:
        """Answers an OffsetCommit; its records are written together or not at all.

        Returns whether the group let the sender in: the session of a classic member then begins anew (Kafka's rule).
        """
        response, commits, is_let_in = self._decide(
            request, version, lambda: _admission(request, version, group), now
        )
        if commits and group is None:
            self._make_group(request.group_id)
        for commit in commits:
            self._put(commit.place, commit.committed)
            decisions.write(request.group_id, commit.record)
        decisions.reply(request.group_id, token, response)
        return is_let_in

    def commit_in_transaction(
        self,
        token: int,
        request: TxnOffsetCommitRequest,
        group: Group | None,
        now: Moment,
        decisions: Decisions,
    ) -> None:
        """Answers a TxnOffsetCommit: what it commits is pending until the producer's transaction ends. The caller has
        verified that there is one, and that its records may be appended."""
        plain = as_commit(request)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        response, commits, _ = self._decide(
            plain, _VERSION_WITH_NAMES, lambda: _admission_in_transaction(plain, group), now
        )
        if commits and group is None:
            self._make_group(request.group_id)
        for commit in commits:
            self._pending.put(producer.producer_id, commit.place, commit.committed)
            decisions.write(request.group_id, commit.record, producer)
        decisions.reply(request.group_id, token, as_response(response.topics))

    def _decide(
        self, request: OffsetCommitRequest, version: int, admission: Callable[[], ErrorCode], now: Moment
    ) -> tuple[OffsetCommitResponse, list[_Commit], bool]:
        """The answer, what is to be committed, and whether the group let the sender in; it is asked where any
        partition exists."""
        response = OffsetCommitResponse()
        asked = list(self._existing(request, version, response))
        error = admission() if asked else ErrorCode.NONE
        commits: list[_Commit] = []
        if error:
            for part in asked:
                part.answer.error_code = error
        else:
            commits = self._checked(request, asked, now)
        self._context.counters.offset_commits += len(commits)
        return response, commits, bool(asked) and not error

    # Transactions

    def end_transaction(self, token: int, marker: TransactionMarker, decisions: Decisions) -> None:
        """Answers NONE when the marker, and all before it, is committed. What the transaction committed for topics
        that are gone by now is deleted."""
        producer_id = marker.producer.producer_id
        decisions.mark(self._pending.groups_of(producer_id), marker)
        for place in self.replay_marker(producer_id, marker.is_commit):
            if self._is_all_dead(place):
                self._delete(place, decisions)
        decisions.reply(None, token, ErrorCode.NONE)

    def replay_marker(self, producer_id: int, is_commit: bool) -> list[Place]:
        """A marker of the log: what the producer's transaction committed stands now, or is forgotten. Returns what it
        held offsets for."""
        ended = self._pending.end(producer_id, is_commit)
        if is_commit:
            for place, committed in ended.committed.items():
                self._store(place, committed)
        return ended.places

    def _existing(
        self, request: OffsetCommitRequest, version: int, response: OffsetCommitResponse
    ) -> Iterator[_Asked]:
        """The partitions that exist. Puts all into the response, those that do not exist with their error."""
        for topic in request.topics:
            known, unknown = self._topic(topic.name, topic.topic_id, version)
            answers = OffsetCommitResponseTopic(topic.name, topic.topic_id)
            response.topics.append(answers)
            for wanted in topic.partitions:
                answer = OffsetCommitResponsePartition(wanted.partition_index, unknown)
                answers.partitions.append(answer)
                if known is None:
                    continue
                if 0 <= wanted.partition_index < known.partitions:
                    yield _Asked(known, wanted, answer)
                else:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _checked(self, request: OffsetCommitRequest, asked: list[_Asked], now: Moment) -> list[_Commit]:
        """The commits that may be made; the other partitions get their error."""
        commits: list[_Commit] = []
        limit = self._context.settings.offset_metadata_max_bytes
        expire_ms = _expire_ms(request.retention_time_ms, now)
        for topic, wanted, answer in asked:
            metadata = wanted.committed_metadata or ""
            if _is_longer(metadata, limit):
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            committed = Committed(
                wanted.committed_offset,
                wanted.committed_leader_epoch,
                metadata,
                now.wall_ms,
                expire_ms,
                topic.topic_id,
            )
            if expire_ms != NO_EXPIRY_MS:
                committed = expiring(committed)
            place = Place(request.group_id, topic.name, wanted.partition_index)
            commits.append(_Commit(place, committed, encode(place, committed), answer))
        if _batch_bytes(commit.record for commit in commits) <= self._context.record_max_bytes:
            return commits
        for commit in commits:
            commit.answer.error_code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return []

    # Fetches

    def fetch_group(
        self, request: OffsetFetchRequestGroup, version: int, group: Group | None, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """One group's part of the answer to an OffsetFetch; `kraft.coordinator.groups.offset_fetch` has its forms.

        With `require_stable` an offset that an open transaction is about to replace is UNSTABLE_OFFSET_COMMIT.
        """
        error = ErrorCode.NONE
        if group is not None:
            error = group.check_fetch(request.member_id, request.member_epoch)
        response = OffsetFetchResponseGroup(request.group_id)
        if error not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            response.error_code = error
            return response
        offsets = {} if error else self._groups.get(request.group_id, {})
        unstable = self._unstable(request.group_id) if require_stable else frozenset()
        if request.topics is None:
            response.topics = list(self._all_topics(request.group_id, offsets, unstable))
            return response
        for topic in request.topics:
            known, unknown = self._topic(topic.name, topic.topic_id, version)
            answers = OffsetFetchResponseTopics(topic.name, topic.topic_id)
            response.topics.append(answers)
            if known is None and version >= FIRST_VERSION_WITH_TOPIC_IDS:
                answers.partitions = [_nothing(index, unknown) for index in topic.partition_indexes]
                continue
            name = topic.name if known is None else known.name
            partitions, ids = offsets.get(name, {}), self._ids_alive(name)
            for index in topic.partition_indexes:
                committed = partitions.get(index)
                if committed is not None and committed.topic_id not in ids:
                    committed = None
                answers.partitions.append(_fetched(Place(request.group_id, name, index), committed, unstable))
        return response

    def _unstable(self, group_id: str) -> frozenset[Place]:
        """What open transactions may replace, for topics that are still there."""
        return frozenset(
            place
            for place in self._pending.places(group_id)
            if any(one.topic_id in self._ids_alive(place.topic) for one in self._pending.at(place))
        )

    def _all_topics(
        self, group_id: str, offsets: OffsetsByTopic, unstable: Collection[Place]
    ) -> Iterator[OffsetFetchResponseTopics]:
        for name, partitions in offsets.items():
            alive = self._alive(name, partitions)
            topic = self._context.topics.named(name)
            if not alive or topic is None:
                continue
            answers = [
                _fetched(Place(group_id, name, index), committed, unstable)
                for index, committed in alive.items()
            ]
            yield OffsetFetchResponseTopics(name, topic.topic_id, answers)

    # Deletions

    def delete(
        self, token: int, request: OffsetDeleteRequest, group: Group | None, decisions: Decisions
    ) -> None:
        """Answers an OffsetDelete: only topics that no member reads lose their offsets."""
        response = OffsetDeleteResponse(_deletion_error(group))
        if group is not None and not response.error_code:
            for topic in request.topics:
                indexes = [partition.partition_index for partition in topic.partitions]
                parts = self._delete_partitions(group, topic.name, indexes, decisions)
                response.topics.append(OffsetDeleteResponseTopic(topic.name, parts))
        decisions.reply(request.group_id, token, response)

    def _delete_partitions(
        self, group: Group, name: str, indexes: list[int], decisions: Decisions
    ) -> list[OffsetDeleteResponsePartition]:
        topic, is_read = self._context.topics.named(name), not _may_go(group, name)
        parts: list[OffsetDeleteResponsePartition] = []
        for index in indexes:
            error = ErrorCode.NONE
            if topic is None or not 0 <= index < topic.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif is_read:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif self._delete(Place(group.group_id, name, index), decisions):
                self._context.counters.offset_deletions += 1
            parts.append(OffsetDeleteResponsePartition(index, error))
        return parts

    def delete_group(self, group_id: str, decisions: Decisions) -> int:
        """Deletes all offsets of a group that is deleted, and says how many there were."""
        places = {
            Place(group_id, name, index)
            for name, partitions in self._groups.get(group_id, {}).items()
            for index in partitions
        }
        places |= self._pending.places(group_id)
        for place in sorted(places):
            self._delete(place, decisions)
        self._context.counters.offset_deletions += len(places)
        return len(places)

    def _delete(self, place: Place, decisions: Decisions) -> bool:
        """Writes a tombstone if there is anything to delete."""
        if not self._remove(place):
            return False
        decisions.write(place.group_id, encode_tombstone(place))
        return True

    # Topics that are deleted

    def topics_deleted(self, deleted: Iterable[tuple[str, bytes]]) -> None:
        """These topics, by name and id, are gone: from now on nobody is told of their offsets. `drop_dead` writes the
        tombstones."""
        ids = dict(deleted)
        found: set[tuple[str, str]] = set()
        for group_id, offsets in self._groups.items():
            for name in offsets.keys() & ids.keys():
                found.add((group_id, name))
                _settle(offsets[name], ids[name])
        found |= {(place.group_id, place.topic) for place in self._pending.of_topics(ids.keys())}
        if found:
            self._dead.append((group_id, name, ids[name]) for group_id, name in sorted(found))

    def drop_dead(self, decisions: Decisions) -> bool:
        """One step of the deletion of offsets without a topic. Returns whether more is left: call again soon."""
        left = STEP_OFFSETS
        while self._dead:
            for group_id, name, deleted_id in self._dead[0]:
                left -= self._drop_dead_of(group_id, name, deleted_id, decisions)
                if left <= 0:
                    return True
            self._dead.popleft()
        return False

    def _drop_dead_of(self, group_id: str, name: str, deleted_id: bytes | None, decisions: Decisions) -> int:
        """Returns how many offsets it looked at."""
        partitions = self._groups.get(group_id, {}).get(name, {})
        pending = sorted(place for place in self._pending.places(group_id) if place.topic == name)
        places = dict.fromkeys([*(Place(group_id, name, index) for index in partitions), *pending])
        for place in places:
            if self._is_all_dead(place, deleted_id):
                self._delete(place, decisions)
        return len(places) + 1

    def _is_all_dead(self, place: Place, deleted_id: bytes | None = None) -> bool:
        """Whether something died with its topic, and nothing else is lost with a tombstone: that takes what open
        transactions hold for the place as well. Where one does, its end has the place looked at again."""
        here = self._pending.at(place)
        committed = self._groups.get(place.group_id, {}).get(place.topic, {}).get(place.partition)
        if committed is not None:
            here.append(committed)
        ids = self._ids_alive(place.topic)
        return bool(here) and all(one.topic_id == deleted_id or one.topic_id not in ids for one in here)

    # Expiry

    def expire(self, groups: Mapping[str, Group], now: Moment, decisions: Decisions) -> Expired:
        """One step of the check for expired offsets; the first begins it. Kafka's rules:

        - of a group without members: by when it became empty, or by the commit where that is not known;
        - of one that only has offsets (simple consumers): by the commit;
        - of a stable group, and of one of KIP-848: by the commit, of topics that no member reads.

        A group in the middle of a rebalance keeps all. An expiry that the commit asked for itself goes first.
        """
        if self._expiring is None:
            self._expiring = self._topics_of(list(groups))
        left = STEP_OFFSETS
        without_offsets: list[str] = []
        for group_id, name in self._expiring:
            group = groups.get(group_id)
            if group is None:
                continue
            if name is None:
                if group.is_empty and group_id not in self._groups and not self._pending.places(group_id):
                    without_offsets.append(group_id)
                left -= 1
            else:
                left -= self._expire_topic(group, name, now, decisions)
            if left <= 0:
                return Expired(True, without_offsets)
        self._expiring = None
        return Expired(False, without_offsets)

    def _topics_of(self, group_ids: list[str]) -> Iterator[tuple[str, str | None]]:
        for group_id in group_ids:
            for name in list(self._groups.get(group_id, ())):
                yield group_id, name
            yield group_id, None

    def _expire_topic(self, group: Group, name: str, now: Moment, decisions: Decisions) -> int:
        """Deletes what is expired of the topic; returns how many offsets it looked at."""
        partitions = self._groups.get(group.group_id, {}).get(name, {})
        if not _expires(group) or not _may_go(group, name):
            return 1
        begin_ms = _empty_since_ms(group)
        retention_ms = self._context.settings.offsets_retention_ms
        unstable = self._unstable(group.group_id)
        looked_at = len(partitions)
        for index, committed in list(partitions.items()):
            place = Place(group.group_id, name, index)
            since_ms = committed.commit_ms if begin_ms is None else begin_ms
            expire_ms = (
                since_ms + retention_ms if committed.expire_ms == NO_EXPIRY_MS else committed.expire_ms
            )
            if now.wall_ms >= expire_ms and place not in unstable:
                self._delete(place, decisions)
                self._context.counters.offset_expirations += 1
        return looked_at + 1

    # Loading

    def replay(self, record: StoredRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Takes in a record whose key's type is one of `KEY_TYPES`; `producer_id` is that of a transaction's batch.

        A record that cannot be read is left out, and logged.
        """
        key = record.key
        try:
            partitions = self._tables.get(key)
            if partitions is None:
                partitions = self._locate(key)
            committed = None if record.value is None else decode_value(record.value, self._topic_ids)
        except ProtocolError as error:
            log.warning("a record of an offset is left out", offset=record.offset, reason=str(error))
            return
        if producer_id != NO_PRODUCER_ID and committed is not None:
            self._pending.put(producer_id, decode_key(key), committed)
            return
        index = self._indexes[key]
        if committed is not None:
            if index not in partitions:
                self._count += 1
            partitions[index] = committed
        elif partitions.pop(index, None) is not None:
            self._count -= 1
        if self._pending.by_group:
            place = decode_key(key)
            if committed is None:
                self._pending.discard(place)
            else:
                self._pending.supersede(place)

    def on_loaded(self) -> None:
        """All records are read, or topics may have changed unseen: `drop_dead` begins to look everywhere for topics
        that are gone."""
        for cache in (self._tables, self._indexes, self._topic_ids):
            cache.clear()
        for group_id in list(self._groups):
            offsets = self._groups[group_id]
            for name in [name for name, partitions in offsets.items() if not partitions]:
                del offsets[name]
            if not offsets:
                del self._groups[group_id]
        if self._check in self._dead:
            self._dead.remove(self._check)
        everywhere = self._topics_of(list(self._groups))
        self._check = ((group_id, name, None) for group_id, name in everywhere if name is not None)
        self._dead.append(self._check)

    def _locate(self, key: bytes) -> dict[int, Committed]:
        """Raises ProtocolError. Makes the topic's table, which `on_loaded` takes away where it stays empty."""
        place = decode_key(key)
        if len(self._tables) >= MAX_KNOWN_KEYS:
            self._tables.clear()
            self._indexes.clear()
        self._indexes[key] = place.partition
        table = self._groups.setdefault(place.group_id, {}).setdefault(place.topic, {})
        self._tables[key] = table
        return table

    # The table

    def _put(self, place: Place, committed: Committed) -> None:
        """A commit outside of any transaction: it stands when those that are open now end."""
        self._store(place, committed)
        self._pending.supersede(place)

    def _store(self, place: Place, committed: Committed) -> None:
        partitions = self._groups.setdefault(place.group_id, {}).setdefault(place.topic, {})
        if place.partition not in partitions:
            self._count += 1
        partitions[place.partition] = committed

    def _remove(self, place: Place) -> bool:
        """Returns whether there was anything, in a transaction or outside."""
        was_pending = self._pending.discard(place)
        offsets = self._groups.get(place.group_id, {})
        partitions = offsets.get(place.topic, {})
        if partitions.pop(place.partition, None) is None:
            return was_pending
        self._count -= 1
        if not partitions:
            del offsets[place.topic]
        if not offsets:
            del self._groups[place.group_id]
        return True

    def _topic(self, name: str, topic_id: bytes, version: int) -> tuple[TopicPartitions | None, ErrorCode]:
        """The topic that a request names, by its name or its id, or the error that says that it is unknown."""
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topic, error = self._context.topics.with_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic, error = self._context.topics.named(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic, ErrorCode.NONE if topic is not None else error

    def _alive(self, name: str, partitions: dict[int, Committed]) -> dict[int, Committed]:
        """Those of the topic that are not dead."""
        ids = self._ids_alive(name)
        return {index: committed for index, committed in partitions.items() if committed.topic_id in ids}

    def _ids_alive(self, name: str) -> tuple[bytes, ...]:
        """The topic ids of offsets that belong to the topic that has this name now. Records of old versions do not
        tell theirs (zero): they belong to the topic if there is one."""
        topic = self._context.topics.named(name)
        return () if topic is None else (topic.topic_id, ZERO_UUID)


# Rules


def _admission(request: OffsetCommitRequest, version: int, group: Group | None) -> ErrorCode:
    """Whether the sender may commit; who claims no generation may where there is no group."""
    generation = request.generation_id_or_member_epoch
    if group is not None:
        return group.check_commit(request.member_id, generation, request.group_instance_id, version)
    if generation < 0:
        return ErrorCode.NONE
    if version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _admission_in_transaction(request: OffsetCommitRequest, group: Group | None) -> ErrorCode:
    """As `_admission`, of a commit in a transaction, in the words of TxnOffsetCommit (KIP-447)."""
    generation = request.generation_id_or_member_epoch
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    error = group.check_commit(request.member_id, generation, request.group_instance_id, None)
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def _deletion_error(group: Group | None) -> ErrorCode:
    """Members whose protocol is not the consumers' do not tell what they read: nothing may go while there are any."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    is_consumers = group.type is GroupType.CONSUMER or group.protocol_type == _CONSUMERS
    return ErrorCode.NONE if is_consumers or group.is_empty else ErrorCode.NON_EMPTY_GROUP


def _may_go(group: Group, topic: str) -> bool:
    """Whether no member reads the topic; while members do not tell, they may read any."""
    return group.is_empty or group.is_subscribed_to(topic) is False


def _expires(group: Group) -> bool:
    """Whether offsets of the group may expire in its state."""
    return group.is_empty or group.type is GroupType.CONSUMER or group.state == "Stable"


def _empty_since_ms(group: Group) -> int | None:
    """When the retention of all its offsets began; None: each by its commit."""
    has_protocol = group.type is GroupType.CONSUMER or bool(group.protocol_type)
    return group.empty_since_ms if group.is_empty and has_protocol else None


def _settle(partitions: dict[int, Committed], topic_id: bytes) -> None:
    """Offsets whose records do not tell a topic's id belong to the topic that goes now, not to the next of its name."""
    for index, committed in partitions.items():
        if committed.topic_id == ZERO_UUID:
            partitions[index] = committed._replace(topic_id=topic_id)


def _expire_ms(retention_ms: int, now: Moment) -> int:
    """When a commit with a retention of its own expires (versions 2 to 4)."""
    if retention_ms == NO_RETENTION_MS:
        return NO_EXPIRY_MS
    return max(0, min(now.wall_ms + retention_ms, _MAX_INT64))


def _is_longer(text: str, limit: int) -> bool:
    """Whether the text has more than `limit` characters as Java counts them: units of UTF-16."""
    return 2 * len(text) > limit and len(text.encode("utf-16-le")) // 2 > limit


def _batch_bytes(records: Iterable[Record]) -> int:
    """The most that a batch of these records may have."""
    sizes = (len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in records)
    return HEADER_BYTES + sum(sizes)


def _fetched(
    place: Place, committed: Committed | None, unstable: Collection[Place]
) -> OffsetFetchResponsePartitions:
    if place in unstable:
        return _nothing(place.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if committed is None:
        return _nothing(place.partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        place.partition, committed.offset, committed.leader_epoch, committed.metadata
    )


def _nothing(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, NO_OFFSET, NO_LEADER_EPOCH, "", error)
