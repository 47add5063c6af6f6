"""What `kraft consume` prints of a record: --format, and --json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraft.cli.app import run
from kraft.cli.consume.rendering import compile_format, render_json
from kraft.user_error import EXIT_USAGE, UserError

Headers = list[tuple[str, bytes | None]] | None


class Message:
    """A record as the client library hands it out."""

    def __init__(
        self,
        value: bytes | None = b"v\r",
        key: bytes | None = b"k",
        headers: Headers = None,
        timestamp: tuple[int, int] = (1, 1_700_000_000_000),
    ) -> None:
        self._value, self._key, self._headers, self._timestamp = value, key, headers, timestamp

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp

    def headers(self) -> Headers:
        return self._headers


HEADERS: Headers = [("a", b"1"), ("b", None), ("c", b"")]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%v", b"v\r\n"),
        ("%t %p %o %k %v %T %h", b"t 3 42 k v\r 1700000000000 a=1,b=,c=\n"),
        ("%v\\n", b"v\r\n"),
        ("%k\\t%v%%", b"k\tv\r%\n"),
        ("%v%%\\n", b"v\r%\n"),
        ("\\0%v\\x", b"\0v\r\\x\n"),
        ("\\\\n%v\\xfF|", b"\\nv\r\xff|\n"),
        ("", b"\n"),
        ("ä%v", "ä".encode() + b"v\r\n"),
        ("%xk:%xv%xvx", b"6b:760d760dx\n"),
        ("%K %S", b"1 2\n"),
    ],
)
def test_formats(text: str, printed: bytes) -> None:
    assert compile_format(text)(Message(headers=HEADERS)) == printed


def test_null_key_and_value_are_empty() -> None:
    assert compile_format("%k|%v|%xv|%h")(Message(None, None)) == b"|||\n"


def test_null_can_be_told_from_empty() -> None:
    render = compile_format("%k|%v|%xk|%h", b"NULL")
    assert render(Message(None, None, HEADERS)) == b"NULL|NULL|NULL|a=1,b=NULL,c=\n"
    assert render(Message(b"", b"")) == b"|||\n"
    assert compile_format("%K %S")(Message(None, None)) == b"-1 -1\n"
    assert compile_format("%K %S")(Message(b"", b"")) == b"0 0\n"


@pytest.mark.parametrize("text", ["%x", "%v %", "%xt", "%\n"])
def test_an_unknown_field_is_wrong_usage(text: str) -> None:
    with pytest.raises(UserError, match="--format") as caught:
        compile_format(text)
    assert caught.value.exit_code == EXIT_USAGE


def shown(message: Message) -> Any:
    line = render_json(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert line.isascii(), "whatever splits lines, U+2028 included, splits none"
    return json.loads(line)


def test_json_is_one_object_a_line() -> None:
    assert shown(Message("a\n\u2028ä".encode(), b"", HEADERS)) == {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "key": "",
        "value": "a\n\u2028ä",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}, {"key": "c", "value": ""}],
    }


def test_json_tells_null_from_empty_and_bytes_from_text() -> None:
    document = shown(Message(b"\xff\x00", None, [("h", b"\xc3(")], timestamp=(0, -1)))
    assert document["key"] is None
    assert document["value"] == {"base64": "/wA="}
    assert document["headers"] == [{"key": "h", "value": {"base64": "wyg="}}]
    assert document["timestamp"] is None


@pytest.mark.parametrize("options", [("--format", "%v"), ("--null", "")])
def test_json_has_a_shape_of_its_own(options: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "t", "--json", *options]) == EXIT_USAGE
    assert "--json has a shape of its own" in capsys.readouterr().err
