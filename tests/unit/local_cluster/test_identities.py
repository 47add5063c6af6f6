"""What `kraft cluster start --secure` writes: who may read it, whom it names, that nothing stays behind."""

from __future__ import annotations

import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from kraft.cli.app import run
from kraft.cli.shared.command_config import read_command_config
from kraft.config import load_config
from kraft.local_cluster.cluster import LocalCluster
from kraft.local_cluster.credentials import VALID_FOR
from kraft.local_cluster.identities import AUTHORITY_FILE, CERTIFICATE_FILE, CLIENT_FILES, Identities
from kraft.local_cluster.spec import node_config
from kraft.user_error import EXIT_USAGE, UserError


@pytest.fixture
def secured(tmp_path: Path) -> LocalCluster:
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.create(2, 19092, {}, secure=True)
    return cluster


def identities(cluster: LocalCluster) -> Identities:
    found = cluster.spec().identities
    assert found is not None
    return found


def test_files_with_secrets_are_their_owners_alone(secured: LocalCluster) -> None:
    secrets = [identities(secured).admin_password, identities(secured).broker_password, "PRIVATE KEY"]
    found = []
    for path in (path for path in secured.directory.rglob("*") if path.is_file()):
        if any(secret in path.read_text(errors="replace") for secret in secrets):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            found.append(path.name)
    assert {*CLIENT_FILES, CERTIFICATE_FILE, "cluster.json", "server.properties"} == set(found)
    for node in secured.spec().nodes:  # metadata have what passwords are proved with
        assert stat.S_IMODE(secured.node_dir(node.id).stat().st_mode) == 0o700


def test_certificates_name_this_host_and_come_from_one_authority(secured: LocalCluster) -> None:
    authority = x509.load_pem_x509_certificate((secured.directory / AUTHORITY_FILE).read_bytes())
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    now = datetime.fromtimestamp(time.time(), UTC)
    for node in secured.spec().nodes:
        pem = (secured.node_dir(node.id) / CERTIFICATE_FILE).read_bytes()
        certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["localhost"]
        assert sorted(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "::1"]
        assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
        assert certificate.not_valid_before_utc < now < now + VALID_FOR - timedelta(days=2)
        assert certificate.not_valid_after_utc > now + VALID_FOR - timedelta(days=2)


def test_nobody_can_sign_another_certificate(secured: LocalCluster) -> None:
    keys = [
        path
        for path in secured.directory.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    ]
    assert {path.name for path in keys} == {CERTIFICATE_FILE}


def test_every_node_has_a_configuration_that_loads(secured: LocalCluster) -> None:
    for node in secured.spec().nodes:
        config = load_config(node_config(secured.directory, node.id).read_text())
        assert config.inter_broker_listener.name == "CLIENTS"


@pytest.mark.parametrize("name", ["client.properties", "java.properties"])
def test_files_of_clients_are_what_commands_take(secured: LocalCluster, name: str) -> None:
    config = read_command_config(secured.directory / name)
    assert config.servers == secured.spec().bootstrap_servers()
    credentials = config.security.credentials
    assert credentials is not None
    assert (credentials.username, credentials.password) == ("admin", identities(secured).admin_password)


def test_files_of_clients_say_the_same(secured: LocalCluster) -> None:
    java = read_command_config(secured.directory / "java.properties")
    spark = (secured.directory / "spark.properties").read_text().splitlines()[1:]
    assert dict(line.split("=", 1) for line in spark) == {
        "kafka.bootstrap.servers": java.servers,
        **java.options,
    }


def test_no_password_is_shown(secured: LocalCluster) -> None:
    spec = secured.spec()
    assert identities(secured).admin_password not in repr(spec)
    assert identities(secured).broker_password not in repr(spec)


def test_clusters_have_nothing_in_common(secured: LocalCluster, tmp_path: Path) -> None:
    other = LocalCluster(tmp_path / "other")
    other.create(1, 19192, {}, secure=True)
    assert identities(other) != identities(secured)
    assert (other.directory / AUTHORITY_FILE).read_bytes() != (
        secured.directory / AUTHORITY_FILE
    ).read_bytes()


def test_destroying_removes_all_of_it(secured: LocalCluster) -> None:
    assert secured.destroy()
    assert not secured.directory.exists()


def test_files_of_the_user_are_neither_overwritten_nor_removed(tmp_path: Path) -> None:
    """They have usual names."""
    files = [tmp_path / name for name in (*CLIENT_FILES, AUTHORITY_FILE)]
    for file in files:
        file.write_text("the user's")
    cluster = LocalCluster(tmp_path)
    with pytest.raises(UserError, match=r"client\.properties, .*ca\.pem into .*: move them"):
        cluster.create(1, 19092, {}, secure=True)
    assert sorted(tmp_path.iterdir()) == sorted(files)
    cluster.create(1, 19092, {})
    assert cluster.destroy()
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert {file.read_text() for file in files} == {"the user's"}


@pytest.mark.parametrize("name", ["データ" * 20, "x" * 200])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    LocalCluster(tmp_path / name).create(1, 19092, {}, secure=True)


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no text"):
        LocalCluster(tmp_path / os.fsdecode(b"x\xff")).create(1, 19092, {}, secure=True)


def test_a_setting_that_cannot_work_leaves_nothing_behind(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    with pytest.raises(UserError, match=r"num\.partitions"):
        cluster.create(2, 19092, {"num.partitions": "many"}, secure=True)
    assert list(cluster.directory.iterdir()) == []


def test_a_cluster_that_is_there_is_not_secured_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LocalCluster(tmp_path / "c").create(1, 19092, {})
    assert run(["cluster", "start", "--dir", str(tmp_path / "c"), "--secure"]) == EXIT_USAGE
    assert "--secure (it is not)" in capsys.readouterr().err.replace("\n", " ")
