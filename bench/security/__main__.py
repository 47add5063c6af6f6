"""The command `python -m bench.security`: it runs the measures, prints them or JSON, and checks the limits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.limits import Limit
from bench.parts import Measured, Part, end_on_sigterm, parser_of, run_parts, whole_numbers
from bench.rows import PARTITIONS
from bench.security import connections, permissions, tls

MIN_TLS_RATIO = 0.5
MIN_GUARDED_RATIO = 0.95
MAX_GUARDED_CPU_RATIO = 1.05
MIN_CONNECTS_PER_S = 150.0
MAX_LATER_MS = 20.0
MAX_CONNECTION_KIB = 64.0


def _tls(directory: Path, given: argparse.Namespace) -> Measured:
    found = tls.tls(directory, given.records, given.pairs, given.costs_gb)
    return found, [
        Limit(f"TLS, {kind}: rate / plaintext", found[kind]["rate"], MIN_TLS_RATIO, "", True)
        for kind in ("produce", "consume")
    ]


def _permissions(directory: Path, given: argparse.Namespace) -> Measured:
    found = permissions.permissions(directory, given.records, given.pairs, given.acls, given.users)
    names = {
        "guarded": "authorizer and quotas, no ACL",
        "crowded": f"{given.acls:,} ACLs, {given.users:,} users",
    }
    limits = []
    for way, name in names.items():
        for part, title in (("produced", "produce"), ("consumed", "consume")):
            rate, cpu = found[way][part]["rate"], found[way][part]["cpu"]
            limits += [
                Limit(f"{name}, {title}: rate / without", rate, MIN_GUARDED_RATIO, "", True),
                Limit(f"{name}, {title}: CPU per GB / without", cpu, MAX_GUARDED_CPU_RATIO, "", False),
            ]
    return found, limits


def _connects(directory: Path, given: argparse.Namespace) -> Measured:
    found = connections.connects(directory, given.connects, given.pairs)
    plain = found["SASL"]
    later_ms = plain["slowest_ms"] - plain["usual_ms"]
    return found, [
        Limit("SCRAM authentications", plain["connects_per_s"], MIN_CONNECTS_PER_S, "/s", True),
        Limit("the slowest produce meanwhile, above the usual", later_ms, MAX_LATER_MS, "ms", False),
    ]


def _silent(directory: Path, given: argparse.Namespace) -> Measured:
    found = connections.silent(directory, given.connections)
    name = f"one of {given.connections:,} silent connections"
    return found, [
        Limit(name, found["PLAINTEXT"]["kib_each"], MAX_CONNECTION_KIB, "KiB", False),
        Limit(f"{name}, TLS", found["TLS"]["kib_each"], MAX_CONNECTION_KIB, "KiB", False),
    ]


PARTS: Final[Mapping[str, Part]] = {
    "tls": _tls,
    "permissions": _permissions,
    "connects": _connects,
    "silent": _silent,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.security", "What security costs.", PARTS)
    parser.add_argument("--records", type=int, default=6_000_000, help="of a run (default %(default)s)")
    parser.add_argument(
        "--pairs", type=int, default=5, help="of runs that are compared (default %(default)s)"
    )
    parser.add_argument(
        "--costs-gb", type=float, default=2.0, help="to copy and to encrypt (default %(default)s)"
    )
    parser.add_argument("--acls", type=int, default=10_000, help="default %(default)s")
    parser.add_argument("--users", type=int, default=1_000, help="default %(default)s")
    parser.add_argument("--connects", type=int, default=2_000, help="of a run (default %(default)s)")
    parser.add_argument(
        "--connections", type=int, default=5_000, help="that are silent (default %(default)s)"
    )
    given = parser.parse_args(arguments)
    whole_numbers(parser, given, ("records", "pairs", "acls", "users", "connects", "connections"))
    if given.records % PARTITIONS:
        parser.error(f"--records is a multiple of {PARTITIONS}")
    if not given.costs_gb > 0:
        parser.error("--costs-gb is above 0")
    return run_parts(PARTS, given)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
