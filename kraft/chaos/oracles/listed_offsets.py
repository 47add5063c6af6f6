"""The judge of ListOffsets: its answers to clients, against the committed records.

- latest-below-committed: a leader never answers an end below a high watermark that was reached when the client
  asked, in its own epoch or an earlier one. Until it knows better it has to put the client off (KIP-207). A deposed
  leader that does not know it yet may know less than its successor, so epochs are compared, not only times;
- listed-not-committed: no answer lies behind the committed end;
- earliest-behind-log-start: a leader answers no start that its own log never had, so that a client that reads from
  there misses no record of the leader. Epochs are no help here: EARLIEST is answered with the epoch of its record.

It is silent about a partition that lost committed records with an excuse. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.partition_model import PartitionModel
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.verdict import Verdicts
from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

Judge = Callable[[int, int, int], None]
"""Takes offset, leader epoch and timestamp of an answer; offset -1: no record has that timestamp or a later one."""


class ListedOffsets:
    """Judges each answer by the state at its question."""

    def __init__(self, verdicts: Verdicts, replication: Replication) -> None:
        self._verdicts = verdicts
        self._replication = replication

    def asked(self, key: TopicKey, timestamp: int, broker: int) -> Judge:
        """Takes a client's question to a broker, by one of ListOffsets' timestamps or in ms; returns the judge of the
        answer."""
        model = self._replication.partitions.get(key)
        seen = {} if model is None else dict(model.seen)

        def judge(offset: int, leader_epoch: int, found_timestamp: int) -> None:
            if model is None or model.committed.went_back or offset < 0:
                return
            name, end = self._replication.name(key), model.committed.high_watermark
            if offset > end or (offset == end and timestamp >= 0):
                self._verdicts.violated(
                    "listed-not-committed",
                    f"{name}: asked for {timestamp}, its leader said offset {offset}; committed is"
                    f" what lies below {end}",
                )
            if timestamp >= 0 and found_timestamp < timestamp:
                self._verdicts.violated(
                    "listed-not-committed",
                    f"{name}: asked for {timestamp}, its leader said offset {offset}, which has the older"
                    f" timestamp {found_timestamp}",
                )
            if timestamp == EARLIEST_TIMESTAMP:
                start = _highest_start(model, broker)
                if offset > start and key in self._replication.partitions:
                    self._verdicts.violated(
                        "earliest-behind-log-start",
                        f"{name}: leader {broker} said that it starts at {offset}; its log never started behind"
                        f" {start}",
                    )
            if timestamp != LATEST_TIMESTAMP:
                return
            reached = max((mark for epoch, mark in seen.items() if epoch <= leader_epoch), default=0)
            if offset < reached:
                self._verdicts.violated(
                    "latest-below-committed",
                    f"{name}: in epoch {leader_epoch} its leader said that it ends at {offset}; the high"
                    f" watermark had been {reached} before the client asked",
                )

        return judge


def _highest_start(model: PartitionModel, node: int) -> int:
    """The highest start that a node's log, or the one that it removed last, ever had: an answer may be older than the
    removal."""
    logs = (model.replicas.get(node), model.removed.get(node))
    return max((log.highest_start for log in logs if log is not None), default=0)
