"""Metrics as Prometheus's text, made in steps: a scrape of thousands of partitions holds up no request for long.

Families come from a generator, and what it yields under one name in a row is one family: so a large one is yielded in
slices, and is never there as a whole. Other work has its turn after each `SAMPLES_PER_STEP`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

SAMPLES_PER_STEP: Final = 500
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


async def exposition(families: Iterable[Metric]) -> bytes:
    """The families in the text format of Prometheus."""
    text = bytearray()
    before, samples = None, 0
    for family in families:
        lines = generate_latest(_Only(family))
        text += lines if family.name != before else _without_head(lines)
        before = family.name
        samples += len(family.samples)
        if samples >= SAMPLES_PER_STEP:
            samples = 0
            await asyncio.sleep(0)
    return bytes(text)


class _Only:
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _without_head(lines: bytes) -> bytes:
    """Without HELP and TYPE, which the slice before has told."""
    return lines.split(b"\n", 2)[2]
