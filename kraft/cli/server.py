"""`kraft server`: runs one node in the foreground until SIGTERM or SIGINT, a controlled shutdown.

Environment variables go over its file, by the rule of Kafka's images (`kraft.config_environment`).
"""

from __future__ import annotations

import asyncio
import os
import sys

import structlog

from kraft.config import ServerConfig
from kraft.logs import configure_logs
from kraft.node import STARTUP_ERRORS, Node
from kraft.runtime.collector import KeptPartitions, collect_no_more, collect_seldom, keep_for_good
from kraft.runtime.executor import ThreadExecutor
from kraft.runtime.injected_faults import FaultFile, with_injected_faults
from kraft.runtime.loop import run
from kraft.runtime.real import real_environment
from kraft.runtime.switching import switch_often
from kraft.storage import read_config
from kraft.user_error import EXIT_DONE, EXIT_FAILED, UserError

log = structlog.get_logger(__name__)

STARTED = "Kafka Server started"
"""What tools that start a broker wait for; printed once the node serves."""


def run_server(path: str) -> int:
    """Runs the node that `path` configures. Returns the exit code."""
    configure_logs()
    collect_seldom()
    switch_often()
    try:
        config = read_config(path, os.environ)
    except UserError as error:
        return _fail(str(error))
    if config.from_environment:
        log.info("keys were taken from the environment", variables=", ".join(config.from_environment))
    return run(lambda stop: _serve(config, stop))


async def _serve(config: ServerConfig, stop: asyncio.Event) -> int:
    """Starts the node, waits for the stop event, stops the node."""
    executor = ThreadExecutor()
    environment = real_environment(executor=executor)
    if config.get("chaos.enable"):
        file = config.get("chaos.faults.file")
        try:
            environment = with_injected_faults(environment, FaultFile.open(file))
        except UserError as error:
            await executor.close()
            return _fail(str(error))
        log.warning("chaos.enable=true: faults can be injected into this node's disk and clock", file=file)
    node = Node(config, environment)
    stopping = asyncio.ensure_future(stop.wait())
    starting = asyncio.ensure_future(_start(node))
    await asyncio.wait([stopping, starting], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        problem = starting.result()
        if problem is not None:
            stopping.cancel()
            return _fail(problem)
        kept = KeptPartitions(lambda: _partitions_of(node))
        await stopping
        kept.close()
    else:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    collect_no_more()
    await node.stop()
    await executor.close()
    return EXIT_DONE


async def _start(node: Node) -> str | None:
    """Returns why the node could not start, or None once it serves."""
    try:
        await node.start()
        await node.wait_ready()
    except STARTUP_ERRORS as error:
        return str(error) or type(error).__name__
    keep_for_good()
    print(STARTED, flush=True)
    return None


def _partitions_of(node: Node) -> int:
    """Those with a replica here, and those that the controller knows of."""
    here = 0 if node.broker is None else node.broker.replicas.partition_count
    return here + (0 if node.controller is None else node.controller.metrics.partitions.partitions)


def _fail(problem: str) -> int:
    print(f"error: {problem}", file=sys.stderr, flush=True)
    return EXIT_FAILED
