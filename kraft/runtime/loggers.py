"""The real loggers of a process: those of Python's logging, which structlog's write through as well."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from kraft.loggers import LEVELS, PACKAGES, ROOT


class ProcessLoggers:
    """`kraft.loggers.Loggers` over `logging`. Nodes of one process share it."""

    def levels(self) -> Mapping[str, str]:
        names = {*PACKAGES, *logging.root.manager.loggerDict}
        return {ROOT: _name(logging.root.level), **{name: _level(name) for name in sorted(names)}}

    def exists(self, name: str) -> bool:
        """A module of the node's counts as soon as it is loaded: its logger is made at its first line."""
        if name == ROOT or name in PACKAGES or name in logging.root.manager.loggerDict:
            return True
        return name.partition(".")[0] in PACKAGES and name in sys.modules

    def set_level(self, name: str, level: str | None) -> None:
        _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _level(name: str) -> str:
    return _name(_logger(name).getEffectiveLevel())


def _name(number: int) -> str:
    """The least talkative of Kafka's levels that lets through what this one does."""
    return next((name for name, level in LEVELS.items() if level <= number), "TRACE")
