"""Where a reader's offset is looked for: the segment by its name, the place by the sparse index, then a short scan."""

from __future__ import annotations

import struct

import pytest

from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.scan import Stop
from partitions.log.segment import Segment
from partitions.records.batch import iter_batches
from partitions.records.builder import build_batch
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log, read_records

INDEX_INTERVAL_BYTES = 4096
"""Kafka's index.interval.bytes."""
INDEXED_OFFSET, INDEXED_BYTE = 3528, 2_310_272
SOUGHT = 3550


def record_of(size_bytes: int) -> bytes:
    """A batch of one record, so large in the log."""
    spare = size_bytes - len(build_batch([(1000, None, bytes(500), ())]))
    batch = build_batch([(1000, None, bytes(500 + spare), ())])
    assert len(batch) == size_bytes
    return batch


def sparse_log() -> PartitionLog:
    """Records of 654 or 655 bytes fill the file up to byte 2,310,272, where the record 3528 begins. An index entry is
    made every 4,096 bytes, thus for every seventh of them. After it come short ones: the next entry is far."""
    log = open_log(memory_disk(), LogConfig(index_interval_bytes=INDEX_INTERVAL_BYTES))
    longer = INDEXED_BYTE - INDEXED_OFFSET * 654
    for number in range(INDEXED_OFFSET + 1):
        log.append_as_leader(record_of(655 if number < longer else 654), leader_epoch=0)
    for number in range(INDEXED_OFFSET + 1, INDEXED_OFFSET + 100):
        log.append_as_leader(batch_of(b"%d" % number), leader_epoch=0)
    return log


def entries_of(data: bytes) -> list[tuple[int, int]]:
    """Offset and byte of each entry in an .index file."""
    return list(struct.iter_unpack(">ii", data))


def test_an_offset_between_two_index_entries_is_scanned_for_from_the_lower_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The greatest entry not above 3550 is [3528, 2310272]: from that byte on the log is scanned until 3550."""
    log = sparse_log()
    index = log._segments.first.offset_index
    entries = [index.entry(number) for number in range(len(index))]
    assert max(entry for entry in entries if entry[0] <= SOUGHT) == (INDEXED_OFFSET, INDEXED_BYTE)
    assert min(entry for entry in entries if entry[0] > SOUGHT) > (SOUGHT, INDEXED_BYTE)
    assert index.floor(SOUGHT) == INDEXED_BYTE

    scans: list[tuple[int, int]] = []
    seek = Segment.seek

    def watched(self: Segment, position: int, *, stop_offset: int, stop_position: int | None = None) -> Stop:
        scans.append((position, stop_offset))
        return seek(self, position, stop_offset=stop_offset, stop_position=stop_position)

    monkeypatch.setattr(Segment, "seek", watched)
    result = log.read(SOUGHT, 1, up_to_offset=log.log_end_offset)
    assert scans[0] == (INDEXED_BYTE, SOUGHT)
    (found,) = result.slices
    [(_, header)] = iter_batches(found.read())
    assert (result.start_offset, header.base_offset) == (SOUGHT, SOUGHT)
    short = len(batch_of(b"3550"))
    assert found.position == INDEXED_BYTE + 654 + (SOUGHT - INDEXED_OFFSET - 1) * short


def test_the_entry_is_in_the_closed_segments_file() -> None:
    log = sparse_log()
    log.roll()
    written = entries_of(log.storage.disk.read_bytes(f"{FOLDER}/{0:020}.index"))
    assert (INDEXED_OFFSET, INDEXED_BYTE) in written
    assert [entry for entry in written if INDEXED_OFFSET < entry[0] <= SOUGHT] == []
    assert log._segments.first.offset_index.floor(SOUGHT) == INDEXED_BYTE


def test_a_segment_is_found_by_the_first_offset_in_its_name() -> None:
    """Of files 0, 368769 and 737337, a binary search picks 368769 for offset 368776: a name is the first offset of its
    file, not the last one of the file before."""
    names = [0, 368_769, 737_337]
    log = open_log(memory_disk(), LogConfig())
    for first, last in ((0, 368_768), (368_769, 737_336), (737_337, 737_400)):
        for offset in (first, first + 7, last):
            log.append_as_follower(batch_of(b"%d" % offset, base_offset=offset, leader_epoch=0))
        if last < 737_337:
            log.roll()
    assert log.segment_base_offsets == tuple(names)
    for sought, name in (
        (368_776, 368_769),
        (368_769, 368_769),  # its first
        (368_768, 0),  # the last one of the file before
        (737_336, 368_769),
        (737_337, 737_337),
    ):
        assert names[log._segments.position_for(sought)] == name
        (found, *_) = log.read(sought, 1, up_to_offset=log.log_end_offset).slices
        assert found.path == f"{FOLDER}/{name:020}.log"
        assert read_records(log, sought)[0].value == b"%d" % sought
