"""Assembles the real world for one node: files, threads, clocks, sockets.

`kraft server` calls it, and so do tests that run nodes inside one process, with a `halt` that ends only its node.
"""

from __future__ import annotations

import asyncio
import random
import socket

from kraft.environment import Environment
from kraft.runtime.clock import monotonic_s, now_ms
from kraft.runtime.disk import RealDisk
from kraft.runtime.executor import ThreadExecutor
from kraft.runtime.halt import halt_process
from kraft.runtime.link_lane import ThreadLinkLane
from kraft.runtime.loggers import ProcessLoggers
from kraft.runtime.loop import open_files_limit
from kraft.runtime.raft_lane import ThreadRaftLane
from kraft.runtime.sendfile import real_sender
from partitions.ports import Halt


def real_environment(*, halt: Halt = halt_process, executor: ThreadExecutor | None = None) -> Environment:
    """The production environment, for the running event loop.

    The executor (made here unless given) is the caller's to close when the node has stopped; it is
    `environment.executor`.
    """
    loop = asyncio.get_running_loop()
    return Environment(
        disk=RealDisk(),
        executor=executor if executor is not None else ThreadExecutor(),
        halt=halt,
        now_ms=now_ms,
        monotonic_s=monotonic_s,
        rng=random.SystemRandom(),
        host_name=socket.gethostname(),
        raft_lane_factory=lambda: ThreadRaftLane(loop),
        sender_factory=real_sender,
        loggers=ProcessLoggers(),
        link_lane_factory=lambda: ThreadLinkLane(loop),
        open_files_limit=open_files_limit(),
    )
