"""A `kraft.testing` cluster on an event loop in a thread, for tests with clients that block."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from kraft.broker.server import BrokerServer
from kraft.testing import Cluster, cluster
from tests.support.node_processes import created, metadata, until
from tests.support.real_clients import QUIET

T = TypeVar("T")
CALL_S = 90.0
PATIENCE = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}
"""Settings of clusters that share a process with clients, and a machine with others: a quorum that waits for the CPU or
a slow disk keeps its leader."""


class ThreadedCluster:
    """The cluster and the loop that it lives on; every method blocks and may be called from any thread."""

    def __init__(self, made: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = made
        self._loop = loop
        self._topics = 0
        self.admin = AdminClient({"bootstrap.servers": made.bootstrap_servers, **QUIET})

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    def run(self, work: Awaitable[T]) -> T:
        """Awaits something on the cluster's loop."""

        async def done() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(CALL_S)

    def kill(self, node_id: int) -> None:
        self.run(self.cluster.kill_node(node_id))

    def stop(self, node_id: int) -> None:
        self.run(self.cluster.stop_node(node_id))

    def start(self, node_id: int) -> None:
        self.run(self.cluster.start_node(node_id))

    @contextlib.contextmanager
    def during(self, fault: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """A fault of the cluster's, for as long as the block lasts."""
        met = self.run(fault.__aenter__())
        try:
            yield met
        finally:
            self.run(fault.__aexit__(None, None, None))

    def create_topic(
        self, word: str = "topic", partitions: int = 1, replication_factor: int = 3, **config: str
    ) -> str:
        """Creates a topic of a fresh name; config keys are written with _ for the dots."""
        configs = {key.replace("_", "."): value for key, value in config.items()}

        def wanted() -> NewTopic:
            self._topics += 1
            return NewTopic(f"{word}-{self._topics}", partitions, replication_factor, config=configs)

        name = created(self.admin, wanted)
        self.wait_known(name)
        return name

    def wait_known(self, topic: str) -> None:
        """Returns when the metadata of every running broker have the topic; its replicas may still be made."""
        until(
            lambda: all(broker.metadata.image.topic(topic) is not None for broker in self._brokers()),
            f"all brokers know {topic}",
        )

    def _brokers(self, besides: int | None = None) -> list[BrokerServer]:
        """Those that run."""
        return [
            node.broker
            for number, node in self.cluster.nodes.items()
            if node.broker is not None and number != besides
        ]

    def wait_seen(self, node_id: int, *, live: bool, besides: int | None = None) -> None:
        """Returns when the metadata of every running broker, `besides` one, has the broker live, or fenced."""
        running = self._brokers(besides)
        until(
            lambda: all(broker.metadata.is_live(node_id) == live for broker in running),
            f"all know that broker {node_id} is {'live' if live else 'fenced'}",
        )

    def partitions(self, topic: str) -> dict[int, Any]:
        """Partition → what Metadata says of it."""
        return dict(metadata(self.admin, topic).topics[topic].partitions)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The partition's leader; waits while there is none."""

        def ask() -> int | None:
            state = self.partitions(topic)[partition]
            return state.leader if state.leader >= 0 and state.error is None else None

        return int(until(ask, f"{topic}-{partition} has a leader"))

    def wait_in_sync(self, topic: str) -> None:
        """Returns when every replica of the topic is in its ISR."""
        until(
            lambda: all(len(p.isrs) == len(p.replicas) for p in self.partitions(topic).values()),
            f"the replicas of {topic} are in sync",
        )

    def get(self, node_id: int, path: str) -> tuple[int, str, bytes]:
        """GETs a page of a node: status, content type, body."""
        server = self.cluster.nodes[node_id].http
        assert server is not None
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=CALL_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.headers.get_content_type(), answer.read()

    def get_json(self, node_id: int, path: str) -> Any:
        """GETs a page and decodes it, whatever its status."""
        return json.loads(self.get(node_id, path)[2])


def metrics(cluster: ThreadedCluster, node_id: int) -> dict[str, float]:
    """The samples of one node without labels."""
    status, content_type, body = cluster.get(node_id, "/metrics")
    assert (status, content_type) == (200, "text/plain")
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if not sample.labels
    }


@contextlib.contextmanager
def threaded_cluster(
    nodes: int = 3,
    properties: Mapping[str, str] | None = None,
    *,
    racks: Mapping[int, str] | None = None,
    behind_relays: bool = False,
) -> Iterator[ThreadedCluster]:
    """A running cluster; gone at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cluster", daemon=True)
    thread.start()
    settings = PATIENCE | dict(properties or {})
    context = cluster(nodes, settings, racks=racks, behind_relays=behind_relays)
    try:
        made = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(CALL_S)
        try:
            yield ThreadedCluster(made, loop)
        finally:
            asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(CALL_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CALL_S)
        loop.close()
