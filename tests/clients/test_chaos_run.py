"""Experiments on real nodes: what holds is held, a broken build is caught, what is not seen is undecided, and nothing
of a run stays on the host. The machine that runs the tests may starve a run; no other evidence may be missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kraft.chaos.real.method as method
import kraft.chaos.real.run as run
from kraft.chaos.experiments.document import Experiment, load
from kraft.chaos.experiments.evidence import FinalRead, Starvation
from kraft.chaos.experiments.verdict import Reason, Verdict, judge
from kraft.chaos.real import namespaces
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.cluster import ChaosCluster
from kraft.chaos.real.faults import Aim
from kraft.chaos.real.faults.processes import Down
from kraft.chaos.real.folders import CLUSTER, clean_up
from kraft.local_cluster.cluster import LocalCluster
from kraft.local_cluster.node_process import process_stat
from tests.support.node_processes import until
from tests.support.source_tree import ROOT

SEED, PLAYS = 1, 3
BROKEN_BUILDS = ROOT / "tests/support/broken_builds"
FILE = """
experiment: {name}
teaches: What a test wants to see.
backends: [real]
duration: {seconds}s
steady: 2s
cluster:
  nodes: 3
  settings: {{offsets.topic.num.partitions: 1, transaction.state.log.num.partitions: 1}}
  topics:
    orders: {{partitions: 2, replicas: 3, configs: {{min.insync.replicas: 2}}}}
workload:
{workload}
method:
{method}
expect: held
"""
IDEMPOTENT = "{kind: idempotent-producer, topic: orders, rate: 100/s}"
CONSUMER = "{kind: consumer, topic: orders}"
GROUP = "{kind: group, topic: orders, group: readers, clients: 2}"
TRANSACTIONAL = "{kind: transactional-producer, topic: orders, transactional-id: payer, rate: 50/s}"
STORM = "{kind: connection-storm, rate: 20/s, clients: 20}"
SLOW = "{kind: slow-consumer, topic: orders, bandwidth: 2MB/s}"
KILL = "{fault: kill, target: leader of orders-0, at: 1s, for: 3s}"


def file_of(name: str, workload: list[str], method: list[str], seconds: int = 5) -> str:
    def listed(lines: list[str]) -> str:
        return "\n".join(f"  - {line}" for line in lines)

    return FILE.format(name=name, seconds=seconds, workload=listed(workload), method=listed(method))


def experiment_of(*args: Any) -> Experiment:
    return load(file_of(*args))


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """Where runs have their folders; whatever a test leaves there is removed."""
    yield tmp_path / "runs"
    clean_up(tmp_path / "runs")


def judged(
    experiment: Experiment, base: Path, *, secure: bool = False, violated: bool = False
) -> tuple[Verdict, list[Reason]]:
    """The verdict, and its reasons but for what a busy machine explains. A run that says that it was starved, and not
    what it was played for (that all holds; that it is `violated`), proves nothing either way, and is played again."""
    for _ in range(PLAYS):
        verdict = judge(experiment, run.play(experiment, SEED, base=base, secure=secure))
        assert list(base.iterdir()) == [], "a run leaves nothing behind"
        reasons = [one for one in verdict.reasons if one.rule != "starved"]
        was_starved = len(reasons) < len(verdict.reasons)
        if not was_starved or verdict.verdict != "undecided" or not (reasons or violated):
            break
    return verdict, reasons


# -- what holds


def test_the_command_runs_and_judges_an_experiment(tmp_path: Path, base: Path) -> None:
    file = tmp_path / "leader-kill.yaml"
    file.write_text(file_of("leader-kill", [IDEMPOTENT, CONSUMER, STORM, SLOW], [KILL]))
    base.mkdir()
    arguments = ["run", str(file), "--backlog", "5MB", "--out", str(tmp_path / "out"), "--json"]
    done = kraft(arguments, base).communicate(timeout=400)[0]
    said = json.loads(done)
    assert [one["rule"] for one in said["reasons"] if one["rule"] != "starved"] == []
    assert said["acked"] > 100
    assert (said["lost"], said["doubled"], said["backend"]) == (0, 0, "real")
    counts = said["counts"]
    assert counts["connections"] >= 50
    assert 4_900_000 < counts["backlog_bytes"] <= 5_000_000 <= counts["backlog_read_bytes"], "it begins again"
    assert counts["memory_mb"] > 0
    (fault,) = said["faults"]
    assert fault["name"] == "kill"
    assert fault["took_effect"]
    assert "<svg" in Path(said["report"]).read_text()
    assert {one.name for one in (tmp_path / "out").glob("node-*.log")} == {f"node-{n}.log" for n in (1, 2, 3)}
    assert left_in(base) == []


def test_a_leader_whom_nobody_hears_is_replaced(base: Path) -> None:
    cut = "{fault: cut-off, target: leader of orders-0, from: nodes, direction: out, at: 1s, for: 7s}"
    experiment = experiment_of("zombie", [IDEMPOTENT, CONSUMER, GROUP], [cut], 9)
    verdict, reasons = judged(experiment, base)
    assert reasons == []
    assert verdict.counts["elections"] >= 1


def test_a_secured_cluster_is_played_as_every_other_one(base: Path) -> None:
    """Clients, probes, watchers and the fresh reader say who they are; relays carry what they cannot read."""
    experiment = experiment_of("secured", [IDEMPOTENT, CONSUMER, GROUP, STORM], [KILL], 12)
    verdict, reasons = judged(experiment, base, secure=True)
    assert reasons == []
    assert verdict.counts["connections"] >= 50


def test_transactions_have_one_outcome_though_their_coordinator_dies(base: Path) -> None:
    kill = "{fault: kill, target: coordinator of transaction payer, at: 2s, for: 8s}"
    verdict, reasons = judged(experiment_of("transactions", [TRANSACTIONAL, CONSUMER], [kill], 11), base)
    assert reasons == []
    assert verdict.counts["acked"] > 0


def test_disks_clocks_packets_and_cores_are_hurt_and_nothing_is_lost(base: Path) -> None:
    """In network namespaces, where this host has them. Faults overlap: each is proved, and its end, by itself."""
    hurt = [
        "{fault: slow-disk, target: all nodes, sync: 20ms, at: 1s, for: 6s}",
        "{fault: clock-offset, target: leader of orders-0, offset: -1h, at: 1s, for: 5s}",
        "{fault: cpu-pressure, target: all nodes, share: 20%, at: 1s, for: 3s}",
        "{fault: packet-loss, target: leader of orders-1, lost: 5%, at: 1s, for: 6s}",
        "{fault: cut-off, target: follower of orders-0, from: nodes, direction: in, at: 2s, for: 3s}",
        "{fault: failing-disk, target: leader of orders-0, at: 8s, for: 3s}",
    ]
    if namespaces.refusal():
        hurt = [one for one in hurt if "packet-loss" not in one]
    text = file_of("hurt", [IDEMPOTENT, CONSUMER], hurt, 12)
    network = "relays" if namespaces.refusal() else "namespaces"
    _, reasons = judged(load(text.replace("  nodes: 3", f"  nodes: 3\n  network: {network}")), base)
    assert reasons == []


# -- what is not


BROKEN = {
    "acks-all-at-leo": (
        [
            "{fault: cut-off, target: leader of orders-0, from: nodes, at: 1s, for: 3s}",
            "{fault: kill, target: node of step 1, at: 3s, for: 3s}",
        ],
        {"lost-write", "unseen", "inconsistent-offsets"},
    ),
    "no-dedupe": (
        [
            "{fault: cut-off, target: leader of orders-0, from: clients, direction: out, at: 1s, for: 3s}",
            "{fault: reset, target: node of step 1, from: clients, at: 3s}",
        ],
        {"duplicate", "inconsistent-offsets"},
    ),
}


@pytest.mark.parametrize("mutation", BROKEN)
def test_a_broken_build_is_caught(mutation: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of this run break one rule."""
    method, oracles = BROKEN[mutation]
    monkeypatch.setenv("BROKEN_BUILD", mutation)
    monkeypatch.setenv("PYTHONPATH", f"{BROKEN_BUILDS}:{ROOT}")
    verdict, _ = judged(experiment_of("broken", [IDEMPOTENT, CONSUMER], method, 8), base, violated=True)
    assert verdict.verdict == "violated"
    assert oracles & set(verdict.anomalies)


class Idle(Down):
    """A fault that does nothing."""

    def begin(self) -> None:
        self._pids = {node: self.aim.cluster.local.pid(node) for node in self.aim.nodes}


def test_what_nobody_saw_is_undecided(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that does nothing, clients that go around the relays, nobody who reads at the end: all are seen, and each
    alone is a reason."""

    def idle(aim: Aim) -> Idle:
        return Idle(aim)

    def around(cluster: ChaosCluster) -> Brokers:
        return Brokers(cluster.local.spec().bootstrap_servers())

    monkeypatch.setattr(method, "FAULTS", {"kill": idle})
    monkeypatch.setattr(ChaosCluster, "_reached", around)
    monkeypatch.setattr(run, "read_finally", lambda *_: None)
    experiment = experiment_of("unseen", [IDEMPOTENT], [KILL])
    evidence = run.play(experiment, SEED, base=base)
    verdict = judge(experiment, evidence)
    assert {one.rule for one in verdict.reasons} >= {"effect", "bypass", "final-read"}
    assert {one.grade for one in verdict.reasons} == {"undecided"}
    read = tuple(FinalRead("orders", number, 0, 100, 100) for number in range(2))
    equal = tuple(replace(one, equal=True, compared=one.replicas) for one in evidence.replicas or ())
    assert equal
    mended = {
        "effect": {"faults": tuple(replace(one, took_effect=True) for one in evidence.faults)},
        "bypass": {"bypasses": ()},
        "final-read": {"final_reads": read, "replicas": equal, "checker_undecided": ""},
    }
    for left in mended:
        others = {key: value for rule in mended if rule != left for key, value in mended[rule].items()}
        alone = judge(experiment, replace(evidence, starvation=Starvation(0.0, 0.0), **others))
        assert alone.verdict == "undecided"
        assert left in {one.rule for one in alone.reasons} <= {left, "replicas", "history"}


def test_a_program_of_one_s_own_is_judged(base: Path) -> None:
    """It acknowledges what it never sent, and says so in its history."""
    send = {
        "op": "send",
        "process": "p",
        "topic": "orders",
        "partition": 0,
        "values": ["never-sent"],
        "status": "ok",
    }
    send |= {"offset": 0, "idempotent": True, "began": 1.0, "ended": 2.0}
    write = f"echo '{json.dumps(send)}' > $KRAFT_CHAOS_HISTORY; exec sleep 60"
    command = f"{{kind: command, command: {json.dumps(write)}}}"
    pause = "{fault: pause, target: leader of orders-0, at: 1s, for: 1s}"
    verdict, _ = judged(experiment_of("own", [IDEMPOTENT, command], [pause], 3), base, violated=True)
    assert verdict.verdict == "violated"
    assert {"lost-write", "unseen", "inconsistent-offsets"} & set(verdict.anomalies)


# -- what stays


def kraft(arguments: list[str], base: Path) -> subprocess.Popen[str]:
    """`kraft chaos`, whose runs have their folders below `base`."""
    return subprocess.Popen(
        [sys.executable, "-m", "kraft.cli.entry", "chaos", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=base,
        env={**os.environ, "TMPDIR": str(base), "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def left_in(base: Path) -> list[Path]:
    return list(base.glob("kraft-chaos-*/run-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_when_a_run_is_ended(number: signal.Signals, tmp_path: Path, base: Path) -> None:
    """After Ctrl-C and SIGTERM at once; after kill -9 when the next run begins."""
    base.mkdir()
    file = tmp_path / "kill.yaml"
    late = "{fault: kill, target: leader of orders-0, at: 100s, for: 3s}"
    file.write_text(file_of("kill", [IDEMPOTENT], [late], 110))

    def pids() -> list[int]:
        clusters = [LocalCluster(folder / CLUSTER) for folder in left_in(base)]
        found = [cluster.pid(node) for cluster in clusters if cluster.exists for node in (1, 2, 3)]
        return [pid for pid in found if pid is not None]

    with kraft(["run", str(file), "--out", str(tmp_path / "out")], base) as process:
        nodes = until(lambda: pids() if len(pids()) == 3 else None, "the nodes run")
        process.send_signal(number)
        assert process.wait(60) != 0
    if number == signal.SIGKILL:
        assert pids() == nodes
        (folder,) = left_in(base)
        assert clean_up(folder.parent) == [folder.name]
    assert left_in(base) == []
    stats = [process_stat(pid) for pid in nodes]
    assert [stat for stat in stats if stat is not None and not stat.is_gone] == []
