"""The brokers under load: the null broker, or a cluster of real node processes in a scratch folder.

Both tell their address and their working processes, and lend a topic for one run. Real topics are deleted after the
run, so that the disk holds one run's bytes at most.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bench.errors import BenchError
from bench.machine import settle
from bench.processes import ROOT, Child
from kraft.local_cluster.cluster import LocalCluster, deadline
from kraft.runtime.free_ports import free_port_range

TOPIC = "bench"
CLUSTER_START_TIMEOUT_S = 180.0
TOPIC_TIMEOUT_S = 60.0
CONTROLLER_TIMEOUT_S = 30.0
SETTINGS: Mapping[str, str] = {}
"""Of every cluster, unless it has its own."""
DELETED_AT_ONCE = {"file.delete.delay.ms": "0"}
"""The next run needs the room."""


class Brokers(Protocol):
    """The part of both that a row needs."""

    bootstrap: str

    def pids(self) -> list[int]:
        """The processes whose CPU counts."""


class NullBroker:
    """One null broker with one topic. Used as `with null_broker(…) as null`."""

    def __init__(self, child: Child, port: int) -> None:
        self._child = child
        self.bootstrap = f"127.0.0.1:{port}"

    def pids(self) -> list[int]:
        return [self._child.pid]


@contextmanager
def null_broker(
    partitions: int, *, records: int = 0, batch_records: int | None = None, keep: bool = False
) -> Iterator[NullBroker]:
    """A null broker; `records` can be fetched from it, `keep` makes produced records fetchable.

    Without `batch_records` its batches are as large as a client makes them.
    """
    port = free_port_range(1)
    options: list[object] = ["--records", records]
    options += [] if batch_records is None else ["--batch-records", batch_records]
    options += ["--keep"] if keep else []
    with Child("bench.null_broker", [port, TOPIC, partitions, *options]) as child:
        child.await_ready()
        yield NullBroker(child, port)


class Cluster:
    """A running cluster of `kraft` node processes. Used as `with cluster(…) as brokers`."""

    def __init__(self, local: LocalCluster, start_s: float) -> None:
        self.local = local
        self.start_s = start_s
        """Seconds that `kraft cluster start` took."""
        spec = local.spec()
        self.bootstrap = spec.bootstrap_servers()
        self.node_ids = [node.id for node in spec.nodes]

    def pids(self) -> list[int]:
        return [pid for node_id in self.node_ids if (pid := self.local.pid(node_id)) is not None]

    def controller(self) -> int:
        """The active controller's id; waits while there is none. Raises BenchError."""
        for _ in deadline(CONTROLLER_TIMEOUT_S):
            node_id = self.local.status()["controller_id"]
            if node_id is not None:
                return int(node_id)
        raise BenchError(f"no controller was active within {CONTROLLER_TIMEOUT_S:g} s")

    @contextmanager
    def topic(
        self,
        partitions: int,
        replicas: int,
        *,
        name: str = TOPIC,
        leaders: list[int] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Iterator[str]:
        """A new topic, deleted on leaving. `leaders` names each partition's first replica."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        config = {**DELETED_AT_ONCE, **(configs or {})}
        if leaders is None:
            wanted = NewTopic(name, partitions, replicas, config=config)
        else:
            nodes = self.node_ids
            assignment = [[*nodes[nodes.index(first) :], *nodes[: nodes.index(first)]] for first in leaders]
            wanted = NewTopic(name, len(leaders), replica_assignment=assignment, config=config)
        admin.create_topics([wanted])[name].result(TOPIC_TIMEOUT_S)
        self._await(name, lambda folders: folders == partitions * replicas)
        settle(self.pids())
        try:
            yield name
        finally:
            admin.delete_topics([name])[name].result(TOPIC_TIMEOUT_S)
            self._await(name, lambda folders: folders == 0)

    def _await(self, topic: str, reached: Callable[[int], bool]) -> None:
        """Waits for the number of partition folders on all nodes."""
        for _ in deadline(TOPIC_TIMEOUT_S):
            folders = sum(
                1
                for node_id in self.node_ids
                if self.local.pid(node_id) is not None
                for _ in (self.local.node_dir(node_id) / "data").glob(f"{topic}-*")
            )
            if reached(folders):
                return
        raise BenchError(f"the folders of topic {topic} were not as expected within {TOPIC_TIMEOUT_S:g} s")


@contextmanager
def cluster(
    directory: Path, nodes: int, settings: Mapping[str, str] | None = None, *, root: Path = ROOT
) -> Iterator[Cluster]:
    """A fresh cluster in `directory`, started by the command that users start it with, of the checkout in `root`."""
    local = LocalCluster(directory)
    command = [sys.executable, "-m", "kraft.cli.entry", "cluster", "start", "--dir", str(directory)]
    command += ["--nodes", str(nodes), "--port", str(free_port_range(nodes))]
    for key, value in {**SETTINGS, **(settings or {})}.items():
        command += ["--set", f"{key}={value}"]
    try:
        started_s = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(root)},
                capture_output=True,
                text=True,
                timeout=CLUSTER_START_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"the cluster did not start within {CLUSTER_START_TIMEOUT_S:g} s") from None
        start_s = time.monotonic() - started_s
        if done.returncode:
            raise BenchError(f"the cluster did not start: {done.stderr.strip()}")
        yield Cluster(local, start_s)
    finally:
        local.destroy()
        shutil.rmtree(directory, ignore_errors=True)
