"""`kraft produce`: lines to records, and what counts as acknowledged."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft.cli import produce as module
from kraft.cli.app import run
from kraft.user_error import EXIT_USAGE, UserError


class Producer:
    """The client library's producer: a queue of two, acknowledged when polled."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, bytes, list[tuple[str, bytes]]]] = []
        self.refuses: dict[bytes, str] = {}
        self._queue: list[tuple[bytes, Callable[[Any, Any], None]]] = []

    def produce(
        self,
        topic: str,
        *,
        value: bytes,
        key: bytes | None,
        headers: Any,
        on_delivery: Callable[[Any, Any], None],
    ) -> None:
        if value == b"too large":
            raise ValueError("the message is too large")
        if len(self._queue) == 2:
            raise BufferError("queue full")
        self.sent.append((key, value, headers))
        self._queue.append((value, on_delivery))

    def poll(self, timeout_s: float) -> int:
        if timeout_s > 0:
            self.flush(timeout_s)
        return 0

    def flush(self, timeout_s: float) -> int:
        for value, report in self._queue:
            reason = self.refuses.get(value)
            report(None if reason is None else Refusal(reason), None)
        self._queue.clear()
        return 0


class Refusal:
    def __init__(self, text: str) -> None:
        self._text = text

    def str(self) -> str:
        return self._text


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made = Producer()
    monkeypatch.setattr(module, "_producer", lambda servers, acks: made)
    return made


def produce(monkeypatch: pytest.MonkeyPatch, data: bytes, *options: str) -> int:
    class Stdin:
        buffer = io.BytesIO(data)

    monkeypatch.setattr(module.sys, "stdin", Stdin)
    return run(["produce", "t", *options])


def test_lines_end_at_newlines_only(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert produce(monkeypatch, b"a\r\n\nb\x0bc\x85d\nlast") == 0
    assert [value for _, value, _ in producer.sent] == [b"a\r", b"", b"b\x0bc\x85d", b"last"]


def test_keys_and_headers(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert produce(monkeypatch, b"k::v::w\nplain\n", "--key-separator", "::", "--header", "a=b=c") == 0
    assert producer.sent == [
        (b"k", b"v::w", [("a", b"b=c")]),
        (None, b"plain", [("a", b"b=c")]),
    ]


def test_a_line_that_stays_unacknowledged_fails_the_run(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    producer.refuses[b"b"] = "not enough replicas"
    assert produce(monkeypatch, b"a\nb\ntoo large\nc\n") == 1
    assert "2 of 4 lines stayed unacknowledged" in capsys.readouterr().err
    assert [value for _, value, _ in producer.sent] == [b"a", b"b", b"c"]


def test_json_counts_the_lines(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"topic": "t", "sent": 2, "acknowledged": 2, "failed": 0}
    assert produce(monkeypatch, b"a\nb", "--json") == 0
    assert json.loads(capsys.readouterr().out) == counts
    producer.refuses[b"b"] = "not enough replicas"
    assert produce(monkeypatch, b"a\nb", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {**counts, "acknowledged": 1, "failed": 1}
    assert produce(monkeypatch, b"a\n") == 0
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_read_on_is_a_sentence(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Rotten(io.BytesIO):
        name = "rotten"

        def __next__(self) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(module, "_open_all", lambda files: iter([io.BytesIO(b"a\n"), Rotten()]))
    assert run(["produce", "t"]) == 1
    assert "cannot read rotten: Input/output error" in capsys.readouterr().err
    assert len(producer.sent) == 1


def test_a_wrong_file_name_sends_nothing(producer: Producer, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"a\n")
    assert run(["produce", "t", str(tmp_path / "good"), str(tmp_path / "missing")]) == 1
    assert producer.sent == []
    assert run(["produce", "t", str(tmp_path / "good")]) == 0
    assert len(producer.sent) == 1


def test_a_header_without_a_value_is_wrong_usage() -> None:
    with pytest.raises(UserError) as caught:
        module._parse_headers(["=v"])
    assert caught.value.exit_code == EXIT_USAGE
