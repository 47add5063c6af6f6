"""`python -m bench.against CHECKOUT`: what a change costs. One broker of this checkout and one of another take turns.

The same workers load both, in alternating pairs; the ratios are medians of each pair's. `git worktree add` makes the
other checkout, of the commit before the change. A message's CPU is that of the broker's process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.brokers import Cluster, cluster
from bench.limits import Limit
from bench.parts import Measured, end_on_sigterm, parser_of, run_parts, whole_numbers
from bench.processes import ROOT
from bench.rows import PARTITIONS
from bench.turns import Turn, document, in_turns, ratios, turn

TITLES = {"produced": "produce", "consumed": "consume", "single": "produce, a record a request"}


def against(directory: Path, other: Path, records: int, pairs: int) -> dict[str, Any]:
    """Raises BenchError."""
    with (
        cluster(directory / "this", 1) as this,
        cluster(directory / "other", 1, root=other) as that,
    ):
        turns = in_turns(pairs, {"this": _way(this, records), "other": _way(that, records)})
    return {
        "commits": {"this": _commit(ROOT), "other": _commit(other)},
        **{part: ratios(turns["this"], turns["other"], part) for part in TITLES},
        "runs": {name: document(of_name) for name, of_name in turns.items()},
    }


def _way(brokers: Cluster, records: int) -> Callable[[], Turn]:
    return lambda: turn(brokers, brokers.bootstrap, records, {}, single=True)


def _commit(root: Path) -> str:
    """The commit of a checkout, with a + where its files differ from it; empty where git knows none."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _against(directory: Path, given: argparse.Namespace) -> Measured:
    found = against(directory, given.checkout, given.records, given.pairs)
    limits = [
        Limit(f"{title}: CPU a message / other", found[part]["cpu"], given.max_cpu, "", False)
        for part, title in TITLES.items()
    ]
    return found, limits


def main(arguments: Sequence[str] | None = None) -> int:
    parts = {"against": _against}
    parser = parser_of("bench.against", "A broker of this checkout beside one of another.", parts)
    parser.add_argument("checkout", type=Path, help="the folder of the other checkout")
    parser.add_argument(
        "--records", type=int, default=3_000_000, help="of 100 bytes, of a run (default %(default)s)"
    )
    parser.add_argument("--pairs", type=int, default=10, help="default %(default)s")
    parser.add_argument("--max-cpu", type=float, default=1.02, help="the limit (default %(default)s)")
    given = parser.parse_args(arguments)
    whole_numbers(parser, given, ("records", "pairs"))
    if given.records % PARTITIONS:
        parser.error(f"--records is a multiple of {PARTITIONS}")
    given.checkout = given.checkout.absolute()
    if not (given.checkout / "kraft" / "cli" / "entry.py").is_file():
        parser.error(f"{given.checkout} is no checkout of this project: it has no kraft/cli/entry.py")
    return run_parts(parts, given)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
