"""The newest part of the committed metadata, in memory, for brokers that follow it by long poll.

It holds the committed image and the entries that led to it, bounded in bytes; a broker that asks for something older
gets the image as a snapshot. Every commit wakes all that wait. The controller server fills it from the Raft lane's
commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from quorum.metadata.image import EMPTY, MetadataImage
from quorum.rpc.messages import FetchMetadataResponse, MetadataEntry
from quorum.steps import Steps
from quorum.turns import taking_turns

KEEP_BYTES = 16 * 1024 * 1024
ENTRY_OVERHEAD_BYTES = 64
UNKNOWN_EPOCH = -2
"""Nobody's: who asks from there gets the image."""
ANY_EPOCH = -3
"""Of who looks at single entries and has no history of its own to continue: it gets those, never an image."""


class MetadataLog:
    """Committed entries after some offset, and the image at their end."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self._entries: deque[MetadataEntry] = deque()
        self._epoch_before = EMPTY.epoch  # of the offset before the first entry
        self._size_bytes = 0
        self._changed: asyncio.Future[None] | None = None
        self._encoded: _EncodedImage | None = None

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
        if self._encoded is not None and not self._goes_on_from(self._encoded.offset):
            self._encoded.give_up()
            self._encoded = None
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

    async def read(
        self, offset: int, epoch: int, max_bytes: int, *, leader_id: int | None
    ) -> FetchMetadataResponse:
        """Entries that follow `offset`, about `max_bytes` of them but at least one, or the image.

        An `epoch` that is not the one committed at `offset` means that the asker's history is not
        ours (another quorum's data): it gets the image too. That is of the log's end, or of a little earlier if
        it was being encoded already; what follows it is in the log. A caller that says ANY_EPOCH gets entries only,
        from where the log begins if that is later.
        """
        committed, first = self.image.offset, self._first_offset()
        if epoch == ANY_EPOCH:
            offset = max(offset, first - 1)
        if offset >= committed:
            return FetchMetadataResponse(committed, leader_id=leader_id)
        if epoch != ANY_EPOCH and (offset + 1 < first or not self._same_history(offset, epoch, first)):
            encoded = await self._encoded_image(offset)
            return FetchMetadataResponse(self.image.offset, snapshot=encoded, leader_id=leader_id)
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

    def _first_offset(self) -> int:
        return self._entries[0].offset if self._entries else self.image.offset + 1

    def _goes_on_from(self, offset: int) -> bool:
        """Whether the log has all that follows an offset."""
        return offset + 1 >= self._first_offset()

    async def _encoded_image(self, after: int) -> bytes:
        """The bytes of an image that is newer than `after` and that the log goes on from, encoded once for all
        who ask meanwhile, and until the next commit."""
        while True:
            encoded = self._encoded
            if encoded is None or encoded.offset <= after or not self._is_of_use(encoded):
                encoded = self._encoded = _EncodedImage(self.image)
            data = await encoded.wait()
            if data is not None:
                return data

    def _is_of_use(self, encoded: _EncodedImage) -> bool:
        return not encoded.is_given_up and (encoded.is_under_way or encoded.offset == self.image.offset)


class _EncodedImage:
    """An image that is being encoded between the loop's other work, and then is there.

    It is given up when nobody waits for it any more, or when a log that has moved on makes it pointless.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.offset = image.offset
        self.is_given_up = False
        self._steps = image.encode_steps()
        self._waiting = 0
        self._task: asyncio.Task[bytes | None] | None = None
        self._data: bytes | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it is being encoded."""
        return self._data is None

    async def wait(self) -> bytes | None:
        """The bytes; None if they were given up."""
        if self._data is not None:
            return self._data
        if self._task is None:
            self._task = asyncio.create_task(self._encode(), name="encode-metadata-image")
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting and self._data is None:
                self.give_up()

    def give_up(self) -> None:
        """Ends the encoding after the step that it is in."""
        self.is_given_up = True

    async def _encode(self) -> bytes | None:
        self._data = await taking_turns(self._until_given_up())
        return self._data

    def _until_given_up(self) -> Steps[bytes | None]:
        while not self.is_given_up:
            try:
                next(self._steps)
            except StopIteration as end:
                encoded: bytes = end.value
                return encoded
            yield
        return None
