"""The history checker: it judges promises to clients, and their observations, from the history of a run alone.

The definitions are those of Jepsen's Kafka workload, sharpened where batches, final reading and unique values allow
it; the function that computes each defines it. A broker needs two more: a batch is atomic (`torn-batch`), and every
value read was sent (`unsent-read`). A loss that injected faults explain is an excuse. A history with nothing to
judge gets a third verdict, never "valid". Pure, linear in the history; `kraft.chaos.run` calls it.
"""

from __future__ import annotations

from kraft.chaos.checker.check import check_history
from kraft.chaos.checker.evidence import MalformedHistoryError
from kraft.chaos.checker.groups import GroupReport, check_groups
from kraft.chaos.checker.report import Anomaly, IsExcused, Report, never
from kraft.chaos.checker.transactions import Excuses, TransactionReport, check_transactions

__all__ = [
    "Anomaly",
    "Excuses",
    "GroupReport",
    "IsExcused",
    "MalformedHistoryError",
    "Report",
    "TransactionReport",
    "check_groups",
    "check_history",
    "check_transactions",
    "never",
]
