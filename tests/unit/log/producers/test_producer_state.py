"""Idempotent producers (KIP-98, KIP-360): plays the stories under scripts/.

Commands: `send PID EPOCH SEQUENCE [COUNT]`: a client's batch of COUNT records (1); several separated by
`+` are one request. `coordinator PID EPOCH`: a batch without sequences. `replicate PID EPOCH SEQUENCE`:
to a follower of its own, as the leader sends it. `restart`, `crash`: the log is opened again, after a
clean end or without one. `snapshot`: as restart, but the log is replayed from its batches alone.
`roll`, `truncate OFFSET`, `expire MS`, `show`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from partitions.log.errors import AppendError
from partitions.log.log import PartitionLog
from partitions.log.producers.producer_snapshot import (
    SNAPSHOT_SUFFIX,
    SnapshotFormatError,
    decode_snapshot,
    encode_snapshot,
)
from partitions.log.producers.producer_state import BatchRange, ProducerEntry
from tests.support.golden import check_script, scripts_beside
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log


class Story:
    def __init__(self) -> None:
        self.disk = memory_disk()
        self.log = open_log(self.disk)

    def play(self, line: str) -> list[str]:
        command, _, rest = line.partition(" ")
        return getattr(self, f"do_{command}")(rest) or []

    def do_send(self, rest: str) -> list[str]:
        return [self._append(b"".join(self._batch(part) for part in rest.split("+")), "client")]

    def do_coordinator(self, rest: str) -> list[str]:
        producer_id, epoch = map(int, rest.split())
        return [self._append(batch_of(b"x", producer=(producer_id, epoch, -1)), "coordinator")]

    def _batch(self, text: str) -> bytes:
        producer_id, epoch, sequence, *count = map(int, text.split())
        return batch_of(*[b"x"] * (count[0] if count else 1), producer=(producer_id, epoch, sequence))

    def _append(self, records: bytes, origin: str) -> str:
        try:
            info = self.log.append_as_leader(records, leader_epoch=0, origin=origin)  # type: ignore[arg-type]
        except AppendError as error:
            return error.code
        again = " again" if info.duplicate else ""
        return f"{info.first_offset} to {info.last_offset}{again}"

    def do_replicate(self, rest: str) -> list[str]:
        producer_id, epoch, sequence = map(int, rest.split())
        records = batch_of(
            b"x", base_offset=self.log.log_end_offset, leader_epoch=0, producer=(producer_id, epoch, sequence)
        )
        info = self.log.append_as_follower(records)
        return [f"{info.first_offset} to {info.last_offset}"]

    def do_restart(self, rest: str) -> None:
        self._reopen(clean=True)

    def do_crash(self, rest: str) -> None:
        self._reopen(clean=False)

    def do_snapshot(self, rest: str) -> None:
        for name in self.disk.list_dir(FOLDER):
            if name.endswith(SNAPSHOT_SUFFIX):
                self.disk.remove(f"{FOLDER}/{name}")
        self._reopen(clean=False)

    def _reopen(self, *, clean: bool) -> None:
        before = self.log.producers.state.producers
        if clean:
            self.log.close()
        self.log = open_log(self.disk, clean=clean)
        assert self.log.producers.state.producers == before

    def do_roll(self, rest: str) -> None:
        self.log.roll()

    def do_truncate(self, rest: str) -> None:
        self.log.truncate_to(int(rest))

    def do_expire(self, rest: str) -> list[str]:
        now_ms, expiration_ms = map(int, rest.split())
        return [f"forgot {self.log.producers.state.expire(now_ms, expiration_ms)}"]

    def do_show(self, rest: str) -> list[str]:
        lines = []
        for producer_id, entry in sorted(self.log.producers.state.producers.items()):
            batches = ", ".join(
                f"{batch.first_sequence}-{batch.last_sequence}@{batch.first_offset}"
                for batch in entry.batches
            )
            lines.append(f"producer {producer_id} epoch {entry.epoch}: {batches}")
        return lines or ["no producers"]


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    check_script(path, Story().play)


def test_a_failed_write_leaves_the_producer_where_it_was() -> None:
    from tests.support.logs import FailingDisk, full_disk

    disk = FailingDisk(memory_disk())
    log = open_log(disk)
    log.append_as_leader(batch_of(b"a", producer=(1, 0, 0)), leader_epoch=0)
    disk.fail = full_disk
    with pytest.raises(AppendError):
        log.append_as_leader(batch_of(b"b", producer=(1, 0, 1)), leader_epoch=0)
    disk.fail = lambda operation, path: None
    assert not log.append_as_leader(batch_of(b"b", producer=(1, 0, 1)), leader_epoch=0).duplicate
    assert log.append_as_leader(batch_of(b"b", producer=(1, 0, 1)), leader_epoch=0).duplicate


def test_a_duplicate_is_answered_with_the_time_of_its_append() -> None:
    config = dataclasses.replace(open_log(memory_disk()).config, message_timestamp_type="LogAppendTime")
    log: PartitionLog = open_log(memory_disk(), config, now_ms=777)
    sent = batch_of(b"a", timestamp=5, producer=(1, 0, 0))
    first = log.append_as_leader(sent, leader_epoch=0)
    again = log.append_as_leader(sent, leader_epoch=0)
    assert (first.log_append_time, again.log_append_time, again.duplicate) == (777, 777, True)


def test_snapshot_format() -> None:
    entry = ProducerEntry(3)
    entry.batches = [BatchRange(4, 104, 4, 1000), BatchRange(5, 110, 0, 2000)]
    entry.last_timestamp = 2000
    data = encode_snapshot({7: entry, 6: ProducerEntry(1)})
    assert data[:2] == b"\x00\x01"
    assert int.from_bytes(data[6:10], "big") == 3, "one entry for each batch, one for a producer without"
    assert len(data) == 10 + 3 * 46
    assert decode_snapshot(data) == {7: entry, 6: ProducerEntry(1)}
    assert decode_snapshot(encode_snapshot({})) == {}


@pytest.mark.parametrize("position", range(10 + 46))
def test_a_damaged_snapshot_is_refused(position: int) -> None:
    data = bytearray(encode_snapshot({7: ProducerEntry(3)}))
    data[position] ^= 0x40
    with pytest.raises(SnapshotFormatError):
        decode_snapshot(bytes(data))
    with pytest.raises(SnapshotFormatError):
        decode_snapshot(bytes(data[:position]))
