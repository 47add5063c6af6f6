"""The overview that `kraft top` shows, from two looks at a cluster. Pure.

Rates are of high watermarks: records that consumers can see, by second, between the two looks. A partition that one of
them lacks counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kraft.cli.health.problems import ClusterSeen, problems
from kraft.cli.shared.tables import GAP, Rows
from kraft.cluster_problems import Problem, bytes_text
from partitions.topic_partition import TopicPartition

NAME_LEAST: Final = 16
"""Characters of a topic's name that are shown, however narrow the terminal."""


@dataclass(frozen=True)
class Sample:
    """One look; `at_s` of a clock that never goes back."""

    at_s: float
    seen: ClusterSeen
    ends: Mapping[TopicPartition, int]
    """High watermarks."""


class BrokerRow(NamedTuple):
    id: int
    state: str
    """running, fenced, or silent."""
    is_controller: bool
    leads: int
    replicas: int
    out_of_sync: int
    """Replicas of it that are not in their ISR."""
    used_bytes: int | None
    """Of its disks; None where they do not tell."""
    total_bytes: int | None


class TopicRow(NamedTuple):
    name: str
    partitions: int
    records_per_s: float | None
    """None before the second look."""
    records: int
    """The sum of high watermarks: records that were ever written."""
    troubled: int
    """Partitions without a leader or with an ISR that is not complete."""


@dataclass(frozen=True)
class Overview:
    cluster_id: str
    controller: int | None
    problems: Sequence[Problem]
    brokers: Sequence[BrokerRow]
    topics: Sequence[TopicRow]
    """The busiest first, then by name."""
    records_per_s: float | None

    def document(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "records_per_s": self.records_per_s,
            "problems": [one._asdict() for one in self.problems],
            "brokers": [one._asdict() for one in self.brokers],
            "topics": [one._asdict() for one in self.topics],
        }


def overview(before: Sample | None, now: Sample) -> Overview:
    """`before`: None at the first look."""
    seen = now.seen
    topics = sorted(_topics(before, now), key=lambda row: (-(row.records_per_s or 0.0), row.name))
    rates = [row.records_per_s for row in topics if row.records_per_s is not None]
    leader_id = -1 if seen.quorum is None else seen.quorum.leader_id
    controller = None if leader_id < 0 else leader_id
    return Overview(
        seen.cluster_id,
        controller,
        problems(seen),
        [_broker(broker, seen, controller) for broker in seen.brokers],
        topics,
        None if before is None else sum(rates),
    )


def _topics(before: Sample | None, now: Sample) -> Iterator[TopicRow]:
    grown: dict[str, int] = {}
    ends: dict[str, int] = {}
    for key, end in now.ends.items():
        ends[key.topic] = ends.get(key.topic, 0) + end
        if before is not None and key in before.ends:
            grown[key.topic] = grown.get(key.topic, 0) + max(0, end - before.ends[key])
    counts: dict[str, int] = {}
    troubled: dict[str, int] = {}
    for one in now.seen.partitions:
        counts[one.topic] = counts.get(one.topic, 0) + 1
        is_troubled = one.leader < 0 or len(one.isr) < len(one.replicas) - one.adding
        troubled[one.topic] = troubled.get(one.topic, 0) + is_troubled
    for name, count in counts.items():
        rate = None if before is None else grown.get(name, 0) / (now.at_s - before.at_s)
        yield TopicRow(name, count, rate, ends.get(name, 0), troubled[name])


def _broker(broker: int, seen: ClusterSeen, controller: int | None) -> BrokerRow:
    state = "fenced" if broker not in seen.live else "silent" if broker in seen.silent else "running"
    disks = [one for one in seen.directories if one.broker == broker and one.total_bytes >= 0]
    total = sum(one.total_bytes for one in disks) if disks else None
    used = sum(one.total_bytes - one.usable_bytes for one in disks) if disks else None
    replicas = [one for one in seen.partitions if broker in one.replicas]
    return BrokerRow(
        broker,
        state,
        broker == controller,
        sum(one.leader == broker for one in replicas),
        len(replicas),
        sum(broker not in one.isr for one in replicas),
        used,
        total,
    )


def head_line(view: Overview) -> str:
    """The cluster in one line."""
    live = sum(row.state == "running" for row in view.brokers)
    controller = "none" if view.controller is None else view.controller
    rate = "" if view.records_per_s is None else f", {view.records_per_s:,.0f} records/s"
    return (
        f"cluster {view.cluster_id}, controller {controller}, {live} of {len(view.brokers)} brokers,"
        f" topics: {len(view.topics)}, partitions: {sum(row.partitions for row in view.topics)}{rate}"
    )


def broker_table(view: Overview) -> Rows:
    table = Rows(("broker", "state", "controller", "leads", "replicas", "out of sync", "disk used", "of"))
    for row in view.brokers:
        used = "" if row.used_bytes is None else bytes_text(row.used_bytes)
        total = "" if row.total_bytes is None else bytes_text(row.total_bytes)
        table.add(
            str(row.id),
            row.state,
            "active" if row.is_controller else "",
            str(row.leads),
            str(row.replicas),
            str(row.out_of_sync or ""),
            used,
            total,
        )
    return table


def topic_table(view: Overview, rows_max: int, columns_max: int | None) -> Rows:
    """The busiest `rows_max`; within so many columns of a terminal long names are cut."""
    names = ("topic", "partitions", "records/s", "records", "troubled")
    rows = [
        [
            topic.name,
            str(topic.partitions),
            "" if topic.records_per_s is None else f"{topic.records_per_s:,.0f}",
            f"{topic.records:,}",
            str(topic.troubled or ""),
        ]
        for topic in view.topics[:rows_max]
    ]
    if columns_max is not None:
        others = [column for column in zip(names, *rows, strict=True) if any(column[1:])][1:]
        room = columns_max - sum(len(GAP) + max(map(len, column)) for column in others)
        for row in rows:
            row[0] = _cut(row[0], max(NAME_LEAST, room))
    table = Rows(names)
    for row in rows:
        table.add(*row)
    return table


def _cut(name: str, length: int) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"
