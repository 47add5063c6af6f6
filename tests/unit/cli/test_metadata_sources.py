"""`kraft metadata` over files and folders: what is shown, what is noted, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kraft.cli.app import run
from kraft.runtime.read_only_disk import ReadOnlyDisk
from tests.support.metadata_files import FOLDER, story, write_end_marker, write_segment, write_snapshot


class Result(NamedTuple):
    """What a command printed."""

    exit_code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


Kraft = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / FOLDER


@pytest.fixture
def kraft(capfd: pytest.CaptureFixture[str]) -> Kraft:
    def call(*arguments: object) -> Result:
        capfd.readouterr()
        exit_code = run([*map(str, arguments)])
        return Result(exit_code, *capfd.readouterr())

    return call


def starts(result: Result) -> list[list[str]]:
    """Offset, epoch and type of each line."""
    return [line.split(" ")[:3] for line in result.lines]


def test_a_journal_is_printed_one_record_a_line(kraft: Kraft, folder: Path) -> None:
    write_segment(folder, story())
    result = kraft("metadata", "dump", "--dir", folder.parent)
    assert result.exit_code == 0, result.errors
    assert starts(result) == [
        ["1", "0", "Barrier"],
        ["2", "1", "Barrier"],
        ["3", "1", "RegisterBroker"],
        ["3", "1", "RegisterBroker"],
        ["4", "1", "Topic"],
        ["4", "1", "Partition"],
        ["4", "1", "Config"],
        ["5", "1", "Rejected"],
        ["6", "2", "Barrier"],
    ]
    assert result.errors == ""
    part = kraft("metadata", "dump", "--dir", folder, "--from", 4, "--to", 5)
    assert part.lines == result.lines[4:8]


def test_the_json_object(kraft: Kraft, folder: Path) -> None:
    path = write_segment(folder, story())
    document = json.loads(kraft("metadata", "dump", path, "--json").output)
    assert document.keys() == {"source", "from_offset", "to_offset", "entries", "error"}
    assert (document["source"], document["from_offset"], document["to_offset"]) == (str(path), 1, 6)
    topic = document["entries"][3]
    assert topic.keys() == {"offset", "epoch", "sequence", "snapshot", "rejected", "records"}
    assert (topic["offset"], topic["epoch"], topic["sequence"], topic["rejected"]) == (4, 1, 1, None)
    assert [record["type"] for record in topic["records"]] == ["Topic", "Partition", "Config"]
    refused = document["entries"][4]
    assert "sequence 7" in refused["rejected"]
    assert [record["name"] for record in refused["records"]] == ["lost"]
    nothing = json.loads(kraft("metadata", "dump", path, "--json", "--from", 50).output)
    assert (nothing["entries"], nothing["from_offset"]) == ([], None)


def test_a_snapshot_stands_for_what_is_before_the_journal(kraft: Kraft, folder: Path) -> None:
    write_snapshot(folder, story()[:4])
    write_segment(folder, story()[2:])

    def offsets(*options: object) -> list[tuple[int, bool]]:
        result = kraft("metadata", "dump", "--dir", folder, "--json", *options)
        assert result.exit_code == 0, result.errors
        return [(entry["offset"], entry["snapshot"]) for entry in json.loads(result.output)["entries"]]

    assert offsets() == [(4, True), (5, False), (6, False)]
    assert offsets("--from", 5) == [(5, False), (6, False)]
    assert offsets("--from", 3) == [(3, False), (4, False), (5, False), (6, False)]
    assert offsets("--from", 1) == [(4, True), (5, False), (6, False)]
    assert offsets("--to", 4) == [(4, True)]
    assert offsets("--to", 3) == [(3, False)]
    assert "snapshot at offset 4" in kraft("metadata", "dump", "--dir", folder, "--to", 3).errors


def test_a_snapshot_file_is_shown_as_records(kraft: Kraft, folder: Path) -> None:
    path = write_snapshot(folder, story()[:4])
    result = kraft("metadata", "dump", path)
    assert starts(result) == [
        ["4", "1", "RegisterBroker"],
        ["4", "1", "RegisterBroker"],
        ["4", "1", "Topic"],
        ["4", "1", "Partition"],
        ["4", "1", "Config"],
    ]
    assert kraft("metadata", "dump", path, "--from", 5).output == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_damage_is_told_after_what_is_sound(kraft: Kraft, folder: Path, as_json: bool) -> None:
    path = write_segment(folder, story())
    write_end_marker(folder, 6)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for source in ([path], ["--dir", folder]):
        result = kraft("metadata", "dump", *source, *(["--json"] if as_json else []))
        assert result.exit_code == 1
        assert f"{path} is damaged at byte" in result.errors
        assert "Traceback" not in result.errors
        if as_json:
            document = json.loads(result.output)
            assert document["to_offset"] == 5
            assert str(path) in document["error"]
        else:
            assert starts(result)[-1] == ["5", "1", "Rejected"]
    shown = kraft("metadata", "shell", "--dir", folder, "ls")
    assert (shown.exit_code, shown.output) == (1, "")
    assert path.read_bytes() == content


def test_a_torn_tail_is_noted_and_no_failure(kraft: Kraft, folder: Path) -> None:
    path = write_segment(folder, story())
    path.write_bytes(path.read_bytes()[:-3])
    result = kraft("metadata", "dump", "--dir", folder)
    assert result.exit_code == 0
    assert starts(result)[-1][0] == "5"
    assert "unfinished entry" in result.errors


def test_files_that_vanish_while_they_are_read_leave_it_open(
    kraft: Kraft, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(folder, story())
    read_bytes = ReadOnlyDisk.read_bytes

    def dropped(disk: ReadOnlyDisk, path: str) -> bytes:
        if path.endswith(".log"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return read_bytes(disk, path)

    monkeypatch.setattr(ReadOnlyDisk, "read_bytes", dropped)
    for command in (("dump",), ("shell", "ls")):
        result = kraft("metadata", *command, "--dir", folder)
        assert (result.exit_code, result.output) == (3, "")
        assert "try again" in result.errors


def test_browsing_a_folder_and_files(kraft: Kraft, folder: Path) -> None:
    snapshot = write_snapshot(folder, story()[:4])
    segment = write_segment(folder, story()[4:])
    for source in (["--dir", folder], ["--file", snapshot, "--file", segment]):
        shown = kraft("metadata", "shell", *source, "cat", "/local/offset", "/topics/by-name/orders/name")
        assert (shown.exit_code, shown.lines) == (0, ["6", "orders"]), shown.errors
    assert kraft("metadata", "shell", "--dir", folder, "cat", "/nothing").exit_code == 1
    partial = kraft("metadata", "shell", "--file", segment, "ls")
    assert partial.exit_code == 1
    assert "only a part" in partial.errors


def test_wrong_usage(kraft: Kraft, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("text")
    for arguments, exit_code in (
        (["--dir", tmp_path, "--bootstrap-server", "localhost:1"], 2),
        (["--dir", tmp_path, other], 2),
        (["--from", 5, "--to", 4], 2),
        ([other], 2),
        ([tmp_path], 2),
        ([tmp_path / f"{1:020d}.log"], 1),
        (["--dir", tmp_path], 1),
        (["--dir", tmp_path / "missing"], 1),
        (["--config", tmp_path / "missing"], 1),
        (["--bootstrap-server", "nonsense"], 2),
    ):
        result = kraft("metadata", "dump", *arguments)
        assert (result.exit_code, result.output) == (exit_code, ""), (arguments, result.errors)
        assert result.errors.strip(), arguments


def test_a_secret_that_cannot_be_known_is_a_sentence(kraft: Kraft, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
        "listeners=CONTROLLER://localhost:9093\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path}/data\n"
    )
    result = kraft("quorum", "describe", "--config", config)
    assert result.exit_code == 1
    assert "controller.listener.secret" in result.errors
    for arguments in (
        ["--bootstrap-controller", "localhost:1"],
        ["--config", config, "--bootstrap-server", "localhost:1"],
    ):
        assert kraft("quorum", "describe", *arguments).exit_code == 2


def test_one_command_of_the_shell_is_an_object_with_json(kraft: Kraft, folder: Path) -> None:
    write_segment(folder, story())
    source = ("metadata", "shell", "--dir", folder.parent, "--json")
    shown = kraft(*source, "ls", "/brokers")
    assert shown.exit_code == 0, shown.errors
    assert json.loads(shown.output) == {"command": ["ls", "/brokers"], "lines": ["1", "2"]}
    assert json.loads(kraft(*source, "exit").output) == {"command": ["exit"], "lines": []}
    refused = kraft(*source, "cat", "/nowhere")
    assert (refused.exit_code, refused.output) == (1, "")
    assert kraft(*source).exit_code == 2
