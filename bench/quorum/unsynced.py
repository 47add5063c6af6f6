"""`python -m bench.quorum.unsynced FILE`: a node whose fsyncs do nothing, which shows the cost of fsync.

For the benchmark alone: such a node loses acknowledged metadata when the power fails.
"""

from __future__ import annotations

import os
import sys

from kraft.cli.server import run_server


def _do_nothing(_descriptor: int) -> None:
    return None


def main() -> int:
    os.fsync = os.fdatasync = _do_nothing  # type: ignore[assignment]
    return run_server(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
