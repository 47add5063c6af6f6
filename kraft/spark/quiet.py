"""Keeps the stack of Spark's Python daemon off standard error when Spark has had enough rows.

After a `limit(3)` the JVM closes the connection to the Python worker in mid-read. The daemon then prints the stack of
its own failed flush, a BrokenPipeError that means nothing to anyone, and the worker ends. Everything else passes:
other errors with their stacks, and warnings. `source.py` installs it in the workers that read.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

_HEAD = "Traceback (most recent call last):"
_DROPPED = ("BrokenPipeError:", "ConnectionResetError:")
_MAX_HELD_CHARS = 64 << 10


class WithoutBrokenPipes:
    """A text stream that holds a printed stack back until its last line tells of what it is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._held = ""

    def write(self, text: str) -> int:
        if not self._held and not text.startswith(_HEAD):
            return self._stream.write(text)
        self._held += text
        last = self._held.rstrip("\n").rpartition("\n")[2]
        ended = self._held.endswith("\n") and not last.startswith((" ", _HEAD))
        if ended and last.startswith(_DROPPED):
            self._held = ""
        elif ended or len(self._held) > _MAX_HELD_CHARS:
            held, self._held = self._held, ""
            self._stream.write(held)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def hide_broken_pipes() -> None:
    """In this process, once."""
    if not isinstance(sys.stderr, WithoutBrokenPipes):
        sys.stderr = WithoutBrokenPipes(sys.stderr)
