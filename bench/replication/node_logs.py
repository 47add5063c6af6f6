"""The times of lines in nodes' logs: the moments between a fault and its cure that no client sees.

Times are wall-clock seconds of this machine, to be compared with `time.time()`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from bench.brokers import Cluster
from bench.errors import BenchError
from kraft.local_cluster.cluster import deadline

SESSION_ENDED = "a broker's session has ended"
LEADS = "leads partition="
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_SECONDS_CHARACTERS = 19
_TIMEOUT_S = 30.0


def times_s(brokers: Cluster, node_ids: Sequence[int], text: str, since_s: float) -> list[float]:
    """When these nodes wrote a line with `text` at or after `since_s`, ascending."""
    found = (at for node_id in node_ids for at in _times_s(brokers, node_id, text))
    return sorted(at for at in found if at >= since_s)


def first_s(brokers: Cluster, node_ids: Sequence[int], text: str, since_s: float) -> float:
    """The first of those, waited for a little. Raises BenchError if there is none."""
    for _ in deadline(_TIMEOUT_S):
        if found := times_s(brokers, node_ids, text, since_s):
            return found[0]
    raise BenchError(f"no node wrote {text!r} into its log")


def _times_s(brokers: Cluster, node_id: int, text: str) -> Iterator[float]:
    path = brokers.local.node_dir(node_id) / "server.log"
    with path.open(errors="replace") as lines:
        for line in lines:
            if text in line:
                whole_s = time.mktime(time.strptime(line[:_SECONDS_CHARACTERS], _TIME_FORMAT))
                yield whole_s + float("0" + line[_SECONDS_CHARACTERS:].partition(" ")[0])
