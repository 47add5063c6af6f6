"""What the tests of the simulator share: playing programs in a small world."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraft.chaos.world.host import Process
from kraft.chaos.world.simulation import Simulation

Program = Callable[[Process], Coroutine[Any, Any, None]]


@pytest.fixture
def play() -> Callable[..., Simulation]:
    """Runs each program on a host of its own (host-1 at 10.0.0.1, …) and returns the ended world.

    A step of a program that fails ends its process; errors that nobody handled fail the test.
    """

    def run(*programs: Program, seconds: float = 20.0, seed: int = 1) -> Simulation:
        with Simulation(seed) as simulation:
            for program in programs:
                simulation.add_host().start(program)
            simulation.run_until(seconds)
        for error in simulation.errors:
            raise error.error or AssertionError(error.message)
        return simulation

    return run
