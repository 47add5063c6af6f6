"""A process's stacks on request: at SIGQUIT it prints the stack of each of its threads, as a JVM does.

The process goes on. It answers although its event loop stands still or has not begun: the signal is handled where it
arrives, without the interpreter. `kraft server` calls this before all else.
"""

from __future__ import annotations

import faulthandler
import signal
import sys


def print_stacks_when_asked() -> None:
    """From now on, to standard error; nothing where there is no such signal, or nowhere to print to."""
    if sys.platform != "win32" and sys.stderr is not None:
        faulthandler.register(signal.SIGQUIT, file=sys.stderr, all_threads=True, chain=False)
