"""Where a process is, for whoever asks: at SIGQUIT it prints the stack of each of its threads, as a JVM does.

Guarantees: the process goes on, and it answers although its event loop stands still or has not begun, since the
signal is handled where it arrives, without the interpreter. Called by `kraft server` before all else.
"""

from __future__ import annotations

import faulthandler
import signal
import sys


def print_stacks_when_asked() -> None:
    """From now on, to standard error; nothing where there is no such signal, or nowhere to print to."""
    if sys.platform != "win32" and sys.stderr is not None:
        faulthandler.register(signal.SIGQUIT, file=sys.stderr, all_threads=True, chain=False)
