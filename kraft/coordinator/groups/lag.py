"""How far groups are behind: what is to be found out of which leader, in how few requests, and what comes of it.

Pure. `kraft.broker.coordinators.group_lag` asks; metrics, handlers and pages read the result. Guarantees:

- A lag is the distance from the committed offset to the end of what is committed in the log, as Kafka's own tools have
  it: records that retention deleted and markers of transactions count. It is never below zero.
- The age of the oldest unread record goes by a batch's header, since nobody opens batches for it: the time of the
  batch's first record, or its append time where the leader sets that. Where a group stopped in the middle of a batch,
  the true age is at most that. Markers of transactions are nobody's to read.
- What could not be found out in a round is None, whatever was known before.
- Long work goes in steps of some `ROWS_PER_STEP` offsets.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from kraft.coordinator.groups.context import GroupType
from kraft.coordinator.groups.offset_records import Place
from kraft.coordinator.groups.shard import GroupShard
from partitions.records.batch import CorruptBatchError, iter_batches
from partitions.records.header import NO_TIMESTAMP, Buffer

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

ROWS_PER_STEP: Final = 1_000
"""Committed offsets that one step takes: some milliseconds."""
PARTITIONS_PER_FETCH: Final = 64


class Led(NamedTuple):
    """A partition, and the leadership that is asked: an answer of another does not count."""

    topic: str
    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: int


class Unread(NamedTuple):
    """Where groups that are behind go on reading."""

    led: Led
    offset: int


Row: TypeAlias = tuple[str, str, int, int, int | None, int | None, float | None]
"""The fields of a `PartitionLag`. All offsets of a broker are kept so: the collector does not walk through tuples of
plain values, as it does through objects."""


FoundTime: TypeAlias = tuple[int, float]
"""The wall time in ms of what lies at an offset, and the loop's time in seconds when it was found; as plain as rows."""


class Survey(NamedTuple):
    """What one shard holds."""

    states: Mapping[tuple[GroupType, str], int]
    leds: Sequence[Led]
    committed: Sequence[tuple[str, str, int, int, int]]
    """Group, topic, partition, its number in `leds` (-1: nobody leads it), offset; those of a group side by side."""


class PartitionLag(NamedTuple):
    """A group in one partition, as one round found it."""

    group_id: str
    topic: str
    partition: int
    offset: int
    """Committed."""
    log_end: int | None
    """The end of what is committed in the log; None if its leader did not tell."""
    lag: int | None
    """In records."""
    lag_s: float | None
    """The age of the oldest record that is not read; None at the end of the log too."""


class TopicLag(NamedTuple):
    """A group in those partitions of a topic whose lag is known."""

    group_id: str
    topic: str
    lag: int


class Unlisted(NamedTuple):
    """The sum of what gets no series of its own."""

    partitions: int = 0
    lag: int = 0
    """In records."""
    max_lag_s: float | None = None


@dataclass(slots=True)
class ShardLags:
    """The groups of one shard, as one round found them."""

    states: Mapping[tuple[GroupType, str], int]
    offsets: int = 0
    groups: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    listed: list[PartitionLag] = field(default_factory=list)
    """Those that get series of their own."""
    topics: list[TopicLag] = field(default_factory=list)
    """Of each group and topic of which a partition is listed."""
    unlisted: Unlisted = field(default_factory=Unlisted)


# What is to be asked


def survey(shard: GroupShard, locate: Callable[[str, int], Led | None]) -> Steps[Survey]:
    """Looks at all groups of a shard; who changes while it does is seen before or after the change."""
    states: Counter[tuple[GroupType, str]] = Counter()
    for number, state in enumerate(shard.states(), 1):
        states[state] += 1
        if number % ROWS_PER_STEP == 0:
            yield
    committed: list[tuple[str, str, int, int, int]] = []
    numbers: dict[tuple[str, int], int] = {}
    leds: list[Led] = []
    due = ROWS_PER_STEP
    for number, group_id in enumerate(sorted(shard.offsets.group_ids())):
        for topic, partitions in shard.offsets.of_group(group_id).items():
            for index, one in partitions.items():
                if (topic, index) not in numbers:
                    led = locate(topic, index)
                    numbers[topic, index] = -1 if led is None else len(leds)
                    leds += [] if led is None else [led]
                committed.append((group_id, topic, index, numbers[topic, index], one.offset))
        if number + len(committed) >= due:
            due = number + len(committed) + ROWS_PER_STEP
            yield
    return Survey(states, leds, committed)


def by_leader(surveys: Iterable[Survey]) -> Steps[dict[int, dict[Led, set[int]]]]:
    """For each leader the partitions to ask for, and the distinct offsets that groups have committed there."""
    leaders: dict[int, dict[Led, set[int]]] = {}
    for surveyed in surveys:
        offsets = [leaders.setdefault(led.leader, {}).setdefault(led, set()) for led in surveyed.leds]
        for rows in _in_steps(surveyed.committed):
            for _, _, _, number, offset in rows:
                if number >= 0:
                    offsets[number].add(offset)
            yield
    return leaders


def unread(wanted: Mapping[Led, Iterable[int]], ends: Mapping[Led, int]) -> Steps[dict[Led, list[int]]]:
    """The offsets behind which something is left to read."""
    found: dict[Led, list[int]] = {led: [] for led in ends}
    for some in _in_steps((led, offset) for led in ends for offset in wanted[led]):
        for led, offset in some:
            if offset < ends[led]:
                found[led].append(offset)
        yield
    return found


class LogStart(NamedTuple):
    """A leader's answer that its log begins behind the offset that was asked for."""

    offset: int


Answer: TypeAlias = Buffer | LogStart | None
"""Whole batches, none where no batch fitted into the answer; None for an error."""


class TimeSearch:
    """The times of the oldest unread records in the partitions of one leader, by few fetches that are small.

    A fetch gives at least the first batch of the first partition that it names, whatever its limits; others that did
    not fit come first in the next. Each fetch settles at least one, so that the search ends.
    """

    def __init__(self, ends: Mapping[Unread, int]) -> None:
        """`ends`: where the log ends, behind the offset."""
        self._ends = ends
        self._left: deque[tuple[Unread, int]] = deque((one, max(one.offset, 0)) for one in ends)
        """With the offset to look at, which markers may have moved on."""
        self.found: dict[Unread, int] = {}
        """Wall time in ms."""

    def next_fetch(self) -> list[tuple[Unread, int]]:
        """What to ask for next and at which offset, each partition once; empty at the end."""
        asked: dict[Led, tuple[Unread, int]] = {}
        again: list[tuple[Unread, int]] = []
        while self._left and len(asked) < PARTITIONS_PER_FETCH and len(again) < PARTITIONS_PER_FETCH:
            one = self._left.popleft()
            if asked.setdefault(one[0].led, one) is not one:
                again.append(one)
        self._left.extend(again)
        return list(asked.values())

    def take(self, asked: Sequence[tuple[Unread, int]], answers: Mapping[Led, Answer]) -> None:
        """The answers to what `next_fetch` said."""
        did_not_fit: list[tuple[Unread, int]] = []
        for number, (one, position) in enumerate(asked):
            answer = answers.get(one.led)
            if isinstance(answer, LogStart):
                self._go_on(one, position, answer.offset)
            elif answer is not None and len(answer):
                self._look(one, position, answer)
            elif answer is not None and number > 0:
                did_not_fit.append((one, position))
        self._left.extendleft(reversed(did_not_fit))

    def _look(self, one: Unread, position: int, records: Buffer) -> None:
        behind_markers = position
        try:
            for _, header in iter_batches(records):
                if header.is_control:
                    behind_markers = max(behind_markers, header.next_offset)
                elif header.last_offset >= position:
                    time_ms = header.oldest_time_ms
                    if time_ms != NO_TIMESTAMP:
                        self.found[one] = time_ms
                    return
        except CorruptBatchError:
            return  # no batch, no time; who reads the partition tells of the damage
        self._go_on(one, position, behind_markers)

    def _go_on(self, one: Unread, position: int, offset: int) -> None:
        if position < offset < self._ends[one]:
            self._left.append((one, offset))


# What comes of it


def lags(
    surveys: Mapping[int, Survey],
    ends: Mapping[Led, int],
    times: Mapping[Led, Mapping[int, FoundTime]],
    now_ms: int,
    listed_before: Collection[Place],
    listed_max: int,
) -> Steps[dict[int, ShardLags]]:
    """The lags of each shard, by its number. `times` are by offset. At most `listed_max` partitions are listed (see
    `_choose`)."""
    found: dict[int, list[Row]] = {}
    for number, surveyed in surveys.items():
        known = [(ends.get(led), times.get(led, {})) for led in surveyed.leds]
        known.append((None, {}))  # number -1
        rows = found[number] = []
        for some in _in_steps(surveyed.committed):
            rows.extend(
                _row(group_id, topic, partition, offset, *known[led], now_ms)
                for group_id, topic, partition, led, offset in some
            )
            yield
    listed = yield from _choose(list(found.values()), listed_before, listed_max)
    shards: dict[int, ShardLags] = {}
    for number, rows in found.items():
        shards[number] = yield from _arranged(surveys[number].states, rows, listed)
    return shards


def _row(
    group_id: str,
    topic: str,
    partition: int,
    offset: int,
    log_end: int | None,
    times: Mapping[int, FoundTime],
    now_ms: int,
) -> Row:
    if log_end is None:
        return group_id, topic, partition, offset, None, None, None
    lag = max(log_end - offset, 0)
    found = times.get(offset) if lag else None
    lag_s = None if found is None else max(now_ms - found[0], 0) / 1000
    return group_id, topic, partition, offset, log_end, lag, lag_s


def _choose(
    shards: Sequence[Sequence[Row]], before: Collection[Place], listed_max: int
) -> Steps[Collection[Place]]:
    """Who is listed: whoever was and is still there, so that series do not come and go, then who lags most."""
    if sum(map(len, shards)) <= listed_max:
        return {Place(*row[:3]) for row in chain.from_iterable(shards)}
    kept: set[Place] = set()
    for some in _in_steps(chain.from_iterable(shards)):
        kept.update(Place(*row[:3]) for row in some if row[:3] in before)
        yield
    free = max(listed_max - len(kept), 0)
    worst: list[tuple[int, tuple[str, str, int]]] = []
    for some in _in_steps(chain.from_iterable(shards)):
        new = [(-(row[5] or 0), row[:3]) for row in some if row[:3] not in kept]
        worst = heapq.nsmallest(free, worst + new)
        yield
    return kept.union(Place(*place) for _, place in worst)


def _arranged(
    states: Mapping[tuple[GroupType, str], int], rows: Sequence[Row], listed: Collection[Place]
) -> Steps[ShardLags]:
    shard = ShardLags(states, offsets=len(rows))
    sums: dict[tuple[str, str], int | None] = {place[:2]: None for place in listed}
    partitions = rest = 0
    oldest_s: float | None = None
    for some in _in_steps(rows):
        for row in some:
            group_id, topic, _, _, _, lag, lag_s = row
            if lag is not None and (group_id, topic) in sums:
                sums[group_id, topic] = (sums[group_id, topic] or 0) + lag
            if row[:3] in listed:
                shard.listed.append(PartitionLag(*row))
                continue
            partitions += 1
            rest += lag or 0
            if lag_s is not None:
                oldest_s = lag_s if oldest_s is None else max(oldest_s, lag_s)
        yield
    for number, (group_id, group) in enumerate(groupby(rows, itemgetter(0)), 1):
        shard.groups[group_id] = tuple(group)
        if number % ROWS_PER_STEP == 0:
            yield
    shard.topics = [TopicLag(*topic, lag) for topic, lag in sums.items() if lag is not None]
    shard.unlisted = Unlisted(partitions, rest, oldest_s)
    return shard


def summed(parts: Iterable[Unlisted]) -> Unlisted:
    """One for all shards."""
    parts = list(parts)
    return Unlisted(
        sum(part.partitions for part in parts),
        sum(part.lag for part in parts),
        max((part.max_lag_s for part in parts if part.max_lag_s is not None), default=None),
    )


def _in_steps(items: Iterable[T]) -> Iterator[list[T]]:
    step: list[T] = []
    for item in items:
        step.append(item)
        if len(step) == ROWS_PER_STEP:
            yield step
            step = []
    if step:
        yield step
