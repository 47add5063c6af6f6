"""The tree of an image, and the shell that walks it."""

from __future__ import annotations

import io
import json

import pytest

from kraft.cli.metadata.shell import (
    HISTORY_LINES,
    Leave,
    MetadataShell,
    ShellError,
    ShellUsageError,
    interact,
)
from kraft.metadata_view.tree import TreeFolder, metadata_tree, walk
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY
from quorum.metadata.records import Config, FeatureLevel, Partition, ProducerIds, Topic, VoterIdentity
from tests.support.metadata_files import BROKERS, ORDERS, TOPIC_ID, TOPIC_ID_TEXT

OTHER_ID = bytes([7]) * 16


def tree() -> TreeFolder:
    delta = MetadataDelta(EMPTY)
    records = [
        *BROKERS,
        *ORDERS,
        Partition(TOPIC_ID, 1, (2, 1), (2,), 2),
        Topic("other", OTHER_ID),
        Config("broker", "", "log.retention.ms", "5"),
        ProducerIds(1, 7, 2000),
        FeatureLevel("some.feature", 2),
        VoterIdentity(1, b"\1" * 16),
    ]
    for record in records:
        delta.apply(record, 7, 3)
    return metadata_tree(delta.finish(9, 3), "a test")


@pytest.fixture
def shell() -> MetadataShell:
    return MetadataShell(tree())


def run(shell: MetadataShell, line: str) -> list[str]:
    return list(shell.run_line(line))


def failure(shell: MetadataShell, line: str) -> str:
    with pytest.raises(ShellError) as caught:
        run(shell, line)
    return str(caught.value)


def test_the_tree_has_every_part_of_the_image() -> None:
    paths = [path for path, _ in walk(tree(), "/")]
    assert len(paths) == len(set(paths))
    for path in (
        "/brokers/1/registration",
        "/brokers/2/isFenced",
        "/topics/by-name/orders/id",
        "/topics/by-name/orders/0/data",
        f"/topics/by-id/{TOPIC_ID_TEXT}/1/data",
        "/configs/topic/orders/retention.ms",
        "/configs/broker/<default>/log.retention.ms",
        "/features/some.feature",
        "/voters/1",
        "/producerIds/nextProducerId",
        "/local/offset",
    ):
        assert path in paths
    assert [path for path, _ in walk(metadata_tree(EMPTY, "nothing"), "/") if path.count("/") == 1] == [
        "/", "/brokers", "/topics", "/configs", "/features", "/voters", "/scram", "/acls", "/clientQuotas",
        "/producerIds", "/local",
    ]  # fmt: skip


def test_a_folder_is_made_when_somebody_looks_into_it_and_once() -> None:
    made = []
    folder = TreeFolder(lambda: made.append(1) or {})  # type: ignore[func-returns-value]
    assert not made
    assert folder.children is folder.children
    assert made == [1]


def test_looking_around(shell: MetadataShell) -> None:
    assert run(shell, "pwd") == ["/"]
    assert run(shell, "ls topics") == ["by-id", "by-name"]
    assert run(shell, "cd /topics/by-name/orders") == []
    assert run(shell, "pwd") == ["/topics/by-name/orders"]
    assert run(shell, "ls") == ["id", "name", "0", "1"]
    assert run(shell, "ls 0 ../other") == ["/topics/by-name/orders/0:", "data", "",
                                           "/topics/by-name/other:", "id", "name"]  # fmt: skip
    assert run(shell, "ls id") == ["/topics/by-name/orders/id"]
    assert run(shell, "cat id name") == [TOPIC_ID_TEXT, "orders"]
    partition = json.loads(run(shell, "cat 1/data")[0])
    assert (partition["partition"], partition["replicas"], partition["isr"]) == (1, [2, 1], [2])
    assert run(shell, "cd ../../../../..") == []
    assert run(shell, "pwd") == ["/"]
    assert run(shell, "cat /local/offset /local/epoch /brokers/1/isFenced") == ["9", "3", "true"]


def test_wildcards_and_quotes(shell: MetadataShell) -> None:
    assert run(shell, "cat /topics/by-name/*/name") == ["orders", "other"]
    assert run(shell, "ls '/configs/broker/<default>'") == ["log.retention.ms"]
    assert run(shell, "ls /topics/by-name/or[d]*s/?") == [
        "/topics/by-name/orders/0:",
        "data",
        "",
        "/topics/by-name/orders/1:",
        "data",
    ]
    assert run(shell, "find /brokers is*") == ["/brokers/1/isFenced", "/brokers/2/isFenced"]
    assert run(shell, "find /features") == ["/features", "/features/some.feature"]
    assert run(shell, "tree /configs/topic") == ["/configs/topic", "  orders/", "    retention.ms"]
    assert "there is no" in failure(shell, "cat /topics/by-name/x*")
    assert "2 places" in failure(shell, "cd /topics/by-name/o*")


@pytest.mark.parametrize(
    ("line", "sentence", "is_usage"),
    [
        ("frobnicate", "no command frobnicate", True),
        ("cat", "needs a path", True),
        ("cat /brokers", "is a folder", False),
        ("cd /local/offset", "is a value", False),
        ("ls /local/offset/deeper", "there is no", False),
        ("ls 'unfinished", "cannot be understood", True),
        ("pwd x", "too many", True),
        ("history x", "how many", True),
    ],
)
def test_what_is_wrong_is_a_sentence(shell: MetadataShell, line: str, sentence: str, is_usage: bool) -> None:
    with pytest.raises(ShellError, match=sentence) as caught:
        run(shell, line)
    assert isinstance(caught.value, ShellUsageError) is is_usage
    assert run(shell, "pwd") == ["/"]


def test_the_history_is_bounded(shell: MetadataShell) -> None:
    for number in range(HISTORY_LINES + 5):
        run(shell, f"cd /brokers/{1 + number % 2}")
    assert len(run(shell, "history")) == HISTORY_LINES
    assert run(shell, "history 2") == ["history", "history 2"]
    run(shell, "   ")
    assert run(shell, "history 1") == ["history 1"]


def test_leaving(shell: MetadataShell) -> None:
    for word in ("exit", "quit"):
        with pytest.raises(Leave):
            run(shell, word)


def test_help_names_every_command(shell: MetadataShell) -> None:
    text = "\n".join(run(shell, "help"))
    assert all(name in text for name in shell.complete(""))


def test_completion(shell: MetadataShell) -> None:
    assert shell.complete("c") == ["cat", "cd"]
    assert shell.complete("ls /to") == ["/topics/"]
    assert shell.complete("ls /topics/by-name/o") == ["/topics/by-name/orders/", "/topics/by-name/other/"]
    assert shell.complete("cat /local/off") == ["/local/offset"]
    run(shell, "cd /topics")
    assert shell.complete("ls by-n") == ["by-name/"]
    assert shell.complete("ls /nowhere/x") == []
    assert shell.complete("ls /local/offset/x") == []


def test_a_script_ends_with_the_line_that_fails(
    shell: MetadataShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    complaints: list[str] = []
    monkeypatch.setattr("sys.stdin", io.StringIO("cd /brokers\n\nls\ncat nothing\nls\n"))
    assert interact(shell, complaints.append) == 1
    assert capsys.readouterr().out == "1\n2\n"
    assert complaints == ["there is no nothing"]
    monkeypatch.setattr("sys.stdin", io.StringIO("pwd\nexit\nls\n"))
    assert interact(shell, complaints.append) == 0
    assert capsys.readouterr().out == "/brokers\n"


def test_on_a_terminal_output_is_bounded_and_errors_do_not_end_it(
    shell: MetadataShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    complaints: list[str] = []
    lines = iter(["tree", "bogus", "cd /brokers", "", "ls", "exit"])
    prompts = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return next(lines)

    monkeypatch.setattr("kraft.cli.metadata.shell.INTERACTIVE_LINES", 3)
    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("sys.stdin", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    assert interact(shell, complaints.append) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["/", "  brokers/", "    1/", "1", "2"]
    assert "only the first 3 lines" in complaints[0]
    assert "no command bogus" in complaints[1]
    assert prompts == ["/ >> "] * 3 + ["/brokers >> "] * 3
