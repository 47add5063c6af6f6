"""`kraft log dump` and `kraft log verify` among files that are none: nobody is waited for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.storage import new_uuid
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED

REASON = "it is no regular file"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0"
    path.mkdir()
    return path


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", f"{0:020}.log", f"{7:020}.snapshot"])
@pytest.mark.parametrize("is_named", [False, True])
def test_a_pipe_of_a_partition_cannot_be_read(
    name: str, is_named: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = folder / name
    os.mkfifo(pipe)
    argument = str(pipe if is_named else folder)
    assert run(["log", "dump", argument]) == EXIT_UNDECIDED
    assert f"cannot read {pipe}: {REASON}" in capsys.readouterr().err
    assert run(["log", "verify", argument, "--json"]) == EXIT_UNDECIDED
    (finding,) = json.loads(capsys.readouterr().out)["unreadable"]
    assert (finding["path"], finding["position"]) == (str(pipe), None)
    assert REASON in finding["reason"]


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_a_pipe_of_a_data_directory_cannot_be_read(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = f"version=1\ncluster.id=c\nnode.id=1\ndirectory.id={new_uuid()}\n"
    (tmp_path / "meta.properties").write_text(identity)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    assert run(["log", "verify", str(tmp_path)]) == EXIT_UNDECIDED
    assert f"unreadable: {tmp_path / name}: it cannot be read: {REASON}" in capsys.readouterr().out


def test_nor_can_one_of_a_voters_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{1:020}.log").touch()
    os.mkfifo(folder / "quorum-state")
    assert run(["log", "verify", str(folder)]) == EXIT_UNDECIDED
    assert f"{folder}/quorum-state: it cannot be read: {REASON}" in capsys.readouterr().out


def test_a_snapshot_that_nobody_reads_hides_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    os.mkfifo(folder / f"{1:020}-{1:010}.checkpoint")
    newest = folder / f"{2:020}-{1:010}.checkpoint"
    newest.write_bytes(b"rotten")
    assert run(["log", "verify", str(folder)]) == EXIT_FAILED
    assert f"damage: {newest}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["quorum-state", f"{1:020}.log", f"{1:020}-{1:010}.checkpoint"])
def test_a_dump_of_metadata_waits_for_no_pipe(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{1:020}.log").touch()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for source in (["--dir", str(tmp_path)], [str(folder / name)] * (name != "quorum-state")):
        if source:
            assert run(["metadata", "dump", *source]) == EXIT_FAILED
            assert REASON in capsys.readouterr().err


def test_a_pipe_that_is_none_of_a_journals_files_hides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{1:020}.log").touch()
    os.mkfifo(folder / "stray")
    assert run(["log", "verify", str(folder)]) == EXIT_DONE
    assert "stray" not in capsys.readouterr().out
