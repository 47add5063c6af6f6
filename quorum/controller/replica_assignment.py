"""The rules for replicas that a person chooses for a partition: some, all registered, none twice.

Used for new topics, new partitions (`topic_control`) and reassignments (`reassignment_control`).
"""

from __future__ import annotations

from quorum.controller.decision import ClusterView

_SHOWN = 20
"""Replicas that a sentence lists at most."""


def assignment_problem(view: ClusterView, broker_ids: tuple[int, ...]) -> str | None:
    """The problem with the replicas, a sentence that continues "The assignment"; None if there is none."""
    if not broker_ids:
        return "includes an empty replica list."
    unknown = [broker_id for broker_id in sorted(broker_ids) if broker_id not in view.image.brokers]
    if unknown:
        return f"includes broker {unknown[0]}, but no such broker is registered."
    if len(set(broker_ids)) != len(broker_ids):
        more = ", …" if len(broker_ids) > _SHOWN else ""
        return f"includes a broker more than once: [{', '.join(map(str, broker_ids[:_SHOWN]))}{more}]."
    return None
