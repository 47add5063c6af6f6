"""`kraft storage`: ids and formatting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.runtime.disk import RealDisk
from kraft.storage import format_node, new_uuid
from kraft.user_error import EXIT_USAGE, UserError
from partitions.log.node_logs.meta_properties import read_meta_properties
from quorum.bootstrap_checkpoint import read_bootstrap

CLUSTER_ID = "kraftTestingClusterIdA"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=4\ncontroller.quorum.voters=4@localhost:9093\n"
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return path


def test_ids_are_of_22_characters_and_fit_an_option() -> None:
    ids = {new_uuid() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)


def test_every_folder_is_formatted_once(config: Path, tmp_path: Path) -> None:
    folders = [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert format_node(CLUSTER_ID, config, ignore_formatted=False) == folders
    identities = [read_meta_properties(RealDisk(), folder) for folder in folders]
    assert all(found and (found.cluster_id, found.node_id) == (CLUSTER_ID, 4) for found in identities)
    assert len({found.directory_id for found in identities if found}) == 2
    with pytest.raises(UserError, match="--ignore-formatted"):
        format_node(CLUSTER_ID, config, ignore_formatted=False)
    assert format_node(CLUSTER_ID, config, ignore_formatted=True) == []
    with pytest.raises(UserError, match="belongs to node 4"):
        format_node(new_uuid(), config, ignore_formatted=True)


@pytest.mark.parametrize("text", ["", "short", "x" * 23, "!" * 22, "ä" * 22])
def test_what_is_no_cluster_id_is_wrong_usage(config: Path, text: str) -> None:
    with pytest.raises(UserError) as caught:
        format_node(text, config, ignore_formatted=False)
    assert caught.value.exit_code == EXIT_USAGE


def test_a_configuration_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        format_node(CLUSTER_ID, tmp_path / "missing", ignore_formatted=False)
    (tmp_path / "bad").write_text("node.id=x\n")
    with pytest.raises(UserError, match=r"node\.id"):
        format_node(CLUSTER_ID, tmp_path / "bad", ignore_formatted=False)


def test_json_tells_what_was_made(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", "random-uuid", "--json"]) == 0
    cluster_id = json.loads(capsys.readouterr().out)["uuid"]
    for formatted in ([f"{tmp_path}/a", f"{tmp_path}/b"], []):
        command = ["storage", "format", "-g", "-t", cluster_id, "-c", str(config), "--json"]
        assert run(command) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out) == {"cluster_id": cluster_id, "formatted": formatted}


def test_chosen_levels_are_in_the_metadata_folder_of_a_controller(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(f"{config.read_text()}metadata.log.dir={tmp_path}/b\n")
    wanted = ("--feature", "group.version=0", "--feature", "metadata.version=25")
    command = ["storage", "format", "-t", CLUSTER_ID, "-c", str(config)]
    assert run([*command, *wanted]) == 0
    assert "no effect" not in capsys.readouterr().err
    assert read_bootstrap(RealDisk(), f"{tmp_path}/a") == {}
    assert read_bootstrap(RealDisk(), f"{tmp_path}/b") == {"group.version": 0, "metadata.version": 25}
    assert run([*command, "--feature", "group.version=1", "--ignore-formatted"]) == 0
    assert read_bootstrap(RealDisk(), f"{tmp_path}/b")["group.version"] == 0, "it may be in use"
    assert f"{tmp_path}/b was formatted before" in capsys.readouterr().err


def test_a_broker_alone_starts_no_cluster(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        config.read_text().replace("broker,controller", "broker").replace(",CONTROLLER://localhost:9093", "")
    )
    config.write_text(text.replace("node.id=4", "node.id=5"))
    assert (
        run(["storage", "format", "-t", CLUSTER_ID, "-c", str(config), "--feature", "group.version=0"]) == 0
    )
    assert "this node is none" in capsys.readouterr().err
    assert read_bootstrap(RealDisk(), f"{tmp_path}/a") == {}


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        (("group.version=2",), "group.version has the levels 0 to 1, not 2"),
        (("metadata.version=24",), "metadata.version has the levels 25 to 26, not 24"),
        (("group.versions=1",), "there is no feature 'group.versions'; there are eligible"),
        (("group.version=",), "a level is a number from 0 to 32767, not ''"),
        (("group.version=-1",), "not '-1'"),
        (("group.version=32768",), "not '32768'"),
        (("group.version=" + "9" * 5000,), "not '9999"),
        (("group.version=1", "group.version=1"), "--feature names group.version twice"),
        (("group.version",), "takes key=value"),
    ],
)
def test_what_is_no_level_of_a_feature_is_wrong_usage(
    features: tuple[str, ...],
    sentence: str,
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = [word for feature in features for word in ("--feature", feature)]
    assert run(["storage", "format", "-t", CLUSTER_ID, "-c", str(config), *options]) == EXIT_USAGE
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
