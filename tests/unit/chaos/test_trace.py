"""What the digest of a run covers: which function ran when, and not what it is called."""

from __future__ import annotations

import io
from collections.abc import Callable, Coroutine
from functools import partial
from types import SimpleNamespace

import pytest

from kraft.chaos.world.trace import Trace

LANE = SimpleNamespace(name="node:loop", serial=3)


class Before:
    def tick(self) -> None: ...

    def flush(self) -> None: ...

    async def run(self) -> None: ...


class After:
    def on_timer(self) -> None: ...

    def flush_logs(self) -> None: ...

    def tick(self) -> None: ...

    async def run(self) -> None: ...


def digest(*callbacks: Callable[..., object], tell: str) -> str:
    trace = Trace()
    for now_s, callback in enumerate(callbacks):
        if tell == "job":
            trace.job(now_s, LANE, callback)
        else:
            trace.step(now_s, LANE, callback)
    return trace.digest()


@pytest.mark.parametrize("tell", ["step", "job"])
def test_a_function_that_is_renamed_keeps_the_digest_and_another_order_does_not(tell: str):
    old, new = Before(), After()
    before = digest(old.tick, old.flush, old.tick, tell=tell)
    assert digest(new.on_timer, new.flush_logs, new.on_timer, tell=tell) == before
    assert digest(old.tick, old.flush, old.flush, tell=tell) != before
    assert digest(old.tick, old.tick, old.flush, tell=tell) != before


@pytest.mark.parametrize("tell", ["step", "job"])
def test_two_functions_of_one_name_are_two(tell: str):
    """So that a digest stays when one of them gets a name of its own."""
    Namesake = type("Before", (), {"tick": After.tick})
    Namesake.tick.__qualname__ = "Before.tick"
    assert digest(Before().tick, Namesake().tick, tell=tell) == digest(
        Before().tick, After().on_timer, tell=tell
    )


@pytest.mark.parametrize("tell", ["step", "job"])
def test_closures_share_the_number_of_their_function(tell: str):
    def closure() -> Callable[[], None]:
        def tick() -> None: ...

        return tick

    first, second = closure(), closure()
    assert digest(first, second, tell=tell) == digest(first, first, tell=tell)
    assert digest(partial(first), second, tell=tell) == digest(first, first, tell=tell)


def test_tasks_are_told_apart_by_what_they_run():
    def of(*coroutines: Coroutine[object, object, None]) -> str:
        trace = Trace()
        for serial, coroutine in enumerate(coroutines, 1):
            trace.task(serial, coroutine)
            coroutine.close()
        return trace.digest()

    assert of(Before().run(), Before().run()) == of(After().run(), After().run())
    assert of(Before().run(), After().run()) != of(After().run(), After().run())


def test_the_timeline_tells_names():
    timeline = io.StringIO()
    trace = Trace(timeline=timeline)
    trace.step(1.0, LANE, Before().tick)
    trace.job(2.0, LANE, After.flush_logs)
    assert timeline.getvalue().splitlines() == [
        "1.000000000 run node:loop Before.tick",
        "2.000000000 job node:loop After.flush_logs",
    ]
