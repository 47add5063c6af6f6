"""The listeners of nodes in one process: plain ones, or each behind relays through which its network can be hurt.

Behind relays, every node has a listener for each peer, which is that peer's inter-broker listener, and dials the other
controllers at ports of its own: so each relay knows who dials it, though all are one process. The relays are those of
experiments on real processes (`kraft.chaos.real.relay`). Used by `kraft.testing.cluster`.

What is not true in one process, and what to take instead: no packet is lost or comes twice (`kraft chaos run` in
network namespaces), no process stops or is killed by the kernel, no disk fills or fails and no clock is wrong (`kraft
chaos run --backend real`), and time is the host's (`kraft chaos simulate`).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, Protocol

from kraft.chaos.real.relay import CLIENTS, LOCALHOST, WHOLE, Condition, Link, Relays
from kraft.runtime.free_ports import free_ports

Peers = Literal["nodes", "clients", "everybody"]
Direction = Literal["both", "in", "out"]


CONTROLLER: Final = "CONTROLLER"


class Protocols(NamedTuple):
    """How listeners are secured: of clients and brokers, and of controllers."""

    brokers: str = "PLAINTEXT"
    controllers: str = "PLAINTEXT"


class NoRelays(Exception):
    """A fault of the network was asked of a cluster that has no relays."""


class Hurt:
    """A fault of the network while it lasts, and what it has met."""

    def __init__(self, relays: Relays, links: Sequence[Link]) -> None:
        self._relays = relays
        self.links = tuple(links)
        """From and to: numbers of nodes, 0 for all clients."""

    @property
    def times(self) -> int:
        """How often it held up, delayed, swallowed or broke something; 0: nobody has noticed it. Ask within the
        block."""
        return self._relays.hurt_by(self, self.links)


class Network(Protocol):
    """How the nodes of a cluster, and its clients, are connected."""

    ports: dict[int, int]
    """By node: the port that clients dial."""

    def properties_of(self, node_id: int) -> dict[str, str]:
        """What a node's server.properties say of its listeners and of the voters."""

    def hurt(
        self,
        node_ids: Sequence[int],
        condition: Condition,
        peers: Peers,
        direction: Direction,
        *,
        each: bool = False,
    ) -> AbstractAsyncContextManager[Hurt]:
        """Within the block, the links between these nodes and `peers` are in this condition, besides what other faults
        make of them; with `each` those among these nodes, too. Raises NoRelays; ValueError for nodes that there are
        not."""

    def close(self) -> None:
        """Ends what it runs; the nodes have stopped."""


class Direct:
    """Every node is dialled where it listens."""

    def __init__(self, nodes: int, client_listener: str) -> None:
        self._client_listener = client_listener
        ports = free_ports(2 * nodes, avoid=set())
        self.ports = dict(enumerate(ports[:nodes], 1))
        self._controller_ports = dict(enumerate(ports[nodes:], 1))

    def properties_of(self, node_id: int) -> dict[str, str]:
        return {
            "controller.quorum.voters": _voters(self._controller_ports),
            "listeners": (
                f"{self._client_listener}://{LOCALHOST}:{self.ports[node_id]},"
                f"CONTROLLER://{LOCALHOST}:{self._controller_ports[node_id]}"
            ),
        }

    def hurt(
        self,
        node_ids: Sequence[int],
        condition: Condition,
        peers: Peers,
        direction: Direction,
        *,
        each: bool = False,
    ) -> AbstractAsyncContextManager[Hurt]:
        raise NoRelays(
            "this cluster's network cannot be hurt: make it with kraft.testing.cluster(behind_relays=True), or take"
            " the fixture kraft_cluster"
        )

    def close(self) -> None:
        """Nothing runs."""


class Relayed:
    """Every node is dialled through relays."""

    def __init__(self, nodes: int, client_listener: str, protocols: Protocols) -> None:
        self._client_listener = client_listener
        self._protocols = protocols
        self._node_ids = tuple(range(1, nodes + 1))
        free = iter(free_ports(nodes * (2 + nodes), avoid=set()))
        self._client_ports = {node: next(free) for node in self._node_ids}
        self._controller_ports = {node: next(free) for node in self._node_ids}
        self._peer_ports = {
            (source, target): next(free) for source in self._node_ids for target in self._node_ids
        }
        self._relays = relays = Relays(lambda node_id: None, self._node_ids)
        self.ports = {
            node: relays.relay(node, port, clients=True) for node, port in self._client_ports.items()
        }
        self._dialled = {
            link: port if link[0] == link[1] else relays.relay(link[1], port, source=link[0])
            for link, port in self._peer_ports.items()
        }
        self._dialled_controllers = {
            (source, target): port if source == target else relays.relay(target, port, source=source)
            for source in self._node_ids
            for target, port in self._controller_ports.items()
        }

    def properties_of(self, node_id: int) -> dict[str, str]:
        names = {source: f"FROM_{source}" for source in self._node_ids}
        listeners = {
            self._client_listener: self._client_ports[node_id],
            **{name: self._peer_ports[source, node_id] for source, name in names.items()},
            CONTROLLER: self._controller_ports[node_id],
        }
        advertised = {
            self._client_listener: self.ports[node_id],
            **{name: self._dialled[source, node_id] for source, name in names.items()},
        }
        return {
            "controller.quorum.voters": _voters(
                {target: self._dialled_controllers[node_id, target] for target in self._node_ids}
            ),
            "listeners": _endpoints(listeners),
            "advertised.listeners": _endpoints(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:{self._protocols.controllers if name == CONTROLLER else self._protocols.brokers}"
                for name in listeners
            ),
            "inter.broker.listener.name": names[node_id],
        }

    @contextlib.asynccontextmanager
    async def hurt(
        self,
        node_ids: Sequence[int],
        condition: Condition,
        peers: Peers,
        direction: Direction,
        *,
        each: bool = False,
    ) -> AsyncIterator[Hurt]:
        if condition == WHOLE:
            raise ValueError("this would hurt nothing: give a delay or a rate above 0")
        hurt = Hurt(self._relays, self._links(node_ids, peers, direction, each))
        self._relays.impose(condition, hurt.links, hurt)
        try:
            yield hurt
        finally:
            self._relays.lift(hurt.links, hurt)

    def _links(self, node_ids: Sequence[int], peers: Peers, direction: Direction, each: bool) -> list[Link]:
        if not node_ids or not set(node_ids) <= set(self._node_ids):
            raise ValueError(f"name some of the nodes {self._node_ids}, not {node_ids}")
        far = list(self._node_ids) if peers != "clients" else []
        far += [CLIENTS] if peers != "nodes" else []
        near = () if each else node_ids
        pairs = [(node, other) for node in node_ids for other in far if other != node and other not in near]
        if not pairs:
            raise ValueError(f"nobody is left whom nodes {node_ids} could be cut off from")
        links = [Link(other, node) for node, other in pairs] if direction != "out" else []
        links += [Link(node, other) for node, other in pairs] if direction != "in" else []
        return list(dict.fromkeys(links))

    def close(self) -> None:
        self._relays.close()


def _voters(ports: dict[int, int]) -> str:
    return ",".join(f"{node}@{LOCALHOST}:{port}" for node, port in ports.items())


def _endpoints(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://{LOCALHOST}:{port}" for name, port in ports.items())
