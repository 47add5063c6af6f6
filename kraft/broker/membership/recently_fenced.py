"""Brokers whose sessions have just ended: Metadata answers name them for a moment longer.

The metadata that fences a dead broker also says who leads its partitions now. librdkafka (since 2.13)
gives up a broker that an answer no longer names together with the partitions that it is about to move
from there, and looks for their leaders again a second later: writes would wait that second for nothing.
So answers to who names topics still name the broker, which such clients know, and cannot reach, anyhow;
who asks for all topics, or for none, looks for brokers that are there, and gets those. Nothing else
treats it as alive. A broker that shut down in order, or has registered anew, is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage

NAMED_MS = 3_000
"""librdkafka looks for the leaders of what it cannot send once a second; a look may be lost."""


class RecentlyFenced:
    """A publisher of the metadata loader. O(changed brokers) for a step."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._live: dict[int, int] = {}
        """The broker epoch of each that is unfenced."""
        self._until_ms: dict[int, int] = {}

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        for broker_id in changes.changed_brokers:
            broker, live_epoch = image.brokers.get(broker_id), self._live.pop(broker_id, None)
            self._until_ms.pop(broker_id, None)
            if broker is None:
                continue
            if not broker.fenced:
                self._live[broker_id] = broker.epoch
            elif broker.epoch == live_epoch and not broker.in_controlled_shutdown:
                self._until_ms[broker_id] = self._monotonic_ms() + NAMED_MS

    def ids(self) -> Iterator[int]:
        """The brokers to be named still."""
        now_ms = self._monotonic_ms()
        return (broker_id for broker_id, until_ms in self._until_ms.items() if now_ms < until_ms)
