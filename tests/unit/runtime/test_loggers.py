"""The levels of the process's loggers, as Kafka's tools read and set them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import kraft.node
from kraft.loggers import LEVELS, PACKAGES, ROOT, MemoryLoggers
from kraft.runtime.loggers import ProcessLoggers

NAME = kraft.node.__name__


@pytest.fixture
def loggers() -> Iterator[ProcessLoggers]:
    """Levels are put back afterwards."""
    before = {name: logging.getLogger(name).level for name in ("kraft", NAME)}
    root = logging.root.level
    yield ProcessLoggers()
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
    logging.root.setLevel(root)


def test_a_level_counts_for_all_below_that_have_none(loggers: ProcessLoggers) -> None:
    loggers.set_level(ROOT, "ERROR")
    loggers.set_level("kraft", "DEBUG")
    levels = loggers.levels()
    assert next(iter(levels)) == ROOT
    assert {*PACKAGES} <= levels.keys()
    assert (levels[ROOT], levels["kraft"], levels["quorum"]) == ("ERROR", "DEBUG", "ERROR")
    loggers.set_level(NAME, "FATAL")
    assert loggers.levels()[NAME] == "FATAL"
    assert not logging.getLogger(NAME).isEnabledFor(logging.ERROR)
    loggers.set_level(NAME, None)
    assert loggers.levels()[NAME] == "DEBUG"
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)


def test_every_level_comes_back_as_it_was_set(loggers: ProcessLoggers) -> None:
    for level in LEVELS:
        loggers.set_level("kraft", level)
        assert loggers.levels()["kraft"] == level
    logging.getLogger("kraft").setLevel(25)  # between two of Kafka's
    assert loggers.levels()["kraft"] == "INFO"
    logging.getLogger("kraft").setLevel(1)
    assert loggers.levels()["kraft"] == "TRACE"


def test_loggers_that_exist(loggers: ProcessLoggers) -> None:
    for name in (ROOT, *PACKAGES, NAME, "kraft.runtime.loggers"):
        assert loggers.exists(name)
    for name in ("", "kraft.no_such_module", "json.decoder", "kraft."):
        assert not loggers.exists(name)
    assert not MemoryLoggers().exists(NAME)
