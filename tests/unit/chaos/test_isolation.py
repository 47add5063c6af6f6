from __future__ import annotations

import os

import pytest

from kraft.chaos.pool import IsolatedRunError, run_isolated
from kraft.chaos.world.simulation import Simulation


def test_values_and_errors_come_back_from_another_process():
    assert run_isolated(os.getpid) != os.getpid()
    assert run_isolated(lambda: {"big": b"x" * 1_000_000}) == {"big": b"x" * 1_000_000}
    with pytest.raises(IsolatedRunError, match="ZeroDivisionError"):
        run_isolated(lambda: 1 // 0)
    with pytest.raises(IsolatedRunError, match="code 3"):
        run_isolated(lambda: os._exit(3))


def test_a_run_can_be_isolated():
    def run() -> str:
        with Simulation(1) as simulation:
            simulation.add_host()
            simulation.run_until(1)
            return simulation.digest()

    assert run_isolated(run) == run()
