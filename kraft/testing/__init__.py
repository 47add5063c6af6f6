"""Clusters inside one process, for tests: real sockets on free ports, real files, fast timers.

    async with kraft.testing.cluster(nodes=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

The pytest plug-in gives the fixture `kraft_cluster` (three nodes). Clients that block have to run in
threads, since the nodes live on the test's event loop.
"""

from kraft.testing.cluster import Cluster, cluster

__all__ = ["Cluster", "cluster"]
