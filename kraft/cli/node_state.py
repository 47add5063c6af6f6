"""What `kraft cluster status` calls the state of a node whose process runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quorum.voter_status import NO_LEADER


def state_of(readiness: Mapping[str, Any]) -> str:
    """By what its `/health/ready` says, which is empty if it does not answer: starting, running or fenced.

    It serves on while the controllers elect one. It counts as fenced, too, when no controller has answered it for its
    session's time, when the quorum is lost, and while it shuts down.
    """
    if readiness.get("ready"):
        return "running"
    reasons = readiness.get("reasons", [])
    if not readiness or "starting" in reasons:
        return "starting"
    return "running" if reasons == [NO_LEADER] else "fenced"
