"""A few thousand inputs of strangers; `scripts/fuzz` sends a million."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
import tracemalloc
from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest
import structlog

from kraft.logs import _render
from kraft.network.connection import Connection
from kraft.network.framing import FrameBuffer
from kraft.network.outbox import Outbox
from kraft.network.session import Session
from kraft.security.authentication import Authentication
from kraft.security.sasl_servers import PlainServer
from kraft.security.scram import ScramServer
from tests.fuzz import doors, guided, inputs
from tests.fuzz.__main__ import errors_in, main
from tests.fuzz.decoders import DECODERS, GOOD_TOKEN, PASSWORD, seeds

GROWTH_MAX_BYTES = 300_000
"""Caches that fill, such as those of decoded texts."""


@pytest.mark.parametrize(
    ("door", "draw", "count"),
    [
        (doors.broker, inputs.strangers, 1_200),
        (doors.controller, inputs.http, 450),
        (doors.pages, inputs.http, 300),
    ],
    ids=["broker", "controller", "pages"],
)
async def test_strangers_do_no_harm_and_leave_nothing_behind(door, draw, count):
    rng = Random(11)
    async with doors.no_errors(), door() as feed:
        tracemalloc.start()
        try:
            for number in range(count):
                if number == count // 3:
                    gc.collect()
                    before, _ = tracemalloc.get_traced_memory()
                await feed(draw(rng))
            await asyncio.sleep(0)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < GROWTH_MAX_BYTES


async def test_strangers_leave_nothing_to_collect():
    """Not for the collector either, which a node has come seldom: connections of SASL that failed in any way."""
    rng = Random(5)
    kinds = (Connection, Session, Outbox, FrameBuffer, Authentication, ScramServer, PlainServer)
    async with doors.no_errors(), doors.broker() as feed:
        for _ in range(200):
            await feed(inputs.strangers(rng))
        gc.collect()
        gc.disable()
        try:
            for _ in range(300):
                await feed(inputs.strangers(rng))
            await feed(b"")  # the door keeps the last one's session
            left = Counter(type(one).__name__ for one in gc.get_objects() if type(one) in kinds)
        finally:
            gc.enable()
    assert left == {"Session": 1, "Authentication": 1}


def test_an_input_is_drawn_from_its_seed_alone():
    for draw in (inputs.strangers, inputs.http, inputs.tls):
        assert [draw(Random(seed)) for seed in range(20)] == [draw(Random(seed)) for seed in range(20)]


async def test_a_door_that_lets_a_defect_through_is_noticed():
    class Broken:
        def connection_made(self, transport):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await doors.visit(Broken(), b"x")


@pytest.mark.parametrize(
    "logger", [structlog.get_logger("fuzz"), logging.getLogger("fuzz")], ids=["structlog", "std"]
)
async def test_what_a_door_logs_as_an_error_is_a_finding(logger):
    async def meet(*levels):
        async with doors.no_errors():
            for level in levels:
                getattr(logger, level)("it went wrong")

    await meet("warning")
    with pytest.raises(AssertionError, match="it went wrong"):
        await meet("warning", "error")


def test_errors_are_found_in_the_log_of_a_node():
    def line(level, text, **values):
        return _render(
            None, level, {"timestamp": "2026-01-01 00:00:00.1", "level": level, "event": text, **values}
        )

    fine = [line("info", "an ERROR of a stranger"), line("warning", "refused", reason="no [error")]
    bad = [line("error", "a call failed"), line("critical", "it stops")]
    stack = line("warning", "odd", exception="Traceback (most recent call last):\n  File x")
    assert errors_in("\n".join(fine)) == []
    assert errors_in("\n".join([*fine, *bad])) == bad
    assert errors_in(stack) == ["Traceback (most recent call last):"]


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_take_what_comes(name):
    """`guided.py` has them take more, where Atheris is."""
    rng = Random(3)
    for seed in seeds(name):
        DECODERS[name](seed)
        for _ in range(100 // len(seeds(name))):
            DECODERS[name](inputs.damaged(rng, seed))


def test_a_decoder_that_lets_somebody_in_is_noticed():
    with pytest.raises(AssertionError, match="let in"):
        DECODERS["sasl"](b"\0\0alice\0" + PASSWORD.encode())
    with pytest.raises(AssertionError, match="let in"):
        DECODERS["jwt"](GOOD_TOKEN)


def test_guided_fuzzing_says_what_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "atheris", None)
    with pytest.raises(SystemExit, match="pip install atheris"):
        guided.main(["frames"])
    given = []
    atheris = SimpleNamespace(
        instrument_imports=lambda include: contextlib.nullcontext(),
        Setup=lambda arguments, decoder: given.append((arguments[1:], decoder)),
        Fuzz=lambda: given.append(len(os.listdir(given[0][0][-1]))),
    )
    monkeypatch.setitem(sys.modules, "atheris", atheris)
    with pytest.raises(SystemExit, match="say which decoder: frames, sasl, jwt"):
        guided.main(["-max_total_time=1"])
    guided.main(["sasl", "-runs=1"])
    assert given[0][0][0] == "-runs=1"
    assert given[0][1] is DECODERS["sasl"]
    assert given[1] == len(seeds("sasl"))


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--doors", "http,attic"], "no such door: attic"), (["--count", "9"], "--count is at least 10")],
)
def test_what_cannot_be_fuzzed_is_said(monkeypatch, capsys, options, told):
    monkeypatch.setattr(sys, "argv", ["fuzz", "inputs", *options])
    with pytest.raises(SystemExit):
        main()
    assert told in capsys.readouterr().err
