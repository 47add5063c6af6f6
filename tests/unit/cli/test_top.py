"""What `kraft top` shows of two looks at a cluster."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from kraft.cli.health.problems import ClusterSeen
from kraft.cli.quorum.view import QuorumNode, QuorumView
from kraft.cli.top.command import drawn
from kraft.cli.top.overview import BrokerRow, Overview, Sample, TopicRow, overview
from kraft.cluster_problems import DirectorySeen, PartitionSeen
from partitions.topic_partition import TopicPartition

QUORUM = QuorumView("c", 2, 4, 10, [QuorumNode(2, bytes(16), 10, 1, 1)], [])


def seen(*partitions: PartitionSeen) -> ClusterSeen:
    disks = [DirectorySeen(1, "/data", None, 1000, 400), DirectorySeen(2, "/data", None, -1, -1)]
    return ClusterSeen("c", [1, 2, 3], [1, 2], [], QUORUM, partitions, disks)


def partition(topic: str, number: int, leader: int, isr: list[int]) -> PartitionSeen:
    return PartitionSeen(topic, number, leader, isr, [1, 2], 0, 1)


def ends(**counts: list[int]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, number): end
        for topic, each in counts.items()
        for number, end in enumerate(each)
    }


PARTITIONS = (partition("quiet", 0, 1, [1, 2]), partition("busy", 0, 2, [2]), partition("busy", 1, 1, [1, 2]))
FIRST = Sample(10.0, seen(*PARTITIONS), ends(quiet=[5], busy=[100, 50]))


def test_rates_need_two_looks_and_the_busiest_comes_first() -> None:
    assert [row.records_per_s for row in overview(None, FIRST).topics] == [None, None]
    view = overview(FIRST, Sample(12.0, seen(*PARTITIONS), ends(quiet=[5], busy=[300, 50])))
    assert view.topics == [TopicRow("busy", 2, 100.0, 350, 1), TopicRow("quiet", 1, 0.0, 5, 0)]
    assert view.records_per_s == 100.0
    anew = overview(FIRST, Sample(12.0, seen(*PARTITIONS), ends(quiet=[2], busy=[110])))
    assert anew.records_per_s == 5.0, "a topic made anew counts nothing, nor what one look lacks"


def test_brokers_and_what_is_wrong() -> None:
    view = overview(None, FIRST)
    assert view.brokers == [
        BrokerRow(1, "running", False, 2, 3, 1, 600, 1000),
        BrokerRow(2, "running", True, 1, 3, 0, None, None),
        BrokerRow(3, "fenced", False, 0, 0, 0, None, None),
    ]
    assert [one.kind for one in view.problems] == ["broker-fenced", "under-replicated"]
    assert view.document()["brokers"][1]["is_controller"] is True


def shown(view: Overview | None, why: str | None = None) -> list[str]:
    """On a terminal of 80 columns and 30 lines."""
    screen = Console(file=io.StringIO(), width=80, height=30)
    screen.print(drawn(view, why, 80, 30))
    lines: list[str] = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    return lines


def test_long_names_and_sentences_leave_the_rest_where_it_is() -> None:
    long = [partition("a-topic-" + "x" * 200, number, -1, []) for number in range(4)]
    many = [partition(f"topic-{number:03}", 0, 1, [1, 2]) for number in range(100)]
    before, now = (
        Sample(at_s, seen(*long, *many), ends(**{"topic-007": [end]})) for at_s, end in ((1, 0), (2, 9))
    )
    view = replace(overview(before, now), cluster_id="c" * 22)
    lines = shown(view)
    assert "records/s" in lines[1], "the second line of the head"
    (header,) = (line for line in lines if line.startswith("topic "))
    assert header.split() == ["topic", "partitions", "records/s", "records", "troubled"]
    row = lines.index(header) + 1
    assert lines[row].split() == ["topic-007", "1", "9", "9"]
    assert lines[row + 1].startswith("a-topic-xxx")
    assert lines[row + 1].split()[0].endswith("x…")
    assert lines[-1].endswith(" more topics")


def test_it_fits_the_terminal() -> None:
    many = [partition(f"topic-{number:03}", 0, 1, [1]) for number in range(100)]
    view = overview(None, Sample(10.0, seen(*many), {}))
    lines = shown(view, "broker 1 is gone")
    assert lines[0] == "no answer: broker 1 is gone"
    assert any("… and 97 more: under-replicated" in line for line in lines)
    assert lines[-1].startswith("… and ")
    assert lines[-1].endswith(" more topics")
    assert "no broker answers" in "".join(shown(None, "no broker answers"))
