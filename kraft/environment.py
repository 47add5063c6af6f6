"""What the world gives a node: everything a node needs that is not a decision of its own.

`kraft.runtime.real` assembles the real world, the simulator another one; the node's code is the same in both. The event
loop is not listed: it is the port for timers and for connections.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from kraft.loggers import Loggers
from kraft.network.sender import SenderFactory
from partitions.disk import Disk
from partitions.ports import Executor, Halt, NowMs
from quorum.raft.lane import RaftLane
from quorum.rpc.client import ConnectorFactory, default_connector
from quorum.rpc.link_lane import LinkLane, NodeLoopLane

RaftLaneFactory = Callable[[], RaftLane]
"""Makes the lane beside the event loop in which a controller's Raft driver is stepped."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The ports of one node (one incarnation of it)."""

    disk: Disk
    executor: Executor
    halt: Halt
    now_ms: NowMs
    """Wall-clock time in ms since the Unix epoch: timestamps, never durations."""
    monotonic_s: Callable[[], float]
    """Seconds that never go back, for the Raft lane; on the event loop use `loop.time()`."""
    rng: random.Random
    """Jitter, ids, nonces; a source that nobody can guess in production, seeded under simulation."""
    host_name: str
    """What a listener on every interface is advertised as."""
    raft_lane_factory: RaftLaneFactory
    sender_factory: SenderFactory
    """How responses with file slices leave a connection."""
    loggers: Loggers
    """Whose levels can be changed while the node runs."""
    connector_factory: ConnectorFactory = default_connector
    """How HTTP clients connect: calls to controllers, and the links between voters."""
    link_lane_factory: Callable[[], LinkLane] = NodeLoopLane
    """Makes the lane in which a controller's listener and Raft links run."""
    open_files_limit: int | None = None
    """How many descriptors the process may have, for all that it does; None if there is no bound."""
