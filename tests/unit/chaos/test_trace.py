"""What the digest of a run covers: which function ran when, and not what it is called."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kraft.chaos.world.trace import Trace

LANE = SimpleNamespace(name="node:loop", serial=3)


class Before:
    def tick(self) -> None: ...

    def flush(self) -> None: ...


class After:
    def on_timer(self) -> None: ...

    def flush_logs(self) -> None: ...


def digest(*callbacks: Callable[..., object], tell: str) -> str:
    trace = Trace()
    for now_s, callback in enumerate(callbacks):
        if tell == "job":
            trace.job(now_s, LANE, callback.__qualname__)
        elif tell == "task":
            trace.task(now_s, callback.__qualname__)
        else:
            trace.step(now_s, LANE, callback)
    return trace.digest()


@pytest.mark.parametrize("tell", ["step", "job", "task"])
def test_a_function_that_is_renamed_keeps_the_digest_and_another_order_does_not(tell: str):
    old, new = Before(), After()
    before = digest(old.tick, old.flush, old.tick, tell=tell)
    assert digest(new.on_timer, new.flush_logs, new.on_timer, tell=tell) == before
    assert digest(old.tick, old.flush, old.flush, tell=tell) != before
    assert digest(old.tick, old.tick, old.flush, tell=tell) != before


def test_functions_and_methods_have_one_row_of_numbers():
    def tick() -> None: ...

    assert digest(tick, Before().tick, tick, tell="step") != digest(tick, tick, tick, tell="step")
    assert digest(tick, Before().tick, tick, tell="step") == digest(
        Before().flush, tick, Before().flush, tell="step"
    )


def test_the_timeline_tells_names():
    timeline = io.StringIO()
    trace = Trace(timeline=timeline)
    trace.step(1.0, LANE, Before().tick)
    trace.job(2.0, LANE, "Log.flush")
    assert timeline.getvalue().splitlines() == [
        "1.000000000 run node:loop Before.tick",
        "2.000000000 job node:loop Log.flush",
    ]
