"""One experiment on a real cluster: from file and seed to evidence, which `kraft.chaos.experiments.verdict` judges.

start → workload → steady state → faults at their times → heal → final read by a fresh client → nodes stopped in order
→ replicas compared. What cannot be had (the cluster never becomes whole, a client dies) is missing from the evidence,
and is no pass. Whatever ends the run, nothing of it stays on this host; `kraft.chaos.real.folders` cleans up after one
that was killed.

The seed decides targets and whatever else is drawn; processes and kernels run as they like.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Final

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.chaos.experiments.counts import counts_of
from kraft.chaos.experiments.document import NAMESPACES, Experiment
from kraft.chaos.experiments.evidence import (
    Anomaly,
    Evidence,
    FaultEvidence,
    Journal,
    PartitionName,
    samples_of,
)
from kraft.chaos.experiments.measures import abort_reason
from kraft.chaos.experiments.targets import check_by_journal
from kraft.chaos.history import History
from kraft.chaos.real.closing import compare, defects, log_lines, resent
from kraft.chaos.real.cluster import NO_NODE, ChaosCluster, Health, NotWholeError
from kraft.chaos.real.faults import needs_disks, needs_doors, refusals
from kraft.chaos.real.folders import CLUSTER, HELPERS, default_base, run_folder
from kraft.chaos.real.journal import read_journal
from kraft.chaos.real.judging import JOURNAL_SLACK_S, Findings, copies_of, judge_histories
from kraft.chaos.real.method import Method
from kraft.chaos.real.watch import ClusterWatch, StarvationWatch
from kraft.chaos.real.workload.clients import Clients, crowd_topic, transactional_topics
from kraft.chaos.real.workload.consumers import read_finally
from kraft.chaos.real.workload.recorder import Recorder
from kraft.local_cluster.spec import replication_settings
from kraft.protocol.schemas.find_coordinator import CoordinatorType
from kraft.user_error import UserError

BACKEND: Final = "real"
START_S: Final = 60.0
WHOLE_S: Final = 60.0
"""So long a cluster may need until it is whole after the last fault."""
SETTLE_S: Final = 3.0
"""The workload goes on for so long when all is whole again: what is after the faults is measured in it."""
FINAL_S: Final = 60.0
BEGUN_S: Final = 30.0
TICK_S: Final = 0.2
ABANDON_S: Final = 30.0
"""So long a run that is interrupted waits for its faults to end; without nodes they take no time."""
DISK_BYTES: Final = 512 * 1024 * 1024
"""Of each node's own file system, where a fault needs one."""
SETTINGS: Final[Mapping[str, str]] = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "controller.quorum.election.timeout.ms": "800",
    "controller.quorum.fetch.timeout.ms": "2500",
    "replica.lag.time.max.ms": "5000",
}
"""Of nodes, unless a file says otherwise: quicker than a node comes, so that runs are short, and slow enough for a busy
host, on which an election that nothing has caused would be another fault."""
NODE_ENDED, DEFECT = "node-ended", "defect"

Say = Callable[[str], None]


def play(
    experiment: Experiment,
    seed: int,
    out: Path | None = None,
    on_time: Callable[[float], None] = lambda _: None,
    *,
    say: Say = lambda _: None,
    base: Path | None = None,
    secure: bool = False,
) -> Evidence:
    """Plays the experiment on this host. `out` is a folder for the nodes' logs; `on_time` is told now and then how many
    seconds ago the workload began, and `say` what happens; `base` is where runs have their folders. `secure`: with
    TLS, users and ACLs. Raises UserError if this host cannot play it."""
    if refused := refusals(experiment):
        raise UserError("; ".join(dict.fromkeys(refused)))
    with _terminable(), run_folder(default_base() if base is None else base) as folder:
        run = _Run(experiment, seed, folder, on_time, say, secure=secure)
        try:
            return run.play()
        finally:
            run.close(out)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: it is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"signal {number}")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Run:
    def __init__(
        self,
        experiment: Experiment,
        seed: int,
        folder: Path,
        on_time: Callable[[float], None],
        say: Say,
        *,
        secure: bool,
    ) -> None:
        self._experiment = experiment
        self._seed = seed
        self._folder = folder
        self._on_time = on_time
        self._say = say
        self._starvation = StarvationWatch()
        self._topics = {topic.name: topic.partitions for topic in experiment.cluster.topics}
        self._aborted = ""
        self._ended_s = 0.0
        self._healed_s: float | None = None
        self._method: Method | None = None
        self._clients: Clients | None = None
        self._watch: ClusterWatch | None = None
        self._cluster = ChaosCluster(
            folder / CLUSTER,
            experiment.cluster.nodes,
            {**replication_settings(experiment.cluster.nodes), **SETTINGS, **experiment.cluster.settings},
            disk_bytes=DISK_BYTES if needs_disks(experiment) else None,
            with_doors=needs_doors(experiment),
            namespaces_noted_in=folder / HELPERS if experiment.cluster.network == NAMESPACES else None,
            seed=seed,
            secure=secure,
        )

    def close(self, logs_to: Path | None) -> None:
        """Ends whatever goes on, and keeps the nodes' logs."""
        self._starvation.stopping.set()
        if self._watch is not None:
            self._watch.stopping.set()
        if self._method is not None:
            self._method.stopped.set()
        if self._clients is not None:
            self._clients.stop()
        try:
            if self._method is not None and not self._method.is_over:
                self._cluster.kill_nodes()  # nobody waits for one any more
                self._method.abandon(ABANDON_S)  # the end of a fault starts its node again
        finally:
            self._cluster.close()
        if logs_to is not None:
            for node in self._cluster.node_ids:
                (logs_to / f"node-{node}.log").write_text(self._cluster.log_text(node))

    def play(self) -> Evidence:
        self._starvation.start()
        self._say(f"starting {self._experiment.cluster.nodes} nodes")
        self._cluster.start()
        self._make_topics()
        recorder = Recorder(self._cluster.topic_ids(self._topics), self._topics)
        helpers = self._folder / HELPERS
        self._clients = clients = Clients(
            self._experiment, self._cluster.brokers, recorder, self._seed, self._folder, helpers
        )
        if any(one.kind == "slow-consumer" for one in self._experiment.workload):
            self._say("a backlog is written")
        clients.prepare()
        self._watch = watch = ClusterWatch(self._cluster, recorder.now)
        self._method = method = Method(
            self._experiment, self._cluster, recorder.now, self._seed, helpers, self._say
        )
        watch.may_be_down = method.struck
        clients.start(self._experiment.steady_s + self._experiment.duration_s)
        self._await_begun(clients)
        recorder.begin_now()
        watch.start()
        method.start()
        self._say("the workload runs; the steady state is watched")
        self._go_on(recorder, method, watch)
        clients.stop()
        self._ended_s = recorder.now()
        found = self._close_books(recorder, clients, watch)
        recorder.finish()
        return self._evidence(recorder, clients, method, watch, found)

    # -- before

    def _make_topics(self) -> None:
        """Raises UserError."""
        experiment = self._experiment
        topics = [
            NewTopic(topic.name, topic.partitions, topic.replicas, config=dict(topic.configs))
            for topic in experiment.cluster.topics
        ]
        backlogs = {one.topic for one in experiment.workload if one.kind == "slow-consumer"}
        topics += [NewTopic(crowd_topic(topic), 1, 1) for topic in sorted(backlogs)]
        admin = AdminClient({**self._cluster.brokers.settings, "log_level": 0})
        for name, made in admin.create_topics(topics, operation_timeout=START_S).items():
            try:
                made.result(START_S)
            except confluent_kafka.KafkaException as error:
                raise UserError(f"the topic {name} cannot be made: {error.args[0].str()}") from error
        kinds = (
            (CoordinatorType.GROUP, {one.group for one in experiment.workload if one.group}),
            (
                CoordinatorType.TRANSACTION,
                {one.transactional_id for one in experiment.workload if one.transactional_id},
            ),
        )
        for kind, keys in kinds:
            for key in sorted(keys):  # the first question makes the internal topic
                self._cluster.await_that(partial(self._is_coordinated, kind, key), START_S)
        self._await_whole()

    def _is_coordinated(self, kind: CoordinatorType, key: str, _health: Health) -> bool:
        return self._cluster.coordinator(kind, key) != NO_NODE

    def _await_whole(self) -> None:
        """Raises UserError."""
        try:
            self._cluster.await_whole(START_S)
        except NotWholeError as error:
            raise UserError(f"the cluster does not become whole before the experiment: {error}") from error

    def _await_begun(self, clients: Clients) -> None:
        """Clients need a moment, more on a busy host: the steady state begins when all partitions acknowledge and all
        groups read. Where that takes too long the run goes on, and its probes tell."""
        end_s = time.monotonic() + BEGUN_S
        while not clients.have_begun() and time.monotonic() < end_s:
            time.sleep(TICK_S)

    # -- during

    def _go_on(self, recorder: Recorder, method: Method, watch: ClusterWatch) -> None:
        """Until the method and the workload's time are over, and the cluster whole for a while; or the run aborts."""
        experiment = self._experiment
        planned_s = experiment.steady_s + experiment.duration_s
        healing_until_s: float | None = None
        while not self._aborted:
            now_s = recorder.now()
            self._on_time(now_s)
            if method.is_over and self._healed_s is None:
                healing_until_s = healing_until_s or now_s + WHOLE_S
                if not watch.look().ailments:
                    self._healed_s = recorder.now()
                    self._say("all faults are over, the cluster is whole")
                elif now_s > healing_until_s:
                    break
            if self._healed_s is not None and now_s >= max(planned_s, self._healed_s + SETTLE_S):
                break
            self._aborted = self._abort_reason(recorder, watch, now_s)
            time.sleep(TICK_S)
        if self._aborted:
            self._say(f"aborted: {self._aborted}")
        method.stop()

    def _abort_reason(self, recorder: Recorder, watch: ClusterWatch, now_s: float) -> str:
        if recorder.problems:
            return recorder.problems[0]
        if watch.problem:
            return watch.problem
        if now_s < self._experiment.steady_s or not self._experiment.aborts:
            return ""
        history = History(operations=list(recorder.history.operations))
        samples = samples_of(history, recorder.origin_s)
        return abort_reason(self._experiment, samples, watch.readings, now_s)

    # -- after

    def _close_books(self, recorder: Recorder, clients: Clients, watch: ClusterWatch) -> Findings:
        self._say("the workload has ended; a fresh client reads everything")
        found = Findings()
        with contextlib.suppress(UserError):  # it is not healed, and the evidence says so
            self._cluster.restore()
        clients.join()
        found.commands = clients.commands()
        found.final_reads = read_finally(
            self._cluster.brokers,
            recorder,
            transactional_topics(self._experiment),
            self._cluster.leader_end,
            FINAL_S,
        )
        clients.ask_groups_finally()
        watch.stopping.set()
        watch.join()
        watch.look_for_bypasses()
        replicas = self._replicas()
        self._say("the nodes are stopped in order, and their replicas compared")
        self._cluster.local.stop_all()
        found.data_dirs = data_dirs = {node: self._cluster.data_dir(node) for node in self._cluster.node_ids}
        ranges = {
            (one.topic, one.partition): (one.log_start, one.log_end)
            for one in found.final_reads or ()
            if not one.problem
        }
        expiring = {topic for topic in self._topics if self._experiment.may_expire(topic)}
        found.replicas = None if replicas is None else compare(data_dirs, replicas, ranges, expiring)
        found.resent = resent(data_dirs, replicas or {}, copies_of(recorder))
        faults = self._method.evidence() if self._method is not None else ()
        wrong_clocks = {node for one in faults if one.name == "clock-offset" for node in one.nodes}
        found.journal = read_journal(
            data_dirs.values(),
            self._topics,
            watch.controllers,
            recorder.unix_origin_s,
            wrong_clocks=[data_dirs[node] for node in wrong_clocks],
        )
        return found

    def _replicas(self) -> dict[PartitionName, tuple[int, ...]] | None:
        """Who has which partition, when all replicas know how far it is committed."""
        with contextlib.suppress(Exception):
            view = self._cluster.view(self._topics)
            return {name: one.replicas for name, one in view.partitions.items()}
        return None

    # -- evidence

    def _evidence(
        self, recorder: Recorder, clients: Clients, method: Method, watch: ClusterWatch, found: Findings
    ) -> Evidence:
        faults = tuple(_checked(one, self._experiment, found.journal) for one in method.evidence())
        history = recorder.history
        judged = judge_histories(self._experiment, recorder, faults, found)
        anomalies = list(judged.anomalies)
        texts = {node: self._cluster.log_text(node) for node in self._cluster.node_ids}
        anomalies += [Anomaly(DEFECT, text) for text in defects(texts.items())]
        anomalies += [
            Anomaly(
                NODE_ENDED,
                f"node {node} ended, and no fault had struck it: {self._cluster.local.log_tail(node)}",
                at_s=at_s,
            )
            for node, at_s in watch.ended.items()
        ]
        return Evidence(
            experiment=self._experiment.name,
            backend=BACKEND,
            seed=self._seed,
            ended_s=self._ended_s,
            steady_until_s=self._experiment.steady_s,
            healed_s=self._healed_s,
            faults=faults,
            samples=(*samples_of(history), *recorder.transaction_samples),
            readings=tuple(watch.readings),
            journal=found.journal,
            anomalies=tuple(anomalies),
            excused=judged.excused,
            checker_undecided=judged.undecided,
            counts={
                **counts_of(history),
                **judged.counts,
                **clients.counts(),
                "memory_mb": watch.memory_mb,
            },
            final_reads=found.final_reads,
            replicas=found.replicas,
            starvation=self._starvation.result(),
            bypasses=tuple(watch.bypasses),
            commands=found.commands,
            aborted=self._aborted or next(iter(recorder.problems), watch.problem),
            logs=log_lines(texts, recorder.unix_origin_s, recorder.now()),
            environment=_environment(is_secure=self._cluster.brokers.config is not None),
        )


def _checked(fault: FaultEvidence, experiment: Experiment, journal: Journal | None) -> FaultEvidence:
    """A fault, its target checked against the metadata journal."""
    if fault.began_s is None or journal is None:
        return fault
    target = experiment.method[fault.step].target
    problem = check_by_journal(target, fault.nodes, fault.began_s, journal, JOURNAL_SLACK_S)
    return replace(fault, target_problem=problem)


def _environment(*, is_secure: bool) -> Mapping[str, str]:
    return {
        "kraft": version("kraft"),
        "python": platform.python_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "confluent-kafka": confluent_kafka.version()[0],
        "kernel": f"{platform.system()} {platform.release()}",
        "cores": str(os.cpu_count()),
        "root": "yes" if os.geteuid() == 0 else "no",
        "secure": "yes" if is_secure else "no",
    }
