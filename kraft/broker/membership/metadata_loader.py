"""Follows the committed metadata: a long poll on the active controller, applied in order, published.

Runs on every broker. The image only moves forward; publishers see each step once, in the order in
which they were added, on the event loop, with what changed. A node that is too far behind gets a
whole image instead of records, and the same publishers. What a starting broker missed is published as
one step, when it has all of it: half a history shows topics that are not there yet and leaders of
long ago, and nobody must act on those. (KRaft's MetadataLoader.)

However much one step changes, requests and heartbeats have their turn in between: records are taken in, and
replicas brought in line, some hundreds at a time. No image is shown but of whole batches: publishers get it in one
go, and what is left to them to do (`MetadataPublisher`) is done before the next batch is begun. The broker
counts as having followed so far (`image`) when all of it is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from kraft.broker.membership.controller_client import ControllerClient
from kraft.broker.vital_task import end_task, start_vital_task
from partitions.ports import Halt
from quorum.errors import QuorumError
from quorum.metadata.changes import ImageDiff, MetadataChanges
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.record_codec import read_records
from quorum.rpc.envelope import RpcError
from quorum.rpc.messages import FetchMetadataRequest, FetchMetadataResponse, MetadataEntry
from quorum.steps import Steps
from quorum.turns import taking_turns

log = structlog.get_logger(__name__)

MAX_WAIT_MS = 500
CALL_TIMEOUT_S = 3.0
BACKOFF_S = 0.1
STEP_BYTES = 64 * 1024
"""Of metadata that are asked for at once; a larger batch comes by itself."""
HISTORY_BYTES = 4 * 1024 * 1024
"""As long as nothing has been published yet."""
RECORDS_PER_STEP: Final = 500
"""That are taken in, some milliseconds' worth, before heartbeats and requests have their turn."""


class MetadataPublisher(Protocol):
    """Somebody who acts on new metadata. An exception halts the node: it would be half updated."""

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> Steps[None] | None:
        """Takes the image over, before anybody else runs. What else there is to do for many changes may be
        returned as steps: they are taken with other work in between, after all publishers have the image."""


class MetadataLoader:
    """Owns the committed image of one broker."""

    def __init__(self, node_id: int, controller: ControllerClient, rng: random.Random, halt: Halt) -> None:
        self._node_id = node_id
        self._controller = controller
        self._rng = rng
        self._halt = halt
        self._publishers: list[MetadataPublisher] = []
        self._task: asyncio.Task[None] | None = None
        self._progress = asyncio.Condition()
        self._newest: MetadataImage = EMPTY
        self._publish_from = -1
        self.image: MetadataImage = EMPTY
        """What has been published, and acted on."""
        self.on_entries: Callable[[Sequence[MetadataEntry]], None] | None = None
        """Told of the entries that came, for people who watch; of what comes as a whole image it is not told."""
        self.last_contact_s = float("-inf")
        """Loop time of the last answer of an active controller."""

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """To be called before `start`."""
        self._publishers.append(publisher)

    def start(self, publish_from: int = -1) -> None:
        """Begins to follow. Nothing is published before the image has reached `publish_from`, the offset
        of this broker's registration: a deposed controller that does not know it yet answers with less.
        """
        self._publish_from = publish_from
        self._task = start_vital_task(self._follow(), "metadata-loader", self._halt)

    async def close(self) -> None:
        await end_task(self._task)

    async def wait_until(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Returns when the image fulfils the condition; the caller brings the timeout."""
        async with self._progress:
            await self._progress.wait_for(lambda: condition(self.image))

    async def _follow(self) -> None:
        while True:
            newest = self._newest
            max_bytes = HISTORY_BYTES if self.image is EMPTY else STEP_BYTES
            request = FetchMetadataRequest(self._node_id, newest.epoch, newest.offset, MAX_WAIT_MS, max_bytes)
            try:
                response = await self._controller.call(
                    request,
                    timeout_s=CALL_TIMEOUT_S,
                    attempt_timeout_s=CALL_TIMEOUT_S / 2,
                )
            except RpcError as error:
                log.debug("no metadata from the controller", reason=str(error))
                await asyncio.sleep(BACKOFF_S * self._rng.uniform(0.8, 1.2))
                continue
            self.last_contact_s = asyncio.get_running_loop().time()
            try:
                changed = await self._apply(response, await self._whole_image(response))
            except Exception as error:
                log.exception("metadata could not be applied", offset=newest.offset)
                self._halt(f"metadata after offset {newest.offset} could not be applied: {error!r}")
                return
            if changed:
                async with self._progress:
                    self._progress.notify_all()

    async def _whole_image(self, response: FetchMetadataResponse) -> MetadataImage | None:
        """The image, where one came instead of records: heartbeats and requests go on while it is decoded."""
        if response.snapshot is None:
            return None
        return await taking_turns(MetadataImage.decode_steps(response.snapshot))

    async def _apply(self, response: FetchMetadataResponse, whole: MetadataImage | None) -> bool:
        """Takes in what came, and publishes it as one step. Returns whether anything was published."""
        base = self._newest
        changes: MetadataChanges
        if whole is not None:
            image = whole
            if image.offset <= base.offset:
                return False
            changes = ImageDiff(base, image)
        else:
            entries = [entry for entry in response.entries if entry.offset > base.offset]
            if not entries:
                return False
            changes, image = await taking_turns(_following(base, entries))
            if self.on_entries is not None:
                self.on_entries(entries)
        self._newest = image
        if self.image is EMPTY:
            if image.offset < max(self._publish_from, response.committed_offset):
                return False
            if base is not EMPTY:
                changes = ImageDiff(EMPTY, image)
        rests = [publisher.on_metadata(changes, image) for publisher in self._publishers]
        for rest in rests:
            if rest is not None:
                await taking_turns(rest)
        self.image = image
        return True


def _following(
    base: MetadataImage, entries: Sequence[MetadataEntry]
) -> Steps[tuple[MetadataDelta, MetadataImage]]:
    """What the entries that follow an image make of it. Raises QuorumError if one is missing."""
    delta = MetadataDelta(base)
    records = 0
    for expected, entry in enumerate(entries, base.offset + 1):
        if entry.offset != expected:
            raise QuorumError(f"metadata jumps from offset {expected - 1} to {entry.offset}")
        for record in read_records(entry.records) if entry.records else ():
            delta.apply(record, entry.offset, entry.epoch)
            records += 1
            if records % RECORDS_PER_STEP == 0:
                yield
    return delta, delta.finish(entries[-1].offset, entries[-1].epoch)
