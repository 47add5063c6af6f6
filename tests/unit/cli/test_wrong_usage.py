"""What Kafka's protocol cannot hold is wrong usage: a sentence, before anything is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.protocol.schemas.metadata import MetadataRequest
from kraft.user_error import EXIT_USAGE
from tests.support.fake_broker import FakeCluster

HUGE = "99999999999"
BYTES = "a\udcff"
"""How an argument arrives that is no UTF-8."""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        made.create_topic("t")
        yield made


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "create", "t", "--partitions", HUGE),
        ("topics", "create", "t", "--replication-factor", "40000"),
        ("topics", "create", "t", "--config", f"k={BYTES}"),
        ("topics", "create", BYTES),
        ("topics", "alter", "t", "--partitions", HUGE),
        ("topics", "describe", BYTES),
        ("topics", "delete", BYTES),
        ("topics", "elect-leaders", "t", "--partition", HUGE, "--election-type", "preferred"),
        ("reassign", "start", "t", "--to", HUGE),
        ("reassign", "start", "t", "--to", "1_2"),
        ("reassign", "start", "t", "--to", "+1"),
        ("reassign", "start", "t", "--to", HUGE, "--throttle", "1"),
        ("reassign", "start", "t", "--to", "1", "--partition", HUGE),
        ("reassign", "cancel", "t", "--partition", HUGE),
        ("configs", "alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", f"k={BYTES}"),
        ("features", "upgrade", "--feature", f"{BYTES}=1"),
        ("features", "downgrade", "--feature", f"group.version={HUGE}"),
        ("produce", BYTES, "/dev/null"),
        ("produce", "t", "/dev/null", "--key-separator", BYTES),
        ("produce", "t", "/dev/null", "--header", f"k={BYTES}"),
        ("consume", "t", "--offset", str(2**63)),
        ("consume", "t", "--format", f"{BYTES}%v"),
        ("consume", BYTES, "--exit-at-end"),
    ],
)
def test_it_is_a_sentence(
    command: tuple[str, ...], cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--bootstrap-server", cluster.bootstrap]) == EXIT_USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error:" in shown.err
    assert all(isinstance(request, MetadataRequest) for _, request in cluster.requests)


@pytest.mark.parametrize("option", [("--dir", "{}/\udcff"), ("--set", f"num.partitions={BYTES}")])
def test_a_cluster_is_configured_with_text(
    option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ("--dir", str(tmp_path / "c"), "--nodes", "1", "--port", "19092")
    assert run(["cluster", "start", *folder, option[0], option[1].format(tmp_path)]) == EXIT_USAGE
    assert "'\\udcff'" in capsys.readouterr().err
