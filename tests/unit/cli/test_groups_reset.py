"""The options of `kraft groups reset-offsets`: partitions, durations, files, and what they make of offsets."""

from __future__ import annotations

import pytest

from kraft.cli.app import run
from kraft.cli.groups.reset import Change, Known, Target, To, parse_file, plan
from kraft.cli.groups.resetting import chosen_partitions
from kraft.cli.shared.scope import is_in, parse_scope
from kraft.cli.shared.times import parse_duration_ms
from kraft.user_error import EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

A0, A1, A2, B0 = (TopicPartition(*key) for key in (("a", 0), ("a", 1), ("a", 2), ("b", 0)))


def test_scopes() -> None:
    scope = parse_scope(["a:0,2", "b", "a:1"])
    assert scope == {"a": frozenset({0, 1, 2}), "b": None}
    assert is_in(scope, "a", 2)
    assert is_in(scope, "b", 9)
    assert not is_in(scope, "a", 3)
    assert not is_in(scope, "c", 0)
    assert parse_scope(["a:1", "a"]) == {"a": None} == parse_scope(["a", "a:1"])


@pytest.mark.parametrize(
    "text", ["", ":1", "a:", "a:1,", "a:-1", "a:x", "a:1:2", "a:2147483648", "a:" + "9" * 5000]
)
def test_other_scopes_are_wrong_usage(text: str) -> None:
    with pytest.raises(UserError, match="--topic is NAME") as caught:
        parse_scope([text])
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P7D", 604_800_000),
        ("PT30M", 1_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.0019s", 1),
        ("PT0S", 0),
        ("P0DT0H0M0S", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text, "--by-duration") == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "7D", "P1W", "P-1D", "PT1H1D", "P" + "9" * 20 + "D", "P1D\n"]
)
def test_other_durations_are_wrong_usage(text: str) -> None:
    with pytest.raises(UserError, match="--by-duration is PnDTnHnMnS"):
        parse_duration_ms(text, "--by-duration")


def test_kafkas_file_of_one_group_and_of_several() -> None:
    assert parse_file("a,0,5\n\na, 1, 7\n", "g") == {A0: 5, A1: 7}
    assert parse_file('g,a,0,5\nother,a,0,6\n"g","b",0,1\n', "g") == {A0: 5, B0: 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no partition for group g"),
        ("other,a,0,5", "names no partition for group g"),
        ("a,0", "line 1 of the file is not topic"),
        ("a,0,5\na,0,latest", "line 2 of the file is not topic"),
        ("a,0,-1", "line 1"),
        ("a,0,9223372036854775808", "line 1"),
        ("a,2147483648,1", "line 1"),
        (",0,1", "line 1"),
        ("a,0,1\na,0,1", "a-0 is named more than once"),
    ],
)
def test_other_files_are_wrong_usage(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        parse_file(text, "g")
    assert caught.value.exit_code == EXIT_USAGE


def test_offsets_outside_the_log_become_its_ends_with_a_note() -> None:
    known = {A1: Known(10, 20, 15), A0: Known(10, 20, None)}
    assert plan(known, Target(To.OFFSET, 5)) == [
        Change("a", 0, None, 10, "offset 5 lies before the log's start: 10 is taken"),
        Change("a", 1, 15, 10, "offset 5 lies before the log's start: 10 is taken"),
    ]
    assert plan({A1: known[A1]}, Target(To.SHIFT, 6)) == [
        Change("a", 1, 15, 20, "offset 21 lies behind the log's end: 20 is taken")
    ]


def test_what_a_partition_lacks() -> None:
    known = {A0: Known(10, 20, None)}
    assert plan(known, Target(To.CURRENT))[0].to == 20
    assert plan(known, Target(To.TIME, 1))[0].to == 20
    with pytest.raises(UserError, match="a-0 has no committed offset to shift"):
        plan(known, Target(To.SHIFT, 1))


def test_chosen_partitions() -> None:
    existing, committed = [A0, A1, A2, B0], [A1, B0]
    to_end = Target(To.LATEST)
    assert chosen_partitions(None, to_end, committed, existing) == [A1, B0]
    assert chosen_partitions({"a": None}, to_end, committed, existing) == [A0, A1, A2]
    assert chosen_partitions({"a": frozenset({1, 7})}, to_end, committed, existing) == [A1, ("a", 7)]
    assert chosen_partitions({"gone": None}, to_end, committed, existing) == [("gone", 0)]
    file = Target(To.FILE, offsets={A0: 1, B0: 2})
    assert chosen_partitions(None, file, committed, existing) == [A0, B0]
    assert chosen_partitions({"b": None}, file, committed, existing) == [B0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--all-topics",), "say where to"),
        (("--to-latest",), "say which topics"),
        (("--to-latest", "--to-earliest", "--all-topics"), "say where to"),
        (("--to-offset", "1", "--shift-by", "1", "--all-topics"), "say where to"),
        (("--to-latest", "--all-topics", "--topic", "t"), "--all-topics has all topics"),
        (("--to-offset", "-1", "--all-topics"), "to-offset"),
        (("--to-datetime", "yesterday", "--all-topics"), "--to-datetime"),
        (("--by-duration", "1h", "--all-topics"), "--by-duration"),
        (("--from-file", "/nowhere/at/all"), "cannot be read"),
        (("--to-latest", "--topic", "t:x"), "--topic"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["groups", "reset-offsets", "g", *options, "--bootstrap-server", "127.0.0.1:1"]) == EXIT_USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert sentence in told.err
