"""Runs one seed in a process of its own: forked, and left without cleaning up.

Seeds cannot influence each other through what they leave in memory, the destructors of a run's
graveyard never run, and the memory that a run without garbage collector took is given back at once.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class IsolatedRunError(RuntimeError):
    """The isolated function raised, or its process died. The message says how."""


def run_isolated(function: Callable[[], T]) -> T:
    """The value of `function()`, computed in a forked process; it must be picklable.

    Call it outside of any simulation. Raises IsolatedRunError with the traceback of the other process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        _run_child(function, writable)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    if not answer:
        raise IsolatedRunError(f"the process of the run ended with status {status}")
    succeeded, value = pickle.loads(answer)
    if not succeeded:
        raise IsolatedRunError(value)
    result: T = value
    return result


def _run_child(function: Callable[[], object], writable: int) -> None:
    # The process ends soon: looking for garbage would cost more than it gives back, and looking among
    # what was there before the fork would copy the pages that it lies on.
    gc.disable()
    gc.freeze()
    try:
        try:
            answer = pickle.dumps((True, function()))
        except BaseException:  # noqa: BLE001 - the parent raises it
            answer = pickle.dumps((False, traceback.format_exc()))
        with os.fdopen(writable, "wb") as pipe:
            pipe.write(answer)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)
