"""The standard streams of a command, made fit for what a shell can do to them.

A stream that was closed (`>&-`) becomes /dev/null, so that no file or socket gets its number and the text for a
terminal. Output that cannot be written (a full disk) is one sentence and exit code 1. Where the reader of a pipe has
gone (`| head -1`), the command ends quietly with exit code 0: the reader has enough. Where standard error cannot be
written, the exit code still tells.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from kraft.user_error import UserError

_STDIN, _STDOUT, _STDERR = range(3)


class ReaderGoneError(Exception):
    """Nobody reads the output any more. It is no OSError: the libraries of the command line end with exit code 1 at a
    BrokenPipeError, and nobody should take it for a file that cannot be read."""


class _Output(io.FileIO):
    """Standard output. After the first failure it takes what comes and drops it: the command ends by then, and what
    buffers still hold would fail once more."""

    def __init__(self) -> None:
        super().__init__(_STDOUT, "wb", closefd=False)
        self._is_given_up = False

    def write(self, data: Any, /) -> int:
        if self._is_given_up:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError as error:
            self._is_given_up = True
            raise ReaderGoneError from error
        except OSError as error:
            self._is_given_up = True
            raise UserError(f"cannot write to standard output: {error.strerror}") from error


class _Errors(io.FileIO):
    """Standard error: what cannot be told there cannot be told at all."""

    def __init__(self) -> None:
        super().__init__(_STDERR, "wb", closefd=False)

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_closed_streams() -> None:
    """Has /dev/null in the place of each standard stream that was closed."""
    if sys.stdin is None:
        _fill(_STDIN)
        sys.stdin = os.fdopen(_STDIN, closefd=False)
    if sys.stdout is None:
        _fill(_STDOUT)
        sys.stdout = os.fdopen(_STDOUT, "w", closefd=False)
    if sys.stderr is None:
        _fill(_STDERR)
        sys.stderr = os.fdopen(_STDERR, "w", closefd=False, errors="backslashreplace")


def tell_failed_output() -> None:
    """Has failed writes to standard output end the command with a sentence, and those to standard error nothing.
    Names that are no text go out as the bytes that they are, as they came in."""
    sys.stdout.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output()),
        encoding=sys.stdout.encoding,
        errors="surrogateescape" if sys.stdout.errors == "strict" else sys.stdout.errors,
        line_buffering=sys.stdout.isatty(),
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Errors()),
        encoding=sys.stderr.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


def _fill(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        os.dup2(opened, number, inheritable=True)
        if opened == number:  # dup2 did nothing then
            os.set_inheritable(number, True)
        else:
            os.close(opened)
