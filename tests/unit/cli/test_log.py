"""`kraft log dump` and `kraft log verify`: what is printed, what is told, and how they end."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraft.cli.app import run
from kraft.cli.log.dump import printable
from partitions.log.node_logs.metadata_position import METADATA_POSITION, MetadataPosition
from partitions.log.node_logs.placements import FILE_NAME as PARTITION_DIRECTORIES
from partitions.log.node_logs.placements import Line, Placement
from partitions.log.opening.damage_note import DAMAGE_NOTE
from partitions.records.batch import iter_batches
from partitions.topic_partition import TopicPartition
from tests.support.stored_logs import DATA, closed_directory, crashed_directory

FIRST = "00000000000000000000"
LAST = "00000000000000000018"


class Result(NamedTuple):
    """What a command printed."""

    exit_code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def document(self) -> Any:
        return json.loads(self.output)


Kraft = Callable[..., Result]


def write(files: Mapping[str, bytes], directory: Path) -> Path:
    """The files of a data directory on the real disk."""
    for name, content in files.items():
        path = directory / name.removeprefix(DATA + "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(closed_directory(), tmp_path)


@pytest.fixture
def folder(data: Path) -> Path:
    return data / "orders-0"


@pytest.fixture
def kraft(capfd: pytest.CaptureFixture[str]) -> Kraft:
    def call(*arguments: object) -> Result:
        capfd.readouterr()
        exit_code = run(["log", *map(str, arguments)])
        return Result(exit_code, *capfd.readouterr())

    return call


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(bytes(content))


# ---- dump


def test_a_segment_is_printed_in_the_words_of_kafkas_tool(kraft: Kraft, folder: Path) -> None:
    path = folder / f"{FIRST}.log"
    result = kraft("dump", path)
    assert result.exit_code == 0, result.errors
    (_, header), *_ = iter_batches(path.read_bytes())
    assert result.lines[:3] == [
        f"Dumping {path}",
        "Log starting offset: 0",
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0 lastSequence: 2 producerId: 40 producerEpoch: 1"
        " partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: none position: 0"
        f" CreateTime: 1000005 size: {header.size_bytes} magic: 2 compresscodec: none crc: {header.crc}"
        " isvalid: true",
    ]
    codecs = [
        line.partition("compresscodec: ")[2].split()[0]
        for line in kraft("dump", folder).lines
        if "magic" in line
    ]
    assert codecs == ["none", "gzip", "snappy", "lz4", "zstd", "none", "gzip", "snappy", "none"]


def test_records_are_printed_when_they_are_asked_for(kraft: Kraft, folder: Path) -> None:
    path = folder / f"{FIRST}.log"
    deep = kraft("dump", path, "--deep").lines
    assert deep[3] == "| offset: 0 CreateTime: 1000000 keySize: 5 valueSize: 7 sequence: 0 headerKeys: [h,n]"
    assert deep[4] == "| offset: 1 CreateTime: 1000005 keySize: -1 valueSize: 19 sequence: 1 headerKeys: []"
    with_data = kraft("dump", path, "--print-data").lines
    assert with_data[3] == deep[3] + r" key: key-0 payload: value-0 headers: [h=\x00\xff, n=null]"
    assert with_data[4] == deep[4] + " payload: value without a key"
    assert with_data[5].endswith("headerKeys: [] key: tombstone")


def test_a_marker_says_what_it_ends(kraft: Kraft, folder: Path) -> None:
    last = kraft("dump", folder / f"{LAST}.log", "--print-data").lines[-1]
    assert last == (
        "| offset: 24 CreateTime: 1000900 keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
        " endTxnMarker: COMMIT coordinatorEpoch: 7"
    )


def test_all_files_of_a_folder_are_printed(kraft: Kraft, folder: Path) -> None:
    lines = kraft("dump", folder).lines
    assert [line.rpartition("/")[2] for line in lines if line.startswith("Dumping")] == sorted(
        path.name for path in folder.iterdir()
    )
    assert "epoch: 2 startOffset: 9" in lines
    assert "topicId: AAECAwQFBgcICQoLDA0ODw" in lines
    assert any(line.startswith("offset: 5 position: ") for line in lines)
    assert "timestamp: 1000015 offset: 5" in lines
    producer = next(line for line in lines if line.startswith("producerId: 41"))
    assert producer == (
        "producerId: 41 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: 3 lastTimestamp: 1000015"
        " firstSequence: 0 lastSequence: 2 lastOffset: 5 offsetDelta: 2 timestamp: 1000015"
    )


def test_aborted_transactions_are_printed(kraft: Kraft, folder: Path) -> None:
    path = folder / f"{FIRST}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 41, 3, 24, 5))
    assert kraft("dump", path).lines[-1] == (
        "version: 0 producerId: 41 firstOffset: 3 lastOffset: 24 lastStableOffset: 5"
    )
    (document,) = kraft("dump", path, "--json").document["files"][0]["entries"]
    assert document == {
        "version": 0,
        "producer_id": 41,
        "first_offset": 3,
        "last_offset": 24,
        "last_stable_offset": 5,
    }
    verified = kraft("verify", folder)
    assert verified.exit_code == 1
    assert f"{path} at byte 0: it" in verified.output


def test_the_files_of_a_data_directory_are_printed(kraft: Kraft, data: Path) -> None:
    names = ("recovery-point-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown")
    lines = kraft("dump", *(data / name for name in names)).lines
    assert lines[1::2] == [
        "topic: orders partition: 0 offset: 25",
        "clusterId: AAAAAAAAAAAAAAAAAAAAAQ nodeId: 1 directoryId: AAAAAAAAAAAAAAAAAAAAAg",
        "brokerEpoch: 17",
    ]


def test_the_metadata_position_of_a_broker_is_known(kraft: Kraft, data: Path) -> None:
    path = data / METADATA_POSITION
    path.write_bytes(MetadataPosition(812, 7, frozenset({"bb", "aa"})).encode())
    assert kraft("dump", path).lines[1:] == ["offset: 812 epoch: 7 voterDirectoryIds: ['aa', 'bb']"]
    assert kraft("dump", path, "--json").document["files"][0]["entries"] == [
        {"offset": 812, "epoch": 7, "voter_directory_ids": ["aa", "bb"]}
    ]
    assert kraft("verify", data).exit_code == kraft("verify", path).exit_code == 0
    flip(path, 20)
    for argument in (data, path):
        result = kraft("verify", argument)
        assert result.exit_code == 1
        assert f"damage: {path} at byte 0: the checksum" in result.output


HERE, ELSEWHERE = "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"


def test_the_list_of_partitions_is_printed_and_checked(kraft: Kraft, data: Path) -> None:
    path = data / PARTITION_DIRECTORIES
    orders, logs = TopicPartition("orders", 0), TopicPartition("logs", 2)
    topic_id = bytes(15) + b"\1"
    lines = [
        Line(5, orders, Placement(topic_id, HERE)),
        Line(6, logs, Placement(None, ELSEWHERE)),
        Line(7, logs, None),
    ]
    path.write_bytes(b"".join(line.encode() for line in lines))
    assert kraft("dump", path).lines[1:] == [
        f"number: 5 change: placed topic: orders partition: 0 topicId: AAAAAAAAAAAAAAAAAAAAAQ directoryId: {HERE}",
        f"number: 6 change: placed topic: logs partition: 2 topicId: none directoryId: {ELSEWHERE}",
        "number: 7 change: removed topic: logs partition: 2",
    ]
    shown = kraft("dump", path, "--json").document["files"][0]
    assert shown["kind"] == "partition-directories"
    assert shown["entries"][0] == {
        "number": 5, "change": "placed", "topic": "orders", "partition": 0,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "directory_id": HERE,
    }  # fmt: skip
    for argument in (data, path):
        assert (
            kraft("verify", argument)
            .lines[-1]
            .startswith("sound: 0 damaged places, 0 unreadable files, 0 notes")
        )
    flip(path, 20)
    for argument in (data, path):
        result = kraft("verify", argument)
        assert result.exit_code == 1
        assert f"damage: {path} at byte 0: " in result.output


def test_a_torn_line_and_a_missing_folder_of_the_list_are_notes(kraft: Kraft, data: Path) -> None:
    path = data / PARTITION_DIRECTORIES
    whole = Line(5, TopicPartition("logs", 2), Placement(None, HERE)).encode()
    path.write_bytes(whole + Line(6, TopicPartition("logs", 3), Placement(None, HERE)).encode()[:-9])
    result = kraft("verify", data)
    assert result.exit_code == 0
    assert f"note: {path} at byte {len(whole)}: a torn last line" in result.output
    assert f"note: {path}: it places logs-2 here, which has no folder" in result.output


def test_what_a_broker_has_noted_of_damage_is_told(kraft: Kraft, folder: Path) -> None:
    """Its offsets alone are wrong: no checksum says so, and the segment is not to be believed."""
    log, path = folder / f"{FIRST}.log", folder / DAMAGE_NOTE
    note = {"version": 0, "file": log.name, "position": 0, "reason": "it went wrong"}
    note |= {"limit_offset": 2, "latest_epoch": 9, "epochs_disagree": False}
    path.write_text(json.dumps(note))
    assert kraft("dump", path).lines[1:] == [
        f"file: {log.name} position: 0 reason: it went wrong limitOffset: 2 latestEpoch: 9 epochsDisagree: false"
        " lastOffset: none endsElsewhere: false"
    ]
    entry = {name: value for name, value in note.items() if name != "version"}
    entry |= {"last_offset": None, "ends_elsewhere": False}
    assert kraft("dump", path, "--json").document["files"][0]["entries"] == [entry]
    result = kraft("verify", folder)
    assert result.exit_code == 1
    assert f"damage: {log} at byte 0: it went wrong" in result.output
    assert f"note: {path}: the broker has met damage in {log.name} at byte 0: it went wrong" in result.lines

    del note["limit_offset"]  # somebody has restored the file
    path.write_text(json.dumps(note))
    document = kraft("verify", folder, "--json").document
    assert (document["verdict"], document["errors"]) == ("sound", [])
    assert "the next start removes this note" in document["notes"][0]["reason"]
    path.write_text("[]")
    for argument in (folder, path):
        assert f"damage: {path} at byte 0: it notes damage" in kraft("verify", argument).output


def test_damage_that_was_noted_is_told_once(kraft: Kraft, folder: Path) -> None:
    log = folder / f"{FIRST}.log"
    flip(log, 100)
    note = {"version": 0, "file": log.name, "position": 0, "reason": "it fails its checksum"}
    (folder / DAMAGE_NOTE).write_text(json.dumps(note))
    document = kraft("verify", folder, "--json").document
    assert [error["path"] for error in document["errors"]].count(str(log)) == 1
    assert "it fails its checksum" in document["notes"][0]["reason"]


def test_dump_as_json_is_one_object(kraft: Kraft, folder: Path) -> None:
    result = kraft("dump", folder, "--print-data", "--json")
    assert result.exit_code == 0
    document = result.document
    assert document["error"] is None
    kinds = [file["kind"] for file in document["files"]]
    assert kinds.count("log") == 3
    batches = [batch for file in document["files"] for batch in file.get("batches", ())]
    assert [batch["base_offset"] for batch in batches] == [0, 3, 6, 9, 12, 15, 18, 21, 24]
    records = [record for batch in batches for record in batch["records"]]
    assert [record["offset"] for record in records] == list(range(25))
    assert records[0]["key"] == "key-0"
    assert records[0]["headers"] == [{"key": "h", "value_base64": "AP8="}, {"key": "n", "value": None}]
    assert records[1]["key"] is None
    assert records[-1]["control"] == {"type": "COMMIT", "coordinator_epoch": 7}
    epochs = next(file for file in document["files"] if file["kind"] == "leader-epoch-checkpoint")
    assert epochs["entries"][0] == {"epoch": 0, "start_offset": 0}


def test_damage_is_told_and_what_is_sound_is_shown(kraft: Kraft, folder: Path) -> None:
    path = folder / f"{FIRST}.log"
    (_, first), (second, _), *_ = iter_batches(path.read_bytes())
    flip(path, second + 70)
    result = kraft("dump", path, "--deep")
    assert result.exit_code == 1
    batches = [line for line in result.lines if line.startswith("baseOffset")]
    assert [line.rpartition(" ")[2] for line in batches] == ["true", "false", "true"]
    assert f"{path} is damaged at byte {second}: the batch fails its checksum" in result.errors
    document = kraft("dump", path, "--json").document
    (file,) = document["files"]
    assert [batch["is_valid"] for batch in file["batches"]] == [True, False, True]
    assert file["damage"][0]["position"] == first.size_bytes
    assert str(path) in document["error"]


def test_damaged_entries_end_a_file_and_the_next_goes_on(kraft: Kraft, folder: Path) -> None:
    index, epochs = folder / f"{FIRST}.index", folder / "leader-epoch-checkpoint"
    index.write_bytes(index.read_bytes() + b"torn")
    result = kraft("dump", index, epochs)
    assert result.exit_code == 1
    assert any(line.startswith("offset: ") for line in result.lines)
    assert "epoch: 0 startOffset: 0" in result.lines
    assert f"{index} is damaged at byte 16" in result.errors


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing-0", "does not exist"),
        ("notes.txt", "no file that a log has"),
        ("00000000000000000009-0000000001.checkpoint", "kraft metadata dump"),
        ("folder", "no partition's folder"),
    ],
)
def test_what_cannot_be_dumped_is_wrong_usage(kraft: Kraft, tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif name != "nothing-0":
        path.write_bytes(b"x")
    result = kraft("dump", path)
    assert result.exit_code == 2
    assert words in result.errors


def test_a_file_that_cannot_be_read_leaves_it_undecided(kraft: Kraft, folder: Path) -> None:
    (folder / "leader-epoch-checkpoint").unlink()
    (folder / "leader-epoch-checkpoint").mkdir()  # whoever reads it gets an OSError, root too
    assert kraft("dump", folder).exit_code == 3
    assert kraft("verify", folder).exit_code == 3


def test_terminals_get_no_commands_from_records() -> None:
    assert printable(b"a\x1b[31m\n\xff") == r"a\x1b[31m\n\xff"
    assert printable("Grüße\u202e".encode()) == "Grüße\\u202e"


# ---- verify


def test_a_sound_directory(kraft: Kraft, data: Path) -> None:
    result = kraft("verify", data)
    assert result.exit_code == 0, result.output
    assert result.lines[-1].startswith("sound: 0 damaged places")
    document = kraft("verify", data, "--json").document
    assert document["verdict"] == "sound"
    assert (document["partitions"], document["batches"], document["records"]) == (1, 9, 25)
    assert document["errors"] == document["notes"] == document["unreadable"] == []


@pytest.mark.parametrize("argument", ["", "orders-0", f"orders-0/{LAST}.log"])
def test_damage_names_file_byte_and_reason(kraft: Kraft, data: Path, argument: str) -> None:
    path = data / "orders-0" / f"{LAST}.log"
    flip(path, 100)
    result = kraft("verify", data / argument)
    assert result.exit_code == 1
    assert any(
        line.startswith(f"damage: {path} at byte 0: the batch fails its checksum") for line in result.lines
    )
    document = kraft("verify", data / argument, "--json").document
    assert document["verdict"] == "damaged"
    assert document["errors"][0]["path"] == str(path)
    assert document["errors"][0]["position"] == 0


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_is_checked_against_its_segment(kraft: Kraft, folder: Path, suffix: str) -> None:
    path = folder / f"{FIRST}.{suffix}"
    assert kraft("verify", path).exit_code == 0
    flip(path, 7)
    result = kraft("verify", path)
    assert result.exit_code == 1
    assert f"damage: {path} at byte 0" in result.output


def test_small_files_are_checked_alone(kraft: Kraft, folder: Path) -> None:
    path = folder / f"{LAST}.snapshot"
    assert kraft("verify", path).exit_code == 0
    flip(path, 30)
    assert "fails its checksum" in kraft("verify", path).output


def test_a_torn_tail_of_a_crashed_broker_is_a_note(kraft: Kraft, tmp_path: Path) -> None:
    data = write(crashed_directory(), tmp_path)
    path = data / "orders-0" / f"{LAST}.log"
    os.truncate(path, path.stat().st_size - 3)
    result = kraft("verify", data)
    assert result.exit_code == 0
    assert result.lines[0].startswith(f"note: {path} at byte")
    assert "the next start cuts them" in result.lines[0]
    (note,) = kraft("verify", path, "--json").document["notes"]
    assert note["path"] == str(path)


def test_holes_may_be_allowed(kraft: Kraft, folder: Path) -> None:
    for path in folder.glob("00000000000000000009.*"):
        path.unlink()
    assert kraft("verify", folder).exit_code == 1
    assert kraft("verify", folder, "--compacted").exit_code == 0


def test_nothing_is_written(kraft: Kraft, data: Path) -> None:
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.rglob("*") if path.is_file()
    }
    for path in before:
        path.chmod(0o400)
    assert kraft("verify", data).exit_code == 0
    assert kraft("dump", data / "orders-0", "--print-data").exit_code == 0
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.rglob("*") if path.is_file()}
    assert after == before


def test_what_cannot_be_verified_is_wrong_usage(kraft: Kraft, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for name, words in (
        ("plain", "neither a data directory"),
        ("notes.txt", "no file"),
        ("gone", "not exist"),
    ):
        result = kraft("verify", tmp_path / name)
        assert result.exit_code == 2
        assert words in result.errors
