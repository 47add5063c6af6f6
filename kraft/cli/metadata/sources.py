"""Where `kraft metadata` takes metadata from: files, a voter's folder, or the active controller.

A source gives its entries in the order of their offsets, and the image that they amount to. Entries come one by one:
a reader of a damaged journal sees the sound part before quorum.raft.inspection's DamageError ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kraft.cli.quorum.controllers import ControllerCalls, Controllers, run_with_controllers
from kraft.cli.shared.documents import Document
from kraft.metadata_view.documents import image_documents, record_document
from kraft.runtime.read_only_disk import ReadOnlyDisk
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError
from quorum.errors import MalformedError
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.record_codec import decode_records
from quorum.metadata.records import Record
from quorum.metadata_log import ANY_EPOCH
from quorum.raft.inspection import (
    MetadataFolder,
    NoMetadataError,
    SegmentDamageError,
    StoredEntry,
    is_segment,
    is_snapshot,
    read_segment,
    read_snapshot,
)
from quorum.raft.journal import FIRST_ENTRY
from quorum.raft.metadata_replay import MetadataReplay, ReplayedEntry
from quorum.rpc.messages import FetchMetadataRequest, FetchMetadataResponse, MetadataEntry

MAX_FILE_BYTES = 1024 * 1024 * 1024
"""Larger files are neither snapshots nor segments of a quorum's journal, which are read whole."""
BARRIER = "Barrier"
NOBODY = -1
"""A node id below 0: the controller counts no progress of such a caller."""
FIRST_OFFSET = FIRST_ENTRY[1] + 1
"""Of the first entry that a leader writes; before it every journal has the same one, of epoch 0."""
_FETCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class SourceEntry:
    """What stands at one offset. A snapshot stands at the last offset that it covers."""

    offset: int
    epoch: int
    sequence: int | None
    records: list[Document]
    rejected: str | None = None
    is_snapshot: bool = False

    def document(self) -> Document:
        """For --json."""
        return {
            "offset": self.offset,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "snapshot": self.is_snapshot,
            "rejected": self.rejected,
            "records": self.records,
        }


@dataclass(frozen=True)
class OffsetRange:
    """The offsets that were asked for, both ends included; None is no limit."""

    first: int | None = None
    last: int | None = None

    def __contains__(self, offset: int) -> bool:
        return (self.first is None or offset >= self.first) and (self.last is None or offset <= self.last)


class MetadataSource(Protocol):
    """What both commands need of a source. Methods raise UserError, DamageError, OSError."""

    name: str
    notes: list[str]
    """Sentences about what was read, for people; complete once it was read."""

    def entries(self, wanted: OffsetRange) -> Iterator[SourceEntry]: ...

    def image(self) -> MetadataImage: ...


def image_entry(image: MetadataImage) -> SourceEntry:
    """An image as what stands at its offset."""
    return SourceEntry(image.offset, image.epoch, None, list(image_documents(image)), is_snapshot=True)


def _source_entry(entry: ReplayedEntry) -> SourceEntry:
    records = (
        [{"type": BARRIER}] if entry.is_barrier else [record_document(record) for record in entry.records]
    )
    return SourceEntry(entry.offset, entry.epoch, entry.sequence, records, entry.rejection)


class FolderSource:
    """A voter's folder: its newest snapshot, and the journal."""

    def __init__(self, directory: Path) -> None:
        try:
            self._folder = MetadataFolder(ReadOnlyDisk(), str(directory.absolute()))
        except NoMetadataError as error:
            raise UserError(str(error)) from error
        self.name = self._folder.directory
        self.notes: list[str] = []

    def entries(self, wanted: OffsetRange) -> Iterator[SourceEntry]:
        """Without a range: the snapshot, and what follows it. With one: what the journal still has of it,
        and the snapshot in place of what it does not."""
        folder, replay = self._folder, MetadataReplay()
        is_all = wanted.first is None and wanted.last is None
        covered, first = 0, 0 if is_all else max(wanted.first or 1, 1)
        if folder.snapshot is not None:
            covered = folder.snapshot.offset
            image = replay.restore(folder.snapshot)
            journal_from = covered + 1 if is_all else max(first, folder.first_offset or 1)
            if first < journal_from and first <= covered:
                if covered in wanted:
                    yield image_entry(image)
                    first = covered + 1
                else:
                    self.notes.append(
                        f"what lies before offset {journal_from} is in the snapshot at offset {covered} only"
                    )
        for entry in folder.entries(min(max(first, 1), covered + 1)):
            if wanted.last is not None and entry.offset > wanted.last:
                return
            played = replay.play(entry)
            if entry.offset >= first:
                yield _source_entry(played)
        self._note_tail()

    def image(self) -> MetadataImage:
        folder, replay = self._folder, MetadataReplay()
        if folder.snapshot is not None:
            replay.restore(folder.snapshot)
        for entry in folder.entries(1 if folder.snapshot is None else folder.snapshot.offset + 1):
            replay.play(entry)
        self._note_tail()
        return _image_of(replay, self.name)

    def _note_tail(self) -> None:
        torn = self._folder.torn_tail
        if torn is not None:
            self.notes.append(
                f"{torn.path} ends in an unfinished entry at byte {torn.position} ({torn.reason}): it is being"
                " written, or a crash tore it before it was acknowledged"
            )


class FileSource:
    """Snapshots and journal segments by name, in the order in which they were named."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = [str(path.absolute()) for path in paths]
        self.name = ", ".join(map(str, paths))
        self.notes: list[str] = []
        self._disk = ReadOnlyDisk()
        for path in paths:
            _check_file(path)

    def entries(self, wanted: OffsetRange) -> Iterator[SourceEntry]:
        replay = MetadataReplay()
        for path in self._paths:
            if is_snapshot(path):
                image = replay.restore(read_snapshot(self._disk, path))
                if image.offset in wanted:
                    yield image_entry(image)
                continue
            for entry in self._segment(path):
                played = replay.play(entry)
                if entry.offset in wanted:
                    yield _source_entry(played)

    def image(self) -> MetadataImage:
        replay = MetadataReplay()
        for path in self._paths:
            if is_snapshot(path):
                replay.restore(read_snapshot(self._disk, path))
                continue
            for entry in self._segment(path):
                replay.play(entry)
        return _image_of(replay, self.name)

    def _segment(self, path: str) -> Iterator[StoredEntry]:
        try:
            yield from read_segment(self._disk, path)
        except SegmentDamageError as damage:
            yield from damage.entries
            raise


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path} is a folder: name it with --dir", EXIT_USAGE)
    if not (is_snapshot(str(path)) or is_segment(str(path))):
        raise UserError(
            f"{path} is named neither as a snapshot (OFFSET-EPOCH.checkpoint) nor as a segment of a journal"
            " (20 digits.log)",
            EXIT_USAGE,
        )
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if size > MAX_FILE_BYTES:
        raise UserError(f"{path} has {size} bytes, more than any file of a metadata log ({MAX_FILE_BYTES})")


def _image_of(replay: MetadataReplay, name: str) -> MetadataImage:
    if replay.image is None:
        raise UserError(
            f"{name} is only a part of the metadata: a snapshot is needed, or a journal from offset 1, and"
            " journals that follow it without a gap"
        )
    return replay.image


class ControllerSource:
    """The active controller of a running quorum: its committed image, and the entries that it still has.

    It answers the call that brokers follow the metadata with. It keeps the newest entries apart from the image for a
    while; older ones are on the disks of the voters only.
    """

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers
        self.name = "controllers " + ", ".join(
            controllers.voters[voter] for voter in sorted(controllers.voters)
        )
        self.notes: list[str] = []

    def image(self) -> MetadataImage:
        return run_with_controllers(self._controllers, self._image, unanswered=EXIT_UNDECIDED)

    def entries(self, wanted: OffsetRange) -> Iterator[SourceEntry]:
        """Without a range: the image. With one: entries, as far back as the controller has them."""
        image = self.image()
        if wanted.first is None and wanted.last is None:
            yield image_entry(image)
            return
        first = max(wanted.first or FIRST_OFFSET, FIRST_OFFSET)
        if first > image.offset:
            return

        async def work(calls: ControllerCalls) -> list[MetadataEntry]:
            return await _entries(calls, first - 1, image.offset)

        found = run_with_controllers(self._controllers, work, unanswered=EXIT_UNDECIDED)
        if not found or (wanted.last is not None and max(wanted.last, first) < found[0].offset):
            raise UserError(
                f"the controller holds offset {first} only as part of its image at offset {image.offset};"
                " older entries are on the disks of the voters (--dir)"
            )
        if found[0].offset > first:
            self.notes.append(
                f"what lies before offset {found[0].offset} is in the controller's image only; the disks of the"
                " voters may have it (--dir)"
            )
        for entry in found:
            if entry.offset in wanted:
                yield SourceEntry(
                    entry.offset, entry.epoch, None, list(map(record_document, _records(entry)))
                )

    async def _image(self, calls: ControllerCalls) -> MetadataImage:
        image = EMPTY
        while True:
            answer = await _fetch(calls, image.offset, image.epoch)
            before = image.offset
            try:
                image = _advance(image, answer)
            except MalformedError as error:
                raise UserError(f"the controller's metadata cannot be read: {error}") from error
            if image.offset >= answer.committed_offset:
                return image
            if image.offset == before:
                raise UserError(f"the controller does not tell what follows offset {before}; try again")


async def _fetch(calls: ControllerCalls, offset: int, epoch: int) -> FetchMetadataResponse:
    request = FetchMetadataRequest(NOBODY, epoch, offset, max_wait_ms=0, max_bytes=_FETCH_BYTES)
    return await calls.call(request)


def _advance(image: MetadataImage, answer: FetchMetadataResponse) -> MetadataImage:
    if answer.snapshot is not None:
        return MetadataImage.decode(answer.snapshot)
    if not answer.entries:
        return image
    delta = MetadataDelta(image)
    for entry in answer.entries:
        for record in _records(entry):
            delta.apply(record, entry.offset, entry.epoch)
    return delta.finish(answer.entries[-1].offset, answer.entries[-1].epoch)


def _records(entry: MetadataEntry) -> list[Record]:
    return decode_records(entry.records) if entry.records else []


async def _entries(calls: ControllerCalls, offset: int, last: int) -> list[MetadataEntry]:
    """The entries after an offset up to the last one, as far as the controller has them apart."""
    found = list((await _fetch(calls, offset, ANY_EPOCH)).entries)
    while found and found[-1].offset < last:
        answer = await _fetch(calls, found[-1].offset, found[-1].epoch)
        if not answer.entries:
            break
        found += answer.entries
    return found
