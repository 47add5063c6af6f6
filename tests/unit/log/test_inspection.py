"""Reading and checking stored logs: what counts as damage, what as a note, and what is read again."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace

import pytest

from leader_epoch.checkpoint import encode_checkpoint
from leader_epoch.epoch_cache import EpochEntry
from partitions.log.inspection import batches as batches_module
from partitions.log.inspection.batches import SegmentReader, StoredBatch, Unsound
from partitions.log.inspection.directory_check import expected_by_surroundings
from partitions.log.inspection.entries import (
    offset_entries,
)
from partitions.log.inspection.findings import KEPT_PER_FILE, Findings
from partitions.log.inspection.log_state import Expected
from partitions.log.inspection.partition_check import PartitionCheck, check_partition
from partitions.log.node_logs.offset_checkpoint import encode_offset_checkpoint
from partitions.records.batch import iter_batches, stamp
from partitions.topic_partition import TopicPartition
from tests.support.compaction import Bench
from tests.support.logs import SMALL, batch_of, memory_disk, open_log
from tests.support.stored_logs import (
    DATA,
    FOLDER,
    LAST_RECOVERY_POINT,
    ORDERS,
    StoredFile,
    StoredFiles,
    closed_directory,
    crashed_directory,
    marker,
    segment_paths,
    verified,
)

EPOCHS = f"{FOLDER}/leader-epoch-checkpoint"
THREE = b"".join(batch_of(b"v%d" % number, base_offset=number) for number in range(3))
BATCH_BYTES = len(THREE) // 3


def steps(data: bytes) -> list[StoredBatch | Unsound]:
    return list(SegmentReader(StoredFile(data)).batches())


# ---- batches


def test_sound_batches_are_found_behind_damage_of_any_kind() -> None:
    for at in range(BATCH_BYTES, 2 * BATCH_BYTES):
        if at - BATCH_BYTES in range(8) or at - BATCH_BYTES in range(12, 16):
            continue  # offset and epoch lie before the checksum
        data = bytearray(THREE)
        data[at] ^= 0xFF
        first, unsound, third = steps(bytes(data))
        assert isinstance(unsound, Unsound)
        assert (first.position, third.position) == (0, 2 * BATCH_BYTES)
        assert (unsound.position, unsound.end, unsound.is_last) == (BATCH_BYTES, 2 * BATCH_BYTES, False)


def test_a_batch_that_fails_its_checksum_alone_keeps_its_header() -> None:
    data = bytearray(THREE)
    data[-1] ^= 1
    *_, unsound = steps(bytes(data))
    assert isinstance(unsound, Unsound)
    assert unsound.header is not None
    assert unsound.header.base_offset == 2
    assert unsound.is_last
    assert "checksum" in unsound.reason


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (bytes(100), "zeros instead of a batch"),
        (b"x" * 10, "the 10 bytes up to the file's end"),
        (b"\0" * 16 + b"\1" + b"\0" * 60, "the magic is 1"),
    ],
)
def test_what_is_no_batch_is_said_in_words(tail: bytes, words: str) -> None:
    unsound = steps(THREE + tail)[-1]
    assert isinstance(unsound, Unsound)
    assert words in unsound.reason
    assert (unsound.position, unsound.end) == (len(THREE), len(THREE) + len(tail))


def test_large_batches_are_summed_up_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "_WINDOW_BYTES", 128)
    data = batch_of(b"v" * 1000) + batch_of(b"w", base_offset=1)
    assert [step.position for step in steps(data)] == [0, len(data) - BATCH_BYTES + 1]
    damaged = bytearray(data)
    damaged[500] ^= 1
    unsound, sound = steps(bytes(damaged))
    assert isinstance(unsound, Unsound)
    assert isinstance(sound, StoredBatch)


class GrowingFile(StoredFile):
    """A file whose last batch arrives while it is read: each read finds a bit more of it."""

    def __init__(self, data: bytes, visible: int) -> None:
        super().__init__(data)
        self._all = data
        self._visible = visible

    def size(self) -> int:
        return self._visible

    def read(self, position: int, length: int) -> bytes:
        data = self._all[position : min(position + length, self._visible)]
        self._visible = min(self._visible + BATCH_BYTES // 2, len(self._all))
        return data


def test_a_batch_that_is_being_written_is_read_again() -> None:
    found = list(SegmentReader(GrowingFile(THREE, 2 * BATCH_BYTES + 20)).batches())
    assert [type(step) for step in found] == [StoredBatch] * 3


# ---- a partition


def test_sound_directories_are_sound() -> None:
    for files in (closed_directory(), crashed_directory()):
        found = verified(files)
        assert found.errors + found.notes + found.unreadable == []
        assert (found.partitions, found.batches, found.records) == (1, 9, 25)


def reasons(files: Mapping[str, bytes], *, has_holes: bool = False) -> list[str]:
    return [str(error) for error in verified(files, has_holes=has_holes).errors]


def without_batch(files: Mapping[str, bytes], path: str, number: int) -> dict[str, bytes]:
    """The log with one batch cut out, and without the indexes and snapshots that would not fit any more."""
    data = files[path]
    position, header = list(iter_batches(data))[number]
    kept = {
        name: content
        for name, content in files.items()
        if not name.endswith((".index", ".timeindex", ".snapshot"))
    }
    return {**kept, path: data[:position] + data[position + header.size_bytes :]}


def test_a_hole_is_damage_unless_the_log_is_compacted() -> None:
    files = without_batch(closed_directory(), segment_paths(closed_directory())[1], 1)
    (reason,) = reasons(files)
    assert "begins at offset 15, and 12 is due" in reason
    assert "--compacted" in reason
    assert not reasons(files, has_holes=True)
    cleaned = {**files, f"{DATA}/cleaner-offset-checkpoint": encode_offset_checkpoint({ORDERS: 18})}
    assert not reasons(cleaned)
    assert any("compacted" in note.reason for note in verified(cleaned).notes)


def test_a_missing_segment_is_a_hole() -> None:
    files = dict(closed_directory())
    for name in [name for name in files if "/00000000000000000009." in name]:
        del files[name]
    assert any(
        "begins at offset 18, and the segment before it ends at 9" in reason for reason in reasons(files)
    )


def test_a_missing_end_is_known_from_the_recovery_point() -> None:
    for files in (dict(closed_directory()), dict(crashed_directory())):
        for path in segment_paths(files)[1:]:
            del files[path]
        assert any("was flushed up to" in reason for reason in reasons(files))


@pytest.mark.parametrize(("number", "byte", "bit"), [(1, 6, 0x40), (2, 7, 0x40), (1, 7, 1)])
def test_a_wrong_base_offset_is_one_finding_whatever_follows(number: int, byte: int, bit: int) -> None:
    """Neither the batches behind it nor the indexes are wrong because of it."""
    disk = memory_disk()
    log = open_log(disk, replace(SMALL, index_interval_bytes=0))
    for count in range(40):
        log.append_as_leader(batch_of(b"%03d" % count, timestamp=1000 + count), leader_epoch=0)
    log.close()
    path = f"{log.directory}/{log.segment_base_offsets[1]:020d}.log"
    file = disk.open(path)
    position = number * len(batch_of(b"000"))
    file.write_at(position + byte, bytes([file.read(position + byte, 1)[0] ^ bit]))
    found = Findings()
    check_partition(disk, log.directory, Expected(), found)
    (finding,) = found.errors
    assert (finding.path, finding.position) == (path, position)
    assert f"and by the batches around it at {log.segment_base_offsets[1] + number}" in finding.reason


def test_a_run_of_batches_that_go_back_is_one_finding() -> None:
    disk = memory_disk()
    log = open_log(disk, replace(SMALL, segment_bytes=10_000))
    for count in range(40):
        log.append_as_leader(batch_of(b"%03d" % count), leader_epoch=0)
    log.close()
    path = f"{log.directory}/{0:020d}.log"
    copied = disk.read_bytes(path)
    disk.open(path).append([copied[: 5 * len(batch_of(b"000"))]])
    found = Findings()
    check_partition(disk, log.directory, Expected(), found)
    assert [finding.reason for finding in found.errors] == [
        "the batch goes back to offset 0, and 40 is due; so do the 4 batches that follow it"
    ]


def test_a_stale_batch_is_out_of_place() -> None:
    files = dict(closed_directory())
    path = segment_paths(files)[-1]
    copy = bytearray(files[path])
    stamp(copy, 0, base_offset=3, leader_epoch=5)
    files[path] = bytes(copy)
    assert f"{path} at byte 0: the batch begins at offset 3, and by the batches around it at 18" in reasons(
        files
    )


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ((), "it says nothing for offsets 0 to 8"),
        (((0, 0), (2, 9)), "it says epoch 2 for offsets 18 to 24"),
        (((0, 0), (2, 10), (5, 18)), "it says epoch 0 for offsets 9 to 17"),
        (((0, 3), (2, 9), (5, 18)), "it says nothing for offsets 0 to 8"),
        (((0, 0), (1, 4), (2, 9), (5, 18)), "it says epoch 1 for offsets 0 to 8"),
    ],
)
def test_the_epoch_checkpoint_is_compared_with_the_batches(
    entries: tuple[tuple[int, int], ...], words: str
) -> None:
    content = encode_checkpoint([EpochEntry(*entry) for entry in entries])
    reason, *_ = reasons({**closed_directory(), EPOCHS: content})
    assert reason.startswith(EPOCHS)
    assert words in reason


def test_an_epoch_without_batches_is_no_damage() -> None:
    content = encode_checkpoint([EpochEntry(0, 0), EpochEntry(2, 9), EpochEntry(5, 18), EpochEntry(6, 25)])
    assert not reasons({**closed_directory(), EPOCHS: content})


def test_no_epoch_begins_beyond_the_end_of_a_log_that_was_closed() -> None:
    content = encode_checkpoint([EpochEntry(0, 0), EpochEntry(2, 9), EpochEntry(5, 18), EpochEntry(6, 26)])
    told = "it says that epoch 6 begins at offset 26, and the log ends at 25"
    assert reasons({**closed_directory(), EPOCHS: content}) == [f"{EPOCHS} at byte 17: {told}"]
    after_a_crash = verified({**crashed_directory(), EPOCHS: content})
    assert not after_a_crash.errors
    assert [note.reason for note in after_a_crash.notes if note.path == EPOCHS] == [
        f"{told}; the next start takes it out"
    ]


def test_beyond_the_recovery_point_the_epoch_checkpoint_may_lag() -> None:
    content = encode_checkpoint([EpochEntry(0, 0), EpochEntry(2, 9)])
    assert not reasons({**crashed_directory(), EPOCHS: content})


def test_a_truncation_takes_back_the_recovery_point() -> None:
    files = dict(crashed_directory())
    files[f"{DATA}/recovery-point-offset-checkpoint"] = encode_offset_checkpoint({ORDERS: 900})
    assert reasons(files)
    files[f"{FOLDER}/truncation-checkpoint"] = b"0\n%d\n0\n" % LAST_RECOVERY_POINT
    assert not reasons(files)


def test_a_snapshot_of_another_history_is_found() -> None:
    files = dict(closed_directory())
    first, second = f"{FOLDER}/00000000000000000009.snapshot", f"{FOLDER}/00000000000000000018.snapshot"
    assert any(
        reason.startswith(first) and "producer 40" in reason
        for reason in reasons({**files, first: files[second]})
    )
    beyond = f"{FOLDER}/00000000000000000099.snapshot"
    assert any("of offset 99" in reason for reason in reasons({**files, beyond: files[second]}))
    assert not reasons({**crashed_directory(), beyond: files[second]})


def test_an_aborted_transaction_needs_its_marker() -> None:
    files = dict(closed_directory())
    path = segment_paths(files)[-1].replace(".log", ".txnindex")
    assert "no marker that says so" in reasons({**files, path: struct.pack(">hqqqq", 0, 41, 3, 24, 3)})[0]
    assert "no marker" in reasons({**files, path: struct.pack(">hqqqq", 0, 40, 3, 24, 3)})[0]
    assert "no marker" in reasons({**files, path: struct.pack(">hqqqq", 0, 41, 3, 20, 3)})[0]
    assert "ends before 25" in reasons({**files, path: struct.pack(">hqqqq", 0, 41, 3, 30, 3)})[0]


def test_a_header_that_contradicts_its_records_is_found() -> None:
    """The checksum is right: whoever wrote the batch wrote it so."""
    from crc32c import crc32c

    files = dict(closed_directory())
    path = segment_paths(files)[0]
    copy = bytearray(files[path])
    size = next(iter_batches(copy))[1].size_bytes
    for at, words in ((42, "largest timestamp"), (60, "was written so")):
        changed = bytearray(copy)
        changed[at] += 1
        changed[17:21] = crc32c(bytes(changed[21:size])).to_bytes(4, "big")
        assert any(words in reason for reason in reasons({**files, path: bytes(changed)}))


def test_topics_have_one_id() -> None:
    files = dict(closed_directory())
    other = {
        name.replace("orders-0", "orders-1"): content
        for name, content in files.items()
        if name.startswith(FOLDER)
    }
    both = {**files, **other}
    for name in ("recovery-point", "replication", "log-start"):
        path = f"{DATA}/{name}-offset-checkpoint"
        (placed,) = offset_entries(path, files[path])
        both[path] = encode_offset_checkpoint(
            {ORDERS: placed.offset, TopicPartition("orders", 1): placed.offset}
        )
    assert not reasons(both)
    path = f"{DATA}/orders-1/partition.metadata"
    both[path] = both[path].replace(b"AAEC", b"BBEC")
    (reason,) = reasons(both)
    assert reason.startswith(path)


def test_a_folder_alone_is_judged_strictly_and_one_in_its_directory_by_it() -> None:
    files = dict(crashed_directory())
    path = segment_paths(files)[-1]
    files[path] = files[path][:-5]
    disk = StoredFiles(files)
    found = Findings()
    PartitionCheck(disk, FOLDER, expected_by_surroundings(disk, FOLDER), found).run()
    assert not found.errors
    assert "never flushed" in found.notes[0].reason
    alone = StoredFiles({name: content for name, content in files.items() if name.startswith(FOLDER)})
    found = Findings()
    PartitionCheck(alone, FOLDER, expected_by_surroundings(alone, FOLDER), found).run()
    assert [error.path for error in found.errors] == [path]


def test_unfinished_work_and_indexes_without_a_segment_are_notes() -> None:
    files = {
        **closed_directory(),
        f"{FOLDER}/00000000000000000000.log.swap": b"",
        f"{FOLDER}/00000000000000000005.index": b"",
        f"{DATA}/orders-7.abc-delete/x": b"",
    }
    found = verified(files)
    assert not found.errors
    assert len(found.notes) == 3


def test_a_segment_that_retention_drops_meanwhile_is_a_note() -> None:
    class Vanishing(StoredFiles):
        def open(self, path: str) -> StoredFile:
            if path == segment_paths(closed_directory())[0]:
                raise FileNotFoundError(path)
            return super().open(path)

    found = Findings()
    disk = Vanishing(closed_directory())
    PartitionCheck(disk, FOLDER, expected_by_surroundings(disk, FOLDER), found).run()
    assert not found.errors
    assert any("removed or renamed" in note.reason for note in found.notes)


def test_a_log_that_is_compacted_while_it_is_read_is_read_again() -> None:
    """Two segments become one between the listing and the reading."""
    files = dict(closed_directory())
    first, second = segment_paths(files)[:2]
    cleaned = {name: data for name, data in files.items() if "/00000000000000000009." not in name}
    cleaned[first] = files[first] + files[second]
    for suffix in (".index", ".timeindex"):
        del cleaned[first.replace(".log", suffix)]

    class Compacted(StoredFiles):
        def open(self, path: str) -> StoredFile:
            if path == first:
                self._files = cleaned
            return super().open(path)

    found = Findings()
    disk = Compacted(files)
    check_partition(disk, FOLDER, expected_by_surroundings(disk, FOLDER), found)
    assert not found.errors
    assert found.batches == 9
    swapping = {**cleaned, f"{FOLDER}/00000000000000000000.log.swap": files[first]}
    del swapping[first]
    assert not verified(swapping).errors


def test_findings_of_one_file_are_bounded() -> None:
    found = Findings()
    for number in range(KEPT_PER_FILE + 5):
        found.error("a", number, "x")
    found.error("b", 0, "x")
    assert len(found.errors) == KEPT_PER_FILE + 1
    assert found.left_out == {"a": 5}


def test_markers_written_by_hand_are_control_batches() -> None:
    (_, header), *_ = iter_batches(marker(41, commits=False))
    assert header.is_control


async def test_what_the_cleaner_leaves_is_sound() -> None:
    for codec in range(5):
        bench = Bench()
        for number in range(30):
            key = b"key-%d" % (number % 7)
            bench.put((key, b"%d" % number), (b"all", b"x"), codec=codec, producer=(7, 0, 2 * number))
            if number % 6 == 5:
                bench.log.roll()
        await bench.clean()
        found = Findings()
        check_partition(StoredFiles(bench.storage.files()), bench.log.directory, Expected(), found)
        assert not found.errors
        assert any("compacted" in note.reason for note in found.notes)
