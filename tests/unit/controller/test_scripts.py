"""Plays the stories under scripts/: commands to a controller, and what it proposes and answers.

A script is blocks of commands, a line `---`, and the expected output, up to an empty line. Lines that
start with `#` are prose. With KRAFT_REWRITE_SCRIPTS=1 the expected output is written anew; review the
difference like code.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from quorum.controller.proposal import Proposal
from quorum.errors import ControllerError
from quorum.metadata import record_codec as codec
from quorum.metadata import records as r
from quorum.rpc import messages as m
from tests.support.controller_world import CLUSTER_ID, World, registration
from tests.support.operator_commands import OperatorCommands, show_operator_answer
from tests.support.operator_commands import ids as _ids
from tests.support.operator_commands import parse_ids as _parse_ids

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


class Story(OperatorCommands):
    """One controller; every command gives the lines that it caused."""

    def __init__(self) -> None:
        self.world = World(session_timeout_ms=9000)
        self.names: dict[bytes, str] = {}
        self.seen = len(self.world.proposed)  # a new cluster's features are nobody's command
        self.seen_renounced = self.answered = 0

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        lines = list(getattr(self, "do_" + command.replace("-", "_"))(arguments, options) or [])
        return [*self._proposals(), *lines, *self._answers()]

    # What the controller did

    def _proposals(self) -> list[str]:
        lines = []
        for proposal in self.world.proposed[self.seen :]:
            lines.append(f"propose {proposal.sequence}:")
            records = codec.decode_records(Proposal.decode(proposal.data).records)
            lines.extend("  " + self._record(record) for record in records)
        self.seen = len(self.world.proposed)
        return lines

    def _answers(self) -> list[str]:
        lines = [f"renounced: {item.reason}" for item in self.world.renounced[self.seen_renounced :]]
        self.seen_renounced = len(self.world.renounced)
        for complete in self.world.completed[self.answered :]:
            lines.extend(self._answer(complete.error or complete.response))
        self.answered = len(self.world.completed)
        return lines

    def _name(self, topic_id: bytes) -> str:
        return self.names.get(topic_id, "?")

    def _record(self, record: r.Record) -> str:
        match record:
            case r.Topic():
                self.names[record.topic_id] = record.name
                return f"Topic {record.name}"
            case r.RemoveTopic():
                return f"RemoveTopic {self._name(record.topic_id)}"
            case r.Partition():
                return (
                    f"Partition {self._name(record.topic_id)}-{record.partition} replicas={_ids(record.replicas)} "
                    f"isr={_ids(record.isr)} leader={record.leader}"
                )
            case r.PartitionChange():
                isr = "" if record.isr is None else f" isr={_ids(record.isr)}"
                leader = "" if record.leader is None else f" leader={record.leader}"
                moves = "".join(
                    f" {word}={_ids(ids)}"
                    for word, ids in (
                        ("replicas", record.replicas),
                        ("adding", record.adding_replicas),
                        ("removing", record.removing_replicas),
                        ("elr", record.elr),
                        ("last_known_elr", record.last_known_elr),
                        ("offline", record.offline_replicas),
                    )
                    if ids is not None
                )
                state = record.leader_recovery_state
                recovery = "" if state is None else (" recovering" if state == r.RECOVERING else " recovered")
                return f"PartitionChange {self._name(record.topic_id)}-{record.partition}{isr}{leader}{recovery}{moves}"
            case r.RegisterBroker():
                previous = record.previous_broker_epoch
                clean = "" if previous < 0 else f" previous_broker_epoch={previous}"
                return f"RegisterBroker {record.broker_id} fenced={record.fenced}{clean}"
            case r.BrokerChange():
                fenced = "" if record.fenced is None else f" fenced={record.fenced}"
                down = record.in_controlled_shutdown
                return f"BrokerChange {record.broker_id}{fenced}" + (
                    "" if down is None else f" in_controlled_shutdown={down}"
                )
            case r.FeatureLevel():
                return f"FeatureLevel {record.name} {record.level}"
            case r.UnregisterBroker():
                return f"UnregisterBroker {record.broker_id}"
            case r.Config():
                return f"Config {record.resource_name} {record.key}={record.value}"
            case _:
                return str(record)

    def _answer(self, answer: object) -> list[str]:
        match answer:
            case ControllerError():
                return [f"error {answer.code}: {answer.message}"]
            case m.RegisterBrokerResponse():
                return [f"ok: broker epoch {answer.broker_epoch}"]
            case m.HeartbeatResponse():
                words = [
                    "fenced" if answer.is_fenced else "unfenced",
                    "caught up" if answer.is_caught_up else "behind",
                    *(["may shut down"] if answer.should_shutdown else []),
                ]
                return ["ok: " + ", ".join(words)]
            case m.AlterPartitionResponse():
                return [
                    f"{self._name(topic.topic_id)}-{item.partition}: "
                    + (
                        f"isr={_ids(item.isr)} leader={item.leader} leader_epoch={item.leader_epoch} "
                        f"partition_epoch={item.partition_epoch}"
                        if item.error == m.NO_ERROR
                        else item.error
                    )
                    for topic in answer.topics
                    for item in topic.partitions
                ]
            case m.ReplicaStatesResponse():
                return [
                    f"{self._name(item.topic_id)}-{item.partition}: "
                    + ("ok" if item.error == m.NO_ERROR else item.error)
                    for item in answer.partitions
                ]
            case m.CreateTopicsResponse() | m.DeleteTopicsResponse() | m.CreatePartitionsResponse():
                return [
                    f"{item.name}: ok"
                    if item.error == m.NO_ERROR
                    else f"{item.name}: {item.error}: {item.message}"
                    for item in answer.topics
                ]
            case _:
                return show_operator_answer(answer) or [str(answer)]

    # Commands

    def do_register(self, arguments: list[str], options: dict[str, str]) -> None:
        """register ID [incarnation=N] [previous=EPOCH, if it had stopped cleanly] [cluster=ID] [features=F:0:1,…]."""
        request = registration(int(arguments[0]), incarnation=int(options.get("incarnation", "1")))
        if "features" in options:
            ranges = [one.split(":") for one in options["features"].split(",") if one != "none"]
            features = tuple((name, int(lowest), int(highest)) for name, lowest, highest in ranges)
            request = replace(request, features=features)
        previous = int(options.get("previous", "-1"))
        cluster_id = options.get("cluster", CLUSTER_ID)
        self.world.send(replace(request, cluster_id=cluster_id, previous_broker_epoch=previous))

    def do_heartbeat(self, arguments: list[str], options: dict[str, str]) -> None:
        broker_id = int(arguments[0])
        broker = self.world.controller.image.brokers.get(broker_id)
        epoch = int(options.get("epoch", broker.epoch if broker else 0))
        offset = int(options.get("offset", self.world.image.offset))
        self.world.send(
            m.HeartbeatRequest(broker_id, epoch, offset, "fence" in arguments, "shutdown" in arguments)
        )

    def do_start(self, arguments: list[str], options: dict[str, str]) -> None:
        """Registers brokers and has them unfenced, without a word."""
        self.world.start(*map(int, arguments))
        self.seen, self.answered = len(self.world.proposed), len(self.world.completed)

    def do_levels(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """The finalized levels of features."""
        return [f"{name}={level}" for name, level in sorted(self.world.image.features.items())]

    def do_create(self, arguments: list[str], options: dict[str, str]) -> None:
        """create NAME replicas=1,2/2,3 | partitions=N rf=N; other options are configs."""
        replicas = options.pop("replicas", None)
        partitions, factor = int(options.pop("partitions", "-1")), int(options.pop("rf", "-1"))
        assignments = None
        if replicas is not None:
            assignments = tuple(
                m.PartitionAssignment(number, _parse_ids(ids))
                for number, ids in enumerate(replicas.split("/"))
            )
        topic = m.NewTopic(arguments[0], partitions, factor, assignments, tuple(options.items()))
        self.world.send(m.CreateTopicsRequest((topic,), "validate-only" in arguments))

    def do_delete(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.send(m.DeleteTopicsRequest(tuple(m.TopicToDelete(name=name) for name in arguments)))

    def do_grow(self, arguments: list[str], options: dict[str, str]) -> None:
        replicas = options.get("replicas")
        assignments = None if replicas is None else tuple(_parse_ids(ids) for ids in replicas.split("/"))
        more = m.MorePartitions(arguments[0], int(options["count"]), assignments)
        self.world.send(m.CreatePartitionsRequest((more,)))

    def do_alter(self, arguments: list[str], options: dict[str, str]) -> None:
        """alter NAME-P [NAME-P …] isr=1,2 from=LEADER; epochs are the present ones unless given."""
        image = self.world.controller.image
        sender = int(options["from"])
        topics = []
        for argument in arguments:
            name, _, number = argument.rpartition("-")
            topic = image.topic(name)
            topic_id = topic.topic_id if topic else bytes(16)
            partition = image.partition(topic_id, int(number))
            members = tuple(
                m.BrokerState(
                    broker_id,
                    int(options.get(f"epoch{broker_id}", image.brokers[broker_id].epoch)),
                )
                for broker_id in _parse_ids(options["isr"])
            )
            item = m.AlterPartitionItem(
                int(number),
                int(options.get("leader_epoch", partition.leader_epoch if partition else 0)),
                members,
                int(options.get("partition_epoch", partition.partition_epoch if partition else 0)),
            )
            topics.append(m.AlterPartitionTopic(topic_id, (item,)))
        epoch = int(options.get("epoch", image.brokers[sender].epoch))
        self.world.send(m.AlterPartitionRequest(sender, epoch, tuple(topics)))

    def do_report(self, arguments: list[str], options: dict[str, str]) -> None:
        """report BROKER [NAME-P=KIND|online …] [epoch=EPOCH]: what it says of its replicas."""
        broker_id = int(arguments[0])
        image = self.world.controller.image
        epoch = int(options.pop("epoch", image.brokers[broker_id].epoch if broker_id in image.brokers else 0))
        offline, online = [], []
        for argument, state in options.items():
            name, _, number = argument.rpartition("-")
            key = (image.topic_ids.get(name, bytes(16)), int(number))
            online.append(key) if state == "online" else offline.append((*key, state))
        self.world.send(m.ReplicaStatesRequest(broker_id, epoch, tuple(offline), tuple(online)))

    def do_producer_ids(self, arguments: list[str], options: dict[str, str]) -> None:
        broker_id = int(arguments[0])
        epoch = int(options.get("epoch", self.world.controller.image.brokers[broker_id].epoch))
        self.world.send(m.AllocateProducerIdsRequest(broker_id, epoch))

    def do_wait(self, arguments: list[str], options: dict[str, str]) -> None:
        """wait MS [alive=1,2]: time passes; the brokers named go on sending heartbeats meanwhile."""
        left = int(arguments[0])
        alive = _parse_ids(options["alive"]) if "alive" in options else ()
        while left > 0:
            step = min(2000, left) if alive else left
            left -= step
            self.world.now_ms += step
            for broker_id in alive:
                self.world.heartbeat(broker_id)
        self.answered = len(self.world.completed)
        self.world.advance(0)

    def do_pass(self, arguments: list[str], options: dict[str, str]) -> None:
        """pass MS: time passes without a tick."""
        self.world.now_ms += int(arguments[0])

    def do_hold(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.holding = True

    def do_commit(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        if arguments:
            for _ in range(int(arguments[0])):
                self.world.commit_one()
        else:
            self.world.commit()
            self.world.holding = False
        return [f"committed up to {self.world.image.offset}"]

    def do_drop(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.drop_one()

    def do_fail(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.fail_one()

    def do_new_controller(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.holding = False
        self.world.lead()

    def do_show(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """show NAME | brokers: the committed image."""
        image = self.world.image
        lines = []
        for name in arguments:
            if name == "brokers":
                for broker in image.brokers.values():
                    state = "fenced" if broker.fenced else "unfenced"
                    down = " in controlled shutdown" if broker.in_controlled_shutdown else ""
                    lines.append(f"broker {broker.broker_id} epoch={broker.epoch} {state}{down}")
                continue
            topic = image.topic(name)
            if topic is None:
                lines.append(f"{name}: no such topic")
                continue
            for number, p in enumerate(topic.partitions):
                lines.append(
                    f"{name}-{number} replicas={_ids(p.replicas)} isr={_ids(p.isr)} leader={p.leader} "
                    f"leader_epoch={p.leader_epoch} partition_epoch={p.partition_epoch}"
                    + (" recovering" if p.leader_recovery_state == r.RECOVERING else "")
                    + "".join(
                        f" {word}={_ids(ids)}"
                        for word, ids in (
                            ("adding", p.adding_replicas),
                            ("removing", p.removing_replicas),
                            ("elr", p.elr),
                            ("last_known_elr", p.last_known_elr),
                            ("offline", p.offline_replicas),
                        )
                        if ids
                    )
                )
        return lines


def run_script(text: str) -> str:
    """The script with the output that its commands really have."""
    story = Story()
    lines: list[str] = []
    output: list[str] = []
    expecting = False
    for line in [*text.splitlines(), ""]:
        if line == "---":
            expecting = True
            lines.extend(["---", *output])
            output = []
        elif expecting:
            if not line:
                expecting = False
                lines.append("")
        else:
            lines.append(line)
            if line and not line.startswith("#"):
                output.extend(story.play(line))
    world = story.world
    world.commit()
    assert world.replay() == world.image, "a replay of the log gives another image"
    return "\n".join(lines).rstrip("\n") + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text()
    actual = run_script(text)
    if os.environ.get("KRAFT_REWRITE_SCRIPTS") == "1":
        path.write_text(actual)
    assert actual == text


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 8
