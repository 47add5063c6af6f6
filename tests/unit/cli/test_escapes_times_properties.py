"""Options that `kraft produce` and `kraft consume` share: bytes, points in time, properties of librdkafka."""

from __future__ import annotations

import pytest

from kraft.cli.shared.escapes import unescape
from kraft.cli.shared.librdkafka import parse_properties
from kraft.cli.shared.times import parse_time_ms
from kraft.user_error import EXIT_USAGE, UserError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("\\t", b"\t"),
        ("\t", b"\t"),
        ("\\\\t", b"\\t"),
        ("\\x1f\\xE9", b"\x1f\xe9"),
        ("\\n\\r\\0", b"\n\r\0"),
        ("\\d\\x1", b"\\d\\x1"),
        ("::", b"::"),
        ("ä\\", "ä".encode() + b"\\"),
        ("", b""),
    ],
)
def test_escapes(text: str, meant: bytes) -> None:
    assert unescape(text, "--key-separator") == meant


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1", 1),
        ("1700000000000", 1_700_000_000_000),
        (str(2**63 - 1), 2**63 - 1),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500),
        ("2023-11-14 22:13:20.001", 1_700_000_000_001),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time_ms(text, "--from-time") == milliseconds


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "soon", "1969-12-31", "2023-13-01", str(2**63), "9" * 5000, "²", "1.5"]
)
def test_what_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(UserError, match="--from-time is a time") as caught:
        parse_time_ms(text, "--from-time")
    assert caught.value.exit_code == EXIT_USAGE


def test_properties() -> None:
    assert parse_properties(["linger.ms=0", "client.id=a=b", "linger.ms=1"], {}) == {
        "linger.ms": "1",
        "client.id": "a=b",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("acks=1", "--property cannot set acks: --acks sets it"),
        ("bootstrap.servers=a:1", "--property cannot set bootstrap.servers: --bootstrap-server sets it"),
        ("stats_cb=x", "--property cannot set stats_cb: the command needs it for itself"),
        ("debug=all", "--property cannot set debug"),
        ("linger.ms", "--property takes key=value"),
        ("client.id=\udcff", "--property is UTF-8"),
    ],
)
def test_properties_that_the_command_owns(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        parse_properties([text], {"acks": "--acks sets it"})
    assert caught.value.exit_code == EXIT_USAGE
