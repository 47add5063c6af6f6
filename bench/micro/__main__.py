"""The command `python -m bench.micro`: it runs the measures, prints a table or JSON, and checks the limits."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from rich.console import Console

from bench.errors import BenchError
from bench.limits import Limit
from bench.machine import facts
from bench.micro import appends, compaction, lookups, recovery, serving, starts, stored
from bench.table import print_limits

MIN_LARGE_APPEND_RATIO = 0.7
MIN_SMALL_APPENDS_PER_S = 150_000.0
MIN_SERVING_RATIO = 0.8
MAX_OFFSET_LOOKUP_US = 5.0
MAX_TIME_LOOKUP_US = 10.0
MAX_START_S = 3.0
MAX_PARTITION_BYTES = 10_000.0
MIN_RECOVERY_GB_PER_S = 1.0
MIN_STORED_RATIO = 0.95
MAX_STALL_MS = 20.0
SMALL_PER_APPEND = 100
DEFAULT_STORED_GB = 4.0

Measured = tuple[dict[str, Any], list[Limit]]
"""Figures, and the limits on them."""


def _append(directory: Path, _given: argparse.Namespace) -> Measured:
    large = appends.appends(directory, appends.LARGE_BYTES, appends.LARGE_BATCHES)
    small = appends.appends(directory, appends.SMALL_BYTES, appends.SMALL_BATCHES)
    together = appends.appends(
        directory, appends.SMALL_BYTES, appends.SMALL_BATCHES, per_append=SMALL_PER_APPEND
    )
    figures = {"large": large._asdict(), "small": small._asdict(), "small_together": together._asdict()}
    return figures, [
        Limit("append of 1 MB batches: rate / bare writev", large.ratio, MIN_LARGE_APPEND_RATIO, "", True),
        Limit("append of 1 KB batches, each alone", small.batches_per_s, MIN_SMALL_APPENDS_PER_S, "/s", True),
    ]


def _serve(directory: Path, _given: argparse.Namespace) -> Measured:
    figures = serving.serving(directory)
    limit = Limit("fetches of 1 MB: rate / bare sendfile", figures.ratio, MIN_SERVING_RATIO, "", True)
    return figures._asdict(), [limit]


def _lookup(directory: Path, _given: argparse.Namespace) -> Measured:
    figures = lookups.lookups(directory)
    where = f"at {figures.segments:,} segments"
    return figures._asdict(), [
        Limit(f"offset lookup {where}", figures.offset_us, MAX_OFFSET_LOOKUP_US, "µs", False),
        Limit(f"time lookup {where}", figures.time_us, MAX_TIME_LOOKUP_US, "µs", False),
    ]


def _start(directory: Path, given: argparse.Namespace) -> Measured:
    figures = starts.starts(directory, partitions=given.partitions)
    return figures._asdict(), [
        Limit(f"clean start, {figures.partitions:,} partitions", figures.start_s, MAX_START_S, "s", False),
        Limit("an idle partition", figures.bytes_per_partition, MAX_PARTITION_BYTES, "B", False),
    ]


def _recovery(directory: Path, _given: argparse.Namespace) -> Measured:
    figures = [recovery.recovery(directory, batch_bytes) for batch_bytes in recovery.BATCH_BYTES]
    limits = [
        Limit(
            f"unclean recovery, batches of {one.batch_bytes // 1000:,} KB",
            one.gb_per_s,
            MIN_RECOVERY_GB_PER_S,
            "GB/s",
            True,
        )
        for one in figures
    ]
    return {str(one.batch_bytes): one._asdict() for one in figures}, limits


def _stored(directory: Path, given: argparse.Namespace) -> Measured:
    figures = stored.stored(directory, given.stored_gb)
    name = f"producer's rate at {figures.much_gb:.1f} GB / at {figures.little_gb:.1f} GB"
    return {**figures._asdict(), "ratio": figures.ratio}, [
        Limit(name, figures.ratio, MIN_STORED_RATIO, "", True)
    ]


def _compaction(directory: Path, _given: argparse.Namespace) -> Measured:
    found = {name: compaction.compaction(directory, name) for name in compaction.SHAPES}
    return {name: one.figures() for name, one in found.items()}, [
        Limit(f"event loop while cleaning, {name}", one.cleaning.longest_ms, MAX_STALL_MS, "ms", False)
        for name, one in found.items()
    ]


PARTS: Final[Mapping[str, Callable[[Path, argparse.Namespace], Measured]]] = {
    "append": _append,
    "serve": _serve,
    "lookup": _lookup,
    "start": _start,
    "recovery": _recovery,
    "stored": _stored,
    "compaction": _compaction,
}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.micro",
        description="What the partition log does in a second, against bare system calls where there are any.",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts (default: all)")
    parser.add_argument(
        "--partitions", type=int, default=starts.PARTITIONS, help="of the start (default %(default)s)"
    )
    parser.add_argument(
        "--stored-gb",
        type=float,
        default=DEFAULT_STORED_GB,
        help="how much the broker holds at the end of the part stored (default %(default)s)",
    )
    parser.add_argument("--directory", type=Path, help="where to work (default: the system's for such files)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is missed")
    given = parser.parse_args(arguments)
    if given.partitions < 1 or not given.stored_gb > 0:
        parser.error("--partitions and --stored-gb are above 0")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    directory = Path(tempfile.mkdtemp(prefix="kraft-micro-", dir=given.directory))
    figures: dict[str, Any] = {}
    limits: list[Limit] = []
    try:
        for part in dict.fromkeys(given.only):
            figures[part], checked = PARTS[part](directory, given)
            limits += checked
    except BenchError as error:
        print(f"the benchmark could not go on: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if given.json:
        shown = [{**vars(limit), "ok": limit.ok} for limit in limits]
        print(json.dumps({"figures": figures, "limits": shown, "machine": facts()}, indent=1))
    else:
        print_limits(Console(), limits)
    return 1 if given.check and not all(limit.ok for limit in limits) else 0


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends by an exception, so that processes and files are cleared away."""
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
