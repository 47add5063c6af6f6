"""Faults of nodes' processes: they are killed, stopped in order, paused, restarted one after the other; and what may
happen to the files of one that is down: its disk is replaced, a bit flips, an end is missing."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from kraft.chaos.real.faults.fault import HEAL_S, Aim, Proof, all_of, until
from kraft.local_cluster.node_process import how_it_ended, process_stat
from kraft.local_cluster.spec import node_config
from kraft.runtime.read_only_disk import ReadOnlyDisk
from kraft.storage import format_node
from kraft.user_error import UserError
from partitions.log.inspection.batches import SegmentReader
from partitions.log.node_logs.meta_properties import META_PROPERTIES
from partitions.records.header import HEADER_BYTES

TRUNCATED_SHARE: Final = 0.2
"""Of a segment, which `truncate` cuts off its end."""


class Down:
    """kill -9, or a controlled shutdown (`in_order`); each node is started again at the end."""

    def __init__(self, aim: Aim, *, in_order: bool = False) -> None:
        self.aim = aim
        self._in_order = in_order
        self._pids: dict[int, int | None] = {}
        self._came_back: set[int] = set()

    def begin(self) -> None:
        local = self.aim.cluster.local
        for node in self.aim.nodes:
            self._pids[node] = local.pid(node)
            if self._in_order:
                local.stop_node(node)
            else:
                local.kill(node)
            self.change_files(node)

    def change_files(self, node: int) -> None:
        """What is done to the files of a node while it is down."""

    def grow(self, share: float) -> None:
        """Nobody is dead by half."""

    def proof(self) -> Proof:
        return all_of([self._proof_of(node) for node in self.aim.nodes])

    def _proof_of(self, node: int) -> Proof:
        pid, cluster = self._pids.get(node), self.aim.cluster
        if pid is None:
            return Proof(False, f"node {node} had no process")
        stat = process_stat(pid)
        if stat is not None and not stat.is_gone:
            return Proof(False, f"process {pid} of node {node} {stat}")
        if cluster.local.pid(node) is not None:
            return Proof(False, f"node {node} has another process")
        if cluster.listens(node):
            return Proof(False, f"process {pid} of node {node} is gone, and somebody listens on its port")
        how = "after a controlled shutdown" if self._in_order else how_it_ended(-9).strip()
        return Proof(True, f"process {pid} of node {node} is gone {how}, nobody listens on its port")

    def end(self) -> None:
        local = self.aim.cluster.local
        for node in self.aim.nodes:
            if node not in self._came_back:
                self._came_back.add(node)
                if local.pid(node) is None:
                    local.spawn(node)

    def heal_proof(self) -> Proof:
        return all_of([serves_again(self.aim, node) for node in self.aim.nodes])


def serves_again(aim: Aim, node: int) -> Proof:
    """Whether the node is ready; waits for it."""
    local = aim.cluster.local
    if until(lambda: bool(local.readiness(node).get("ready")), aim.stopped):
        return Proof(True, f"node {node} is ready (process {local.pid(node)})")
    if local.pid(node) is None:
        return Proof(False, f"node {node} has ended: {local.log_tail(node)}")
    reasons = ", ".join(map(str, local.readiness(node).get("reasons", ["it does not answer"])))
    return Proof(False, f"node {node} is not ready after {HEAL_S:g} s: {reasons}")


class Pause:
    """SIGSTOP, and SIGCONT at the end."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim

    def begin(self) -> None:
        for node in self.aim.nodes:
            self.aim.cluster.local.pause(node)

    def grow(self, share: float) -> None:
        """Nobody is paused by half."""

    def proof(self) -> Proof:
        return all_of([self._state(node, wanted=True) for node in self.aim.nodes])

    def _state(self, node: int, *, wanted: bool) -> Proof:
        pid = self.aim.cluster.local.pid(node)
        if pid is None:
            return Proof(False, f"node {node} has no process")
        is_so = until(
            lambda: self.aim.cluster.is_paused(node) is wanted,
            self.aim.stopped,
            HEAL_S if not wanted else 1.0,
        )
        stat = process_stat(pid)
        return Proof(is_so, f"process {pid} of node {node} {stat}")

    def end(self) -> None:
        for node in self.aim.nodes:
            self.aim.cluster.local.resume(node)

    def heal_proof(self) -> Proof:
        running = [self._state(node, wanted=False) for node in self.aim.nodes]
        return all_of(running + [serves_again(self.aim, node) for node in self.aim.nodes])


class RollingRestart:
    """A controlled shutdown and a start of each node in turn, each when the cluster is whole again."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self._proofs: list[Proof] = []

    def begin(self) -> None:
        cluster = self.aim.cluster
        for node in self.aim.nodes:
            if self.aim.stopped.is_set():
                return
            before = cluster.local.pid(node)
            began_s = time.monotonic()
            cluster.local.stop_node(node)
            cluster.local.start_node(node)
            whole = until(lambda: not cluster.health().ailments, self.aim.stopped)
            after = cluster.local.pid(node)
            text = (
                f"node {node}: process {before}, then {after}, whole after {time.monotonic() - began_s:.1f} s"
            )
            self._proofs.append(Proof(before is not None and after not in (None, before) and whole, text))

    def grow(self, share: float) -> None:
        """It has no size."""

    def proof(self) -> Proof:
        return all_of(self._proofs)

    def end(self) -> None:
        local = self.aim.cluster.local
        for node in self.aim.nodes:
            if local.pid(node) is None:
                local.spawn(node)

    def heal_proof(self) -> Proof:
        return all_of([serves_again(self.aim, node) for node in self.aim.nodes])


# -- files of a node that is down


class Wipe(Down):
    """The node comes back with an empty, freshly formatted disk."""

    def __init__(self, aim: Aim) -> None:
        super().__init__(aim)
        self._lost: dict[int, tuple[str, int]] = {}
        """By node: the directory id, and the bytes of log files, that are gone."""

    def change_files(self, node: int) -> None:
        cluster = self.aim.cluster
        data = cluster.data_dir(node)
        self._lost[node] = _directory_id(data), sum(file.stat().st_size for file in data.glob("*/*.log"))
        for entry in data.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        format_node(cluster.cluster_id, node_config(cluster.local.directory, node), ignore_formatted=True)

    def proof(self) -> Proof:
        return all_of([super().proof(), *(self._emptied(node) for node in self.aim.nodes)])

    def _emptied(self, node: int) -> Proof:
        data = self.aim.cluster.data_dir(node)
        directory_id, size = self._lost.get(node, ("", 0))
        now = _directory_id(data)
        left = sum(1 for _ in data.glob("*-*/*.log") if _.parent.name != "__cluster_metadata-0")
        text = f"node {node} lost {size} bytes of logs; directory {directory_id} is {now} now"
        return Proof(bool(directory_id) and now not in ("", directory_id) and not left and size > 0, text)


def _directory_id(data: Path) -> str:
    file = data / META_PROPERTIES
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition("=")[2] for line in lines if line.startswith("directory.id")), "")


class _Damaged(Down):
    """A node is stopped, and one log file of it is changed before it starts again. It was stopped in order, so all of
    the file was flushed: what differs is damage, and not what a crash may leave."""

    def __init__(self, aim: Aim) -> None:
        super().__init__(aim, in_order=True)
        self._damage: dict[int, Proof] = {}

    def change_files(self, node: int) -> None:
        file = self._file(node)
        self._damage[node] = self.damage(node, file)

    def damage(self, node: int, file: Path) -> Proof:
        """Changes the file, looks, and says what it sees."""
        raise NotImplementedError

    def proof(self) -> Proof:
        return all_of([super().proof(), *self._damage.values()])

    def _file(self, node: int) -> Path:
        """The largest log file of the partitions that it is aimed at. Raises UserError."""
        data = self.aim.cluster.data_dir(node)
        files = [
            file
            for topic, number in self.aim.partitions
            for file in (data / f"{topic}-{number}").glob("*.log")
        ]
        largest = max(files, key=lambda file: file.stat().st_size, default=None)
        if largest is None or largest.stat().st_size <= HEADER_BYTES:
            raise UserError(
                f"node {node} has no records of {', '.join(f'{t}-{p}' for t, p in self.aim.partitions) or 'a topic'}"
                " to damage; strike later, or a partition that is written"
            )
        return largest


class BitRot(_Damaged):
    """A bit flips in the middle of a log file, among a batch's records, which its checksum covers."""

    def damage(self, node: int, file: Path) -> Proof:
        position = _records_at(file, file.stat().st_size // 2)
        with file.open("r+b") as opened:
            opened.seek(position)
            (before,) = opened.read(1)
            opened.seek(position)
            opened.write(bytes([before ^ 1]))
            opened.flush()
            opened.seek(position)
            (after,) = opened.read(1)
        where = f"{file.parent.name}/{file.name}, byte {position}"
        return Proof(after == before ^ 1, f"node {node}: {where} was {before:#04x} and is {after:#04x}")


def _records_at(file: Path, place: int) -> int:
    """Where the records begin of the batch that holds a place of the file."""
    with closing(ReadOnlyDisk().open(str(file))) as opened:
        batches = [one.position for one in SegmentReader(opened).batches() if one.position <= place]
    return max(batches, default=0) + HEADER_BYTES


class Truncate(_Damaged):
    """The end of a log file is missing, as after a repair by hand."""

    def damage(self, node: int, file: Path) -> Proof:
        before = file.stat().st_size
        wanted = before - max(1, int(before * TRUNCATED_SHARE))
        with file.open("r+b") as opened:
            opened.truncate(wanted)
        after = file.stat().st_size
        return Proof(
            after == wanted, f"node {node}: {file.parent.name}/{file.name} had {before} bytes and has {after}"
        )
