"""A whole node, started half-way and stopped with parts that fail, in the simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraft.broker.membership.lifecycle import BrokerState
from kraft.chaos.world.environment import simulated_environment
from kraft.chaos.world.host import Process
from kraft.chaos.world.simulation import Simulation
from kraft.config import load_config
from kraft.node import Node
from partitions.log.errors import DataDirectoryError, LogStorageError
from partitions.log.node_logs.data_directory import CLEAN_SHUTDOWN_FILE
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from quorum.metadata.record_codec import decode_records
from quorum.metadata.records import RegisterBroker
from tests.support.broker_world import CLUSTER_ID

PROPERTIES = (
    "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@10.0.0.1:9093\n"
    "listeners=PLAINTEXT://10.0.0.1:9092,CONTROLLER://10.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
    "http.listener=10.0.0.1:8080\nlog.dirs=/data\nreplica.high.watermark.checkpoint.interval.ms=100\n"
)
MARKER = f"/data/{CLEAN_SHUTDOWN_FILE}"
Story = Callable[[Node, Process], Coroutine[Any, Any, None]]


def node_of(process: Process, identity: int = 1, properties: str = "") -> Node:
    environment = simulated_environment(process)
    if not environment.disk.exists("/data"):
        environment.disk.make_dirs("/data")
        environment.disk.sync_dir("/")
        write_meta_properties(
            environment.disk, "/data", MetaProperties(CLUSTER_ID, identity, "kraftTestingDirectory1")
        )
    return Node(load_config(PROPERTIES + properties), environment)


def told(story: Story, identity: int = 1, properties: str = "") -> Simulation:
    ended: list[bool] = []

    async def program(process: Process) -> None:
        await story(node_of(process, identity, properties), process)
        ended.append(True)

    with Simulation(2) as simulation:
        simulation.add_host().start(program)
        simulation.run_until_true(lambda: bool(ended or simulation.errors), 120.0, 0.1)
    for error in simulation.errors:
        raise error.error or AssertionError(error.message)
    assert ended, "the story did not come to its end"
    return simulation


async def registered(node: Node) -> RegisterBroker:
    """Starts it; the newest registration of its broker."""
    await node.start()
    await node.wait_ready()
    assert node.controller is not None
    entries = [entry.records for entry in node.controller._log._entries if entry.records]
    records = [record for encoded in entries for record in decode_records(encoded)]
    return [record for record in records if isinstance(record, RegisterBroker)][-1]


def epoch_of(node: Node) -> int:
    assert node.broker is not None
    assert node.broker.lifecycle is not None
    return node.broker.lifecycle.epoch


def test_a_node_registers_with_the_epoch_of_its_clean_stop_and_no_other() -> None:
    async def story(node: Node, process: Process) -> None:
        assert (await registered(node)).previous_broker_epoch == -1
        epoch = epoch_of(node)
        await node.stop()
        again = node_of(process)
        assert (await registered(again)).previous_broker_epoch == epoch
        await again.stop()
        process.disk.remove(MARKER)
        last = node_of(process)
        assert (await registered(last)).previous_broker_epoch == -1
        await last.stop()

    told(story)


async def _meets_a_taken_port(process: Process) -> None:
    taken = await process.loop.create_server(asyncio.Protocol, "10.0.0.1", 9092)
    with pytest.raises(OSError, match="9092"):
        await node_of(process).start()
    taken.close()


async def _is_cancelled(process: Process) -> None:
    node = node_of(process)
    starting = asyncio.ensure_future(node.start())
    await asyncio.sleep(0.01)
    assert node.broker is not None
    assert node.broker.lifecycle is not None, "it is about to register"
    assert epoch_of(node) == -1
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)


@pytest.mark.parametrize("fails", [_meets_a_taken_port, _is_cancelled])
def test_a_start_that_fails_before_it_registers_leaves_the_stop_before_a_clean_one(
    fails: Callable[[Process], Coroutine[Any, Any, None]],
) -> None:
    """KIP-966: with another epoch than that of its last registration it would leave the ELR, all of its records
    notwithstanding. After a stop that was not clean no failed start makes it one."""

    async def story(node: Node, process: Process) -> None:
        await registered(node)
        epoch = epoch_of(node)
        await node.stop()
        await fails(process)
        again = node_of(process)
        assert (await registered(again)).previous_broker_epoch == epoch
        await again.stop()
        process.disk.remove(MARKER)
        await fails(process)
        last = node_of(process)
        assert (await registered(last)).previous_broker_epoch == -1
        await last.stop()

    told(story)


def test_a_node_starts_serves_and_stops_cleanly() -> None:
    async def story(node: Node, process: Process) -> None:
        await node.start()
        await node.wait_ready()
        assert node.unready_reasons() == []
        assert not process.disk.exists(MARKER)
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.sleep(0)
        assert "shutting down" in node.unready_reasons()
        await stopping
        assert process.disk.exists(MARKER)

    told(story)


def test_a_node_is_ready_when_its_metadata_says_so() -> None:
    """Clients are answered from the metadata, not from what the controller answered to a heartbeat."""

    async def story(node: Node, process: Process) -> None:
        await node.start()
        assert node.broker is not None
        assert node.broker.lifecycle is not None
        await node.broker.loader.close()
        await node.broker.lifecycle.wait_unfenced()
        assert node.unready_reasons() == ["fenced"]
        ready = asyncio.ensure_future(node.wait_ready())
        node.broker.loader.start(node.broker.lifecycle.epoch)
        await ready
        assert node.unready_reasons() == []
        await node.stop()

    told(story)


def test_a_start_in_a_foreign_directory_leaves_it_as_it_was() -> None:
    async def story(node: Node, process: Process) -> None:
        with pytest.raises(DataDirectoryError):
            await node.start()
        assert not process.disk.exists(MARKER)
        assert process.disk.list_dir("/data") == ["meta.properties"]

    told(story, identity=7)


def test_a_start_that_fails_late_closes_what_was_open() -> None:
    """The client port is taken: the logs were opened and recovered, so their end is a clean one."""

    async def story(node: Node, process: Process) -> None:
        taken = await process.loop.create_server(asyncio.Protocol, "10.0.0.1", 9092)
        with pytest.raises(OSError, match="9092"):
            await node.start()
        assert (node.broker, node.controller, node.http) == (None, None, None)
        assert process.disk.exists(MARKER)
        taken.close()
        again = node_of(process)
        await again.start()
        await again.wait_ready()
        await again.stop()

    told(story)


def test_a_cancelled_start_closes_what_was_open() -> None:
    async def story(node: Node, process: Process) -> None:
        starting = asyncio.ensure_future(node.start())
        await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert (node.broker, node.controller, node.http) == (None, None, None)
        again = node_of(process)
        await again.start()
        await again.wait_ready()
        await again.stop()

    told(story)


def test_logs_that_fail_to_close_keep_nothing_else_open() -> None:
    async def story(node: Node, process: Process) -> None:
        await node.start()
        await node.wait_ready()
        broker, controller, http = node.broker, node.controller, node.http
        assert broker is not None
        assert controller is not None
        assert http is not None

        async def full(**_: object) -> None:
            raise LogStorageError("the disk is full")

        broker.logs.close = full  # type: ignore[method-assign]
        with pytest.raises(LogStorageError, match="full"):
            await node.stop()
        assert broker._rpc._session.closed
        assert not controller.is_active
        for port in (9092, 9093, 8080):  # all of them are free again
            server = await process.loop.create_server(asyncio.Protocol, "10.0.0.1", port)
            server.close()

    told(story)


def test_a_periodic_action_is_awaited_and_not_cut_off() -> None:
    """What it wrote half would be written again, at the same time, by the end."""

    async def story(node: Node, process: Process) -> None:
        await node.start()
        await node.wait_ready()
        broker = node.broker
        assert broker is not None
        begun, ended = asyncio.Event(), []

        async def slow(*_: object) -> None:
            begun.set()
            await asyncio.sleep(1.0)
            ended.append(True)

        broker._checkpoint_high_watermarks = slow  # type: ignore[method-assign]
        broker._start_periodic()
        await begun.wait()
        await node.stop()
        assert ended == [True]

    told(story)


def test_a_periodic_action_that_meets_a_full_disk_runs_again() -> None:
    async def story(node: Node, process: Process) -> None:
        await node.start()
        await node.wait_ready()
        broker = node.broker
        assert broker is not None
        tries: list[None] = []

        async def full() -> None:
            tries.append(None)
            raise LogStorageError("the disk is full")

        broker._checkpoint_high_watermarks = full  # type: ignore[method-assign]
        broker._start_periodic()
        await asyncio.sleep(1.0)
        assert len(tries) > 3
        await node.stop()

    simulation = told(story)
    assert simulation.hosts["host-1"].halts == {}


def test_a_periodic_action_with_a_defect_halts_the_node() -> None:
    async def story(node: Node, process: Process) -> None:
        await node.start()
        await node.wait_ready()
        assert node.broker is not None

        async def broken() -> None:
            raise KeyError("a defect")

        node.broker._checkpoint_high_watermarks = broken  # type: ignore[method-assign]
        node.broker._start_periodic()
        await asyncio.sleep(1.0)

    with Simulation(2) as simulation:

        async def program(process: Process) -> None:
            await story(node_of(process), process)

        host = simulation.add_host()
        host.start(program)
        simulation.run_for(30.0)
        assert any("hw-checkpoint" in reason for reason in host.halts.values())


def test_a_broker_that_was_never_unfenced_shuts_down_too() -> None:
    async def story(node: Node, process: Process) -> None:
        await node.start()
        assert node.broker is not None
        lifecycle = node.broker.lifecycle
        assert lifecycle is not None
        await node.stop()
        assert lifecycle.state is BrokerState.SHUTTING_DOWN

    told(story)
