"""Judges the history of a run: what clients were promised and what they saw, and nothing else.

The definitions are those of Jepsen's Kafka workload, sharpened where batches, final reading and unique
values allow it; each is told at the function that computes it. Two more are needed by a broker: a batch
is atomic (`torn-batch`), and what is read was sent (`unsent-read`). A loss that injected faults explain
is an excuse, and a history in which there was nothing to look at gets a third verdict, never "valid".
Pure, linear in the history; called by `kraft.chaos.run`.
"""

from __future__ import annotations

from kraft.chaos.checker.check import check_history
from kraft.chaos.checker.evidence import MalformedHistoryError
from kraft.chaos.checker.report import Anomaly, IsExcused, Report, never

__all__ = ["Anomaly", "IsExcused", "MalformedHistoryError", "Report", "check_history", "never"]
