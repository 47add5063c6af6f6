"""The periodic return of leaderships to preferred leaders, where the imbalance is worth it.

Guarantees: every check interval, a broker that leads too few of the partitions that prefer it gets those it can take.
A partition with a reassignment under way is left alone. A check costs O(brokers) while every broker is in balance. One
step moves a bounded number of leaders; the next step follows at once with the rest. `state` owns it and calls it from
its tick. The settings are auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds and
leader.imbalance.per.broker.percentage. Times are monotonic ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from quorum.controller.decision import ClusterView, ControllerConfig, Unit
from quorum.controller.leader_election_control import preferred_change
from quorum.metadata.records import PartitionChange

MAX_ELECTIONS_PER_STEP = 1000


class LeaderRebalance:
    """The timer of the active controller; a new one begins with a whole interval."""

    def __init__(self, config: ControllerConfig, now_ms: int) -> None:
        self._interval_ms = config.leader_imbalance_check_interval_ms
        self._percentage = config.leader_imbalance_per_broker_percentage
        self.next_check_ms: int | None = now_ms + self._interval_ms if config.auto_leader_rebalance else None

    def due(self, view: ClusterView, now_ms: int) -> list[Unit]:
        """The elections of this step, one unit each; none before the next check is due."""
        if self.next_check_ms is None or now_ms < self.next_check_ms:
            return []
        records = list(islice(self._elections(view), MAX_ELECTIONS_PER_STEP))
        if len(records) < MAX_ELECTIONS_PER_STEP:
            self.next_check_ms = now_ms + self._interval_ms
        return [Unit(record) for record in records]

    def _elections(self, view: ClusterView) -> Iterator[PartitionChange]:
        for broker_id in view.index.imbalanced_brokers():
            if not view.is_active(broker_id) or not self._is_out_of_balance(view, broker_id):
                continue
            for key in view.index.imbalanced_on(broker_id):
                partition = view.image.topics[key[0]].partitions[key[1]]
                if partition.is_reassigning:
                    continue
                record = preferred_change(view, key, partition)
                if record is not None:
                    yield record

    def _is_out_of_balance(self, view: ClusterView, broker_id: int) -> bool:
        """Whether more than the allowed percentage of the broker's preferred leaderships is elsewhere."""
        elsewhere = view.index.imbalance_on(broker_id)
        return elsewhere * 100 > self._percentage * view.index.preferred_on(broker_id)
