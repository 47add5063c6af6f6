"""A benchmark of parts that can be run one by one: options, order, scratch folder, limits, documents.

A part takes a folder of its own to work in and the options, and gives figures (JSON values) and the limits on them.
Its processes and files are gone when it ends, even after an interruption.
"""

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
from typing import Any, NoReturn

from confluent_kafka import KafkaException
from rich.console import Console

from bench.errors import BenchError
from bench.limits import Limit
from bench.machine import facts
from bench.table import print_limits
from kraft.user_error import UserError

Measured = tuple[dict[str, Any], list[Limit]]
"""Figures, and the limits on them."""
Part = Callable[[Path, argparse.Namespace], Measured]
Show = Callable[[Console, Mapping[str, Any]], None]
"""Prints the figures of the parts that have run."""


def parser_of(program: str, description: str, parts: Mapping[str, Part]) -> argparse.ArgumentParser:
    """The options that all such benchmarks have; `given.only`, `.directory`, `.json`, `.check`."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="parts (default: all)")
    parser.add_argument("--directory", type=Path, help="where to work (default: the system's for such files)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is missed")
    return parser


def run_parts(parts: Mapping[str, Part], given: argparse.Namespace, *, show: Show | None = None) -> int:
    """Runs the chosen parts, prints their results, and returns the exit code.

    A part that cannot go on is reported and makes the exit code 1; the others run all the same. For people the limits
    are printed, and before them what `show` makes of the figures.
    """
    machine = facts()
    figures: dict[str, Any] = {}
    limits: list[Limit] = []
    failures: dict[str, str] = {}
    for part in dict.fromkeys(given.only):
        print(f"{part} …", file=sys.stderr, flush=True)
        directory = Path(tempfile.mkdtemp(prefix="kraft-bench-", dir=given.directory))
        try:
            figures[part], checked = parts[part](directory, given)
            limits += checked
        except (BenchError, UserError, KafkaException) as error:
            failures[part] = str(error)
            print(f"{part} could not go on: {error}", file=sys.stderr)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    if given.json:
        shown = [{**vars(limit), "ok": limit.ok} for limit in limits]
        document = {"machine": machine, "figures": figures, "limits": shown, "failures": failures}
        print(json.dumps(document, indent=1))
    else:
        if show is not None:
            show(Console(), figures)
        print_limits(Console(), limits)
    missed = given.check and not all(limit.ok for limit in limits)
    return 1 if failures or missed else 0


def end_on_sigterm() -> None:
    """Has SIGTERM end this process by an exception, so that processes and files are cleared away."""
    signal.signal(signal.SIGTERM, _end)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def whole_numbers(parser: argparse.ArgumentParser, given: argparse.Namespace, names: Sequence[str]) -> None:
    """Ends the program where one of these options is below 1."""
    if any(getattr(given, name) < 1 for name in names):
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        parser.error(f"these are numbers from 1 on: {listed}")
