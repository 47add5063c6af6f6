"""A broker's life with the controller, under virtual time: registration, heartbeats, fencing, shutdown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from kraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState, Registration, RegistrationRefused
from kraft.chaos.world.host import Process
from kraft.chaos.world.simulation import Simulation
from quorum.metadata.features import supported_ranges
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from tests.support.fake_controller import FakeController

FENCED = HeartbeatResponse(is_fenced=True, is_caught_up=True, should_shutdown=False)
UNFENCED = HeartbeatResponse(is_fenced=False, is_caught_up=True, should_shutdown=False)
SHUT_DOWN = HeartbeatResponse(is_fenced=True, is_caught_up=True, should_shutdown=True)
ME = Registration(1, "the cluster", bytes(16), (), None, (), previous_broker_epoch=3)


class World:
    def __init__(self) -> None:
        self.controller = FakeController()
        self.halts: list[str] = []
        self.lifecycle = BrokerLifecycle(
            ME,
            self.controller,  # type: ignore[arg-type]
            random.Random(1),
            heartbeat_interval_s=2.0,
            session_timeout_s=9.0,
            metadata_offset=lambda: 77,
            halt=self.halts.append,
            on_registered=lambda: self.registrations.append(self.lifecycle.epoch),
            may_unfence=lambda: self.may_unfence,
        )
        self.registrations: list[int] = []
        self.may_unfence = True
        self.controller.always(HeartbeatRequest, self._heartbeat)

    def register(self, *answers: object) -> None:
        self.controller.answer(RegisterBrokerRequest, *answers)

    def heartbeats(self, *answers: object) -> None:
        self.controller.answer(HeartbeatRequest, *answers)

    def _heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """As the controller: fenced until it asks otherwise."""
        if request.want_shutdown:
            return SHUT_DOWN
        return FENCED if request.want_fence else UNFENCED

    @property
    def beats(self) -> list[HeartbeatRequest]:
        return self.controller.calls_of(HeartbeatRequest)


Story = Callable[[World], Coroutine[Any, Any, None]]


def told(story: Story) -> World:
    """Plays a story in virtual time; what fails in it fails here."""
    worlds: list[World] = []
    ended: list[bool] = []

    async def program(_: Process) -> None:
        worlds.append(World())
        await story(worlds[0])
        await worlds[0].lifecycle.close()
        ended.append(True)

    with Simulation(1) as simulation:
        simulation.add_host().start(program)
        simulation.run_until(600.0)
    for error in simulation.errors:
        raise error.error or AssertionError(error.message)
    assert ended, "the story did not come to its end"
    return worlds[0]


def test_a_broker_is_fenced_until_it_is_ready() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5))
        await world.lifecycle.start()
        assert world.lifecycle.epoch == 5
        await asyncio.sleep(5)
        assert world.lifecycle.state is BrokerState.FENCED
        world.lifecycle.set_ready()
        await world.lifecycle.wait_unfenced()

    world = told(story)
    assert [beat.want_fence for beat in world.beats] == [True, True, True, False]
    assert {(beat.broker_epoch, beat.current_metadata_offset) for beat in world.beats} == {(5, 77)}


def test_the_controller_fences_and_unfences() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5))
        answer = UNFENCED
        world.controller.always(HeartbeatRequest, lambda _: answer)
        world.lifecycle.set_ready()
        await world.lifecycle.start()
        await world.lifecycle.wait_unfenced()
        answer = FENCED
        await asyncio.sleep(3)
        assert world.lifecycle.state is BrokerState.FENCED
        answer = UNFENCED
        await asyncio.sleep(0.1)  # a fenced broker that is ready asks often
        assert world.lifecycle.unfenced

    told(story)


def test_a_registration_waits_for_the_session_before_it() -> None:
    async def story(world: World) -> None:
        duplicate = RpcError("DUPLICATE_BROKER_REGISTRATION", "still there")
        world.register(*[duplicate] * 20, RpcUnavailable("nobody"), RegisterBrokerResponse(9))
        await world.lifecycle.start()
        assert world.lifecycle.epoch == 9

    told(story)


def test_silence_is_not_told_as_a_refusal() -> None:
    async def story(world: World) -> None:
        world.register(RpcUnavailable("nobody"), RpcError("DUPLICATE_BROKER_REGISTRATION", "still there"))
        world.register(RegisterBrokerResponse(9))
        await world.lifecycle.start()

    with capture_logs() as logs:
        told(story)
    assert [(entry["event"], "nobody" in entry["reason"]) for entry in logs if "reason" in entry] == [
        ("no controller answered the registration", True),
        ("registration is refused for now", False),
    ]


@pytest.mark.parametrize(
    "code", ["INCONSISTENT_CLUSTER_ID", "INVALID_REGISTRATION", "CLUSTER_AUTHORIZATION_FAILED"]
)
def test_a_refusal_for_good_is_told_at_once(code: str) -> None:
    async def story(world: World) -> None:
        world.register(RpcError(code, "no"))
        begun_s = asyncio.get_running_loop().time()
        with pytest.raises(RegistrationRefused, match=code):
            await world.lifecycle.start()
        assert asyncio.get_running_loop().time() - begun_s < 1

    told(story)


def test_a_registration_gives_up_in_the_end() -> None:
    async def story(world: World) -> None:
        world.controller.always(
            RegisterBrokerRequest, lambda _: RpcError("DUPLICATE_BROKER_REGISTRATION", "x")
        )
        with pytest.raises(RegistrationRefused):
            await world.lifecycle.start()
        assert 60 <= asyncio.get_running_loop().time() < 65

    told(story)


def test_a_forgotten_broker_registers_anew_and_counts_as_fenced_meanwhile() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5))
        world.lifecycle.set_ready()
        await world.lifecycle.start()
        await world.lifecycle.wait_unfenced()
        world.heartbeats(RpcError("STALE_BROKER_EPOCH", "who?"))
        await asyncio.sleep(2.5)
        assert world.lifecycle.state is BrokerState.FENCED
        assert world.lifecycle.epoch == 5
        assert len(world.controller.calls_of(RegisterBrokerRequest)) == 2

    told(story)


def test_a_broker_says_under_which_epoch_it_stopped_cleanly() -> None:
    """After that it has run all the time: what it had under its last registration, it has."""

    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5), RegisterBrokerResponse(30))
        world.heartbeats(UNFENCED, RpcError("STALE_BROKER_EPOCH", "who?"))
        world.lifecycle.set_ready()
        await world.lifecycle.start()
        await asyncio.sleep(3)
        requests = world.controller.calls_of(RegisterBrokerRequest)
        assert [request.previous_broker_epoch for request in requests] == [3, 5]
        assert all(request.features == supported_ranges() for request in requests)

    told(story)


def test_the_new_epoch_is_used_from_the_next_heartbeat_on() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5), RegisterBrokerResponse(30))
        world.heartbeats(UNFENCED, RpcError("STALE_BROKER_EPOCH", "who?"))
        world.lifecycle.set_ready()
        await world.lifecycle.start()
        await asyncio.sleep(3)
        assert world.lifecycle.unfenced
        assert [beat.broker_epoch for beat in world.beats][:3] == [5, 5, 30]

    told(story)


def test_a_controlled_shutdown_ends_the_heartbeats() -> None:
    """A successor may hold the id as soon as the controller has agreed; a heartbeat would register anew."""

    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5))
        world.lifecycle.set_ready()
        await world.lifecycle.start()
        await world.lifecycle.wait_unfenced()
        world.heartbeats(UNFENCED, UNFENCED)
        assert await world.lifecycle.controlled_shutdown(30)
        beats = len(world.beats)
        await asyncio.sleep(30)
        assert len(world.beats) == beats
        assert world.lifecycle.state is BrokerState.SHUTTING_DOWN

    told(story)


def test_a_controlled_shutdown_ends_in_time_when_leaderships_do_not_move() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5))
        await world.lifecycle.start()
        world.controller.always(HeartbeatRequest, lambda _: UNFENCED)
        begun_s = asyncio.get_running_loop().time()
        assert not await world.lifecycle.controlled_shutdown(30)
        assert 29 < asyncio.get_running_loop().time() - begun_s < 31

    told(story)


def test_a_controlled_shutdown_does_not_wait_for_a_quorum_that_is_gone() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5))
        await world.lifecycle.start()
        world.controller.always(HeartbeatRequest, lambda _: RpcUnavailable("nobody"))
        begun_s = asyncio.get_running_loop().time()
        assert not await world.lifecycle.controlled_shutdown(30)
        assert asyncio.get_running_loop().time() - begun_s < 10

    told(story)


def test_a_silent_quorum_is_asked_again() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5))
        world.heartbeats(*[RpcUnavailable("nobody")] * 50)
        world.lifecycle.set_ready()
        await world.lifecycle.start()
        await world.lifecycle.wait_unfenced()

    told(story)


def test_a_defect_halts_the_node() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(5))
        world.heartbeats(KeyError("oops"))
        await world.lifecycle.start()
        await asyncio.sleep(5)

    world = told(story)
    assert len(world.halts) == 1
    assert "broker-heartbeats" in world.halts[0]


def test_a_fenced_broker_waits_until_it_may_be_unfenced() -> None:
    async def story(world: World) -> None:
        world.register(RegisterBrokerResponse(7))
        world.may_unfence = False
        await world.lifecycle.start()
        assert world.registrations == [7]
        world.lifecycle.set_ready()
        await asyncio.sleep(1)
        assert all(beat.want_fence for beat in world.beats)
        world.may_unfence = True
        await world.lifecycle.wait_unfenced()
        world.may_unfence = False  # something went offline: no reason to leave
        count = len(world.beats)
        await asyncio.sleep(5)
        assert len(world.beats) > count
        assert not any(beat.want_fence for beat in world.beats[count:])

    told(story)
