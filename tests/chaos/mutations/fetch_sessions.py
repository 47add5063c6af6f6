"""Mutations of fetch sessions (KIP-227) and of throttled replication (KIP-73): partitions wrongly left out of
answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fetcher.fetch_session import FetchSession as FollowersSession
from fetcher.fetch_states import FetchStates
from kraft.broker.purgatory.fetch_sessions import FetchSessions
from partitions.fetch_session import FetchSession
from tests.chaos.mutations import scenarios_of_readers
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by

FOR_EVER_MS = 1 << 62


def _settled_at_the_end(session: Any, partition: Any, found: Any) -> None:
    if found.is_drained:
        session.pending.pop(partition, None)


def _in_flight_no_more(session: Any, error: str | None = None) -> None:
    session._in_flight = None


def _for_ever(original: Callable[..., bool]) -> Callable[..., bool]:
    def holds_back(states: Any, state: Any, now_ms: int) -> bool:
        held_back = original(states, state, now_ms)
        if held_back:
            state.delayed_until_ms = FOR_EVER_MS
        return held_back

    return holds_back


MUTATIONS = (
    Mutation(
        "sessions-deaf-to-appends",
        "a partition that stood still stays out of a follower's session when records are appended (KIP-227)",
        ("liveness",),
        scenarios_of_readers.SESSIONS,
        (Patch(FetchSessions, "on_append", replaced_by(lambda sessions, key: None)),),
    ),
    Mutation(
        "sessions-deaf-to-the-high-watermark",
        "a partition that stood still stays out of all sessions when its high watermark rises (KIP-227)",
        ("liveness",),
        scenarios_of_readers.SESSIONS,
        (Patch(FetchSessions, "on_high_watermark", replaced_by(lambda sessions, key: None)),),
    ),
    Mutation(
        "session-settled-with-news",
        "who has read to the end is taken out of a session before it was told the high watermark (KIP-227)",
        ("liveness",),
        scenarios_of_readers.SESSIONS,
        (Patch(FetchSession, "settle", replaced_by(_settled_at_the_end)),),
    ),
    Mutation(
        "lost-session-goes-on",
        "a follower whose request was lost or refused goes on in the same session (KIP-227)",
        ("liveness",),
        scenarios_of_readers.SESSIONS,
        (Patch(FollowersSession, "lost", replaced_by(_in_flight_no_more)),),
    ),
    Mutation(
        "held-back-for-ever",
        "a follower never asks again for a partition that its throttle held back (KIP-73)",
        ("liveness",),
        scenarios_of_readers.THROTTLED,
        (Patch(FetchStates, "_holds_back", _for_ever),),
    ),
)
