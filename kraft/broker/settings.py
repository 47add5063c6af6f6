"""What a broker's parts go by, each taken from the node's configuration. Used by `kraft.broker.server`."""

from __future__ import annotations

from fetcher.settings import FetcherSettings
from kraft.config import ServerConfig
from kraft.network.limits import NetworkLimits
from partitions.log.cleaner.config import CleanerConfig


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


def network_limits(config: ServerConfig) -> NetworkLimits:
    """Of each listener."""
    idle_ms: int = config.get("connections.max.idle.ms")
    return NetworkLimits(
        max_request_bytes=config.get("socket.request.max.bytes"),
        max_connections=config.get("max.connections"),
        max_connections_per_ip=config.get("max.connections.per.ip"),
        connections_max_idle_ms=idle_ms if idle_ms >= 0 else None,
    )
