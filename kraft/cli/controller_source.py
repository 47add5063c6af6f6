"""Metadata from running controllers: the active one's committed image, and the entries it still has.

Read by the call that brokers follow the metadata with; the node id below 0 says that this is nobody
whose progress counts. A controller keeps the newest entries apart from the image, for a while; older ones
are to be had from the disk of a voter only.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.cli.controllers import ControllerCalls, Controllers, run_with_controllers
from kraft.cli.metadata_documents import record_document
from kraft.cli.metadata_source import OffsetRange, SourceEntry, image_entry
from kraft.user_error import EXIT_UNDECIDED, UserError
from quorum.errors import MalformedError
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.record_codec import decode_records
from quorum.metadata.records import Record
from quorum.metadata_log import ANY_EPOCH
from quorum.raft.journal import FIRST_ENTRY
from quorum.rpc.messages import FetchMetadataRequest, FetchMetadataResponse, MetadataEntry

NOBODY = -1
FIRST_OFFSET = FIRST_ENTRY[1] + 1
"""Of the first entry that a leader writes; before it every journal has the same one, of epoch 0."""
_FETCH_BYTES = 8 * 1024 * 1024


class ControllerSource:
    """The active controller of a running quorum."""

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
    return await calls.call(request, FetchMetadataResponse)


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
