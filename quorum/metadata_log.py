"""The newest part of the committed metadata, in memory, for brokers that follow it by long poll.

Holds the committed image and the entries that led to it, bounded in bytes; who asks for something
older gets the image as a snapshot. Whoever waits is woken by every commit. Filled by the controller
server from the Raft lane's commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from quorum.metadata.image import EMPTY, MetadataImage
from quorum.rpc.messages import FetchMetadataResponse, MetadataEntry

KEEP_BYTES = 16 * 1024 * 1024
ENTRY_OVERHEAD_BYTES = 64
UNKNOWN_EPOCH = -2
"""Nobody's: who asks from there gets the image."""


class MetadataLog:
    """Committed entries after some offset, and the image at their end."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self._entries: deque[MetadataEntry] = deque()
        self._epoch_before = EMPTY.epoch  # of the offset before the first entry
        self._size_bytes = 0
        self._changed: asyncio.Future[None] | None = None
        self._snapshot: tuple[int, bytes] | None = None

    def append(self, entries: Sequence[MetadataEntry], image: MetadataImage) -> None:
        """Takes what was committed. Entries that do not follow the last image replace the window."""
        if not entries or entries[0].offset != self.image.offset + 1:
            self._entries.clear()
            self._size_bytes = 0
            self._epoch_before = UNKNOWN_EPOCH if entries else image.epoch
        for entry in entries:
            self._entries.append(entry)
            self._size_bytes += len(entry.records) + ENTRY_OVERHEAD_BYTES
        while self._size_bytes > KEEP_BYTES:
            dropped = self._entries.popleft()
            self._size_bytes -= len(dropped.records) + ENTRY_OVERHEAD_BYTES
            self._epoch_before = dropped.epoch
        self.image = image
        self.wake()

    async def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Returns as soon as `done` says so, looking again after each change; false if the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while not done():
                    await self.changed()
        except TimeoutError:
            return False
        return True

    async def changed(self) -> None:
        """Returns after the next `append` or `wake`; the caller brings the timeout."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def wake(self) -> None:
        """Lets everybody who waits look again."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def read(
        self, offset: int, epoch: int, max_bytes: int, *, leader_id: int | None
    ) -> FetchMetadataResponse:
        """Entries that follow `offset`, about `max_bytes` of them but at least one, or the image.

        An `epoch` that is not the one committed at `offset` means that the asker's history is not
        ours (another quorum's data): it gets the image too.
        """
        committed = self.image.offset
        if offset >= committed:
            return FetchMetadataResponse(committed, leader_id=leader_id)
        first = self._entries[0].offset if self._entries else committed + 1
        if offset + 1 < first or not self._same_history(offset, epoch, first):
            return FetchMetadataResponse(committed, snapshot=self._encoded_image(), leader_id=leader_id)
        chosen: list[MetadataEntry] = []
        size_bytes = 0
        for entry in islice(self._entries, offset + 1 - first, None):
            if chosen and size_bytes + len(entry.records) > max_bytes:
                break
            chosen.append(entry)
            size_bytes += len(entry.records) + ENTRY_OVERHEAD_BYTES
        return FetchMetadataResponse(committed, tuple(chosen), leader_id=leader_id)

    def _same_history(self, offset: int, epoch: int, first: int) -> bool:
        return epoch == (self._epoch_before if offset < first else self._entries[offset - first].epoch)

    def _encoded_image(self) -> bytes:
        """The image's bytes, encoded once for each offset at which somebody wants them."""
        if self._snapshot is None or self._snapshot[0] != self.image.offset:
            self._snapshot = (self.image.offset, self.image.encode())
        return self._snapshot[1]
