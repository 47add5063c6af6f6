"""Looking at a voter's folder: everything that is sound is read, damage is named, nothing is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.runtime.disk import RealDisk
from quorum.raft.inspection import (
    DamageError,
    FolderChangedError,
    MetadataFolder,
    NoMetadataError,
    read_snapshot,
)
from quorum.raft.journal_log import encode_entry
from tests.support.metadata_files import (
    FOLDER,
    ReadOnlyDisk,
    story,
    write_end_marker,
    write_segment,
    write_snapshot,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / FOLDER


def offsets(folder: Path, from_offset: int = 1) -> list[int]:
    return [entry.offset for entry in MetadataFolder(ReadOnlyDisk(), str(folder)).entries(from_offset)]


def damage_of(folder: Path) -> DamageError:
    with pytest.raises(DamageError) as caught:
        offsets(folder)
    return caught.value


def test_a_journal_is_read_in_order_whichever_folder_is_named(folder: Path) -> None:
    write_segment(folder, story()[:3])
    write_segment(folder, story()[3:])
    entries = list(MetadataFolder(ReadOnlyDisk(), str(folder.parent)).entries(1))
    assert [(entry.offset, entry.epoch, entry.data is None) for entry in entries] == [
        (1, 0, True), (2, 1, True), (3, 1, False), (4, 1, False), (5, 1, False), (6, 2, True),
    ]  # fmt: skip
    assert offsets(folder, 4) == [4, 5, 6]
    assert offsets(folder, 7) == []
    assert MetadataFolder(RealDisk(), str(folder)).first_offset == 1


def test_a_folder_without_a_metadata_log_says_what_was_looked_for(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NoMetadataError, match=FOLDER):
            MetadataFolder(RealDisk(), str(directory))


def test_the_newest_snapshot_counts_and_the_journal_goes_on_behind_it(folder: Path) -> None:
    write_snapshot(folder, story()[:3])
    newest = write_snapshot(folder, story()[:4])
    write_segment(folder, story()[2:])
    found = MetadataFolder(ReadOnlyDisk(), str(folder))
    assert found.snapshot is not None
    assert (found.snapshot.path, found.snapshot.offset, found.snapshot.epoch) == (str(newest), 4, 1)
    assert [entry.offset for entry in found.entries(5)] == [5, 6]
    assert [entry.offset for entry in found.entries(1)] == [3, 4, 5, 6]


def test_a_journal_that_contradicts_the_snapshot_is_not_its_continuation(folder: Path) -> None:
    """The snapshot was installed, and a crash came before the journal was begun anew."""
    other = [(command, index, 3 if index == 4 else term) for command, index, term in story()[:4]]
    write_snapshot(folder, other)
    write_segment(folder, story())
    assert offsets(folder, 5) == []


def test_a_gap_behind_the_snapshot_or_between_segments_is_damage(folder: Path) -> None:
    write_snapshot(folder, story()[:3])
    last = write_segment(folder, story()[4:], synced=5)
    assert damage_of(folder).path == str(last)
    write_segment(folder, story()[:3])
    error = damage_of(folder)
    assert (error.path, error.position) == (str(last), 0)
    assert "begins at offset 5" in error.reason


@pytest.mark.parametrize("synced", [5, 0])
def test_every_flipped_byte_of_what_was_durable_is_named(folder: Path, synced: int) -> None:
    """Whether the voter's note or the entries behind it say that it was durable."""
    path = write_segment(folder, story(), synced=synced)
    write_end_marker(folder, 6 if not synced else 0)
    sound = path.read_bytes()
    covered = len(sound)
    if synced:  # nothing stands behind the last entry and says that it was durable
        covered -= len(encode_entry(story()[-1], 0, synced))
    for position in range(covered):
        path.write_bytes(sound[:position] + bytes([sound[position] ^ 0x10]) + sound[position + 1 :])
        error = damage_of(folder)
        assert error.path == str(path)
        assert error.position <= position
        assert f"byte {error.position}" in str(error)


def test_an_unfinished_entry_that_was_never_durable_is_a_torn_tail(folder: Path) -> None:
    path = write_segment(folder, story())
    sound = path.read_bytes()
    path.write_bytes(sound[:-5])
    found = MetadataFolder(ReadOnlyDisk(), str(folder))
    assert [entry.offset for entry in found.entries(1)] == [1, 2, 3, 4, 5]
    assert found.torn_tail is not None
    assert found.torn_tail.path == str(path)
    write_end_marker(folder, 6)
    assert damage_of(folder).path == str(path)


def test_a_journal_that_ends_before_the_voters_note_is_damaged(folder: Path) -> None:
    path = write_segment(folder, story()[:4])
    write_end_marker(folder, 6)
    error = damage_of(folder)
    assert (error.path, error.position) == (str(path), path.stat().st_size)
    assert "ends at offset 4" in error.reason
    assert "through 6" in error.reason


def test_a_note_that_cannot_be_read_makes_no_claim(folder: Path) -> None:
    write_segment(folder, story()[:4])
    write_end_marker(folder, 6)
    (folder / "quorum-state").write_bytes(b"{}")
    assert offsets(folder) == [1, 2, 3, 4]


def test_every_flipped_byte_of_a_snapshot_is_found(folder: Path) -> None:
    path = write_snapshot(folder, story())
    sound = path.read_bytes()
    for position in range(len(sound)):
        path.write_bytes(sound[:position] + bytes([sound[position] ^ 0x10]) + sound[position + 1 :])
        with pytest.raises(DamageError) as caught:
            MetadataFolder(ReadOnlyDisk(), str(folder))
        assert caught.value.path == str(path)
    path.write_bytes(sound)
    assert read_snapshot(ReadOnlyDisk(), str(path)).offset == 6


def test_what_is_sound_before_the_damage_is_handed_on(folder: Path) -> None:
    path = write_segment(folder, story())
    write_end_marker(folder, 6)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    entries = MetadataFolder(ReadOnlyDisk(), str(folder)).entries(1)
    assert [next(entries).offset for _ in range(5)] == [1, 2, 3, 4, 5]
    with pytest.raises(DamageError):
        next(entries)


class ChangingDisk(ReadOnlyDisk):
    """Each read of a file gives the next of some contents, then what is there."""

    def __init__(self, *contents: bytes | None) -> None:
        self.contents = list(contents)

    def read_bytes(self, path: str) -> bytes:
        if path.endswith(".log") and self.contents:
            content = self.contents.pop(0)
            if content is None:
                raise FileNotFoundError(path)
            return content
        return super().read_bytes(path)


def test_bytes_that_change_while_they_are_read_are_read_again(folder: Path) -> None:
    path = write_segment(folder, story())
    write_end_marker(folder, 6)
    sound = path.read_bytes()
    disk = ChangingDisk(sound[:400], sound[:450])
    assert [entry.offset for entry in MetadataFolder(disk, str(folder)).entries(1)] == [1, 2, 3, 4, 5, 6]
    assert disk.contents == []


def test_a_segment_that_the_node_drops_meanwhile_is_no_damage(folder: Path) -> None:
    write_segment(folder, story())
    with pytest.raises(FolderChangedError, match="newer snapshot"):
        list(MetadataFolder(ChangingDisk(None), str(folder)).entries(1))
