"""The command `python -m bench.quorum`: it runs the measures, prints a table or JSON, and checks the limits."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.errors import BenchError
from bench.limits import Limit
from bench.machine import facts
from bench.quorum import measures
from bench.table import print_limits
from quorum.rpc.envelope import RpcError

FSYNCS_A_COMMIT_MAX = 4
MIN_RECORDS_PER_S = 20_000.0
MAX_FAILOVER_S = 2.0
MAX_FAST_FAILOVER_S = 1.0
MAX_CREATE_S = 3.0
MAX_MOVE_S = 1.0
MAX_BYTES_PER_PARTITION = 2_048.0
MAX_RESTART_S = 3.0
PARTS = ("commit", "throughput", "failover", "scale")


async def run(directory: Path, given: argparse.Namespace) -> tuple[dict[str, Any], list[Limit]]:
    """The figures of the parts asked for, and their limits. Raises BenchError, RpcError."""
    figures: dict[str, Any] = {}
    limits: list[Limit] = []

    def limit(name: str, value: float, bound: float, unit: str, *, at_least: bool = False) -> None:
        limits.append(Limit(name, value, bound, unit, at_least))

    if "commit" in given.only:
        fsync_ms = measures.fsync_ms(directory)
        bare = await measures.commit_latencies(directory / "unsynced", given.commits, synced=False)
        synced = await measures.commit_latencies(directory / "synced", given.commits, synced=True)
        figures["commit"] = {"fsync_ms": fsync_ms, "unsynced": bare._asdict(), "synced": synced._asdict()}
        bound = bare.p50_ms + FSYNCS_A_COMMIT_MAX * fsync_ms
        limit("commit of a small proposal, p50 (unsynced + 4 fsyncs)", synced.p50_ms, bound, "ms")
    if "throughput" in given.only:
        rate = await measures.records_per_s(directory / "throughput", given.records)
        figures["throughput"] = {"records_per_s": rate}
        limit("metadata records committed, batched", rate, MIN_RECORDS_PER_S, "/s", at_least=True)
    if "failover" in given.only:
        for name, fast, bound_s in (("default", False, MAX_FAILOVER_S), ("fast", True, MAX_FAST_FAILOVER_S)):
            gaps = await measures.failovers_s(directory / f"failover-{name}", given.kills, fast=fast)
            worst = measures.percentile(gaps, 0.99)
            figures[f"failover_{name}_s"] = sorted(gaps)
            limit(f"controller killed, {name} timers: p99 of {given.kills}", worst, bound_s, "s")
    if "scale" in given.only:
        scale = await measures.scale(directory / "scale", given.partitions)
        figures["scale"] = scale._asdict()
        limit(f"{scale.partitions:,} partitions created", scale.create_s, MAX_CREATE_S, "s")
        limit(f"{scale.moved:,} leaderships moved", scale.move_s, MAX_MOVE_S, "s")
        limit("image, a partition", scale.bytes_per_partition, MAX_BYTES_PER_PARTITION, "B")
        limit("brokers fenced while snapshots were written", scale.heartbeats_missed, 0, "")
        limit("restarted voter has the image", scale.restart_s, MAX_RESTART_S, "s")
    return figures, limits


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quorum",
        description="What the controller quorum does in a second, and how soon it is back.",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts (default: all)")
    parser.add_argument("--commits", type=int, default=1_000, help="small proposals (default %(default)s)")
    parser.add_argument(
        "--records",
        type=int,
        default=100_000,
        help="metadata records of the throughput part (default %(default)s)",
    )
    parser.add_argument("--kills", type=int, default=20, help="for each kind of timers (default %(default)s)")
    parser.add_argument(
        "--partitions", type=int, default=10_000, help="of the scale part (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is missed")
    given = parser.parse_args(arguments)
    if min(given.commits, given.records, given.kills, given.partitions) < 1:
        parser.error("--commits, --records, --kills and --partitions are above 0")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    directory = Path(tempfile.mkdtemp(prefix="kraft-quorum-"))
    try:
        figures, limits = asyncio.run(run(directory, given))
    except (BenchError, RpcError) as error:
        print(f"the benchmark could not go on: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if given.json:
        checked = [{**vars(limit), "ok": limit.ok} for limit in limits]
        print(json.dumps({"figures": figures, "limits": checked, "machine": facts()}, indent=1))
    else:
        print_limits(Console(), limits)
    return 1 if given.check and not all(limit.ok for limit in limits) else 0


if __name__ == "__main__":
    sys.exit(main())
