"""Standard error without the stack of a reader that Spark has stopped."""

from __future__ import annotations

import io
import traceback

import pytest

from kraft.spark.quiet import WithoutBrokenPipes


def printed(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def raised(error: Exception) -> Exception:
    try:
        raise error
    except (OSError, ValueError) as caught:
        return caught


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "reset")])
def test_the_stack_of_a_closed_connection_is_dropped(error: Exception) -> None:
    target = io.StringIO()
    stream = WithoutBrokenPipes(target)
    print("before", file=stream)
    traceback.print_exception(raised(error), file=stream)
    print("after", file=stream)
    assert target.getvalue() == "before\nafter\n"


@pytest.mark.parametrize("error", [ValueError("x"), OSError(5, "disk"), ValueError("two\nlines")])
def test_everything_else_passes(error: Exception) -> None:
    target = io.StringIO()
    stream = WithoutBrokenPipes(target)
    caught = raised(error)
    traceback.print_exception(caught, file=stream)
    stream.flush()
    stream.write("a line in ")
    stream.write("two parts\n")
    assert target.getvalue() == printed(caught) + "a line in two parts\n"


def test_what_is_held_is_bounded() -> None:
    target = io.StringIO()
    stream = WithoutBrokenPipes(target)
    stream.write("Traceback (most recent call last):\n")
    for _ in range(3000):
        stream.write('  File "x", line 1, in deep\n')
    assert len(target.getvalue()) > 64 << 10
