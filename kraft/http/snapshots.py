"""What a scrape sees of a running node: `MetricsSource` over the node's own parts."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from kraft.broker.server import BrokerServer
from kraft.config import ServerConfig
from kraft.http.group_metrics import GroupsSnapshot
from kraft.http.metrics import BrokerSnapshot, ControllerSnapshot
from kraft.http.transaction_metrics import TransactionsSnapshot
from kraft.network.request_times import PhaseTimes
from partitions.topic_partition import TopicPartition
from quorum.controller_server import ControllerServer
from quorum.turns import taking_turns


class NodeParts(Protocol):
    """The parts of a node; a role that it does not have (yet, or any more) is None."""

    @property
    def config(self) -> ServerConfig: ...

    @property
    def broker(self) -> BrokerServer | None: ...

    @property
    def controller(self) -> ControllerServer | None: ...


class NodeMetricsSource:
    """Reads a node's parts while it is scraped."""

    def __init__(self, node: NodeParts, start_time_ms: int, loop_lag: PhaseTimes) -> None:
        self._node = node
        self.start_time_ms = start_time_ms
        self.loop_lag = loop_lag

    async def broker_snapshot(self) -> BrokerSnapshot | None:
        broker = self._node.broker
        lifecycle = None if broker is None else broker.lifecycle
        if broker is None or lifecycle is None:
            return None
        node_id, image = self._node.config.node_id, broker.metadata.image
        incomplete = (
            TopicPartition(image.topics[topic_id].name, number)
            for topic_id, number in list(broker.health.led.incomplete())
        )
        followers = [broker_id for broker_id in image.brokers if broker_id != node_id]
        lags = await taking_turns(broker.replicas.follower_lags(incomplete, followers))
        sessions = broker.replicas.fetch_purgatory.sessions.cache
        return BrokerSnapshot(
            broker_id=node_id,
            counters=broker.metrics,
            state=lifecycle.state.value,
            partition_count=broker.replicas.partition_count,
            image=image,
            led=broker.health.led,
            offline_replicas=len(broker.replicas.offline_partitions),
            follower_lags=lags,
            throttled_rates=broker.throttles.rates(broker.replicas.monotonic_ms()),
            quotas=broker.quotas.snapshot(),
            offline_log_directories=len(broker.logs.failed_directories),
            refusing_log_directories=len(broker.replicas.refusals.directories),
            uncleanable_partitions=len(broker.logs.cleaner.uncleanable),
            fetch_sessions=len(sessions),
            fetch_session_partitions=sessions.partition_count,
            fetch_session_evictions=sessions.evictions,
            request_times=broker.request_times,
            waiting=_waiting(broker),
            connections=broker.connection_counts(),
            open_listeners=len(self._node.config.open_listeners),
            replicas=tuple(broker.replicas.partitions()),
            logs=dict(broker.logs.logs),
            groups=_groups(broker),
            transactions=_transactions(broker),
        )

    def controller_snapshot(self) -> ControllerSnapshot | None:
        controller = self._node.controller
        if controller is None:
            return None
        leader_id = controller.leader_id
        return ControllerSnapshot(
            active=controller.is_active,
            leader_id=-1 if leader_id is None else leader_id,
            epoch=controller.epoch,
            pending_proposals=controller.pending_proposals,
            image=controller.image,
            partitions=controller.metrics.partitions,
            elections=controller.metrics.elections,
        )


def _waiting(broker: BrokerServer) -> dict[str, int]:
    replicas = broker.replicas
    purgatories = {
        "Produce": replicas.events.produce_purgatory,
        "Flush": replicas.events.flush_purgatory,
        "DeleteRecords": replicas.events.delete_records_purgatory,
        "Fetch": replicas.events.fetch_purgatory,
        "Replica": replicas.pending,
    }
    return {operation: purgatory.count for operation, purgatory in purgatories.items()}


def _groups(broker: BrokerServer) -> GroupsSnapshot:
    runtime = broker.groups.runtime
    active = sum(1 for _ in runtime.shards())
    return GroupsSnapshot(
        broker.groups.counters, broker.group_lag.view(), active, loading_shards=len(runtime.hosted) - active
    )


def _transactions(broker: BrokerServer) -> TransactionsSnapshot:
    runtime = broker.transactions.runtime
    shards = [shard for _, shard in runtime.shards()]
    return TransactionsSnapshot(
        counters=broker.transactions.counters,
        states=Counter(one.state.kafka_name for shard in shards for one in shard.unfinished()),
        transactional_ids=sum(len(shard.transactions) for shard in shards),
        oldest_open_ms=broker.transactions.oldest_open_ms,
        queued_markers=len(broker.transactions.markers.queues),
        active_shards=len(shards),
        loading_shards=len(runtime.hosted) - len(shards),
        stable_lag=broker.replicas.appends.undecided.lag(),
    )
