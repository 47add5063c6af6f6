"""`/api/overview`: what is wrong first, then what there is. Found out once for all who look, then shown to each as far
as the user may see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraft.broker.views.history import summed_history, summed_rates
from kraft.cluster_problems import (
    DirectorySeen,
    Problem,
    fenced,
    group_still,
    no_controller,
    of_directories,
    silent,
    voter_lagging,
    voter_silent,
)
from kraft.http.console.asking import Remembered
from kraft.http.console.brokers import Brokers
from kraft.http.console.cluster import Cluster, Document
from kraft.http.console.structure import (
    NAMED_MAX,
    OFFLINE,
    STATES,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    Structure,
    partition_problems,
)

PROBLEMS_OF_A_KIND_MAX: Final = NAMED_MAX
"""A broker that is down takes thousands of partitions along, which must not hide what else is wrong."""
VOTER_SILENT_MS: Final = 5_000
"""A voter that lives is heard of several times a second."""
VOTER_LAGS_MS: Final = 10_000
SUMMED: Final = ("groups", "connections", "size_bytes")
TOTALS: Final = ("topics", "partitions", *STATES, *SUMMED)
NO_SUBJECT: Final = {"topic": None, "partition": None, "broker": None, "group": None}


@dataclass(frozen=True)
class Seen:
    """One look."""

    at_ms: int
    structure: Structure
    brokers: Sequence[Document]
    quorum: Document | None
    views: Mapping[int, Document | None]


@dataclass(frozen=True)
class Rights:
    """What the user may see."""

    cluster: bool
    topic: Callable[[str], bool]
    group: Callable[[str], bool]
    principal: str | None
    """None where there is no authorizer."""


class Overviews:
    """Of one node's console."""

    def __init__(self, cluster: Cluster, brokers: Brokers) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._looks: Remembered[Seen] = Remembered()

    async def document(self, rights: Rights, *, history: bool = True) -> Document:
        """As `rights` let it be seen."""
        seen = await self._looks.get("overview", self._look)
        node = self._cluster.node
        problems, counts = found_problems(seen, rights)
        views = [view for view in seen.views.values() if view is not None] if rights.cluster else []
        document = {
            "at_ms": seen.at_ms,
            "cluster_id": node.cluster_id,
            "node_id": node.config.node_id,
            "roles": list(node.config.roles),
            "controller_id": self._cluster.controller_id,
            "metadata_offset": seen.structure.image.offset,
            "principal": rights.principal,
            **self._cluster.measured(),
            "problems": [
                {**problem._asdict(), **NO_SUBJECT, **subject}
                for problem, subject in first_of_each_kind(problems)
            ],
            "problem_counts": dict(counts),
            "brokers": list(seen.brokers) if rights.cluster else [],
            "quorum": seen.quorum if rights.cluster else None,
            "totals": _totals(seen.structure, views) if rights.cluster else dict.fromkeys(TOTALS),
            "rates": summed_rates([view["rates"] for view in views]),
        }
        if history:
            document["history"] = summed_history([view["history"] for view in views])
        return document

    async def _look(self) -> Seen:
        views = await self._cluster.live_views("summary", {"history": True})
        quorum = await self._cluster.quorum()
        structure = await self._cluster.structure()
        brokers = await self._brokers.rows(views)
        return Seen(self._cluster.now_ms(), structure, brokers, quorum, views)

    async def close(self) -> None:
        await self._looks.close()


def _totals(structure: Structure, views: Sequence[Document]) -> Document:
    return {
        "topics": len(structure.topics),
        "partitions": structure.totals["partitions"],
        **{state: structure.totals[state] for state in STATES},
        **{key: sum(view[key] for view in views) if views else None for key in SUMMED},
    }


def first_of_each_kind(
    problems: Sequence[tuple[Problem, dict[str, Any]]],
) -> Iterator[tuple[Problem, dict[str, Any]]]:
    """The first of each kind, in the order of all."""
    told: Counter[str] = Counter()
    for problem, subject in problems:
        if told[problem.kind] < PROBLEMS_OF_A_KIND_MAX:
            told[problem.kind] += 1
            yield problem, subject


def found_problems(
    seen: Seen, rights: Rights
) -> tuple[Sequence[tuple[Problem, dict[str, Any]]], Mapping[str, int]]:
    """Each with what it is about: causes first, then partitions, the worst first; and how many there are by kind, in
    the same order. Of partitions not all are named."""
    causes = [*_of_brokers(seen), *_of_quorum(seen), *_of_disks(seen)] if rights.cluster else []
    groups = list(_of_groups(seen, rights.group))
    named, counts = partition_problems(seen.structure, rights.topic)
    counts.update(problem.kind for problem, _ in (*causes, *groups))
    worst, rest = (
        [
            (problem, {"topic": topic, "partition": n})
            for state in states
            for problem, topic, n in named[state]
        ]
        for states in ((OFFLINE, UNDER_MIN_ISR), (UNDER_REPLICATED,))
    )
    found = [*causes, *worst, *groups, *rest]
    return found, {problem.kind: counts[problem.kind] for problem, _ in found}


def _of_brokers(seen: Seen) -> Iterator[tuple[Problem, dict[str, Any]]]:
    for state, problem in (("fenced", fenced), ("silent", silent)):
        for broker in seen.brokers:
            if broker["state"] == state:
                yield problem(broker["id"]), {"broker": broker["id"]}


def _of_quorum(seen: Seen) -> Iterator[tuple[Problem, dict[str, Any]]]:
    quorum = seen.quorum
    if quorum is None or quorum["leader_id"] is None or quorum["leader_id"] < 0:
        yield no_controller(), {}
        return
    for voter in quorum["voters"]:
        heard_ms, caught_up_ms = voter["last_fetch_at_ms"], voter["last_caught_up_at_ms"]
        leader_ms = max((one["last_caught_up_at_ms"] or 0 for one in quorum["voters"]), default=0)
        if voter["is_leader"] or not leader_ms:
            continue  # or this node does not know
        if heard_ms is None or leader_ms - heard_ms > VOTER_SILENT_MS:
            yield voter_silent(voter["id"]), {"broker": voter["id"]}
        elif voter["lag"] and leader_ms - (caught_up_ms or 0) > VOTER_LAGS_MS:
            yield voter_lagging(voter["id"], voter["lag"]), {"broker": voter["id"]}


def _of_disks(seen: Seen) -> Iterator[tuple[Problem, dict[str, Any]]]:
    for broker_id, view in seen.views.items():
        for one in (view or {}).get("log_dirs", ()):
            total, usable = one["total_bytes"], one["usable_bytes"]
            room = (-1, -1) if total is None or usable is None else (total, usable)
            for problem in of_directories([DirectorySeen(broker_id, one["path"], one["error"], *room)]):
                yield problem, {"broker": broker_id}


def _of_groups(seen: Seen, may_see: Callable[[str], bool]) -> Iterator[tuple[Problem, dict[str, Any]]]:
    for view in seen.views.values():
        for one in (view or {}).get("still_groups", ()):
            if may_see(one["group_id"]):
                for_s = max(0, seen.at_ms - one["since_ms"]) // 1000
                yield group_still(one["group_id"], one["lag"], for_s), {"group": one["group_id"]}
