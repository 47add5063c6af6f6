"""One scenario in an interpreter of its own: `python -m kraft.chaos.fresh MODULE:FUNCTION [CLOCK] < PICKLE`.

It prints the outcome as one line of JSON. The interpreter holds nothing of earlier runs and has its own
PYTHONHASHSEED, so that a run which depends on either is found out. `kraft.chaos.campaign` starts it; CLOCK is the
descriptor of a `RunClock` of its.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback
from functools import partial, reduce
from typing import cast

from kraft.chaos.campaign import Run, RunClock
from kraft.chaos.pool import dump_stack_at_cpu_limit, write_all


def main(arguments: list[str]) -> None:
    """Plays the scenario on standard input, and ends the process without clean-up."""
    answer = os.dup(1)
    os.dup2(2, 1)  # only the outcome goes to standard output
    dump_stack_at_cpu_limit(answer)
    code = 1
    try:
        module, _, name = arguments[0].partition(":")
        run = cast(Run, reduce(getattr, name.split("."), importlib.import_module(module)))
        if len(arguments) > 1:
            run = partial(run, on_time=RunClock(int(arguments[1])).set)
        write_all(answer, run(pickle.load(sys.stdin.buffer)).encoded())
        code = 0
    except BaseException:  # noqa: BLE001 - the campaign reports it
        write_all(answer, traceback.format_exc().encode())
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
