"""Indexes against lists of entries, and lookups by time against a walk over all records.

Whether entries are in memory, in a file's bytes or went through both, a lookup finds the same; and the log
finds the first record at or after a time whatever timestamps come in whatever order, with segments that
were rolled, truncated, deleted or found at start.
"""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.chaos.world.disk import SimulatedDisk
from partitions.log.config import LogConfig
from partitions.log.index import OffsetIndex, OffsetIndexView, TimeIndex, TimeIndexView
from partitions.log.log import PartitionLog
from tests.support.examples import examples
from tests.support.logs import batch_of, memory_disk, open_log, retain

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=80, max_message_bytes=300)
INT32 = st.integers(0, 2**31 - 1)
GROWING = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=60)


def summed(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs of which both numbers grow strictly."""
    pairs, first, second = [], -1, 0
    for one, other in steps:
        first, second = first + one + 1, second + other
        pairs.append((first, second))
    return pairs


@given(GROWING, st.lists(INT32 | st.integers(-1, 2000), max_size=20), st.integers(0, 2000), GROWING)
def test_an_offset_index_is_a_list(
    steps: list[tuple[int, int]], asked: list[int], cut: int, more: list[tuple[int, int]]
) -> None:
    entries = summed(steps)
    index = OffsetIndex()
    for entry in entries:
        index.append(*entry)
        index.append(*entry)  # one that does not grow is not taken

    def agree() -> None:
        for view in (
            index,
            OffsetIndexView(memoryview(index.encode_from(0))),
            OffsetIndex(index.encode_from(0)),
        ):
            assert len(view) == len(entries)
            assert (view.last_relative_offset, view.last_position) == (entries[-1] if entries else (-1, 0))
            for value in (*asked, *(entry[0] for entry in entries), *(entry[1] for entry in entries)):
                before = [position for offset, position in entries if offset <= value]
                assert view.floor(value) == (before[-1] if before else 0)
                known = [position for _, position in entries if position <= value]
                assert view.floor_position(value) == (known[-1] if known else 0)

    agree()
    index.persisted = len(entries)
    index.truncate(cut)
    entries = [entry for entry in entries if entry[0] < cut]
    assert index.persisted == len(entries)
    agree()
    first, second = entries[-1] if entries else (-1, 0)
    for one, other in summed(more):
        entries.append((first + one + 1, second + other))
        index.append(*entries[-1])
    assert index.encode_from(0)[index.persisted * 8 :] == index.encode_from(index.persisted)
    agree()


@given(
    st.lists(st.tuples(st.integers(-1, 40), st.integers(0, 40)), max_size=60),
    st.lists(st.integers(-2, 60), max_size=20),
    st.integers(0, 50),
)
def test_a_time_index_is_a_list(given_: list[tuple[int, int]], asked: list[int], cut: int) -> None:
    entries: list[tuple[int, int]] = []
    index = TimeIndex()
    for timestamp, offset in given_:
        if not entries or (timestamp > entries[-1][0] and offset > entries[-1][1]):
            entries.append((timestamp, offset))
        index.append(timestamp, offset)

    def agree() -> None:
        for view in (index, TimeIndexView(memoryview(index.encode_from(0))), TimeIndex(index.encode_from(0))):
            assert len(view) == len(entries)
            assert view.last == (entries[-1] if entries else None)
            for value in asked:
                number = bisect_right([timestamp for timestamp, _ in entries], value)
                assert view.floor(value) == (entries[number - 1] if number else None)

    agree()
    index.truncate(cut)
    entries = [entry for entry in entries if entry[1] < cut]
    agree()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 30), min_size=1, max_size=12)),
        st.tuples(st.just("truncate"), st.integers(0, 12)),
        st.tuples(st.just("delete"), st.integers(0, 40)),
        st.tuples(st.just("roll"), st.none()),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    min_size=5,
    max_size=60,
)


class Timed:
    """A log, and (offset, timestamp) of each of its records."""

    def __init__(self) -> None:
        self.disk: SimulatedDisk = memory_disk()
        self.log: PartitionLog = open_log(self.disk, CONFIG)
        self.records: list[tuple[int, int]] = []

    def append(self, timestamps: list[int]) -> None:
        for timestamp in timestamps:
            info = self.log.append_as_leader(batch_of(b"v" * 20, timestamp=timestamp), leader_epoch=0)
            self.records.append((info.first_offset, timestamp))

    def truncate(self, count: int) -> None:
        self.log.truncate_to(max(self.log.log_start_offset, self.log.log_end_offset - count))
        self.records = [record for record in self.records if record[0] < self.log.log_end_offset]

    def delete(self, offset: int) -> None:
        """Raises the log's start; every other time the segments below it go as well."""
        if self.log.raise_log_start_offset(offset) and offset % 2:
            retain(self.log, 0, self.log.log_end_offset)
        self.records = [record for record in self.records if record[0] >= self.log.log_start_offset]

    def roll(self, _: None) -> None:
        self.log.roll()

    def restart(self, clean: bool) -> None:
        start = self.log.log_start_offset
        if clean:
            self.log.close()
        self.log = open_log(self.disk, CONFIG, clean=clean, log_start_offset=start)

    def ask(self, timestamp: int) -> None:
        segments = self.log._segments
        one_by_one = [n for n, segment in enumerate(segments) if segment.max_timestamp >= timestamp]
        assert segments.first_reaching(timestamp) == (one_by_one[0] if one_by_one else None)
        reaching = [record for record in self.records if record[1] >= timestamp]
        found = self.log.offset_for_timestamp(timestamp)
        assert (None if found is None else (found.offset, found.timestamp)) == (reaching or [None])[0]
        largest = max((time for _, time in self.records), default=None)
        newest = self.log.offset_for_max_timestamp()
        assert (None if newest is None else newest.timestamp) == largest
        if newest is not None:
            assert newest.offset == min(offset for offset, time in self.records if time == largest)


@settings(max_examples=examples(150))
@given(STEPS)
def test_a_time_is_found_where_a_walk_finds_it(steps: list[tuple[str, object]]) -> None:
    world = Timed()
    for name, argument in steps:
        getattr(world, name)(argument)
        world.ask(15)
    for timestamp in range(0, 33, 3):
        world.ask(timestamp)
