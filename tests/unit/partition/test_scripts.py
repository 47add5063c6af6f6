"""Plays the stories under scripts/: one partition, several brokers, a model controller.

A script is blocks of commands, a line `---`, and the expected output, up to an empty line. Lines that
start with `#` are prose. With KRAFT_REWRITE_SCRIPTS=1 the expected output is written anew; review the
difference like code. The oracles of the world are checked after every command.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from partitions.errors import PartitionError
from partitions.isr import AlterPartitionFailed, AlterPartitionResult
from partitions.log.errors import LogError
from partitions.partition import AckStatus, FollowerFetch, Partition
from tests.support.memory_log import MemoryRead
from tests.support.replica_world import World

Waiting = tuple[int, str, int, int]
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


class Story:
    """Every command gives the lines that it caused."""

    def __init__(self) -> None:
        self.world = World()
        self.waiting: list[Waiting] = []
        """acks=-1 appends: leader, value, required offset, leader epoch."""
        self.flushing: list[Waiting] = []
        """acks=1 appends that a due flush has to cover."""

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        before = list(self.world.said)
        lines = list(getattr(self, "do_" + command.replace("-", "_"))(arguments, options) or [])
        said = self.world.said[len(before) :]
        self.world.said.clear()
        if command != "cluster":
            self.world.check()
        return [*said, *lines, *self._acknowledgements()]

    def _acknowledgements(self) -> list[str]:
        lines: list[str] = []
        self.waiting = self._settle(self.waiting, Partition.ack_status, lines)
        self.flushing = self._settle(self.flushing, Partition.flush_status, lines)
        return lines

    def _settle(
        self, waiting: list[Waiting], status_of: Callable[[Partition, int, int], AckStatus], lines: list[str]
    ) -> list[Waiting]:
        still = []
        for leader, value, required, epoch in waiting:
            partition = self.world.brokers[leader].partition
            if partition is None:
                continue
            status = status_of(partition, required, epoch)
            if status is AckStatus.PENDING:
                still.append((leader, value, required, epoch))
            else:
                lines.append(f"{value}: {status}")
        return still

    # The cluster

    def do_cluster(self, arguments: list[str], options: dict[str, str]) -> None:
        isr = tuple(map(int, options["isr"].split(","))) if "isr" in options else None
        brokers = tuple(int(argument) for argument in arguments if argument != "elr")
        min_isr = int(options.get("min-isr", "1"))
        self.world = World(brokers=brokers, min_insync_replicas=min_isr, isr=isr, has_elr="elr" in arguments)

    def do_min_isr(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.config.min_insync_replicas = int(arguments[0])
        for broker in self.world.brokers.values():
            if broker.partition is not None:
                broker.partition.reconsider(self.world.now_ms)

    def do_tick(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.now_ms += int(arguments[0])
        for broker in self.world.brokers.values():
            if broker.partition is not None:
                self.world.shrink(broker.broker_id)

    def do_publish(self, arguments: list[str], options: dict[str, str]) -> None:
        """publish [ID...]: those brokers, or all, catch up with the metadata."""
        if not arguments:
            self.world.publish_all()
        for argument in arguments:
            while self.world.brokers[int(argument)].applied + 1 < len(self.world.history):
                self.world.publish(int(argument))

    def do_skip_to_latest(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.publish(int(arguments[0]), skip=True)

    def do_fence(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        self.world.fence(int(arguments[0]))
        return [self._controller_state()]

    def do_unfence(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        self.world.unfence(int(arguments[0]))
        return [self._controller_state()]

    def do_shut_down(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        self.world.shut_down(int(arguments[0]))
        return [self._controller_state()]

    def do_prefer(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        self.world.prefer(int(arguments[0]))
        return [self._controller_state()]

    def do_elect_uncleanly(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        self.world.elect(int(arguments[0]), isr=tuple(map(int, arguments)))
        self.world.is_clean = False
        return [self._controller_state()]

    def _controller_state(self) -> str:
        state = self.world.now.state
        isr, elr = (",".join(map(str, ids)) or "-" for ids in (state.isr, state.elr))
        return (
            f"controller: leader={state.leader} epoch={state.leader_epoch}.{state.partition_epoch} isr={isr}"
            + (f" elr={elr}" if state.elr else "")
        )

    # Processes and disks

    def do_crash(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.crash(int(arguments[0]))

    def do_sync(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.brokers[int(arguments[0])].log.sync()

    def do_lose_power(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        broker = self.world.brokers[int(arguments[0])]
        self.world.lose_power(broker.broker_id)
        self.world.is_clean = self.world.is_clean and self.world.config.flush_messages == 1
        return [f"{broker.broker_id}: has {self._log(broker.broker_id)}"]

    def do_flush_messages(self, arguments: list[str], options: dict[str, str]) -> None:
        """flush-messages N: the topic's config. With 1, no power loss excuses a lost record from then on."""
        self.world.set_flush_messages(int(arguments[0]))

    def do_flush(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """flush ID...: a flush of their logs ends."""
        lines = []
        for argument in arguments:
            self.world.flush(int(argument))
            lines += [*self.world.said, f"{argument}: {self._counted(int(argument))}"]
            self.world.said.clear()
        return lines

    def do_counted(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """counted ID...: up to where each counts."""
        return [f"{argument}: {self._counted(int(argument))}" for argument in arguments]

    def _counted(self, broker_id: int) -> str:
        broker = self.world.brokers[broker_id]
        log, high_watermark = broker.log, "-" if broker.partition is None else broker.partition.high_watermark
        awaits = ", awaits a flush" if log.awaits_flush else ""
        return f"counts to {log.counted_end_offset} of {log.log_end_offset}, hw={high_watermark}{awaits}"

    def do_wipe(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.crash(int(arguments[0]))
        self.world.brokers[int(arguments[0])].log.wipe()

    def do_start(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """start ID hw=N: a new process, with that checkpointed high watermark."""
        broker = self.world.brokers[int(arguments[0])]
        broker.checkpointed_high_watermark = int(options.get("hw", "0"))
        self.world.register(broker.broker_id)
        return [f"{broker.broker_id}: broker epoch {broker.broker_epoch}", self._controller_state()]

    # Requests

    def do_produce(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        leader, value = int(arguments[0]), arguments[1]
        acks = int(options.get("acks", "-1"))
        partition = self.world.partition(leader)
        try:
            info = partition.append_records(
                value.encode(),
                acks=acks,
                now_ms=self.world.now_ms,
                leader_epoch_expected=int(options["epoch"]) if "epoch" in options else None,
            )
        except PartitionError as error:
            return [f"{value}: {error.code}"]
        if acks == -1:
            self.waiting.append((leader, value, info.last_offset + 1, partition.leader_epoch))
        elif acks == 1 and partition.awaits_flush:
            self.flushing.append((leader, value, info.last_offset + 1, partition.leader_epoch))
        return [f"{leader}: appends {value} at {info.first_offset} in epoch {partition.leader_epoch}"]

    def do_ack_status(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """ack-status ID OFFSET: whether everything below is committed."""
        return [f"{arguments[0]}: {self.world.partition(int(arguments[0])).ack_status(int(arguments[1]))}"]

    def do_fetch(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """fetch ID...: each fetches once from whom it takes for its leader."""
        lines = []
        for argument in arguments:
            broker = self.world.brokers[int(argument)]
            answer = self.world.fetch(int(argument))
            lines.extend(self.world.said)
            self.world.said.clear()
            if answer is None or broker.partition is None:
                lines.append(f"{argument}: gets no answer")
            elif answer.error is None and answer.diverging_epoch is None:
                lines.append(
                    f"{argument}: ends at {broker.log.log_end_offset}, hw={broker.partition.high_watermark}"
                )
            elif answer.diverging_epoch is not None:
                epoch, end = answer.diverging_epoch
                lines.append(f"{argument}: was told that epoch {epoch} ends at {end}")
        return lines

    def do_send_fetch(self, arguments: list[str], options: dict[str, str]) -> None:
        assert self.world.send_fetch(int(arguments[0]))

    def do_deliver_fetch(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.deliver_fetch(int(arguments[0]))

    def do_deliver_answer(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.deliver_answer(int(arguments[0]))

    def do_forge_fetch(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """forge-fetch TO from= broker-epoch= epoch= offset= last= [again]: a fetch as given.

        `again`: as the read after a wait, which learns nothing of the follower.
        """
        to = int(arguments[0])
        fetch = FollowerFetch(
            int(options["from"]),
            int(options["broker-epoch"]),
            int(options["epoch"]),
            int(options["offset"]),
            int(options.get("last", "-1")),
        )
        try:
            if "again" in arguments:
                answer = self.world.partition(to).read_for_follower(fetch, max_bytes=1000)
            else:
                answer = self.world.partition(to).fetch_as_follower(
                    fetch, max_bytes=1000, now_ms=self.world.now_ms
                )
        except (PartitionError, LogError) as error:
            return [f"{to}: {error.code}"]
        if answer.diverging_epoch is not None:
            epoch, end = answer.diverging_epoch
            records = "none" if answer.records is None else "some"
            return [f"{to}: diverging epoch {epoch} ends at {end}, records: {records}"]
        return [f"{to}: {self._read(answer.records)}, hw={answer.high_watermark}"]

    def do_consume(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """consume ID OFFSET [epoch=N] [at-follower]: `at-follower`: with a version that knows KIP-392."""
        broker, offset = int(arguments[0]), int(arguments[1])
        epoch = int(options["epoch"]) if "epoch" in options else None
        try:
            answer = self.world.partition(broker).read_for_consumer(
                offset,
                max_bytes=1000,
                current_leader_epoch=epoch,
                at_follower="at-follower" in arguments,
            )
        except (PartitionError, LogError) as error:
            return [f"{broker}: {error.code}"]
        return [f"{broker}: {self._read(answer.records)}, hw={answer.high_watermark}"]

    @staticmethod
    def _read(records: object) -> str:
        if records is None:
            return "nothing"
        assert isinstance(records, MemoryRead)
        return " ".join(value for batch in records.batches for value in batch.values)

    def do_list_offset(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """list-offset ID TIMESTAMP [as=follower]"""
        broker, timestamp = int(arguments[0]), int(arguments[1])
        try:
            found = self.world.partition(broker).list_offset(
                timestamp, for_client=options.get("as") != "follower"
            )
        except PartitionError as error:
            return [f"{broker}: {error.code}"]
        return [f"{broker}: nothing" if found is None else f"{broker}: offset {found.offset}"]

    def do_epoch_end(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """epoch-end ID EPOCH [epoch=CURRENT]: OffsetForLeaderEpoch."""
        try:
            epoch, end = self.world.partition(int(arguments[0])).end_offset_for_epoch(
                int(arguments[1]), current_leader_epoch=int(options["epoch"]) if "epoch" in options else None
            )
        except PartitionError as error:
            return [f"{arguments[0]}: {error.code}"]
        return [f"{arguments[0]}: epoch {epoch} ends at {end}"]

    def do_delete_before(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.brokers[int(arguments[0])].log.raise_log_start_offset(int(arguments[1]))

    # AlterPartition

    def do_alter(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """alter: the oldest proposal reaches the controller and the answer comes back."""
        lines = self.do_decide(arguments, options)
        self.do_answer([], {})
        return lines

    def do_widen(self, arguments: list[str], options: dict[str, str]) -> None:
        """widen: the oldest proposal is about to be sent."""
        self.world.widen_alter()

    def do_decide(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """decide: the oldest proposal reaches the controller; its answer comes with `answer`."""
        return [self._result(self.world.deliver_alter())]

    def do_answer(self, arguments: list[str], options: dict[str, str]) -> None:
        """answer [CODE]: the controller's last answer arrives, or that error in its place."""
        pending = self.world.last_decided
        result = AlterPartitionFailed(arguments[0]) if arguments else pending.result
        assert result is not None
        self.world.deliver_result(pending, result)

    def do_time_out(self, arguments: list[str], options: dict[str, str]) -> None:
        """time-out: the leader gives up waiting for the oldest proposal's answer; the request stays on its way."""
        self.world.abandon()

    def do_repropose(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """repropose: the youngest proposal reaches the controller and its answer comes back."""
        result = self.world.deliver_alter(len(self.world.outbox) - 1)
        self.do_answer([], {})
        return [self._result(result)]

    @staticmethod
    def _result(result: AlterPartitionResult) -> str:
        if isinstance(result, AlterPartitionFailed):
            return f"controller: {result.code}"
        return f"controller: isr={','.join(map(str, result.isr))} partition epoch {result.partition_epoch}"

    # Looking

    def do_show(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        ids = list(map(int, arguments)) or list(self.world.brokers)
        return [line for broker_id in ids for line in self._show(broker_id)]

    def _show(self, broker_id: int) -> list[str]:
        partition = self.world.brokers[broker_id].partition
        if partition is None:
            return [f"{broker_id}: down, {self._log(broker_id)}"]
        role = f"follows {partition.leader_id}"
        if partition.is_leader:
            isr = ",".join(map(str, partition.isr))
            maximal = ",".join(map(str, partition.maximal_isr))
            role = f"leads isr={isr}" + ("" if isr == maximal else f" maximal={maximal}")
            role += " (in flight)" if partition.pending_proposal is not None else ""
        epoch = f"epoch {partition.leader_epoch}.{partition.partition_epoch}"
        return [f"{broker_id}: {role}, {epoch}, hw={partition.high_watermark}, {self._log(broker_id)}"]

    def _log(self, broker_id: int) -> str:
        log = self.world.brokers[broker_id].log
        records = " ".join(f"{offset}:{value}/{epoch}" for offset, (epoch, value) in log.values().items())
        return f"log [{records}]"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    story, written, text = Story(), [], path.read_text()
    for block in text.rstrip("\n").split("\n\n"):
        commands, _, expected = block.partition("\n---")
        if all(line.startswith("#") for line in commands.splitlines()):
            written.append(commands)
            continue
        lines = [
            out
            for line in commands.splitlines()
            if line and not line.startswith("#")
            for out in story.play(line)
        ]
        written.append("\n".join([commands, "---", *lines]))
        if "KRAFT_REWRITE_SCRIPTS" not in os.environ:
            assert lines == expected.strip("\n").splitlines(), f"after:\n{commands}"
    if "KRAFT_REWRITE_SCRIPTS" in os.environ:
        path.write_text("\n\n".join(written) + "\n")


def test_there_are_stories() -> None:
    assert len(SCRIPTS) >= 10
