"""Fixtures around the small world of `toy_world`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kraft.chaos.faults import FAULTS
from kraft.chaos.world.simulation import Simulation
from tests.unit.chaos.faults.toy_world import World


@pytest.fixture
def build() -> Iterator[Callable[..., World]]:
    """Makes a world of so many nodes."""
    simulations = []

    def make(nodes: int = 3, seed: int = 1) -> World:
        simulation = Simulation(seed)
        simulation.__enter__()
        simulations.append(simulation)
        return World(simulation, nodes)

    yield make
    for simulation in simulations:
        simulation.__exit__(None, None, None)
        assert simulation.errors == []


@pytest.fixture
def world(build: Callable[..., World]) -> World:
    return build()


@pytest.fixture(params=list(FAULTS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
