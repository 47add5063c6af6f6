"""`failOnDataLoss`: what happens when records that belong to a read are gone.

True (the default): the job fails. False: a warning says the same, with topic, partition and offsets, and the read goes
on with what is left. Nothing is ever skipped without a word. Warnings go to the logger `kraft.spark`, which Spark's
Python workers write to standard error. The planners, the slice reader and the decoder report here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kraft.spark.errors import ConnectorError, DataLossError

LOGGER = logging.getLogger("kraft.spark")

REPEAT_LOAD = (
    "One load() is one cut, and this one cannot be read any more: call load() again for a new cut, or set"
    " failOnDataLoss to false to read what is left."
)
RESTART_STREAM = (
    "Set failOnDataLoss to false to go on with what is left, or start the query with a new checkpoint."
)


@dataclass(frozen=True)
class LossPolicy:
    """Pickled with the reader to the executors."""

    fail: bool = True
    advice: str = REPEAT_LOAD

    def report(
        self, fact: str, kind: type[ConnectorError] = DataLossError, *, advice: str | None = None
    ) -> None:
        """`fact` is a sentence that names partition and offsets. Raises `kind`, or warns and returns."""
        if self.fail:
            raise kind(f"{fact} {advice or self.advice}")
        LOGGER.warning("%s failOnDataLoss is false: the read goes on with what is left.", fact)
