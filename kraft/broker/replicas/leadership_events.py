"""Which partitions this broker leads, told to those that keep their own records in partitions.

The replica manager owns one, and has it look at a replica after each change that may begin or end a leadership.
Guarantees: nobody is told ahead of the replica: after `on_elected` it leads in that epoch and appends, and with
`on_resigned` it does not any more; each `on_elected` is followed by one `on_resigned` of the same epoch before the
next; listeners are told in the order in which they were added, partitions in the order in which their replicas
changed. The call that changed the replica tells them, so that nothing runs in between. A listener's defect halts the
node. Without listeners nothing is kept, and no append or fetch comes by here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from partitions.partition import Partition
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition


class LeadershipListener(Protocol):
    """Told of every partition of the broker. Called on the event loop: work that takes long gets a task."""

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        """The broker leads and its epoch is durable: it takes appends."""

    def on_resigned(self, partition: TopicPartition, leader_epoch: int) -> None:
        """It does not lead in this epoch any more: another epoch has begun, which it may lead in too, the replica is
        offline or gone, or the broker shuts down."""

    def on_deleted(self, partition: TopicPartition, topic_id: bytes) -> None:
        """The topic was deleted, or its replica moved away from here; it has resigned before. Not told of replicas
        that were taken away while the broker was not running."""


class LeadershipEvents:
    """The listeners, and what they were told last."""

    def __init__(self, halt: Halt) -> None:
        self._halt = halt
        self._listeners: list[LeadershipListener] = []
        self._led: dict[TopicPartition, int] = {}
        """The leader epochs of elections that nothing has ended."""

    def add(self, listener: LeadershipListener) -> None:
        """To be called before the broker has metadata."""
        self._listeners.append(listener)

    def look(self, partition: Partition) -> None:
        """The replica may have begun or ceased to lead."""
        if not self._listeners:
            return
        key, epoch = partition.topic_partition, partition.leader_epoch
        leads = partition.is_leader and not partition.awaits_epoch_start
        told = self._led.get(key)
        if told is not None and not (leads and told == epoch):
            del self._led[key]
            self._tell(lambda listener: listener.on_resigned(key, told))
        if leads and told != epoch:
            self._led[key] = epoch
            self._tell(lambda listener: listener.on_elected(key, epoch))

    def deleted(self, partition: TopicPartition, topic_id: bytes) -> None:
        """The replica was taken away, after `look` if it led."""
        self._tell(lambda listener: listener.on_deleted(partition, topic_id))

    def _tell(self, event: Callable[[LeadershipListener], None]) -> None:
        for listener in self._listeners:
            try:
                event(listener)
            except Exception as error:
                # It would go to what changed the replica: a request, or a callback of the loop.
                self._halt(f"{type(listener).__name__} failed to hear of a leadership: {error!r}")
                raise
