"""Commands without an address, in the folder of a cluster: they find it, its living nodes and its secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft.cli.shared.bootstrap import BOOTSTRAP_VARIABLE
from kraft.runtime.free_ports import free_port_range
from tests.support.node_processes import until
from tests.support.source_tree import ROOT

TIMEOUT_S = 120.0

Kraft = Callable[..., str]


@pytest.fixture
def kraft(tmp_path: Path) -> Iterator[Kraft]:
    """Runs a command in a clean folder to its end; returns its standard output."""
    environment = {name: value for name, value in os.environ.items() if name != BOOTSTRAP_VARIABLE}
    environment |= {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}

    def call(command: str, stdin: str = "") -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "kraft", *command.split()],
            cwd=tmp_path,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, f"{command}: {ended.stderr}"
        return ended.stdout

    yield call
    call("cluster destroy")


def test_one_node_killed_the_others_are_asked(kraft: Kraft) -> None:
    def status() -> Any:
        return json.loads(kraft("cluster status --json"))

    port = free_port_range(3)
    assert kraft(f"cluster start --port {port}") == f"{','.join(f'127.0.0.1:{port + i}' for i in range(3))}\n"
    kraft("topics create events --partitions 6 --replication-factor 3")
    lines = "".join(f"{number}\n" for number in range(1000))
    kraft("produce events", stdin=lines)
    until(
        lambda: status()["partitions"] == {"total": 6, "under_replicated": 0, "leaderless": 0},
        "all partitions are in sync",
    )
    configs = json.loads(kraft("configs describe --entity-type topics --entity-name events --all --json"))
    assert [config["value"] for config in configs["configs"] if config["name"] == "min.insync.replicas"] == [
        "2"
    ]

    kraft("cluster kill 1")
    assert kraft("topics list") == "events\n"
    document = json.loads(kraft("topics describe events --json"))
    assert len(document["partitions"]) == 6
    kraft("produce events", stdin="one more\n")
    read = kraft("consume events --from-beginning --exit-at-end")
    assert sorted(read.splitlines()) == sorted([*lines.splitlines(), "one more"])
    assert [voter["id"] for voter in json.loads(kraft("quorum describe --json"))["current_voters"]] == [
        1,
        2,
        3,
    ]
    names = kraft("metadata shell ls /topics/by-name").splitlines()
    assert [name for name in names if not name.startswith("__")] == ["events"], "the secret is in the folder"

    def is_missed() -> bool:
        """Each partition, those of the consumer's internal topic too, lacks its replica there."""
        partitions = status()["partitions"]
        return bool(
            partitions["under_replicated"] == partitions["total"] >= 6 and not partitions["leaderless"]
        )

    until(is_missed, "the killed node is missed")
    kraft("cluster stop-node 3")
    assert [node["state"] for node in status()["nodes"]][::2] == ["dead", "stopped"]
