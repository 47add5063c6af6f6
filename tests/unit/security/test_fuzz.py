"""A few thousand inputs of strangers; `scripts/fuzz` sends a million."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from random import Random

import pytest

from tests.fuzz import doors, inputs

INPUTS, MEASURED_FROM = 1_500, 500
GROWTH_MAX_BYTES = 300_000
"""Caches that fill, such as those of decoded texts."""


@pytest.mark.parametrize(
    ("door", "draw"), [(doors.broker, inputs.frames), (doors.pages, inputs.http)], ids=["broker", "pages"]
)
async def test_strangers_do_no_harm_and_leave_nothing_behind(door, draw):
    rng = Random(11)
    async with doors.no_errors(), door() as feed:
        tracemalloc.start()
        try:
            for number in range(INPUTS):
                if number == MEASURED_FROM:
                    gc.collect()
                    before, _ = tracemalloc.get_traced_memory()
                await feed(draw(rng))
            await asyncio.sleep(0)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < GROWTH_MAX_BYTES


def test_an_input_is_drawn_from_its_seed_alone():
    for draw in (inputs.frames, inputs.http, inputs.tls):
        assert [draw(Random(seed)) for seed in range(20)] == [draw(Random(seed)) for seed in range(20)]


async def test_a_door_that_lets_a_defect_through_is_noticed():
    class Broken:
        def connection_made(self, transport):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await doors.visit(Broken(), b"x")
