"""The command `python -m bench.groups`: it runs the measures, prints a table or JSON, and checks the limits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.groups import commits, failover, loading, reading, rebalance
from bench.groups.members import CLASSIC_INTERVAL_S, KINDS
from bench.limits import Limit
from bench.parts import Measured, Part, end_on_sigterm, parser_of, run_parts, whole_numbers

CONSUMER_INTERVAL_S = 5.0
"""group.consumer.heartbeat.interval.ms"""
GRACE_S = 0.5
MAX_REBALANCE_S = {"classic": CLASSIC_INTERVAL_S + GRACE_S, "consumer": 2 * CONSUMER_INTERVAL_S + GRACE_S}
MAX_HEARTBEATS_PERCENT = 10.0
MIN_COMMITS_PER_S = 5_000.0
MIN_READING_RATIO = 0.95
MAX_AFTER_ELECTION_S = 5.0
MAX_LOAD_S = 5.0
MAX_LATER_MS = 50.0


def _rebalance(directory: Path, given: argparse.Namespace) -> Measured:
    figures: dict[str, Any] = {}
    limits: list[Limit] = []
    for kind in KINDS:
        found = rebalance.rebalance(
            directory, kind, given.groups, given.members, given.repeats, given.watch_s
        )
        figures[kind] = found._asdict()
        name = f"{found.groups} {kind} groups of {found.members}"
        limits += [
            Limit(f"{name}: a rebalance of one", max(found.rebalances_s), MAX_REBALANCE_S[kind], "s", False),
            Limit(
                f"{name}: heartbeats", found.heartbeats_percent, MAX_HEARTBEATS_PERCENT, "% of a core", False
            ),
        ]
    return figures, limits


def _commits(directory: Path, given: argparse.Namespace) -> Measured:
    found = commits.commits(directory, given.commits)
    figures = {**found._asdict(), "per_s": found.per_s}
    return figures, [Limit("commits of one partition, 3x", found.per_s, MIN_COMMITS_PER_S, "/s", True)]


def _reading(directory: Path, given: argparse.Namespace) -> Measured:
    found = reading.reading(directory, given.records, given.repeats)
    name = "a consumer in a group: rate / assigned"
    return {**found._asdict(), "ratio": found.ratio}, [Limit(name, found.ratio, MIN_READING_RATIO, "", True)]


def _failover(directory: Path, given: argparse.Namespace) -> Measured:
    found = failover.failover(directory, given.members)
    limits = [
        Limit(
            f"coordinator killed: {one.members} {kind} members go on, from the election",
            one.after_election_s,
            MAX_AFTER_ELECTION_S,
            "s",
            False,
        )
        for kind, one in found.items()
    ]
    return {kind: one._asdict() for kind, one in found.items()}, limits


def _loading(directory: Path, given: argparse.Namespace) -> Measured:
    found = loading.loading(directory, given.loaded)
    name = f"a shard of {found.records:,} records, {found.keys:,} keys"
    return found._asdict(), [
        Limit(f"{name}: loaded", found.load_s, MAX_LOAD_S, "s", False),
        Limit(
            f"{name}: slowest produce meanwhile, above the usual",
            found.slowest_ms - found.usual_ms,
            MAX_LATER_MS,
            "ms",
            False,
        ),
    ]


PARTS: Final[Mapping[str, Part]] = {
    "rebalance": _rebalance,
    "commits": _commits,
    "reading": _reading,
    "failover": _failover,
    "loading": _loading,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.groups", "What consumer groups cost, and how soon they are whole again.", PARTS)
    parser.add_argument("--groups", type=int, default=20, help="of each protocol (default %(default)s)")
    parser.add_argument("--members", type=int, default=50, help="of each group (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="rebalances, readings (default %(default)s)")
    parser.add_argument("--watch-s", type=int, default=30, help="of heartbeats (default %(default)s)")
    parser.add_argument(
        "--commits", type=int, default=100_000, help="of the part commits (default %(default)s)"
    )
    parser.add_argument("--records", type=int, default=1_500_000, help="to read (default %(default)s)")
    parser.add_argument(
        "--loaded", type=int, default=1_000_000, help="commits that a shard has (default %(default)s)"
    )
    given = parser.parse_args(arguments)
    counted = ("groups", "members", "repeats", "watch_s", "commits", "records", "loaded")
    whole_numbers(parser, given, counted)
    if given.repeats > given.groups:
        parser.error("--repeats is at most --groups: each rebalance has a group of its own")
    least = loading.PARTITIONS * loading.ROUNDS
    if given.loaded % least:
        parser.error(f"--loaded is a multiple of {least}")
    return run_parts(PARTS, given)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
