"""Metadata from running controllers: the active one's committed image, and the entries it still has.

Read by the call that brokers follow the metadata with; the node id below 0 says that this is nobody
whose progress counts. A controller keeps the newest entries apart from the image, for a while; older ones
are to be had from the disk of a voter only.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.cli.controllers import ControllerCalls, Controllers, run_with_controllers
from kraft.cli.errors import UserError
from kraft.cli.metadata_documents import record_document
from kraft.cli.metadata_source import OffsetRange, SourceEntry, image_entry
from quorum.errors import MalformedError
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.record_codec import decode_records
from quorum.metadata.records import Record
from quorum.rpc.messages import FetchMetadataRequest, FetchMetadataResponse, MetadataEntry

NOBODY = -1
_FETCH_BYTES = 8 * 1024 * 1024
_EPOCHS_TRIED = 8


class ControllerSource:
    """The active controller of a running quorum."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers
        self.name = "controllers " + ", ".join(
            controllers.voters[voter] for voter in sorted(controllers.voters)
        )
        self.notes: list[str] = []

    def image(self) -> MetadataImage:
        return run_with_controllers(self._controllers, self._image)

    def entries(self, wanted: OffsetRange) -> Iterator[SourceEntry]:
        """Without a range: the image. With one: entries, as far back as the controller has them."""
        image = self.image()
        if wanted.first is None and wanted.last is None:
            yield image_entry(image)
            return
        first = max(wanted.first or 0, 0)
        if first > image.offset:
            return

        async def work(calls: ControllerCalls) -> list[MetadataEntry]:
            return await _entries(calls, first - 1, image)

        found = run_with_controllers(self._controllers, work)
        if not found or found[0].offset != first:
            raise UserError(
                f"the controller holds offset {first} only as part of its image at offset {image.offset};"
                " older entries are on the disks of the voters (--dir)"
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


async def _entries(calls: ControllerCalls, offset: int, image: MetadataImage) -> list[MetadataEntry]:
    """The entries after an offset up to the image's, if the controller has them apart.

    It wants to know the epoch of the entry at `offset`, to be sure that both speak of one history; that
    is not known here, so the epochs from the image's down are tried, a few of them.
    """
    found: list[MetadataEntry] = []
    for epoch in range(image.epoch, max(image.epoch - _EPOCHS_TRIED, -1), -1):
        answer = await _fetch(calls, offset, epoch)
        if answer.entries:
            found += answer.entries
            break
    while found and found[-1].offset < image.offset:
        answer = await _fetch(calls, found[-1].offset, found[-1].epoch)
        if not answer.entries:
            break
        found += answer.entries
    return found
