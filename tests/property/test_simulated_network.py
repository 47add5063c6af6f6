"""Whatever a link does to segments, a connection carries a stream: in order, whole, once."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.chaos.world.host import Process
from kraft.chaos.world.network import Impairment, Latency
from kraft.chaos.world.simulation import Simulation
from tests.support.examples import examples

SENDER, RECEIVER = "10.0.0.2", "10.0.0.1"
COUNTING = bytes(range(251)) * 4_000

latencies = st.builds(Latency, st.floats(0, 0.01), st.floats(0.01, 0.5))
impairments = st.builds(
    Impairment,
    latency=latencies,
    bytes_per_s=st.sampled_from([2_000.0, 50_000.0, 1e6, float("inf")]),
    cut_odds=st.sampled_from([0.0, 0.5, 1.0]),
    cut_gap_s=st.sampled_from([0.0, 0.01, 0.3]),
)
events = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 60_000)),
    st.tuples(st.just("impair"), impairments),
    st.tuples(st.just("relieve"), st.none()),
    st.tuples(st.sampled_from(["block", "heal", "clog", "unclog"]), st.none()),
    st.tuples(st.just("wait"), st.floats(0, 1.0)),
)


class Receiver(asyncio.Protocol):
    def __init__(self, received: bytearray, sizes: list[int]) -> None:
        self.received, self.sizes = received, sizes

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.sizes.append(len(data))


async def tell(story: list[tuple[str, Any]], process: Process, received: bytearray) -> int:
    """Sends as the story says while the link misbehaves. Returns how many bytes were sent."""
    network = process.host.simulation.network
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, RECEIVER, 9)
    sent, active = 0, []
    for kind, value in story:
        if kind == "write":
            transport.write(COUNTING[sent : sent + value])
            sent += value
        elif kind == "wait":
            await asyncio.sleep(value)
        elif kind == "impair":
            active.append(value)
            network.impair(SENDER, RECEIVER, value)
        elif kind == "relieve":
            network.relieve(SENDER, RECEIVER, active.pop() if active else None)
        else:
            getattr(network, kind)(SENDER, RECEIVER)
        assert COUNTING.startswith(received)
    network.heal_all()
    return sent


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(events, max_size=15), st.integers(0, 1_000))
def test_a_stream_stays_a_stream(story, seed):
    received, sizes, sent = bytearray(), [], []

    async def receive(process: Process) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Receiver(received, sizes), "0.0.0.0", 9)
        await asyncio.Event().wait()

    async def send(process: Process) -> None:
        sent.append(await tell(story, process, received))
        await asyncio.sleep(3.0)

    with Simulation(seed) as simulation:
        simulation.add_host().start(receive)
        simulation.add_host().start(send)
        simulation.run_until(60.0)
        link = simulation.network.link(SENDER, RECEIVER)
        assert not link.held
        assert not link.impeded
    assert simulation.errors == []
    assert received == COUNTING[: sent[0]]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5_000), st.integers(0, 5_000))
def test_a_stream_that_goes_silent_is_a_prefix(seed, before, after):
    received, lost = bytearray(), []

    class Sender(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            lost.append((type(error).__name__, asyncio.get_running_loop().time()))

    async def receive(process: Process) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Receiver(received, []), "0.0.0.0", 9)
        await asyncio.Event().wait()

    async def send(process: Process) -> None:
        network = process.host.simulation.network
        transport, _ = await asyncio.get_running_loop().create_connection(Sender, RECEIVER, 9)
        transport.write(COUNTING[:before])
        assert network.silence(SENDER, RECEIVER, (1.0, 4.0)) == 1
        assert network.silence(SENDER, RECEIVER, (1.0, 4.0)) == 0
        transport.write(COUNTING[before : before + after])
        began_s = process.loop.time()
        await asyncio.sleep(5.0)
        [(error, at_s)] = lost
        assert error == "TimeoutError"
        assert 1.0 <= at_s - began_s <= 4.1

    with Simulation(seed) as simulation:
        receiver = simulation.add_host()
        receiver.start(receive)
        simulation.add_host().start(send)
        simulation.run_until(10.0)
        assert not receiver.kernel.endpoints
    assert simulation.errors == []
    assert received == COUNTING[:before]
