"""Which brokers a command asks when nobody names any, and whose secret it uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.cli.quorum.controllers import require_config
from kraft.cli.shared.bootstrap import (
    BOOTSTRAP_VARIABLE,
    config_of_this_folder,
    default_bootstrap,
)
from kraft.local_cluster.cluster import LocalCluster
from kraft.local_cluster.node_process import process_stat
from kraft.local_cluster.spec import STATE_FILE, ClusterSpec
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError
from tests.support.fake_broker import FakeCluster


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty."""
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def spec(folder: Path) -> ClusterSpec:
    """A cluster in `./.kraft` that does not run."""
    return LocalCluster(folder / ".kraft").create(3, 19092, {})


def test_without_a_cluster_it_is_this_host() -> None:
    assert default_bootstrap() == "127.0.0.1:9092"


def test_all_nodes_of_the_cluster_in_this_folder(spec: ClusterSpec) -> None:
    assert default_bootstrap() == spec.bootstrap_servers()
    assert spec.bootstrap_servers().count(",") == 2


@pytest.mark.parametrize("is_running", [True, False])
def test_a_cluster_that_does_not_run_is_told(
    is_running: bool, spec: ClusterSpec, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What asks it then fails as it does for any other: it may run where its processes cannot be seen from here."""
    stat = process_stat(os.getpid())
    assert stat is not None
    if is_running:
        (folder / ".kraft" / "node-3" / "pid").write_text(f"{os.getpid()} {stat.start_time}\n")
    assert default_bootstrap() == spec.bootstrap_servers()
    told = "the cluster in .kraft does not run; `kraft cluster start` starts it\n"
    assert capsys.readouterr().err == ("" if is_running else told)


@pytest.mark.usefixtures("spec")
def test_the_environment_comes_before_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "a:1,b:2")
    assert default_bootstrap() == "a:1,b:2"


def test_an_empty_variable_is_none(spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "")
    assert default_bootstrap() == spec.bootstrap_servers()


COMMANDS = [
    ("topics", "list"),
    ("configs", "describe", "--entity-type", "brokers"),
    ("reassign", "list"),
    ("produce", "t", "/dev/null"),
    ("consume", "t"),
    ("quorum", "describe"),
    ("metadata", "dump"),
    ("metadata", "shell", "ls"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_the_variable(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "nowhere")
    assert run([*command]) == EXIT_USAGE
    assert f"{BOOTSTRAP_VARIABLE} takes HOST:PORT[,…], not 'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_cluster_is_told_not_passed_over(
    command: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / ".kraft").mkdir()
    (folder / ".kraft" / STATE_FILE).write_text("{")
    assert run([*command]) == EXIT_FAILED
    shown = capsys.readouterr().err
    assert "cluster.json is damaged" in shown
    assert BOOTSTRAP_VARIABLE in shown


def test_what_is_named_comes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the variable nor the folder is looked at then."""
    (folder / ".kraft").mkdir()
    (folder / ".kraft" / STATE_FILE).write_text("{")
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "nowhere")
    with FakeCluster() as cluster:
        cluster.create_topic("there")
        assert run(["topics", "list", "--bootstrap-server", cluster.bootstrap]) == 0
    assert capsys.readouterr().out == "there\n"


def test_a_command_finds_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("found")
        monkeypatch.setenv(BOOTSTRAP_VARIABLE, cluster.bootstrap)
        assert run(["topics", "list"]) == 0
    assert capsys.readouterr().out == "found\n"


def test_the_secret_is_in_the_folder_of_its_own_cluster_only(spec: ClusterSpec, folder: Path) -> None:
    config = config_of_this_folder(spec.cluster_id)
    assert config is not None
    assert f"controller.listener.secret={spec.secret}\n" in config.read_text()
    assert config_of_this_folder("AAAAAAAAAAAAAAAAAAAAAA") is None
    (folder / ".kraft" / STATE_FILE).write_text("{")
    assert config_of_this_folder(spec.cluster_id) is None


def test_controllers_are_asked_with_the_secret_of_this_folder(spec: ClusterSpec) -> None:
    named = Path("named.properties")
    assert require_config(named) == named
    assert require_config(None) == config_of_this_folder(spec.cluster_id)


def test_controllers_without_a_secret_are_wrong_usage() -> None:
    with pytest.raises(UserError, match="--config FILE") as caught:
        require_config(None)
    assert caught.value.exit_code == EXIT_USAGE
