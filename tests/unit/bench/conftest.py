"""A null broker in a process of its own, which serves one small batch in each of its partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bench.processes import Child
from bench.rows import PARTITIONS
from kraft.runtime.free_ports import free_port_range


@pytest.fixture
def null_broker() -> Iterator[tuple[Child, int]]:
    """Its process and its port."""
    port = free_port_range(1)
    with Child("bench.null_broker", [port, "bench", PARTITIONS, "--records", PARTITIONS]) as null:
        null.await_ready()
        yield null, port


@pytest.fixture
def null_port(null_broker: tuple[Child, int]) -> int:
    return null_broker[1]


@pytest.fixture
def deadline_s() -> float:
    """By when a client has to be done, as monotonic time."""
    return time.monotonic() + 30
