"""The simulated Raft lane: order, delays, slow fsyncs and crashes, with a driver that only takes notes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from kraft.chaos.world.disk_timing import DiskTiming
from kraft.chaos.world.raft_lane import LaneTiming, SimulatedRaftLane
from kraft.chaos.world.simulation import Simulation
from quorum.raft.events import NOT_COMMITTED, ProposalOutcome, Propose
from quorum.raft.lane import INBOX_MAX_EVENTS


class NotingDriver:
    """Journals each event, syncs, and echoes it."""

    tick_interval_s = 0.25

    def __init__(self, process: Any) -> None:
        self.process = process
        self.steps: list[tuple[float, list[Any]]] = []
        self.closed = False
        process.disk.make_dirs("/raft")
        self.journal = process.disk.open("/raft/journal", create=True)

    def step(self, events: Any) -> list[Any]:
        self.steps.append((self.process.loop.time(), list(events)))
        if not events:
            return []
        self.journal.append([bytes(event for event in events if isinstance(event, int))])
        self.journal.sync()
        return [("done", event) for event in events]

    def close(self) -> None:
        self.closed = True


def lane_of(process: Any, timing: LaneTiming | None = None) -> SimulatedRaftLane:
    return SimulatedRaftLane(
        process.incarnation,
        process.loop,
        process.disk,
        process.stream("raft"),
        process.halt,
        timing,
    )


def test_events_and_effects_keep_their_order_and_take_time(play):
    async def program(process):
        lane, effects = lane_of(process), []
        driver = NotingDriver(process)
        lane.start(lambda: driver, effects.extend)
        for number in range(100):
            lane.post(number)
            await asyncio.sleep(random.random() / 1000)
        assert effects != [("done", number) for number in range(100)]
        await asyncio.sleep(0.1)
        assert effects == [("done", number) for number in range(100)]
        batches = [len(events) for _, events in driver.steps]
        assert max(batches) > 1
        instants = [instant for instant, _ in driver.steps]
        assert instants == sorted(set(instants))

    play(program)


def test_an_idle_driver_is_stepped_by_its_own_interval(play):
    async def program(process):
        lane, driver = lane_of(process), NotingDriver(process)
        lane.start(lambda: driver, print)
        await asyncio.sleep(10.1)
        assert 40 <= len(driver.steps) <= 41
        driver.tick_interval_s = 5.0
        await asyncio.sleep(10)
        assert 42 <= len(driver.steps) <= 44

    play(program, seconds=30)


def test_a_slow_fsync_stalls_only_this_lane(play):
    async def program(process):
        loop, delivered = process.loop, []
        process.host.storage.timing = DiskTiming(sync_s=(2.0, 2.1))
        lane = lane_of(process)
        lane.start(lambda: NotingDriver(process), lambda effects: delivered.append(loop.time()))
        before, turns = loop.time(), 0
        lane.post(1)
        while not delivered:
            await asyncio.sleep(0.01)
            turns += 1
        assert 2.0 < delivered[0] - before < 2.2
        assert turns > 190

    play(program)


def test_a_crash_may_fall_between_the_step_and_its_delivery():
    seen: dict[str, int] = {}

    for seed in range(40):
        with Simulation(seed) as simulation:
            host = simulation.add_host()
            delivered: list[Any] = []

            async def program(process, delivered=delivered):
                lane = lane_of(process, LaneTiming(inbox_s=(0, 0.01), outbox_s=(0, 0.01)))
                lane.start(lambda: NotingDriver(process), delivered.extend)
                await asyncio.sleep(0.1)
                lane.post(7)
                await asyncio.Event().wait()

            host.start(program)
            simulation.call_later(0.1 + 0.02 * seed / 40, host.kill)
            simulation.run_until(1)
            journaled = host.storage.files().get("/raft/journal") == b"\x07"
            outcome = ("stepped" if journaled else "not stepped") + (", delivered" if delivered else "")
            seen[outcome] = seen.get(outcome, 0) + 1
    assert set(seen) == {"not stepped", "stepped", "stepped, delivered"}


def test_a_full_inbox_loses_events_and_says_so(play):
    async def program(process):
        lane, effects = lane_of(process), []
        lane.start(lambda: NotingDriver(process), effects.extend)
        process.host.storage.timing = DiskTiming(sync_s=(1.0, 1.0))
        lane.post(0)
        await asyncio.sleep(0.1)
        for number in range(INBOX_MAX_EVENTS + 3):
            lane.post(Propose(number, b""))
        await asyncio.sleep(0.2)
        assert effects == [ProposalOutcome(INBOX_MAX_EVENTS + n, None, NOT_COMMITTED) for n in range(3)]
        await asyncio.sleep(5)
        assert len(effects) == INBOX_MAX_EVENTS + 4

    play(program)


def test_stop_closes_the_driver_and_voids_the_queues(play):
    async def program(process):
        lane, effects, driver = lane_of(process), [], NotingDriver(process)
        lane.start(lambda: driver, effects.extend)
        lane.post(1)
        lane.stop()
        assert driver.closed
        lane.post(2)
        lane.stop()
        await asyncio.sleep(1)
        assert effects == []
        assert driver.steps == []

    play(program)


def test_a_driver_that_fails_halts_its_process():
    class Broken(NotingDriver):
        def step(self, events: Any) -> list[Any]:
            raise ZeroDivisionError

    async def program(process):
        lane_of(process).start(lambda: Broken(process), print)
        await asyncio.Event().wait()

    with Simulation(1) as simulation:
        host = simulation.add_host()
        host.start(program)
        simulation.run_until(1)
    assert not host.alive
    assert list(host.halts.values()) == ["the Raft lane failed: ZeroDivisionError: "]
    assert [type(error.error) for error in simulation.errors] == [ZeroDivisionError]


def test_pausing_the_process_pauses_the_lane(play):
    async def program(process):
        lane, driver = lane_of(process), NotingDriver(process)
        lane.start(lambda: driver, print)
        await asyncio.sleep(1)
        process.host.pause(5)
        await asyncio.sleep(2)
        instants = [instant for instant, _ in driver.steps]
        assert not [instant for instant in instants if 1.05 < instant < 6]
        assert len(instants) < 8

    play(program)
