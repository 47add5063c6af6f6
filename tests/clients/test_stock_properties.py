"""Kafka's stock server.properties, as it is, starts a node; environment variables give it its ports and folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kraft.runtime.free_ports import free_ports
from kraft.storage import new_uuid
from tests.support.real_clients import Confluent
from tests.unit.config.test_config import KAFKA_SAMPLE

TIMEOUT_S = 120


@pytest.fixture
def variables(tmp_path: Path) -> Mapping[str, str]:
    client, controller = free_ports(2, avoid=set())
    return {
        "KAFKA_LISTENERS": f"PLAINTEXT://:{client},CONTROLLER://:{controller}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{client},CONTROLLER://localhost:{controller}",
        "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": f"localhost:{controller}",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "KAFKA_HEAP_OPTS": "-Xmx1G",
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(KAFKA_SAMPLE)
    return path


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "kraft.cli.entry", *map(str, arguments)]


@pytest.fixture
def formatted(file: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """What processes with the variables are started with, the folder being formatted as Kafka's manual says."""
    settings = {"env": {**os.environ, **variables}, "text": True}
    format_ = command("storage", "format", "--standalone", "-t", new_uuid(), "-c", file)
    done = subprocess.run(format_, capture_output=True, check=False, timeout=TIMEOUT_S, **settings)
    assert done.returncode == 0, done.stderr
    assert "taken from the environment: KAFKA_ADVERTISED_LISTENERS, KAFKA_CONTROLLER_QUORUM" in done.stderr
    return settings


def test_without_a_formatted_folder_it_says_what_to_type(file: Path, variables: Mapping[str, str]) -> None:
    done = subprocess.run(
        command("server", file),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "run `kraft storage format --cluster-id ID --config FILE --standalone`" in done.stderr


def test_it_serves_and_says_what_it_took(
    file: Path, variables: Mapping[str, str], formatted: dict[str, Any], tmp_path: Path
) -> None:
    told = tmp_path / "stderr"
    with told.open("w") as stderr:
        process = subprocess.Popen(
            command("server", file), stdout=subprocess.PIPE, stderr=stderr, **formatted
        )
    try:
        assert process.stdout is not None
        assert any(line.strip() == "Kafka Server started" for line in process.stdout), told.read_text()
        bootstrap = variables["KAFKA_ADVERTISED_LISTENERS"].partition(",")[0].removeprefix("PLAINTEXT://")
        client = Confluent()
        client.produce(bootstrap, "made-by-its-first-record", {0: [b"a", b"b"]})
        assert client.consume(bootstrap, "made-by-its-first-record", {0: 2}) == {0: [b"a", b"b"]}
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    lines = told.read_text()
    (taken,) = [line for line in lines.splitlines() if "keys were taken from the environment" in line]
    assert "KAFKA_LOG_DIRS" in taken
    assert "KAFKA_HEAP_OPTS" not in lines
    assert (tmp_path / "data" / "meta.properties").exists()
