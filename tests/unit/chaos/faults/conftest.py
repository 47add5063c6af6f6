"""Fixtures around the small world of `toy_world`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kraft.chaos.faults import FAULTS
from kraft.chaos.world.simulation import Simulation
from tests.unit.chaos.faults.toy_world import World


@pytest.fixture
def build() -> Iterator[Callable[..., World]]:
    """Makes a world of so many nodes; the one before it has ended then."""
    stack = ExitStack()
    simulations: list[Simulation] = []

    def make(nodes: int = 3, seed: int = 1) -> World:
        stack.close()
        simulations.append(Simulation(seed))
        return World(stack.enter_context(simulations[-1]), nodes)

    with stack:
        yield make
    assert [simulation.errors for simulation in simulations if simulation.errors] == []


@pytest.fixture
def world(build: Callable[..., World]) -> World:
    return build()


@pytest.fixture(params=list(FAULTS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
