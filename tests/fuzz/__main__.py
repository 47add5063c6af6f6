"""`scripts/fuzz inputs`: strangers' bytes into a node's doors, in this process; `scripts/fuzz sockets`: to the ports of
three real nodes. Prints what was sent, whether all nodes live, and what the memory did. Exit status 1: a finding."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random

from tests.fuzz import doors, inputs
from tests.support.secured_cluster import SecuredCluster

Draw = Callable[[Random], bytes]
DOORS = {
    "broker": (doors.broker, inputs.strangers),
    "controller": (doors.controller, inputs.http),
    "http": (doors.pages, inputs.http),
}
PORTS: dict[str, tuple[Draw, str | None]] = {
    "frames": (inputs.frames, "SASL"),
    "sasl": (inputs.sasl, "SASL"),
    "tls": (inputs.tls, "TLS"),
    "sasl-tls": (inputs.tls, "SASLTLS"),
    "controller": (inputs.http, None),
    "http": (inputs.http, None),
}
"""Of a node: what is sent there, and its listener, if it is one of Kafka's clients."""
REPORTS = 10
"""A line for each tenth; memory is compared with what it was after the first tenth."""
GROWTH_MAX_KIB = 16 * 1024
AT_ONCE = 40
ANSWER_WITHIN_S = 5.0
ERROR_LINE = re.compile(r"\S+ \S+ (ERROR|CRITICAL)\s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("where", choices=("inputs", "sockets"))
    parser.add_argument("--count", type=int, default=10_000, help="inputs per door, or per port")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--doors",
        help=f"some, with commas: of `inputs` {', '.join(DOORS)}; of `sockets` {', '.join(PORTS)}",
    )
    arguments = parser.parse_args()
    there_are = DOORS if arguments.where == "inputs" else PORTS
    chosen = arguments.doors.split(",") if arguments.doors else list(there_are)
    if unknown := [name for name in chosen if name not in there_are]:
        parser.error(f"no such door: {', '.join(unknown)}; there are {', '.join(there_are)}")
    if arguments.count < REPORTS:
        parser.error(f"--count is at least {REPORTS}")
    try:
        if arguments.where == "sockets":
            return asyncio.run(sockets(arguments.count, arguments.seed, chosen))
        return max(asyncio.run(in_process(name, arguments.count, arguments.seed)) for name in chosen)
    except KeyboardInterrupt:
        return 130


async def in_process(name: str, count: int, seed: int) -> int:
    """One door. A finding names the seed of its input, with which `draw(Random(seed))` makes it again."""
    door, draw = DOORS[name]
    began_s, warm_kib = time.monotonic(), 0
    async with doors.no_errors(), door() as feed:
        for number in range(1, count + 1):
            text = f"{seed}/{name}/{number}"
            try:
                await feed(draw(Random(text)))
            except Exception:  # noqa: BLE001 - whatever gets through is a finding
                print(f"{name}: the input of Random({text!r}) got through:\n{traceback.format_exc()}")
                return 1
            if number % max(1, count // REPORTS) == 0:
                gc.collect()
                kib = resident_kib("self")
                print(
                    f"{name}: {number} inputs in {time.monotonic() - began_s:.0f} s, resident {kib} KiB",
                    flush=True,
                )
                warm_kib = warm_kib or kib
    return judged(name, resident_kib("self") - warm_kib)


async def sockets(count: int, seed: int, chosen: Sequence[str]) -> int:
    """Ports of a node of a secured cluster, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = SecuredCluster(Path(folder) / "cluster")
        try:
            node = cluster.local.spec().nodes[0]
            ports = {
                name: _port(cluster, listener)
                for name, (_, listener) in PORTS.items()
                if listener is not None
            } | {"controller": node.controller_port, "http": node.http_port}
            pids = {n: cluster.local.pid(n) for n in cluster.node_ids}
            pid = pids[node.id]
            status = 0
            for name in chosen:
                began_s, warm_kib = time.monotonic(), 0
                for part in range(1, REPORTS + 1):
                    numbers = range(count * (part - 1) // REPORTS, count * part // REPORTS)
                    await send(ports[name], name, PORTS[name][0], numbers, seed)
                    kib = resident_kib(pid)
                    print(
                        f"{name}: {numbers.stop} connections in {time.monotonic() - began_s:.0f} s,"
                        f" resident {kib} KiB",
                        flush=True,
                    )
                    warm_kib = warm_kib or kib
                status = max(status, judged(name, kib - warm_kib))
            if {n: cluster.local.pid(n) for n in cluster.node_ids} != pids:
                print("a node is gone, or another process")
                status = 1
            for n in cluster.node_ids:
                bugs = errors_in(cluster.log_text(n))
                if bugs:
                    print(f"node {n} logged {len(bugs)} errors, such as: {bugs[0]}")
                    status = 1
            cluster.create_topic("still-served")
            print("all nodes live, and serve who may be served" if not status else "there are findings")
            return status
        finally:
            cluster.close()


async def send(port: int, name: str, draw: Draw, numbers: Iterable[int], seed: int) -> None:
    """Connections with these numbers, some at once. Each sends an input, and waits for what is said of it."""
    left = iter(numbers)

    async def strangers() -> None:
        for number in left:
            await _visit(port, draw(Random(f"{seed}/{name}/{number}")))

    await asyncio.gather(*(strangers() for _ in range(AT_ONCE)))


async def _visit(port: int, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    # The other end may be gone before all is sent (OSError: not connected), or wait for more: both are its right.
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(data)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), ANSWER_WITHIN_S)
    writer.transport.abort()


def errors_in(log: str) -> list[str]:
    """The lines of a node's log that tell of an error, as `kraft.logs` writes them, and those above a stack."""
    return [line for line in log.splitlines() if ERROR_LINE.match(line) or line.startswith("Traceback")]


def judged(name: str, growth_kib: int) -> int:
    """1 if the memory is not flat."""
    is_flat = growth_kib <= GROWTH_MAX_KIB
    print(
        f"{name}: resident memory grew by {growth_kib} KiB after the first tenth: {'flat' if is_flat else 'a leak?'}"
    )
    return 0 if is_flat else 1


def resident_kib(pid: int | str | None) -> int:
    """VmRSS of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


def _port(cluster: SecuredCluster, listener: str) -> int:
    return int(cluster.servers(listener).split(",")[0].rpartition(":")[2])


if __name__ == "__main__":
    sys.exit(main())
