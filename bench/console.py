"""`python -m bench.console`: what the console costs the one who looks, and the node that shows it.

Three nodes, one topic, headless Chromium on the same machine. A first paint is the browser's own figure for a page
that is opened anew, in a profile of its own. A frame's delay is the time between two animation frames while the tail of
a topic runs, into which a producer writes at an even pace.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, sync_playwright

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.limits import Limit
from bench.machine import cpu_seconds, resident_bytes
from bench.parts import Measured, Part, end_on_sigterm, parser_of, run_parts, whole_numbers

MAX_PAINT_MS, MAX_FRAME_MS = 300.0, 100.0
MAX_CORE_PERCENT, MAX_MB = 3.0, 10.0
NODES, PARTITIONS, WATCHED = 3, 6, 1
WIDTH, HEIGHT = 1280, 800
SETTLED_S: Final = 4.0
"""A page that was opened, or closed, has had its effect on the node by then."""
STEP_S: Final = 0.01
FLUSH_S: Final = 10.0
_FRAMES: Final = """() => {
    window.frames_ms = [];
    let last = performance.now();
    const frame = () => {
        const now = performance.now();
        window.frames_ms.push(now - last);
        last = now;
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
}"""
_PAINTED: Final = "() => performance.getEntriesByName('first-contentful-paint').length"
_PAINT_MS: Final = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


@contextmanager
def _looked_at(directory: Path) -> Iterator[tuple[Cluster, str, Browser]]:
    """A cluster, the address of a node's console, and a browser that has been used. Raises BenchError."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise BenchError("there is no chromium; install it: apt-get install chromium")
    with cluster(directory / "console", NODES) as brokers, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            address = brokers.local.spec().console(WATCHED)
            with _page(browser, address) as page:
                page.wait_for_function(_PAINTED)
            yield brokers, address, browser
        finally:
            browser.close()


@contextmanager
def _page(browser: Browser, address: str) -> Iterator[Page]:
    """In a profile of its own: nothing is cached."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    try:
        page = context.new_page()
        page.goto(address)
        yield page
    finally:
        context.close()


def paint(directory: Path, repeats: int) -> dict[str, Any]:
    """Milliseconds until something is seen, of pages that are opened one after the other."""
    with _looked_at(directory) as (_, address, browser):
        found = []
        for _ in range(repeats):
            with _page(browser, address) as page:
                page.wait_for_function(_PAINTED)
                found.append(float(page.evaluate(_PAINT_MS)))
    return {"median_ms": median(found), "worst_ms": max(found), "runs_ms": found}


def cost(directory: Path, seconds: int, repeats: int) -> dict[str, Any]:
    """What a node takes more of while one console is open: percent of a core, MB (10^6 bytes) of memory."""
    with _looked_at(directory) as (brokers, address, browser):
        pid = brokers.local.pid(WATCHED)
        assert pid is not None
        runs = []
        for _ in range(repeats):
            time.sleep(SETTLED_S)
            closed, before = _percent(pid, seconds), resident_bytes(pid)
            with _page(browser, address):
                time.sleep(SETTLED_S)
                opened, after = _percent(pid, seconds), resident_bytes(pid)
            runs.append({"closed_percent": closed, "open_percent": opened, "mb": (after - before) / 1e6})
    return {
        "percent": median(run["open_percent"] - run["closed_percent"] for run in runs),
        "mb": max(run["mb"] for run in runs),
        "runs": runs,
    }


def _percent(pid: int, seconds: float) -> float:
    """Of a core, over that time."""
    began_s, before_s = time.monotonic(), cpu_seconds([pid])
    time.sleep(seconds)
    return (cpu_seconds([pid]) - before_s) / (time.monotonic() - began_s) * 100


def tail(directory: Path, seconds: int, rate: int) -> dict[str, Any]:
    """The delays of frames while a tail shows a topic that grows by so many records a second."""
    with (
        _looked_at(directory) as (brokers, address, browser),
        brokers.topic(PARTITIONS, NODES) as topic,
        _written(brokers.bootstrap, topic, rate) as sent,
        _page(browser, f"{address}/#/topics/{topic}/messages?mode=tail") as page,
    ):
        page.wait_for_timeout(SETTLED_S * 1000)
        pid = brokers.local.pid(WATCHED)
        assert pid is not None
        page.evaluate(_FRAMES)
        began_s, before, before_s = time.monotonic(), sent[0], cpu_seconds([pid])
        page.wait_for_timeout(seconds * 1000)
        frames_ms = page.evaluate("window.frames_ms")
        took_s = time.monotonic() - began_s
        core = (cpu_seconds([pid]) - before_s) / took_s
        records_per_s = (sent[0] - before) / took_s
    return {
        "frames": len(frames_ms),
        "worst_ms": max(frames_ms),
        "late": sum(one > MAX_FRAME_MS for one in frames_ms),
        "records_per_s": records_per_s,
        "node_percent": core * 100,
    }


@contextmanager
def _written(bootstrap: str, topic: str, rate: int) -> Iterator[list[int]]:
    """A producer at an even pace; what it gives says how many records it has handed over."""
    stopping, sent = threading.Event(), [0]

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        began_s = time.monotonic()
        while not stopping.wait(STEP_S):
            for number in range(sent[0], int((time.monotonic() - began_s) * rate)):
                producer.produce(topic, f'{{"number": {number}, "text": "{"x" * 60}"}}')
                sent[0] += 1
            producer.poll(0)
        producer.flush(FLUSH_S)

    writing = threading.Thread(target=produce)
    writing.start()
    try:
        yield sent
    finally:
        stopping.set()
        writing.join()


def _paint(directory: Path, given: argparse.Namespace) -> Measured:
    found = paint(directory, given.paints)
    return found, [Limit("first paint", found["median_ms"], MAX_PAINT_MS, "ms", False)]


def _cost(directory: Path, given: argparse.Namespace) -> Measured:
    found = cost(directory, given.seconds, given.repeats)
    return found, [
        Limit("a console: CPU of its node", found["percent"], MAX_CORE_PERCENT, "% of a core", False),
        Limit("a console: memory of its node", found["mb"], MAX_MB, "MB", False),
    ]


def _tail(directory: Path, given: argparse.Namespace) -> Measured:
    found = tail(directory, given.seconds, given.rate)
    return found, [Limit("the latest frame of a tail", found["worst_ms"], MAX_FRAME_MS, "ms", False)]


PARTS: dict[str, Part] = {"paint": _paint, "cost": _cost, "tail": _tail}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.console", "What the console costs.", PARTS)
    parser.add_argument("--paints", type=int, default=7, help="default %(default)s")
    parser.add_argument("--seconds", type=int, default=15, help="of a measure (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of costs (default %(default)s)")
    parser.add_argument("--rate", type=int, default=5000, help="records a second (default %(default)s)")
    given = parser.parse_args(arguments)
    whole_numbers(parser, given, ("paints", "seconds", "repeats", "rate"))
    return run_parts(PARTS, given)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
