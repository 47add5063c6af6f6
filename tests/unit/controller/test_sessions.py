"""Broker sessions: O(1) to renew, and only what expired is looked at."""

from __future__ import annotations

from quorum.controller.sessions import BrokerSessions


def test_a_session_lasts_its_timeout_from_the_last_contact() -> None:
    sessions = BrokerSessions(100)
    sessions.touch(1, 7, 0)
    assert sessions.is_valid(1, 7, 99)
    assert not sessions.is_valid(1, 7, 100)
    sessions.touch(1, 7, 50)
    assert sessions.pop_expired(149) == []
    assert sessions.pop_expired(150) == [(1, 7)]
    assert sessions.pop_expired(1000) == []


def test_the_next_deadline_is_that_of_who_was_silent_longest() -> None:
    sessions = BrokerSessions(100)
    assert sessions.next_deadline_ms() is None
    sessions.touch(1, 1, 0)
    sessions.touch(2, 2, 10)
    sessions.touch(1, 1, 20)
    assert sessions.next_deadline_ms() == 110
    sessions.end(2)
    assert sessions.next_deadline_ms() == 120


def test_all_that_expired_come_in_ascending_order() -> None:
    sessions = BrokerSessions(100)
    for broker_id in (3, 1, 2):
        sessions.touch(broker_id, broker_id, broker_id)
    assert sessions.pop_expired(103) == [(1, 1), (2, 2), (3, 3)]


def test_another_registration_is_another_session() -> None:
    sessions = BrokerSessions(100)
    sessions.touch(1, 7, 0, metadata_offset=30)
    assert sessions.metadata_offset(1, 7) == 30
    sessions.touch(1, 9, 10)
    assert not sessions.is_valid(1, 7, 20)
    assert sessions.metadata_offset(1, 9) == -1
    assert sessions.metadata_offset(1, 7) == -1


def test_a_clock_that_goes_back_does_not_disturb_the_order() -> None:
    sessions = BrokerSessions(100)
    sessions.touch(1, 1, 50)
    sessions.touch(2, 2, 40)
    assert sessions.pop_expired(150) == [(1, 1), (2, 2)]


def test_time_in_which_nobody_could_be_heard_does_not_count() -> None:
    sessions = BrokerSessions(100)
    sessions.touch(1, 7, 0)
    sessions.touch(2, 8, 50)
    sessions.extend(500, 550)
    assert sessions.pop_expired(599) == []
    assert sessions.pop_expired(600) == [(1, 7)]
    assert sessions.next_deadline_ms() == 650


def test_no_session_lasts_longer_than_a_whole_one_from_now() -> None:
    sessions = BrokerSessions(1_000)
    sessions.touch(1, 1, 60_000)
    sessions.extend(59_000, 60_000)
    sessions.touch(2, 1, 60_100)
    assert sessions.expired(61_100) == [(1, 1), (2, 1)]
