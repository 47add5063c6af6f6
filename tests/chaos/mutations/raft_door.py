"""Mutations of the controller listener's authentication: signatures, numbers taken once, challenges that grow old.

They play a door of their own: voters and brokers that know the secret, and strangers that see every packet, and may
keep it, send it again, or alter it. The oracle `strangers-turned-away` knows the sender of every message: an
admitted message was sent, in exactly these bytes, once, by a holder of the secret, to a challenge that was fresh
then.
"""

from __future__ import annotations

import hmac
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

from quorum.rpc import authentication
from quorum.rpc.authentication import (
    BODY_HEADER,
    CHALLENGE_FRESH_S,
    SIGNATURE_HEADER,
    AuthenticationError,
    CallerSession,
    RequestGuard,
    _Window,
    body_hash,
)
from tests.chaos.mutations.registry import Mutation, Patch, Sighting, replaced_by

SECRET, WRONG_SECRET = b"the quorum's", b"a stranger's"
ORACLE = "strangers-turned-away"
CALLS = 40


class _Packet(NamedTuple):
    method: str
    headers: dict[str, str]


class StrangersStage:
    """The story above; what is said, by whom and when is the seed's."""

    name = "strangers at the controller listener"

    def play(self, seed: int) -> Sighting:
        rng = Random(f"{seed}/door")
        guard, now_s = RequestGuard(SECRET, Random(seed)), 1000.0
        callers = [CallerSession(SECRET, guard.challenge(now_s), rng) for _ in range(3)]
        late = CallerSession(SECRET, guard.challenge(now_s), rng)
        seen: list[_Packet] = []
        for _ in range(CALLS):
            now_s += rng.uniform(0.0, 1.0)
            packet = _said(rng.choice(callers), rng)
            if not _is_admitted(guard, packet, now_s):
                return Sighting((ORACLE,), ("a caller that knows the secret was turned away",))
            seen.append(packet)
            name, forged = rng.choice(_forged(guard, rng.choice(seen), now_s, rng))
            if _is_admitted(guard, forged, now_s):
                return Sighting((ORACLE,), (f"{name} was admitted",))
        if _is_admitted(guard, _said(late, rng), now_s + CHALLENGE_FRESH_S):
            return Sighting((ORACLE,), ("the first call to a challenge that had grown old was admitted",))
        return Sighting(())


DOOR = StrangersStage()


def _said(caller: CallerSession, rng: Random) -> _Packet:
    method = rng.choice(("heartbeat", "raft", "create_topics"))
    return _Packet(method, caller.sign(method, rng.randbytes(8)))


def _is_admitted(guard: RequestGuard, packet: _Packet, now_s: float) -> bool:
    try:
        guard.admit(packet.method, packet.headers, now_s)
    except AuthenticationError:
        return False
    return True


def _forged(guard: RequestGuard, seen: _Packet, now_s: float, rng: Random) -> list[tuple[str, _Packet]]:
    headers = seen.headers
    stranger = CallerSession(WRONG_SECRET, guard.challenge(now_s), rng)
    unsigned = {name: value for name, value in headers.items() if name != SIGNATURE_HEADER}
    return [
        ("a call without a signature", _Packet(seen.method, unsigned)),
        ("a call signed with another secret", _said(stranger, rng)),
        ("a call that was served before", seen),
        ("a call under another method", seen._replace(method="unregister_broker")),
        ("a call with another body", _Packet(seen.method, headers | {BODY_HEADER: body_hash(b"other")})),
    ]


def _takes_any(window: Any, number: int) -> bool:
    return True


MUTATIONS = (
    Mutation(
        "any-signature-admitted",
        "a call is served though its signature is not the secret's",
        (ORACLE,),
        DOOR,
        (
            Patch(
                authentication,
                "hmac",
                lambda _: SimpleNamespace(digest=hmac.digest, new=hmac.new, compare_digest=lambda a, b: True),
            ),
        ),
    ),
    Mutation(
        "call-served-twice",
        "a call that was seen on the wire is served once more",
        (ORACLE,),
        DOOR,
        (Patch(_Window, "take", replaced_by(_takes_any)),),
    ),
    Mutation(
        "old-challenge-opens-a-session",
        "a challenge opens a session however old it is",
        (ORACLE,),
        DOOR,
        (Patch(authentication, "CHALLENGE_FRESH_S", lambda _: float("inf")),),
    ),
)
