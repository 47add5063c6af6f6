"""`kraft storage`: ids and formatting."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.runtime.disk import RealDisk
from kraft.security.scram import salted_password, scram_keys
from kraft.storage import format_node, new_uuid
from kraft.user_error import EXIT_USAGE, UserError
from partitions.log.node_logs.meta_properties import read_meta_properties
from quorum.bootstrap_checkpoint import Bootstrap, read_bootstrap

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


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """As Kafka's own file has it: nothing lists the voters."""
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path}/file\n"
    )
    return path


def test_a_quorum_of_one_has_to_be_said(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["storage", "format", "-t", CLUSTER_ID, "-c", str(alone)]
    assert run(command) == EXIT_USAGE
    assert "--standalone" in capsys.readouterr().err
    assert not (tmp_path / "file").exists()
    assert run([*command, "--standalone"]) == 0
    assert read_meta_properties(RealDisk(), f"{tmp_path}/file") is not None


def test_a_quorum_of_several_is_not_standalone(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["storage", "format", "-t", CLUSTER_ID, "-c", str(config), "--standalone"]
    assert run(command) == 0  # it is the only voter
    voters = "controller.quorum.voters=4@localhost:9093,5@localhost:9094\n"
    config.write_text(config.read_text() + voters + f"log.dirs={tmp_path}/c\n")
    assert run(command) == EXIT_USAGE
    assert "controller.quorum.voters names 5" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_the_environment_goes_over_the_file(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_LOG_DIRS", f"{tmp_path}/variable")
    monkeypatch.setenv("KAFKA_HEAP_OPTS", "-Xmx1G")
    command = ["storage", "format", "-t", CLUSTER_ID, "-c", str(alone), "--standalone", "--json"]
    assert run(command) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["formatted"] == [f"{tmp_path}/variable"]
    assert "taken from the environment: KAFKA_LOG_DIRS\n" in shown.err
    assert not (tmp_path / "file").exists()
    monkeypatch.setenv("KAFKA_BROKER_ID", "1")
    assert run(command) == 1
    sentence = f"{alone}, with KAFKA_BROKER_ID, KAFKA_LOG_DIRS over it: KAFKA_BROKER_ID (broker.id) is a key of older"
    assert sentence in capsys.readouterr().err


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
    assert read_bootstrap(RealDisk(), f"{tmp_path}/a") == Bootstrap()
    assert read_bootstrap(RealDisk(), f"{tmp_path}/b").levels == {"group.version": 0, "metadata.version": 25}
    assert run([*command, "--feature", "group.version=1", "--ignore-formatted"]) == 0
    assert read_bootstrap(RealDisk(), f"{tmp_path}/b").levels["group.version"] == 0, "it may be in use"
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
    assert read_bootstrap(RealDisk(), f"{tmp_path}/a") == Bootstrap()


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


def test_first_users_are_in_the_metadata_folder_and_their_passwords_are_not(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "password"
    secret.write_text("of bob\n")
    salt, salted = base64.b64encode(b"pepper").decode(), base64.b64encode(bytes(64)).decode()
    command = ["storage", "format", "-t", CLUSTER_ID, "-c", str(config)]
    command += ["--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"]
    command += ["-S", f"SCRAM-SHA-512=[name=bob,iterations=8192,password=@{secret}]"]
    command += ["-S", f'SCRAM-SHA-512=[name="c=d",salt="{salt}",saltedpassword={salted}]']
    assert run(command) == 0
    users = {user.name: user for user in read_bootstrap(RealDisk(), f"{tmp_path}/a").users}
    assert [(user.name, user.mechanism, user.iterations) for user in users.values()] == [
        ("alice", 1, 4096),
        ("bob", 2, 8192),
        ("c=d", 2, 4096),
    ]
    bob = users["bob"]
    keys = scram_keys("SCRAM-SHA-512", salted_password("SCRAM-SHA-512", "of bob", bob.salt, 8192))
    assert keys == (bob.stored_key, bob.server_key)
    assert users["c=d"].salt == b"pepper"
    file = tmp_path / "a" / "bootstrap.checkpoint"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"alice-secret" not in file.read_bytes()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SCRAM-SHA-256", "it takes MECHANISM=[name=NAME,password=PASSWORD]"),
        ("PLAIN=[name=a,password=Xx]", "PLAIN is no mechanism; use SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=Xx]", "it needs a name of 1 to 255 characters"),
        ("SCRAM-SHA-256=[name=a,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=a,password=Xx,iterations=4095]", "iterations is a number from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=Xx,salt=?]", "salt is no base64"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=Xx==]", "a saltedpassword needs its salt"),
        ("SCRAM-SHA-256=[name=a,salt=YQ==,saltedpassword=YQ==]", "has 32 bytes"),
        ("SCRAM-SHA-256=[name=a]", "it needs one of password and saltedpassword"),
        ("SCRAM-SHA-256=[name=a,pasword=Xx]", "within the brackets stand iterations, name, password"),
        ("SCRAM-SHA-256=[name=a,password=@/not/there]", "cannot read /not/there"),
    ],
)
def test_what_is_no_user(text: str, sentence: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", "format", "-t", CLUSTER_ID, "-c", str(config), "--add-scram", text]) in (1, 2)
    told = " ".join(capsys.readouterr().err.split())
    assert sentence in told
    assert "Xx" not in told
