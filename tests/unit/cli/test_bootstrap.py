"""--bootstrap-server: one reading of it for every command, and what librdkafka gets of it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.cli.consume import positions
from kraft.cli.shared.bootstrap import (
    BOOTSTRAP_VARIABLE,
    address_text,
    bootstrap_text,
    default_bootstrap,
    parse_bootstrap,
)
from kraft.local_cluster.spec import DEFAULT_DIR, ClusterSpec, NodePorts
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError


def test_addresses() -> None:
    assert parse_bootstrap("a:1, b.c_d-e:2") == [("a", 1), ("b.c_d-e", 2)]
    assert parse_bootstrap("[::1]:9092,fe80::1%eth0:09092") == [("::1", 9092), ("fe80::1%eth0", 9092)]
    assert parse_bootstrap("a:1,") == parse_bootstrap(", a:1 ,,") == [("a", 1)]
    assert bootstrap_text("a:1,") == "a:1"
    assert parse_bootstrap("müller.example:65535") == [("müller.example", 65535)]


WRONG = (
    "",
    "a",
    ":1",
    "a:",
    "a:²",
    " , ",
    "a:0",
    "a:65536",
    f"a:{'9' * 5000}",
    "[]:1",
    "[a]:1",
    "[::1:1",
    "a b:1",
)


@pytest.mark.parametrize("text", [*WRONG, "a:b:1", "a" * 70 + ":1", "a..b:1", "\udcff:1"])
def test_what_is_no_address_is_wrong_usage(text: str) -> None:
    with pytest.raises(UserError, match="--bootstrap-server") as caught:
        parse_bootstrap(text)
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("produce", "t", "/dev/null"),
        ("consume", "t"),
        ("quorum", "describe"),
        ("metadata", "dump"),
    ],
)
@pytest.mark.parametrize("address", ["", "foo", "h:99999"])
def test_every_command_refuses_it(command: tuple[str, ...], address: str) -> None:
    assert run([*command, "--bootstrap-server", address]) == EXIT_USAGE


def test_an_ipv6_address_has_brackets_before_its_port() -> None:
    assert address_text("::1", 9092) == "[::1]:9092"
    assert bootstrap_text("::1:9092, a:1") == "[::1]:9092,a:1"


def test_librdkafka_finds_an_ipv6_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "METADATA_TIMEOUT_S", 0.5)
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        assert run(["consume", "t", "--bootstrap-server", f"[::1]:{port}"]) == EXIT_UNDECIDED
        server.accept()[0].close()


def test_a_stopped_cluster_of_this_folder_is_not_mistaken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stopped cluster keeps its ports, and another listens at one of them now."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        DEFAULT_DIR.mkdir()
        ClusterSpec("id", [NodePorts(1, port, 1, 2)], {}, "secret").write(DEFAULT_DIR)
        assert run(["topics", "delete", "t"]) == EXIT_FAILED
        assert "does not run, and another process listens at" in capsys.readouterr().err
        monkeypatch.setenv(BOOTSTRAP_VARIABLE, f"127.0.0.1:{port}")
        assert default_bootstrap() == f"127.0.0.1:{port}"
    monkeypatch.delenv(BOOTSTRAP_VARIABLE)
    assert run(["topics", "list"]) == EXIT_UNDECIDED, "nobody answers there"
