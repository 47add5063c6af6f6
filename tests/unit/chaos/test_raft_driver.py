"""The real Raft driver in simulated lanes: the same story in every process, and no contradiction in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[3]
TOY = Path(__file__).with_name("raft_toy.py")


def run_toy(hash_seed: int) -> list[dict]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(TOY), "9", "1", "2", "3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=55)
    return json.loads(done.stdout)


def test_three_voters_under_faults():
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run_toy, (1, 4242))
    assert first == second
    assert len({run["digest"] for run in first}) == 3
    for run in first:
        assert run["violations"] == []
        assert run["halts"] == []
        assert run["errors"] == []
        assert run["live"]
        assert run["outcomes"]["COMMITTED"] > 100
    assert sum(run["epochs"] for run in first) > 3, "no fault ever ended a leadership"
