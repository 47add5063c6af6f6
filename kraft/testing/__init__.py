"""Clusters inside one process, for tests: real sockets on free ports, real files, fast timers.

    async with kraft.testing.cluster(nodes=3, behind_relays=True) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        async with cluster.cut_off(2):
            ...

With `secure=True` it has TLS, users by SCRAM and ACLs: `Producer(cluster.client_settings)` is its admin.

The pytest plug-in gives the fixture `kraft_cluster`: three nodes behind relays, or what a test asks for by
`@pytest.mark.kraft_cluster(secure=True)`. Clients that block have to run in threads, since the nodes live on the test's
event loop.

Faults last as long as their block, and may overlap: `killed`, `stopped`; through the relays `cut_off`, `paused`,
`half_open`, `latency`, `bandwidth`, `resetting`. `kraft.testing.network` says what one process cannot have.
"""

from kraft.testing.cluster import Cluster, cluster
from kraft.testing.network import Hurt, NoRelays

__all__ = ["Cluster", "Hurt", "NoRelays", "cluster"]
