"""What a segment remembers of the room that it has never hides a roll that is due."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.segment import Segment
from tests.support.logs import batch_of, memory_disk, open_log

CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.integers(200, 3000),
    segment_ms=st.integers(1, 60),
    segment_jitter_ms=st.integers(0, 80),
    index_size_max_bytes=st.integers(12, 200),
    index_interval_bytes=st.sampled_from((0, 1, 100, 4096)),
)
APPENDS = st.lists(st.tuples(st.integers(0, 150), st.integers(-1, 40)), min_size=2, max_size=12)
"""Bytes of the value, timestamp (ms)."""
BETWEEN = st.one_of(
    st.tuples(st.sampled_from(("truncate", "roll", "persist")), st.integers(0, 40), st.just(0)),
    st.tuples(st.just("configure"), st.integers(200, 3000), st.integers(1, 60)),
)
STEPS = st.lists(st.tuples(APPENDS, BETWEEN), min_size=2, max_size=8)


def hides_a_roll(log: PartitionLog, size_bytes: int, timestamp: int) -> bool:
    """Whether the active segment has room for such an append by memory, and has to be closed by the rules."""
    active: Segment = log._segments.active
    end = log.log_end_offset
    return active.has_room(size_bytes, timestamp, end) and active.should_roll(
        log.config, size_bytes, timestamp, end, lambda: 10_000
    )


@given(CONFIGS, STEPS)
def test_room_that_is_remembered_hides_no_roll(
    config: LogConfig, steps: list[tuple[list[tuple[int, int]], tuple[str, int, int]]]
) -> None:
    log = open_log(memory_disk(), config)
    for appends, (what, number, time_ms) in steps:
        for value_bytes, timestamp in appends:
            batch = batch_of(b"v" * value_bytes, timestamp=timestamp)
            assert not hides_a_roll(log, len(batch), timestamp)
            if len(batch) <= log.config.segment_bytes:
                log.append_as_leader(batch, leader_epoch=0)
        match what:
            case "truncate":
                log.truncate_to(min(number, log.log_end_offset))
            case "roll":
                log.roll()
            case "persist":
                log._segments.active.persist_indexes()
            case _:
                log.update_config(replace(log.config, segment_bytes=number, segment_ms=time_ms))


def test_most_appends_are_known_to_fit() -> None:
    log = open_log(memory_disk(), LogConfig())
    for _ in range(2):
        log.append_as_leader(batch_of(b"v", timestamp=5), leader_epoch=0)
    active = log._segments.active
    assert active.has_room(100, 6, 2)
    assert not active.has_room(log.config.segment_bytes, 6, 2)
    assert not active.has_room(100, 6 + log.config.segment_ms, 2)
    assert not active.has_room(100, 6, 2**31)
