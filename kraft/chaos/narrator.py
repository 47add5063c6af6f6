"""Tells the story of a whole cluster's run: faults, elections, ISRs, fencing, what clients met, anomalies, the verdict.

It watches as `kraft.chaos.run` lets any observer, and listens to the verdicts; it adds no event to the run, so that a
seed plays as it does untold. Changes of partitions at one instant that are alike are one line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.faults.context import STARTED_AGAIN, FaultContext, Struck
from kraft.chaos.faults.disk import DIRECTORY_FAILED
from kraft.chaos.history import History, Operation, OperationKind, OperationStatus, TopicKey
from kraft.chaos.oracles import WhiteBox, events
from kraft.chaos.oracles.group_log import GENERATION_BEGUN, LOADED_ON
from kraft.chaos.outcome import Outcome
from kraft.chaos.scenario import Scenario
from kraft.chaos.story import BUNCH_S, Story
from kraft.chaos.verdict import Listener, Verdicts
from kraft.chaos.workload.base import CLIENT_CRASH
from kraft.chaos.workload.final import BEYOND_REPAIR
from kraft.chaos.workload.groups import member
from kraft.chaos.workload.transactions import processor, producer, session
from kraft.chaos.world.simulation import Simulation
from quorum.controller.topic_names import is_internal
from quorum.metadata.image import PartitionImage

UNAVAILABLE_S: Final = 1.0
"""A time without any acknowledgement that is worth a line."""
TOLD: Final[Mapping[str, tuple[str, str]]] = {
    events.CONTROLLER_ELECTION: ("controller", "elected: {}"),
    events.BROKER_FENCED: ("fenced", "broker {}"),
    events.BROKER_UNFENCED: ("unfenced", "broker {}"),
    events.BROKER_SHUTDOWN: ("shutdown", "broker {} asks for a controlled shutdown"),
    events.LAST_KNOWN_LEADER: ("election", "of the last known leader: {}"),
    events.HIGH_WATERMARK_CUT: ("log", "high watermark cut back: {}"),
    events.ALL_LOST_POWER: ("log", "every replica of {} has lost power"),
    events.DAMAGE_AT_START: ("damage", "found at start: {}"),
    events.DAMAGE_AT_READ: ("damage", "found at read: {}"),
    events.SNAPSHOT_INSTALL: ("controller", "snapshot installed: {}"),
    STARTED_AGAIN: ("starts", "{}"),
    DIRECTORY_FAILED: ("disk", "{}"),
    BEYOND_REPAIR: ("damage", "beyond repair: {}"),
}
"""Each of these events is a line: its word, and its text around the event's own."""
BUNCHED: Final[Mapping[str, tuple[str, str]]] = {
    events.TRUNCATION: ("logs", "truncated"),
    events.LOG_RESET: ("logs", "emptied, to start anew at the leader's start"),
    events.LOG_RECOVERED: ("logs", "cut by a torn tail"),
    events.RETENTION: ("logs", "shortened by retention"),
    events.BATCH_DAMAGED: ("logs", "batch lost to injected damage"),
    events.TOPIC_CREATED: ("topics", "created"),
    events.TOPIC_DELETED: ("topics", "deleted"),
    LOADED_ON: ("groups", "log of groups taken over by another coordinator"),
    GENERATION_BEGUN: ("groups", "rebalance completed"),
    **{
        name: ("clients", name)
        for name in (
            CLIENT_CRASH,
            member.FROZE,
            member.FENCED,
            member.COMMIT_REFUSED,
            producer.FROZE,
            producer.DAWDLED,
            producer.ABORTED,
            processor.OUTDATED_PROCESSOR,
            session.FENCED,
            session.MUST_ABORT,
        )
    },
}
"""These are told together: their word, and what one of them is."""
CALM: Final[Mapping[str, float]] = {"topics": 10.0, "groups": 5.0}
"""Seconds in which what happens without a reason is told once, by word."""
_ADDRESS: Final = re.compile(r"10\.0\.0\.\d+")
_LINKS: Final = re.compile(
    rf"{_ADDRESS.pattern} -> {_ADDRESS.pattern}(, {_ADDRESS.pattern} -> {_ADDRESS.pattern})*"
)
_LIST: Final = re.compile(rf"\['{_ADDRESS.pattern}'(, '{_ADDRESS.pattern}')*\]")
_LONG: Final = re.compile(r"(?<=\.[0-9a-f]{6})[0-9a-f]{26}|(?<=\d\.\d{3})\d+")
"""What nobody reads: the rest of an id, and of a fraction."""


PartitionName = tuple[str, int]


class Played(Protocol):
    """The parts of a run that the narrator looks at."""

    scenario: Scenario
    simulation: Simulation
    verdicts: Verdicts
    history: History
    cluster: SimulatedCluster
    white_box: WhiteBox
    faults: FaultContext


class _Change(NamedTuple):
    """What happened to a partition, in words that are alike for those to which the like happened."""

    word: str
    text: str


class Narrator(Listener):
    """The observer of one run that writes its story."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._parts: Played | None = None
        self._changes: dict[_Change, list[PartitionName]] = {}
        self._changed_s = 0.0
        self._open: list[Operation] = []
        self._seen = 0
        self._acknowledged_s: float | None = None
        self._halts = 0

    @property
    def _run(self) -> Played:
        assert self._parts is not None, "the run is made"
        return self._parts

    # -- phases

    def made(self, parts: Played) -> None:
        self._parts = parts
        parts.verdicts.listener = self
        parts.faults.heard.append(self._heard)
        metadata = parts.white_box.metadata
        heard = metadata.on_partition

        def on_partition(key: TopicKey, before: PartitionImage | None, after: PartitionImage) -> None:
            self._changed(key, before, after)
            heard(key, before, after)

        metadata.on_partition = on_partition
        self._story.headline(headline(parts.scenario))
        self._story.tell("starts", f"nodes {', '.join(map(str, parts.cluster.specs))}")

    def reached(self, phase: str) -> None:
        self._tell("phase", phase)

    def began(self, parts: Played) -> None:
        self._tell("phase", "the cluster is whole; the clients begin, and faults may strike")

    def looked(self, parts: Played) -> None:
        """Time has passed: what has waited long enough is told, and what clients have met is looked up."""
        self._flush()
        for halt in parts.cluster.halts[self._halts :]:
            self._halts += 1
            self._tell("halts", f"node {halt.node_id} ends itself: {halt.reason}")
        operations = parts.history.operations
        waiting = self._open + operations[self._seen :]
        self._seen = len(operations)
        self._open = [one for one in waiting if one.status is OperationStatus.PENDING]
        for one in sorted(
            (one for one in waiting if one.status is not OperationStatus.PENDING),
            key=lambda one: one.completed_s,
        ):
            self._met(one)
        self._story.pass_time()

    def ending(self, parts: Played) -> None:
        """Nothing more than the phase says."""

    def over(self, parts: Played) -> None:
        self.looked(parts)

    def conclude(self, outcome: Outcome) -> None:
        """The last lines: what was broken, and the verdict."""
        self._flush()
        self._story.conclude(outcome)

    # -- what is heard

    def happened(self, what: str, text: str, times: int) -> None:
        if what in TOLD:
            word, around = TOLD[what]
            self._tell(word, around.format(text))
        elif what in BUNCHED:
            word, item = BUNCHED[what]
            self._story.bunch(word, item, times, within_s=CALM.get(word, BUNCH_S))

    def violated(self, oracle: str, text: str) -> None:
        self._tell("ANOMALY", f"{oracle}: {self._named(text)}")

    def excused(self, text: str) -> None:
        self._story.bunch("excused", "losses that the faults explain")

    def _heard(self, struck: Struck, is_over: bool) -> None:
        """A fault strikes, or is over."""
        if is_over:
            self._tell(f"over {struck.number}", struck.name)
        else:
            self._tell(f"FAULT {struck.number}", f"{struck.name}: {self._named(struck.text)}")

    def _changed(self, key: TopicKey, before: PartitionImage | None, after: PartitionImage) -> None:
        metadata = self._run.white_box.metadata
        topic = metadata.image.topics.get(key[0])
        if topic is None or before is None:
            return
        if is_internal(topic.name) or topic.name in {one.name for one in self._run.scenario.topics}:
            is_new = before.leader_epoch != after.leader_epoch
            is_unclean = is_new and metadata.elections.is_unclean(key, after.leader_epoch)
            change = _change(before, after, is_unclean=is_unclean)
            if change is not None:
                if self._changed_s != self._run.simulation.now:
                    self._flush()
                self._changed_s = self._run.simulation.now
                self._changes.setdefault(change, []).append((topic.name, key[1]))

    def _met(self, one: Operation) -> None:
        """What a client was answered."""
        who = one.process.partition("#")[0]
        if one.error:
            self._story.bunch("clients", f"{who}: {one.error}")
        if one.kind is OperationKind.SEND and one.status is OperationStatus.OK and one.acks:
            if self._acknowledged_s is not None:
                silent_s = one.completed_s - self._acknowledged_s
                if silent_s >= UNAVAILABLE_S:
                    self._tell("clients", f"the first acknowledgement for {silent_s:.1f} s, of {who}")
            self._acknowledged_s = one.completed_s

    # -- telling

    def _tell(self, word: str, text: str) -> None:
        self._flush()
        self._story.tell(word, text)

    def _flush(self) -> None:
        changes, self._changes = self._changes, {}
        for change, names in changes.items():
            self._story.tell(change.word, f"{_together(names)}: {change.text}", self._changed_s)

    def _named(self, text: str) -> str:
        """Machines by their names, many of them as one side, and numbers as long as people read them."""

        def links(found: re.Match[str]) -> str:
            ends = _ADDRESS.findall(found[0])
            return f"{self._side(ends[::2])} → {self._side(ends[1::2])}"

        named = _LINKS.sub(links, text)
        named = _LIST.sub(lambda found: self._side(_ADDRESS.findall(found[0])), named)
        named = _ADDRESS.sub(lambda found: self._side([found[0]]), named)
        return _LONG.sub("", named).replace(" -> ", " → ")

    def _side(self, addresses: Sequence[str]) -> str:
        """Some machines: nodes by number, clients by name, or all of them in a word."""
        hosts = self._run.simulation.hosts.values()
        nodes = {host.address: n for n, host in self._run.cluster.hosts.items()}
        clients = {host.address: host.name for host in hosts if host.address not in nodes}
        chosen = dict.fromkeys(addresses)
        numbers = [str(nodes[address]) for address in chosen if address in nodes]
        named = [clients[address] for address in chosen if address in clients]
        told = [f"node{'s' * (len(numbers) > 1)} {', '.join(numbers)}"] if numbers else []
        told += ["all clients"] if clients and len(named) == len(clients) else named
        return ", ".join(told)


def headline(scenario: Scenario) -> Iterator[str]:
    """What is played."""
    yield f"Seed {scenario.seed}: {scenario.seconds:g} s of faults against {scenario.shape}."
    for topic in scenario.topics:
        counts = f"partitions {topic.partitions}, replicas {topic.replication_factor}"
        yield f"Topic {topic.name}: {', '.join([counts, *_settings(topic.configs)])}."
    clients = Counter(
        one.kind
        + (f" of {one.topic}" if one.topic else "")
        + ("" if one.acks == -1 else f" (acks={one.acks})")
        for one in scenario.workloads
    )
    told = [kind if times == 1 else f"{times}x {kind}" for kind, times in clients.items()]
    yield f"Clients: {', '.join(told) or 'none'}."
    if scenario.properties:
        yield f"Settings: {', '.join(_settings(scenario.properties))}."
    yield "Times are virtual seconds since the nodes started."


def _settings(settings: Mapping[str, str]) -> list[str]:
    """Classes without their packages."""
    short = (
        (key, value.rpartition(".")[2] if value.startswith("org.") else value)
        for key, value in settings.items()
    )
    return [f"{key}={value}" for key, value in short]


def _together(names: Sequence[PartitionName]) -> str:
    """Partitions, topic by topic."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(names):
        by_topic.setdefault(topic, []).append(str(number))
    return ", ".join(f"{topic}-{','.join(numbers)}" for topic, numbers in by_topic.items())


def _change(before: PartitionImage, after: PartitionImage, *, is_unclean: bool) -> _Change | None:
    parts, word = [], "ISR"
    if before.leader_epoch != after.leader_epoch:
        word = "UNCLEAN" if is_unclean else "election" if after.leader >= 0 else "leaderless"
        parts.append(f"leader {_who(before.leader)} → {_who(after.leader)}")
    for name, old, new in (
        ("ISR", before.isr, after.isr),
        ("ELR", before.elr, after.elr),
        ("offline", before.offline_replicas, after.offline_replicas),
    ):
        if sorted(old) != sorted(new):
            parts.append(f"{name} {_members(old)} → {_members(new)}")
    return _Change(word, "; ".join(parts)) if parts else None


def _who(broker_id: int) -> str:
    return "none" if broker_id < 0 else str(broker_id)


def _members(broker_ids: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(broker_ids))) or "none"
