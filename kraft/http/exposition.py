"""Metrics as Prometheus's text, made in steps: a scrape of thousands of partitions holds up no request for long.

Families come from a generator, and what it yields under one name in a row is one family: so a large one is yielded in
slices, and is never there as a whole. It yields None in the middle of what takes long to find out. Other work has its
turn then, and after each `SAMPLES_PER_STEP` that were written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Final, TypeAlias

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

SAMPLES_PER_STEP: Final = 100
"""Some two milliseconds."""
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
Families: TypeAlias = Iterator[Metric | None]


async def exposition(families: Iterable[Metric | None]) -> bytes:
    """The families in the text format of Prometheus."""
    text = bytearray()
    before, samples = None, 0
    for family in families:
        if family is None:
            samples = 0
            await asyncio.sleep(0)
            continue
        for piece in _pieces(family):
            lines = generate_latest(_Only(piece))
            text += lines if family.name != before else _without_head(lines)
            before = family.name
            samples += len(piece.samples)
            if samples >= SAMPLES_PER_STEP:
                samples = 0
                await asyncio.sleep(0)
    return bytes(text)


def _pieces(family: Metric) -> Iterator[Metric]:
    """Of `SAMPLES_PER_STEP` at most."""
    for start in range(0, max(1, len(family.samples)), SAMPLES_PER_STEP):
        piece = copy(family)
        piece.samples = family.samples[start : start + SAMPLES_PER_STEP]
        yield piece


class _Only:
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _without_head(lines: bytes) -> bytes:
    """Without HELP and TYPE, which the slice before has told."""
    return lines.split(b"\n", 2)[2]
