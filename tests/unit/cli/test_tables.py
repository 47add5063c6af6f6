"""Tables of results: on a terminal of so many columns, and piped."""

from __future__ import annotations

import pytest
from rich.text import Text

from kraft.cli.shared import output
from kraft.cli.shared.documents import age_text, lag_text, time_text
from kraft.cli.shared.tables import Rows, piped_lines, terminal_lines
from kraft.cluster_problems import bytes_text


def table() -> Rows:
    made = Rows(["id", "high watermark", "elr", "name"])
    made.add("1", "123456789", "", Text("long-one", style="red"))
    made.add("20", "", "", "b")
    return made


def on_terminal(made: Rows, columns: int | None) -> list[str]:
    return [line.plain for line in terminal_lines(made, columns)]


def test_columns_without_a_value_are_left_out() -> None:
    assert on_terminal(table(), 80) == [
        "id  high watermark  name",
        "1   123456789       long-one",
        "20                  b",
    ]


def test_wide_leaves_nothing_out() -> None:
    assert on_terminal(table(), None)[0] == "id  high watermark  elr  name"


def test_a_row_that_does_not_fit_has_a_line_for_each_value() -> None:
    assert on_terminal(table(), 28)[0].startswith("id  high"), "as wide as the screen is narrow enough"
    assert on_terminal(table(), 27) == [
        "id              1",
        "high watermark  123456789",
        "name            long-one",
        "",
        "id              20",
        "name            b",
    ]


def test_piped_rows_are_words() -> None:
    assert list(piped_lines(table())) == [
        "id  high-watermark  elr  name",
        "1   123456789       -    long-one",
        "20  -               -    b",
    ]


def test_no_row_no_line() -> None:
    empty = Rows(["id"])
    assert (list(piped_lines(empty)), on_terminal(empty, 80), on_terminal(empty, None)) == ([], [], [])


def test_output_that_is_no_terminal_is_piped(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(table())
    assert capsys.readouterr().out.splitlines() == list(piped_lines(table()))


def test_a_reason_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    reason = {"message": "no such broker", "error": "INVALID"}
    output.note_failed(
        [
            *({"topic": "t", "partition": number, **reason} for number in range(5)),
            {"topic": "u", "partition": 0, "message": "gone", "error": "UNKNOWN"},
        ]
    )
    assert capsys.readouterr().err.splitlines() == [
        "t-0, t-1, t-2 and 2 more: no such broker (INVALID)",
        "u-0: gone (UNKNOWN)",
    ]


@pytest.mark.parametrize(
    ("replicas", "ends", "leader", "text"),
    [
        ([1, 2, 3], {"1": 9, "2": 9, "3": 9}, 1, "0"),
        ([1, 2, 3], {"1": 9, "2": 4, "3": 9}, 1, "2:5"),
        ([1, 2, 3], {"1": 9, "3": 10}, 1, "2:?"),
        ([1, 2, 3], {"2": 9, "3": 7}, 1, "1:?,3:2"),
        ([1, 2], {"1": 3, "2": 8}, None, "1:5"),
        ([1, 2], {}, -1, "1:?,2:?"),
        ([1], {"1": 0}, 1, "0"),
    ],
)
def test_lag(replicas: list[int], ends: dict[str, int], leader: int | None, text: str) -> None:
    assert lag_text(replicas, ends, leader) == text


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (-5, "0ms"), (0, "0ms"), (999, "999ms"), (1000, "1.0s"), (59_999, "59.9s"), (60_000, "1m00s"),
        (3_599_000, "59m59s"), (3_600_000, "1h00m"), (86_399_000, "23h59m"), (86_400_000, "1d00h"),
        (90 * 86_400_000, "90d00h"),
    ],
)  # fmt: skip
def test_ages(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1.0KiB"), (1536, "1.5KiB"), (2**40, "1.0TiB"), (2**63, "8.0EiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (-1, ""), (0, "1970-01-01T00:00:00.000Z"), (1_700_000_000_007, "2023-11-14T22:13:20.007Z"),
        (2**63 - 1, str(2**63 - 1)),
    ],
)  # fmt: skip
def test_times(time_ms: int, text: str) -> None:
    assert time_text(time_ms) == text
