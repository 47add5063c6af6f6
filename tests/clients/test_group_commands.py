"""`kraft consume --group` and `kraft groups` on a real cluster, with groups of both protocols."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft.cli.app import run
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED
from tests.support.node_processes import PATIENCE, NodeProcesses, until

COMMAND_S = 120
PARTITIONS = 4
RECORDS = 400
SESSION_MS = 12_000
SETTINGS = PATIENCE | {
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
JOINING = {
    "classic": ("--property", f"session.timeout.ms={SESSION_MS}", "--property", "heartbeat.interval.ms=1000"),
    "consumer": ("--group-protocol", "consumer"),
}
both_protocols = pytest.mark.parametrize("protocol", list(JOINING))


@pytest.fixture(scope="module")
def groups_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    """Three nodes, on which sessions are short."""
    with contextlib.closing(NodeProcesses(tmp_path_factory.mktemp("groups"), settings=SETTINGS)) as running:
        yield running


class Commands:
    """`kraft …` on the cluster: what reads and writes records as processes, what asks and changes in this one."""

    def __init__(self, cluster: NodeProcesses, captured: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = ("--bootstrap-server", cluster.bootstrap)
        self._captured = captured

    def line(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "kraft.cli.entry", *arguments, *self._bootstrap]

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Runs one to its end; returns its standard output."""
        done = subprocess.run(
            self.line(*arguments), input=stdin, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        assert done.returncode == EXIT_DONE, f"{arguments}: {done.stderr}"
        return done.stdout

    def groups(self, *arguments: str, exit_code: int = EXIT_DONE) -> str:
        """`kraft groups …`; returns its standard output. What no broker tells in time is asked again."""

        def once() -> tuple[int, str, str] | None:
            self._captured.readouterr()
            ended = run(["groups", *arguments, *self._bootstrap])
            is_unanswered = ended == EXIT_UNDECIDED and arguments[0] in ("describe", "list")
            return None if is_unanswered else (ended, *self._captured.readouterr())

        ended, output, errors = until(once, f"{arguments} is answered")
        assert ended == exit_code, f"{arguments}: {errors}"
        return str(output)

    def told(self, *arguments: str) -> Any:
        """The JSON object that `kraft groups` prints."""
        return json.loads(self.groups(*arguments, "--json"))

    def produce(self, topic: str, lines: range) -> None:
        """With keys, so that every partition gets some."""
        self.run(
            "produce", topic, "--key-separator", ":", stdin="".join(f"{line}:{line}\n" for line in lines)
        )

    def committed(self, group: str) -> dict[int, int]:
        """By partition."""
        offsets = self.told("describe", group)["offsets"]
        return {row["partition"]: row["current"] for row in offsets if row["current"] is not None}

    def owned(self, group: str) -> list[int]:
        """How many partitions each member has, while the group is stable."""
        group_now = self.told("describe", group)
        if group_now["state"] != "Stable":
            return []
        return sorted(len(member["partitions"]) for member in group_now["members"])


@pytest.fixture
def kraft(groups_cluster: NodeProcesses, capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(groups_cluster, capfd)


class Consuming:
    """A `kraft consume` that runs, and what it has printed."""

    def __init__(self, kraft: Commands, output: Path, *arguments: str) -> None:
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(kraft.line("consume", *arguments), stdout=file)

    @property
    def lines(self) -> list[int]:
        return [int(line) for line in self._output.read_text().splitlines()]

    def ended(self, number: int) -> int:
        """Its exit code, after a signal."""
        self.process.send_signal(number)
        return self.process.wait(COMMAND_S)


@pytest.fixture
def consuming(kraft: Commands, tmp_path: Path) -> Iterator[Any]:
    """Starts one; those that still run at the end of the test are killed."""
    started: list[Consuming] = []

    def start(*arguments: str) -> Consuming:
        started.append(Consuming(kraft, tmp_path / f"{len(started)}.out", *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.ended(signal.SIGKILL)


@both_protocols
def test_two_members_share_a_topic_and_one_killed_leaves_its_part_to_the_other(
    groups_cluster: NodeProcesses, kraft: Commands, consuming: Any, protocol: str
) -> None:
    topic, group = groups_cluster.create_topic("shared", PARTITIONS), f"two-{protocol}"
    member = (topic, "--group", group, "--from-beginning", *JOINING[protocol])
    first, second = consuming(*member), consuming(*member)
    until(
        lambda: kraft.owned(group) == [2, 2] if has_group(kraft, group) else False, "each has two partitions"
    )

    kraft.produce(topic, range(RECORDS))
    until(lambda: len(first.lines) + len(second.lines) >= RECORDS, "all is read")
    assert sorted(first.lines + second.lines) == list(range(RECORDS)), "each record once"
    assert first.lines
    assert second.lines
    ends_stored = sum(kraft.told("describe", group)["offsets"][number]["log_end"] for number in range(4))
    assert ends_stored == RECORDS
    until(
        lambda: sum(kraft.committed(group).values()) == RECORDS,
        "what was written is committed from time to time",
    )
    for refused in (
        ("reset-offsets", group, "--all-topics", "--to-earliest", "--execute"),
        ("delete", group),
        ("delete-offsets", group, "--topic", topic),
    ):
        kraft.groups(*refused, exit_code=EXIT_FAILED)
    assert sum(kraft.committed(group).values()) == RECORDS

    assert first.ended(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: kraft.owned(group) == [PARTITIONS], "the other has all partitions")
    kraft.produce(topic, range(RECORDS, RECORDS + 100))
    until(lambda: set(range(RECORDS, RECORDS + 100)) <= set(second.lines), "it reads on in all of them")
    assert Counter(second.lines).most_common(1)[0][1] == 1, "and nothing twice"

    assert second.ended(signal.SIGTERM) == EXIT_DONE
    left = kraft.told("describe", group)
    assert (left["state"], left["members"], left["type"]) == ("Empty", [], protocol)
    assert [(row["lag"], row["lag_s"]) for row in left["offsets"]] == [(0, None)] * PARTITIONS


def has_group(kraft: Commands, group: str) -> bool:
    return group in {row["group"] for row in kraft.told("list")["groups"]}


@both_protocols
def test_a_group_from_its_first_offset_to_its_deletion(
    groups_cluster: NodeProcesses, kraft: Commands, protocol: str
) -> None:
    topic, group = groups_cluster.create_topic("tour", PARTITIONS), f"tour-{protocol}"
    kraft.produce(topic, range(RECORDS))
    join = ("consume", topic, "--group", group, *JOINING[protocol])
    assert kraft.run(*join, "--exit-at-end") == "", "without --from-beginning it begins at the end"
    kraft.groups("describe", group)
    kraft.groups("delete", group)

    read = kraft.run(*join, "--from-beginning", "--max", "30").splitlines()
    assert sum(kraft.committed(group).values()) == len(read) == 30
    read += kraft.run(*join, "--from-beginning", "--exit-at-end").splitlines()
    assert sorted(map(int, read)) == list(range(RECORDS)), "it went on where it was"
    listed = [row for row in kraft.told("list", "--type", protocol)["groups"] if row["group"] == group]
    assert listed == [{"group": group, "type": protocol, "state": "Empty", "protocol": "consumer"}]
    ends = kraft.committed(group)
    assert sum(ends.values()) == RECORDS

    reset = ("reset-offsets", group)
    planned = kraft.told(*reset, "--all-topics", "--to-earliest")
    changes = [
        {"topic": topic, "partition": number, "from": ends[number], "to": 0} for number in range(PARTITIONS)
    ]
    assert planned == {"group": group, "changes": changes, "executed": False}
    assert kraft.committed(group) == ends, "nothing has changed"
    assert kraft.told(*reset, "--all-topics", "--to-earliest", "--execute") == {**planned, "executed": True}
    behind = kraft.told("describe", group)["offsets"]
    assert [(row["current"], row["lag"]) for row in behind] == [
        (0, ends[number]) for number in range(PARTITIONS)
    ]
    assert all(row["lag_s"] >= 0 for row in behind)
    kraft.told(*reset, "--topic", f"{topic}:1", "--shift-by", "7", "--execute")
    kraft.told(*reset, "--topic", f"{topic}:2,3", "--to-datetime", "2100-01-01T00:00:00", "--execute")
    assert kraft.committed(group) == {0: 0, 1: 7, 2: ends[2], 3: ends[3]}
    kraft.told(*reset, "--topic", topic, "--by-duration", "PT12H", "--execute")
    assert set(kraft.committed(group).values()) == {0}
    kraft.run(
        "groups", *reset, "--from-file", "-", "--execute", stdin=f"{topic},0,3\n{topic},1,{RECORDS * 2}\n"
    )
    assert kraft.committed(group) == {0: 3, 1: ends[1], 2: 0, 3: 0}
    assert len(kraft.run(*join, "--exit-at-end").splitlines()) == ends[0] - 3 + ends[2] + ends[3]

    kraft.groups("delete-offsets", group, "--topic", f"{topic}:0")
    assert sorted(kraft.committed(group)) == [1, 2, 3]
    assert kraft.told("delete", group) == {"groups": [{"group": group}]}
    kraft.groups("describe", group, exit_code=EXIT_FAILED)
    assert not has_group(kraft, group)


@both_protocols
def test_a_member_that_stands_still_is_removed(
    groups_cluster: NodeProcesses, kraft: Commands, consuming: Any, protocol: str
) -> None:
    topic, group = groups_cluster.create_topic("stuck", PARTITIONS), f"stuck-{protocol}"
    stuck = consuming(topic, "--group", group, "--instance-id", "first", *JOINING[protocol])
    until(lambda: has_group(kraft, group) and kraft.owned(group) == [PARTITIONS], "it has all partitions")
    stuck.process.send_signal(signal.SIGSTOP)
    removed = kraft.told("remove-member", group, "--instance", "first")
    assert [(member["instance_id"], member.get("error")) for member in removed["members"]] == [
        ("first", None)
    ]
    kraft.groups("remove-member", group, "--instance", "first", exit_code=EXIT_FAILED)
    assert kraft.told("describe", group)["members"] == []


def test_where_a_group_without_offsets_begins(groups_cluster: NodeProcesses, kraft: Commands) -> None:
    topic = groups_cluster.create_topic("begins")
    kraft.produce(topic, range(100))
    for protocol, joining in JOINING.items():
        join = (
            "consume",
            topic,
            "--group",
            f"begins-{protocol}",
            *joining,
            "--exit-at-end",
            "--offset",
            "-5",
        )
        assert kraft.run(*join).split() == ["95", "96", "97", "98", "99"]
        assert kraft.run(*join) == "", "it has offsets now"
