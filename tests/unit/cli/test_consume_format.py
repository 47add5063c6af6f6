"""What `kraft consume --format` prints, and which offsets it takes."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from kraft.cli.consume import _parse_offset, compile_format
from kraft.user_error import EXIT_USAGE, UserError


class Message:
    """A record as the client library hands it out."""

    def __init__(self, value: bytes | None = b"v\r", key: bytes | None = b"k") -> None:
        self._value, self._key = value, key

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
        return (1, 1_700_000_000_000)

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("a", b"1"), ("b", None)]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%v", b"v\r\n"),
        ("%t %p %o %k %v %T %h", b"t 3 42 k v\r 1700000000000 a=1,b=\n"),
        ("%v\\n", b"v\r\n"),
        ("%k\\t%v%%", b"k\tv\r%\n"),
        ("\\0%v\\x", b"\0v\r\\x\n"),
        ("", b"\n"),
        ("ä%v", "ä".encode() + b"v\r\n"),
    ],
)
def test_formats(text: str, printed: bytes) -> None:
    assert compile_format(text)(Message()) == printed


def test_null_key_and_value_are_empty() -> None:
    assert compile_format("%k|%v")(Message(None, None)) == b"|\n"


@pytest.mark.parametrize("text", ["%x", "%v %"])
def test_an_unknown_field_is_wrong_usage(text: str) -> None:
    with pytest.raises(UserError, match="--format") as caught:
        compile_format(text)
    assert caught.value.exit_code == EXIT_USAGE


def test_offsets() -> None:
    assert _parse_offset("earliest") == OFFSET_BEGINNING
    assert _parse_offset("latest") == OFFSET_END
    assert _parse_offset("7") == 7
    assert _parse_offset(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("text", ["-1", "²", "first", "", str(2**63), "9" * 5000])
def test_other_offsets_are_wrong_usage(text: str) -> None:
    with pytest.raises(UserError, match="--offset") as caught:
        _parse_offset(text)
    assert caught.value.exit_code == EXIT_USAGE
