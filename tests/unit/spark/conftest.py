"""A fake cluster, and a time that passes only while somebody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kraft.spark.client import ClusterClient
from kraft.spark.options import parse_options
from kraft.spark.retry import RetryPolicy
from tests.support.fake_broker import FakeCluster

Connect = Callable[[], ClusterClient]


class Waiting:
    """The clock and the sleep of a retry policy; `events` happen when their time has come."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, Callable[[], None]]] = []

    def sleep(self, duration_s: float) -> None:
        self.now += duration_s
        due = [event for event in self.events if event[0] <= self.now]
        self.events = [event for event in self.events if event[0] > self.now]
        for _, happen in due:
            happen()

    def policy(self) -> RetryPolicy:
        return RetryPolicy(clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as fake:
        yield fake


@pytest.fixture
def connect(cluster: FakeCluster, waiting: Waiting) -> Iterator[Connect]:
    """Makes clients of the fake cluster, closed at the end."""
    clients: list[ClusterClient] = []

    def make() -> ClusterClient:
        options = parse_options({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "any"})
        clients.append(ClusterClient(options.bootstrap, client_id="test", policy=waiting.policy()))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
