"""What a broker's parts go by, each taken from the node's configuration. Used by `kraft.broker.server`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from fetcher.settings import FetcherSettings
from kraft.broker.client_quotas import BrokerQuotas
from kraft.config import ServerConfig
from kraft.config_keys import INT_MAX
from kraft.network.limits import NetworkLimits
from kraft.security.quotas.connection_quotas import ConnectionQuotas
from kraft.security.quotas.rates import Windows
from partitions.log.cleaner.config import CleanerConfig
from partitions.log.storage import DEFAULT_MAX_LOADED_INDEXES, DEFAULT_MAX_OPEN_FILES

_OTHER_DESCRIPTORS: Final = 1024
"""For what the pools do not hold (journal, fsyncs, slices, links), where the process may have that many."""
_DESCRIPTORS_OF_AN_INDEX: Final = 2


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """What the descriptors of the process are for. Connections that nobody closes must not keep a broker from
    its disk, so they get no more than half, or all that the disk can do without."""

    max_open_files: int = DEFAULT_MAX_OPEN_FILES
    max_loaded_indexes: int = DEFAULT_MAX_LOADED_INDEXES
    max_connections: int | None = None
    """Of all listeners together; None: there is no bound."""

    @classmethod
    def within(cls, limit: int | None) -> DescriptorBudget:
        """`limit` is how many descriptors the process may have (RLIMIT_NOFILE), None if there is no bound."""
        if limit is None:
            return cls()
        pools = DEFAULT_MAX_OPEN_FILES + _DESCRIPTORS_OF_AN_INDEX * DEFAULT_MAX_LOADED_INDEXES
        disk = min(limit // 2, pools + _OTHER_DESCRIPTORS)
        share = max(disk - _OTHER_DESCRIPTORS, disk // 2) // (1 + _DESCRIPTORS_OF_AN_INDEX)
        return cls(
            max(1, min(share, DEFAULT_MAX_OPEN_FILES)),
            max(1, min(share, DEFAULT_MAX_LOADED_INDEXES)),
            max(1, min(limit - disk, limit - 64)),
        )


def fetcher_settings(config: ServerConfig) -> FetcherSettings:
    """Of all fetchers."""
    return FetcherSettings(
        max_wait_ms=config.get("replica.fetch.wait.max.ms"),
        min_bytes=config.get("replica.fetch.min.bytes"),
        max_bytes=config.get("replica.fetch.response.max.bytes"),
        partition_max_bytes=config.get("replica.fetch.max.bytes"),
        fetchers_per_leader=config.get("num.replica.fetchers"),
        backoff_max_ms=max(1, config.get("replica.fetch.backoff.ms")),
    )


def cleaner_config(config: ServerConfig) -> CleanerConfig:
    """For compaction."""
    return CleanerConfig(
        enable=config.get("log.cleaner.enable"),
        threads=config.get("log.cleaner.threads"),
        dedupe_buffer_bytes=config.get("log.cleaner.dedupe.buffer.size"),
        load_factor=config.get("log.cleaner.io.buffer.load.factor"),
        io_buffer_bytes=config.get("log.cleaner.io.buffer.size"),
        io_max_bytes_per_s=config.get("log.cleaner.io.max.bytes.per.second"),
        backoff_ms=config.get("log.cleaner.backoff.ms"),
    )


def network_limits(config: ServerConfig, budget: DescriptorBudget, listener: str) -> NetworkLimits:
    """Of one listener: those of the file, and where it says nothing of connections, a share of the budget's."""
    max_connections: int | None = config.of_listener(listener, "max.connections")
    if max_connections == INT_MAX:
        max_connections = budget.max_connections
        if max_connections is not None:
            max_connections = max(1, max_connections // len(config.broker_listeners))
    idle_ms: int = config.get("connections.max.idle.ms")
    return NetworkLimits(
        max_request_bytes=config.get("socket.request.max.bytes"),
        max_unauthenticated_request_bytes=config.get("sasl.server.max.receive.size"),
        authentication_timeout_ms=config.get("connection.authentication.timeout.ms"),
        max_connections=max_connections,
        max_connections_per_ip=config.get("max.connections.per.ip"),
        max_connections_of_ip=config.get("max.connections.per.ip.overrides"),
        connections_max_idle_ms=idle_ms if idle_ms >= 0 else None,
    )


def broker_quotas(config: ServerConfig, loop: asyncio.AbstractEventLoop) -> BrokerQuotas:
    """Of clients and of their connections."""
    windows = Windows(config.get("quota.window.num"), 1000 * config.get("quota.window.size.seconds"))
    key = "max.connection.creation.rate"
    rates = {endpoint.name: config.of_listener(endpoint.name, key) for endpoint in config.broker_listeners}
    connections = ConnectionQuotas(
        windows,
        of_broker=config.get(key),
        of_listeners={name: rate for name, rate in rates.items() if rate != config.get(key)},
        protected_listener=config.inter_broker_listener_name if len(config.broker_listeners) > 1 else None,
    )
    return BrokerQuotas(windows, loop.time, connections)
