"""Which replicas a person may choose for a partition: some, all registered, none twice.

Used for new topics, new partitions (`topic_control`) and reassignments (`reassignment_control`).
"""

from __future__ import annotations

from quorum.controller.decision import ClusterView

_SHOWN = 20
"""Replicas that a sentence lists."""


def assignment_problem(view: ClusterView, broker_ids: tuple[int, ...]) -> str | None:
    """What is wrong with the replicas, a sentence that begins after "The assignment"; None if nothing is."""
    if not broker_ids:
        return "includes an empty replica list."
    unknown = [broker_id for broker_id in sorted(broker_ids) if broker_id not in view.image.brokers]
    if unknown:
        return f"includes broker {unknown[0]}, but no such broker is registered."
    if len(set(broker_ids)) != len(broker_ids):
        more = ", …" if len(broker_ids) > _SHOWN else ""
        return f"includes a broker more than once: [{', '.join(map(str, broker_ids[:_SHOWN]))}{more}]."
    return None
