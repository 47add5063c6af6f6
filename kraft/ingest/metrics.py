"""`--metrics-port`: a run's numbers for Prometheus, on loopback. The command starts it; nothing else reads it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kraft.ingest.progress import Progress
from kraft.spark.errors import OptionError

_HOST = "127.0.0.1"


class _Numbers(Collector):
    def __init__(self, progress: Callable[[], Progress | None]) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        progress = self._progress()
        if progress is None:
            return
        for name, text, value in (
            ("rows", "Rows that this run has committed", progress.rows),
            ("dead_letters", "Of them those that carry _error", progress.dead_letters),
            ("late_rows", "Of them those whose partition is older than the newest", progress.late_rows),
            ("files", "Files that this run has committed", progress.files),
            ("commits", "Commits of this run", progress.commits),
            ("failed_cuts", "Cuts that were planned again after a failure", progress.failures),
        ):
            yield CounterMetricFamily(f"kraft_ingest_{name}", text, value=value)
        rate = GaugeMetricFamily("kraft_ingest_rows_per_second", "Over the last half minute")
        rate.add_metric([], progress.rows_per_s(time.monotonic()))
        yield rate
        version = GaugeMetricFamily("kraft_ingest_table_version", "Of the last commit; -1: there is no table")
        version.add_metric([], -1 if progress.version is None else progress.version)
        yield version
        lag = GaugeMetricFamily(
            "kraft_ingest_lag", "Offsets that the table does not have yet", labels=["topic", "partition"]
        )
        for partition, count in sorted(dict(progress.lag).items()):
            lag.add_metric([partition.topic, str(partition.partition)], count)
        yield lag


@contextmanager
def metrics_server(port: int, progress: Callable[[], Progress | None]) -> Iterator[int]:
    """Serves `/metrics` on the port, 0: a free one; yields it. Raises OptionError if it is taken."""
    registry = CollectorRegistry()
    registry.register(_Numbers(progress))
    try:
        server, thread = start_http_server(port, addr=_HOST, registry=registry)
    except OSError as error:
        raise OptionError(
            f"--metrics-port {port} cannot be listened on: {error.strerror}. Name another."
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
