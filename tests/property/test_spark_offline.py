"""Stopped logs of any history, read like a list: committed records below the high watermark, each once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from kraft.runtime.disk import RealDisk
from kraft.spark.data_loss import LossPolicy
from kraft.spark.offline.cluster import plan_offline, read_offline
from kraft.spark.options import parse_options
from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import CLEAN_SHUTDOWN_FILE, HIGH_WATERMARKS, RECOVERY_POINTS
from partitions.log.node_logs.meta_properties import MetaProperties, encode_meta_properties
from partitions.log.node_logs.offset_checkpoint import encode_offset_checkpoint
from partitions.records.builder import build_batch
from partitions.records.control import ControlType
from partitions.records.markers import build_marker
from partitions.topic_partition import TopicPartition
from tests.support.logs import halt, lead

ORDERS = TopicPartition("orders", 0)
SEGMENTS = LogConfig(segment_bytes=400, index_interval_bytes=100)
PLAIN = -1


class Step(NamedTuple):
    """A batch of a producer (PLAIN: of no transaction), or the end of its transaction."""

    producer: int
    records: int
    codec: int
    ends: ControlType | None = None


batches = st.builds(Step, st.sampled_from([PLAIN, 7, 8]), st.integers(1, 4), st.integers(0, 4), st.none())
markers = st.builds(
    Step,
    st.sampled_from([7, 8]),
    st.just(0),
    st.just(0),
    st.sampled_from([ControlType.COMMIT, ControlType.ABORT]),
)


def write(log: PartitionLog, steps: list[Step]) -> Iterator[int]:
    """Appends, and yields the log's end after each step."""
    for step in steps:
        if step.ends is not None:
            data = build_marker(step.producer, 0, step.ends, coordinator_epoch=1, timestamp=1)
        else:
            end = log.log_end_offset
            data = build_batch(
                [(1, None, b"%d" % (end + number), ()) for number in range(step.records)],
                codec=step.codec,
                producer_id=step.producer,
                producer_epoch=-1 if step.producer == PLAIN else 0,
                is_transactional=step.producer != PLAIN,
            )
        log.append_as_leader(data, leader_epoch=0, origin="coordinator")
        yield log.log_end_offset


def committed(steps: list[Step], high_watermark: int) -> list[int]:
    """The offsets that a read_committed reader gets: a list, and no indexes."""
    found: list[int] = []
    pending: dict[int, list[int]] = {}
    offset = 0
    for step in steps:
        if offset >= high_watermark:
            break
        if step.ends is not None:
            kept = pending.pop(step.producer, [])
            found += kept if step.ends is ControlType.COMMIT else []
            offset += 1
            continue
        mine = found if step.producer == PLAIN else pending.setdefault(step.producer, [])
        mine += range(offset, offset + step.records)
        offset += step.records
    stable = min([high_watermark, *(offsets[0] for offsets in pending.values())])
    return sorted(offset for offset in found if offset < stable)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(batches | markers, min_size=1, max_size=30), st.data())
def test_read_committed_is_what_a_list_would_say(steps: list[Step], data: st.DataObject) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        log = PartitionLog.open(
            RealDisk(),
            f"{folder}/{ORDERS}",
            ORDERS,
            SEGMENTS,
            now_ms=lambda: 0,
            halt=halt,
            topic_id=bytes(16),
        )
        lead(log, 0)
        ends = [0, *write(log, steps)]
        closed = data.draw(st.booleans(), "closed")
        if closed:
            log.close()
            (folder / CLEAN_SHUTDOWN_FILE).write_text('{"version": 0, "brokerEpoch": 3}')
            recovery_point = ends[-1]
        else:
            log.abandon()
            bases = [int(path.stem) for path in (folder / str(ORDERS)).glob("*.log")]
            recovery_point = data.draw(st.sampled_from(sorted(bases)), "recovery point")
        high_watermark = data.draw(st.sampled_from(ends), "high watermark")
        for name, offset in ((HIGH_WATERMARKS, high_watermark), (RECOVERY_POINTS, recovery_point)):
            (folder / name).write_bytes(encode_offset_checkpoint({ORDERS: offset}))
        meta = MetaProperties("AAAAAAAAAAAAAAAAAAAAAQ", 1, "AAAAAAAAAAAAAAAAAAAAAg")
        (folder / "meta.properties").write_bytes(encode_meta_properties(meta))
        options = parse_options(
            {
                "path": str(folder),
                "subscribe": "orders",
                "kafka.isolation.level": "read_committed",
                "maxRecordsPerPartition": f"{data.draw(st.integers(1, 40), 'of a slice')}",
            }
        )
        slices = plan_offline(options, LossPolicy())
        rows = [batch for one in slices for batch in read_offline(options, LossPolicy(), one)]
        values = [int(value.as_py()) for batch in rows for value in batch["value"]]
        assert values == [offset for batch in rows for offset in batch["offset"].to_pylist()]
        assert values == committed(steps, high_watermark)
    finally:
        shutil.rmtree(folder)
