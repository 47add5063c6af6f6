"""Reading the files beside a segment: where their entries end, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from partitions.log.inspection.entries import (
    aborted_transactions,
    epoch_entries,
    offset_entries,
    offset_index_entries,
    time_index_entries,
)
from partitions.log.inspection.files import FileKind, StoredDamage, file_kind
from partitions.log.node_logs.offset_checkpoint import encode_offset_checkpoint
from partitions.topic_partition import TopicPartition
from tests.support.stored_logs import StoredFile


def test_indexes_end_before_room_that_was_set_aside() -> None:
    offsets = struct.pack(">iiii", 3, 100, 9, 200) + bytes(80)
    found = list(offset_index_entries("i", StoredFile(offsets), 50))
    assert [(entry.offset, entry.position) for entry in found] == [(53, 100), (59, 200)]
    times = struct.pack(">qi", 1000, 4) + bytes(120)
    assert [entry[1:] for entry in time_index_entries("t", StoredFile(times), 50)] == [(1000, 54)]
    assert not list(offset_index_entries("i", StoredFile(bytes(80)), 50))
    assert len(list(time_index_entries("t", StoredFile(bytes(12)), 50))) == 1


def refused(entries: Iterator[object]) -> tuple[int, StoredDamage]:
    """How many entries come before the damage."""
    count = 0
    try:
        for _ in entries:
            count += 1
    except StoredDamage as damage:
        return count, damage
    pytest.fail("nothing was refused")


def test_indexes_end_at_the_first_entry_that_goes_back() -> None:
    data = struct.pack(">iiii", 3, 100, 3, 200)
    count, damage = refused(offset_index_entries("i", StoredFile(data), 0))
    assert (count, damage.position) == (1, 8)
    count, damage = refused(offset_index_entries("i", StoredFile(data + b"abc"), 0))
    assert damage.position == 8
    count, damage = refused(time_index_entries("t", StoredFile(struct.pack(">qiqi", 5, 3, 5, 4)), 0))
    assert (count, damage.position) == (1, 12)
    torn = struct.pack(">qi", 5, 3) + b"torn"
    count, damage = refused(time_index_entries("t", StoredFile(torn), 0))
    assert (count, damage.position) == (1, 12)


def test_aborted_transactions_have_a_version_and_an_order() -> None:
    first = struct.pack(">hqqqq", 0, 41, 3, 9, 3)
    second = struct.pack(">hqqqq", 0, 42, 4, 12, 4)
    found = list(aborted_transactions("x", StoredFile(first + second)))
    assert [entry.producer_id for entry in found] == [41, 42]
    assert refused(aborted_transactions("x", StoredFile(second + first)))[1].position == 34
    assert refused(aborted_transactions("x", StoredFile(b"\0\1" + first[2:])))[1].position == 0


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"", 0),
        (b"1\n0\n", 0),
        (b"0\n", 2),
        (b"0\nx\n", 2),
        (b"0\n2\n0 0\n", 8),
        (b"0\n1\n0 0\n1 5\n", 8),
        (b"0\n2\n0 5\n1 5\n", 8),
        (b"0\n2\n3 5\n3 6\n", 8),
        (b"0\n1\n0 zero\n", 4),
        (b"0\n1\n0 0", 4),
        (b"0\n2\n0 0\n1 7", 8),
    ],
)
def test_epoch_checkpoints_are_refused_at_the_line(content: bytes, position: int) -> None:
    assert refused(epoch_entries("e", content))[1].position == position


def test_offset_checkpoints_name_a_partition_once() -> None:
    content = b"0\n2\norders 0 5\norders 0 6\n"
    assert refused(offset_entries("o", content))[1].position == content.rindex(b"orders")
    assert refused(offset_entries("o", b"0\n1\nor/ders 0 5\n"))[1].position == 4
    good = encode_offset_checkpoint({TopicPartition("a", 1): 2, TopicPartition("b", 0): 3})
    assert [placed.offset for placed in offset_entries("o", good)] == [2, 3]


def test_kinds_are_told_by_name() -> None:
    assert file_kind("/d/t-0/00000000000000000012.timeindex") is FileKind.TIME_INDEX
    assert file_kind("/d/.kafka_cleanshutdown") is FileKind.CLEAN_SHUTDOWN
    assert file_kind("/d/t-0/00000000000000000012.log.deleted") is None
    assert file_kind("/d/t-0/12.log") is None
