"""Timers by key against a plain list."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kraft.coordinator.timers import SLACK, Timers

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 100)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 100)),
    )
)


@given(STEPS)
def test_timers_are_what_a_dictionary_would_be(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[Any] = Timers()
    expected: dict[int, int] = {}
    fired: list[tuple[int, int]] = []
    for kind, key, at_ms in steps:
        if kind == "set":
            timers.set(key, at_ms, lambda key=key, at_ms=at_ms: fired.append((at_ms, key)))
            expected[key] = at_ms
        elif kind == "cancel":
            timers.cancel(key)
            expected.pop(key, None)
        else:
            for action in timers.pop_due(at_ms):
                action()
            due = sorted((due_ms, due_key) for due_key, due_ms in expected.items() if due_ms <= at_ms)
            assert [at for at, _ in fired] == [at for at, _ in due]
            assert sorted(fired) == due
            fired.clear()
            for _, due_key in due:
                del expected[due_key]
        next_ms = timers.next_ms
        assert (next_ms is None) == (not expected)
        assert next_ms is None or next_ms <= min(expected.values())
        assert len(timers) == len(expected)


def test_timers_that_are_pushed_back_and_cancelled_leave_nothing_behind() -> None:
    timers: Timers[Any] = Timers()
    for round_ms in range(1_000):
        for key in range(10):
            timers.set(key, 1_000_000 - round_ms, print)
            timers.cancel(key)
    assert len(timers._heap) <= 2 * SLACK
