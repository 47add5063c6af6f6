"""The simulated `kraft.environment.Environment` of one process incarnation.

The node's code is the same under `kraft.runtime.real`. Slices have no descriptors here, so they leave
through the transport.
"""

from __future__ import annotations

from kraft.chaos.world.host import Process
from kraft.chaos.world.raft_lane import SimulatedRaftLane
from kraft.environment import Environment
from kraft.loggers import MemoryLoggers
from kraft.network.sender import transport_sender
from quorum.raft.lane import RaftLane


def simulated_environment(process: Process) -> Environment:
    """The ports of a process; void once it is killed."""

    def new_raft_lane() -> RaftLane:
        return SimulatedRaftLane(
            process.incarnation, process.loop, process.disk, process.stream("raft lane"), process.halt
        )

    return Environment(
        disk=process.disk,
        executor=process.executor,
        halt=process.halt,
        now_ms=process.now_ms,
        monotonic_s=process.loop.time,
        rng=process.rng,
        host_name=process.host.name,
        raft_lane_factory=new_raft_lane,
        sender_factory=transport_sender,
        loggers=MemoryLoggers(),
    )
