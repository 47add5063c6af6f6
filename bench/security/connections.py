"""Connections: how many authenticate a second, what thousands that only stand cost, and how others fare meanwhile."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.machine import cpu_seconds, resident_bytes, settle
from bench.pacing import paced, split
from bench.processes import Child
from bench.security.brokers import SecuredBroker, secured
from kraft.runtime.loop import open_files_limit, raise_open_files_limit

AT_ONCE = 8
"""Authentications under way at a time."""
QUIET_S = 2.0
BESIDE = 300
"""Descriptors that a broker needs beside its clients'."""
CLIENT = "bench.security.client"
ENCRYPTED = {"SASL": False, "SASLTLS": True, "PLAINTEXT": False, "TLS": True}
Meanwhile = Callable[[], dict[str, float]]


def connects(directory: Path, count: int, rounds: int) -> dict[str, Any]:
    """SCRAM over plain connections and over TLS, as fast as they come, each `rounds` times. Raises BenchError."""
    found: dict[str, Any] = {}
    with secured(directory / "connects") as broker, broker.topic(1, 1) as topic:
        for listener in ("SASL", "SASLTLS"):
            runs = [_connects(broker, topic, listener, count) for _ in range(rounds)]
            found[listener] = {
                "connects_per_s": statistics.median(run["connects_per_s"] for run in runs),
                "broker_cpu_ms": statistics.median(run["broker_cpu_ms"] for run in runs),
                "usual_ms": statistics.median(run["usual_ms"] for run in runs),
                "slowest_before_ms": max(run["slowest_before_ms"] for run in runs),
                "slowest_ms": max(run["slowest_ms"] for run in runs),
                "runs": runs,
            }
    return found


def _connects(broker: SecuredBroker, topic: str, listener: str, count: int) -> dict[str, float]:
    options = [broker.password_file, count, AT_ONCE]
    with Child(CLIENT, ["connect", *_target(broker, listener), *options]) as client:
        client.await_ready()
        settle(broker.pids())

        def meanwhile() -> dict[str, float]:
            before_s = cpu_seconds(broker.pids())
            client.go()
            report = client.result()
            spent_s = cpu_seconds(broker.pids()) - before_s  # the paced producer's share is in it
            return {
                "connects_per_s": report["connections"] / report["elapsed_s"],
                "broker_cpu_ms": spent_s * 1000 / report["connections"],
            }

        return _with_latencies(broker, topic, meanwhile)


def silent(directory: Path, count: int) -> dict[str, Any]:
    """Plain connections and encrypted ones, each kind at a fresh broker. Raises BenchError."""
    raise_open_files_limit()
    limit = open_files_limit()
    if limit is not None and limit < count + BESIDE:
        raise BenchError(
            f"{count} connections need {count + BESIDE} descriptors and processes may have {limit} here:"
            " raise the limit (ulimit -Hn) or ask for fewer with --connections"
        )
    found: dict[str, Any] = {"connections": count, "descriptor_limit": limit}
    for listener in ("PLAINTEXT", "TLS"):
        with secured(directory / listener) as broker, broker.topic(1, 1) as topic:
            found[listener] = _silent(broker, topic, listener, count)
    return found


def _silent(broker: SecuredBroker, topic: str, listener: str, count: int) -> dict[str, float]:
    with Child(CLIENT, ["stand", *_target(broker, listener), count]) as client:
        client.await_ready()
        _with_latencies(broker, topic, dict)  # what a first client makes a broker hold is not theirs
        before_bytes = resident_bytes(broker.pid())

        def meanwhile() -> dict[str, float]:
            client.go()
            report = client.result()
            settle(broker.pids())
            grown = resident_bytes(broker.pid()) - before_bytes
            return {"kib_each": grown / count / 1024, "connects_per_s": count / report["elapsed_s"]}

        opening = _with_latencies(broker, topic, meanwhile)
        standing = _with_latencies(broker, topic, dict)
    return opening | {
        "standing_ms": standing["usual_ms"],
        "slowest_standing_ms": standing["slowest_before_ms"],
    }


def _target(broker: SecuredBroker, listener: str) -> list[object]:
    return [*broker.address(listener), broker.certificate if ENCRYPTED[listener] else "-"]


def _with_latencies(broker: SecuredBroker, topic: str, meanwhile: Meanwhile) -> dict[str, float]:
    """What `meanwhile` gives, and the latencies of a producer before and during it, in ms."""

    async def measure() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        pacing = await paced(broker.address(), topic, 0)
        try:
            await asyncio.sleep(QUIET_S)
            began_s = loop.time()
            found = await loop.run_in_executor(None, meanwhile)
        finally:
            pacing.cancel()
        before, during = split(await pacing, began_s)
        return found | {
            "usual_ms": statistics.median(before),
            "slowest_before_ms": max(before),
            "slowest_ms": max(during, default=0.0),
        }

    return asyncio.run(measure())
