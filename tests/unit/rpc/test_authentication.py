"""Sessions of callers: what is admitted once, and what never."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.rpc import authentication
from quorum.rpc.authentication import (
    BODY_HEADER,
    CHALLENGE_FRESH_S,
    SESSION_HEADER,
    SIGNATURE_HEADER,
    WINDOW,
    AuthenticationError,
    CallerSession,
    RequestGuard,
    UnknownSessionError,
    is_response_to,
    response_signature,
)

SECRET = b"the secret"


def pair(now_s: float = 0.0) -> tuple[RequestGuard, CallerSession]:
    guard = RequestGuard(SECRET, random.Random(1))
    return guard, CallerSession(SECRET, guard.challenge(now_s), random.Random(2))


def test_a_signed_request_is_admitted_once() -> None:
    guard, caller = pair()
    headers = caller.sign("m", b"body")
    assert guard.admit("m", headers, 1.0) == headers[SIGNATURE_HEADER]
    with pytest.raises(AuthenticationError, match="served before"):
        guard.admit("m", headers, 1.0)


def test_requests_may_overtake_each_other_within_the_window() -> None:
    guard, caller = pair()
    requests = [caller.sign("m", b"") for _ in range(WINDOW + 1)]
    guard.admit("m", requests[-1], 1.0)
    for headers in requests[1:-1]:
        guard.admit("m", headers, 1.0)
    with pytest.raises(AuthenticationError, match="served before"):
        guard.admit("m", requests[0], 1.0)


@given(st.lists(st.integers(0, 2 * WINDOW), max_size=60))
def test_no_number_is_taken_twice(order: list[int]) -> None:
    guard, caller = pair()
    requests = [caller.sign("m", b"") for _ in range(2 * WINDOW + 1)]
    admitted: set[int] = set()
    for position in order:
        try:
            guard.admit("m", requests[position], 1.0)
        except AuthenticationError:
            newest = max(admitted)
            assert position in admitted or newest - position >= WINDOW
        else:
            assert position not in admitted
            admitted.add(position)


@pytest.mark.parametrize("name", [SESSION_HEADER, BODY_HEADER, SIGNATURE_HEADER])
@pytest.mark.parametrize("value", [None, "", "0", "\u00e4", "\udcff", "x" * 10_000])
def test_a_changed_or_missing_header_is_refused(name: str, value: str | None) -> None:
    guard, caller = pair()
    headers: dict[str, str] = caller.sign("m", b"")
    if value is None:
        del headers[name]
    else:
        headers[name] = value
    with pytest.raises(AuthenticationError):
        guard.admit("m", headers, 1.0)


def test_another_method_another_secret_or_another_process_is_refused() -> None:
    guard, caller = pair()
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        guard.admit("other", caller.sign("m", b""), 1.0)
    stranger = CallerSession(b"guessed", guard.challenge(0.0), random.Random(3))
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        guard.admit("m", stranger.sign("m", b""), 1.0)
    restarted = RequestGuard(SECRET, random.Random(4))
    with pytest.raises(AuthenticationError, match="not known here"):
        restarted.admit("m", caller.sign("m", b""), 1.0)


def test_a_challenge_opens_a_session_soon_or_never_and_the_session_stays() -> None:
    guard, caller = pair()
    guard.admit("m", caller.sign("m", b""), CHALLENGE_FRESH_S - 1)
    guard.admit("m", caller.sign("m", b""), CHALLENGE_FRESH_S * 1000)
    late = CallerSession(SECRET, guard.challenge(0.0), random.Random(5))
    with pytest.raises(AuthenticationError, match="new challenge"):
        guard.admit("m", late.sign("m", b""), CHALLENGE_FRESH_S + 1)


def test_memory_is_bounded_and_an_evicted_session_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "SESSIONS_MAX", 2)
    guard, first = pair()
    recorded = first.sign("m", b"")
    guard.admit("m", recorded, 0.0)
    for number in range(2):
        other = CallerSession(SECRET, guard.challenge(100.0), random.Random(10 + number))
        guard.admit("m", other.sign("m", b""), 100.0)
    with pytest.raises(UnknownSessionError):
        guard.admit("m", recorded, 100.0)


def test_a_session_that_was_evicted_soon_cannot_be_opened_by_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authentication, "SESSIONS_MAX", 2)
    guard, first = pair()
    recorded = first.sign("m", b"")
    guard.admit("m", recorded, 0.0)
    for number in range(2):
        other = CallerSession(SECRET, guard.challenge(1.0), random.Random(10 + number))
        guard.admit("m", other.sign("m", b""), 1.0)
    with pytest.raises(UnknownSessionError):
        guard.admit("m", recorded, 2.0)


def test_an_answer_belongs_to_its_request() -> None:
    _, caller = pair()
    one, other = caller.sign("m", b""), caller.sign("m", b"")
    signature = response_signature(SECRET, one[SIGNATURE_HEADER], b"answer")
    assert is_response_to(SECRET, one[SIGNATURE_HEADER], b"answer", signature)
    assert not is_response_to(SECRET, other[SIGNATURE_HEADER], b"answer", signature)
    assert not is_response_to(SECRET, one[SIGNATURE_HEADER], b"another", signature)
    assert not is_response_to(SECRET, one[SIGNATURE_HEADER], b"answer", None)


def test_a_challenge_cannot_be_made_up() -> None:
    guard, _ = pair()
    forged: Mapping[str, str] = CallerSession(SECRET, "00" * 40, random.Random(1)).sign("m", b"")
    with pytest.raises(AuthenticationError, match="new challenge"):
        guard.admit("m", forged, 0.0)
