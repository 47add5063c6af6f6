"""`python -m bench`: the benchmark of 2014, with our parameters and its own, next to a null broker: `bench.rows`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.errors import BenchError
from bench.limits import limits_of
from bench.machine import facts
from bench.rows import GROUPS
from bench.run import DEFAULT_RECORDS, KEYS, Measured, run, steps
from bench.table import document, print_limits, print_rows, write_json
from kraft.user_error import UserError

PLAIN_WIDTH = 120
"""Columns where the output is no terminal."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="The Kafka benchmark of 2014 against this broker and a null broker.",
    )
    parser.add_argument(
        "--records",
        type=int,
        default=DEFAULT_RECORDS,
        help="records of the largest rows of 100-byte records (default %(default)s)",
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    parser.add_argument(
        "--only",
        action="append",
        choices=(*GROUPS, *KEYS),
        metavar="ROW",
        help=f"2014 (its rows with its own parameters), or one of {', '.join(KEYS)}; may be repeated",
    )
    parser.add_argument("--dir", type=Path, help="where the scratch folder goes (default: the system's)")
    given = parser.parse_args()
    if given.records < 1:
        parser.error("--records is a number from 1 on")
    for folder in (given.dir, given.json.parent if given.json else None):
        if folder is not None and not folder.is_dir():
            parser.error(f"there is no folder {folder}")
    return given


def keys_of(only: Sequence[str] | None) -> tuple[str, ...]:
    """The rows and measurements that these names stand for; all when there are none."""
    return tuple(key for name in only or KEYS for key in GROUPS.get(name, (name,)))


def _run(given: argparse.Namespace, console: Console) -> Measured:
    keys = keys_of(given.only)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    scratch = Path(tempfile.mkdtemp(prefix="kraft-bench-", dir=given.dir))
    try:
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("", total=steps(keys))
            done = -1

            def on_step(title: str) -> None:
                nonlocal done
                done += 1
                progress.update(task, description=title, completed=done)

            return run(given.records, keys, scratch, on_step)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(130)  # through the `finally`s, which end the processes


def main() -> int:
    given = _arguments()
    signal.signal(signal.SIGTERM, _end)
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    machine = facts()
    try:
        measured = _run(given, Console(stderr=True))
    except (BenchError, UserError, KafkaException) as error:
        print(f"the benchmark could not go on: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    results = list(measured.rows.values())
    limits = limits_of(measured.rows, measured.cluster)
    print_rows(console, results)
    print_limits(console, limits)
    if given.json:
        write_json(given.json, document(results, limits, measured.cluster, machine))
    return 1 if given.check and not all(limit.ok for limit in limits) else 0


if __name__ == "__main__":
    sys.exit(main())
