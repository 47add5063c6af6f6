"""Profiles: made, used, shown without their secrets; and what counts where several things name a cluster."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.cli.shared.bootstrap import BOOTSTRAP_VARIABLE, default_bootstrap
from kraft.cli.shared.profiles import PROFILE_VARIABLE, profile_file, profile_in_use
from kraft.local_cluster.cluster import LocalCluster
from kraft.security.token_login import TokenLogin
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, UserError

SECURED = """bootstrap.servers=there:9092
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.username=alice
sasl.password=pass\\\\word\\u00e9
ssl.ca.location=ca.pem
client.id=left alone
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one; profiles are in `config` beside it."""
    for variable in (BOOTSTRAP_VARIABLE, PROFILE_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def secured(home: Path) -> str:
    """The name of a profile made of a file."""
    (home / "client.properties").write_text(SECURED)
    assert run(["profile", "create", "safe", "--command-config", "client.properties"]) == EXIT_DONE
    return "safe"


def make(name: str, servers: str) -> None:
    assert run(["profile", "create", name, "--bootstrap-server", servers]) == EXIT_DONE


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    capsys.readouterr()
    assert run(["profile", *arguments, "--json"]) == EXIT_DONE
    return json.loads(capsys.readouterr().out)


def test_a_profile_is_its_owners_alone_and_names_files_from_the_root(secured: str, home: Path) -> None:
    path = profile_file(secured)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = path.read_text().splitlines()
    assert f"ssl.ca.location={home / 'ca.pem'}" in lines
    assert not any(line.startswith("client.id") for line in lines)


def test_what_it_says_comes_back_as_it_was(secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROFILE_VARIABLE, secured)
    servers = default_bootstrap()
    assert servers == "there:9092"
    credentials = servers.config.security.credentials
    assert credentials is not None
    assert (credentials.username, credentials.password) == ("alice", "pass\\wordé")


def test_no_secret_is_shown(secured: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "show", secured]) == EXIT_DONE
    assert run(["profile", "show", secured, "--json"]) == EXIT_DONE
    assert run(["profile", "list"]) == EXIT_DONE
    shown = capsys.readouterr()
    assert "alice" in shown.out
    assert "pass\\" not in shown.out + shown.err


def test_a_profile_with_tokens_keeps_what_says_where_they_come_from(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And shows all of it but the secret."""
    (home / "client.properties").write_text(
        "bootstrap.servers=there:9092\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.method=oidc\nsasl.oauthbearer.client.id=app\nsasl.oauthbearer.client.secret=hunter2\n"
        "sasl.oauthbearer.token.endpoint.url=https://issuer/token\nsasl.oauthbearer.extensions=pool=hunter3\n"
        "https.ca.location=ca.pem\nsasl.login.read.timeout.ms=500\n"
    )
    assert run(["profile", "create", "tokens", "--command-config", "client.properties"]) == EXIT_DONE
    monkeypatch.setenv(PROFILE_VARIABLE, "tokens")
    assert default_bootstrap().config.security.credentials == TokenLogin(
        "https://issuer/token",
        "app",
        "hunter2",
        extensions=(("pool", "hunter3"),),
        trusted_file=str(home / "ca.pem"),
        read_timeout_ms=500,
    )
    assert run(["profile", "show", "tokens"]) == EXIT_DONE
    shown = capsys.readouterr()
    assert "sasl.oauthbearer.token.endpoint.url=https://issuer/token" in shown.out
    assert "hunter" not in shown.out + shown.err


def test_a_profile_with_tokens_of_another_kind_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "client.properties").write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.config=principal=hunter2\n"
    )
    assert run(["profile", "create", "tokens", "--command-config", "client.properties"]) == EXIT_USAGE
    told = capsys.readouterr().err
    assert "sasl.oauthbearer.config is not supported" in told
    assert "hunter" not in told


def test_profiles_are_listed_with_the_one_in_use(secured: str, capsys: pytest.CaptureFixture[str]) -> None:
    make("plain", "a:1,b:2")
    assert document(capsys, "use", "plain") == {"profile": "plain"}
    assert document(capsys, "list") == {
        "profiles": [
            {
                "name": "plain",
                "bootstrap_servers": "a:1,b:2",
                "security_protocol": "PLAINTEXT",
                "in_use": True,
            },
            {
                "name": secured,
                "bootstrap_servers": "there:9092",
                "security_protocol": "SASL_SSL",
                "in_use": False,
            },
        ]
    }


def test_the_nearest_counts(home: Path, secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_bootstrap() == "127.0.0.1:9092"
    assert run(["profile", "use", secured]) == EXIT_DONE
    assert default_bootstrap() == "there:9092"
    spec = LocalCluster(home / ".kraft").create(1, 19092, {})
    assert default_bootstrap() == spec.bootstrap_servers()
    make("named", "c:3")
    monkeypatch.setenv(PROFILE_VARIABLE, "named")
    assert default_bootstrap() == "c:3"
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "d:4")
    assert default_bootstrap() == "d:4"


def test_a_secured_cluster_in_this_folder_is_spoken_to_as_its_admin(home: Path) -> None:
    spec = LocalCluster(home / ".kraft").create(1, 19092, {}, secure=True)
    servers = default_bootstrap()
    assert spec.identities is not None
    credentials = servers.config.security.credentials
    assert credentials is not None
    assert credentials.password == spec.identities.admin_password


def test_a_profile_that_cannot_be_removed_stays_in_use(
    secured: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", "use", secured]) == EXIT_DONE

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert run(["profile", "remove", secured]) == EXIT_FAILED
    said = capsys.readouterr().err
    assert f"cannot remove {profile_file(secured)}: Permission denied" in " ".join(said.split())
    assert "Traceback" not in said
    assert profile_in_use() == secured


def test_a_profile_that_is_removed_is_not_used(secured: str) -> None:
    assert run(["profile", "use", secured]) == EXIT_DONE
    assert profile_in_use() == secured
    assert run(["profile", "remove", secured]) == EXIT_DONE
    assert profile_in_use() is None
    assert default_bootstrap() == "127.0.0.1:9092"


def test_none_is_used_any_more(secured: str) -> None:
    assert run(["profile", "use", secured]) == EXIT_DONE
    assert run(["profile", "use"]) == EXIT_DONE
    assert profile_in_use() is None


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("create", "../x", "--bootstrap-server", "a:1"), EXIT_USAGE, "a profile's name has"),
        (("create", "x"), EXIT_USAGE, "say where it is"),
        (("create", "x", "--bootstrap-server", "nowhere"), EXIT_USAGE, "takes HOST:PORT"),
        (("create", "safe", "--bootstrap-server", "a:1"), EXIT_FAILED, "there is a profile safe already"),
        (("use", "other"), EXIT_USAGE, "there is no profile other; there are: safe"),
        (("remove", "other"), EXIT_USAGE, "there is no profile other"),
        (("show", "other"), EXIT_USAGE, "there is no profile other"),
    ],
)
@pytest.mark.usefixtures("secured")
def test_what_cannot_be_done_is_a_sentence(
    arguments: tuple[str, ...], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", *arguments]) == code
    assert told in " ".join(capsys.readouterr().err.split())


def test_one_of_the_two_options(secured: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["topics", "list", "--profile", secured, "--command-config", "client.properties"]
    assert run(asked) == EXIT_USAGE
    assert "give one of them" in capsys.readouterr().err


def test_a_profile_in_the_place_of_another(secured: str) -> None:
    assert run(["profile", "create", secured, "--bootstrap-server", "e:5", "--replace"]) == EXIT_DONE
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(PROFILE_VARIABLE, secured)
        assert default_bootstrap() == "e:5"
        assert default_bootstrap().config.security.credentials is None


def test_a_variable_that_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROFILE_VARIABLE, "gone")
    with pytest.raises(UserError, match="there is no profile gone; there are: none"):
        default_bootstrap()
