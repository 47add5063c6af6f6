"""Sessions of voters on the links of the simulated network: what faults of links and machines do to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.quorum import Quorum
from kraft.chaos.quorum.sessions import LATE_NOTICE_S
from kraft.chaos.quorum.settings import SOUND, MessageOdds, Settings
from kraft.chaos.quorum.voter import Voter
from quorum.raft.events import PeerConnected, PeerDisconnected, PeerMessage, RaftEvent, SendToPeer

A, B = "10.0.0.1", "10.0.0.2"


class Stage:
    """Two voters that say nothing by themselves, and what they hear."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, odds: MessageOdds = SOUND) -> None:
        self.heard: list[tuple[int, RaftEvent]] = []
        self.quorum = Quorum(1, replace(Settings(), voters=2, messages=odds))
        monkeypatch.setattr(Voter, "post", lambda voter, event: self.heard.append((voter.node_id, event)))
        self.quorum.start()
        self.network = self.quorum.simulation.network
        self.connected = [event for _, event in self.heard if isinstance(event, PeerConnected)]
        self.heard.clear()

    def say(self, *texts: str) -> None:
        """Voter 1 to voter 2, in the session that it knows."""
        for text in texts:
            session = next(event.session for event in self.connected if event.peer_id == 2)
            self.quorum.sessions.send(1, SendToPeer(2, session, text.encode()))

    def run(self, seconds: float = 0.1) -> None:
        self.quorum.run_until(self.quorum.now_s + seconds)

    @property
    def messages(self) -> list[str]:
        return [event.data.decode() for _, event in self.heard if isinstance(event, PeerMessage)]

    @property
    def told(self) -> set[int]:
        """Who knows that the session is over."""
        return {voter for voter, event in self.heard if isinstance(event, PeerDisconnected)}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_messages_come_in_order(stage: Stage) -> None:
    texts = [str(number) for number in range(20)]
    stage.say(*texts)
    stage.run()
    assert stage.messages == texts


def test_a_reset_tells_both_at_once_and_what_was_on_its_way_is_gone(stage: Stage) -> None:
    stage.say("lost")
    assert stage.network.reset(A, B) == 1
    assert stage.told == {1, 2}
    stage.say("unsaid")
    stage.run()
    assert stage.messages == []
    assert stage.network.reset(A, B) == 0


def test_a_silent_session_ends_for_each_in_its_own_time(stage: Stage) -> None:
    assert stage.network.silence(A, B, (0.3, 0.5)) == 1
    stage.say("lost")
    stage.run(0.29)
    assert (stage.messages, stage.told) == ([], set())
    stage.run(0.3)
    assert stage.told == {1, 2}


def test_a_blocked_link_holds_messages_back(stage: Stage) -> None:
    stage.network.block(A, B)
    stage.say("first", "second")
    stage.run(0.2)
    assert stage.messages == []
    stage.network.heal(A, B)
    stage.run(0.6)
    assert stage.messages == ["first", "second"]


def test_a_session_over_a_blocked_link_is_given_up_and_none_comes_until_it_heals(stage: Stage) -> None:
    sessions = stage.quorum.sessions
    stage.network.block(B, A)
    for _ in range(500):
        sessions.tend()
    assert sessions.peers_of(1) == []
    stage.run(LATE_NOTICE_S[1])
    assert stage.told == {1, 2}
    stage.network.heal(B, A)
    for _ in range(200):
        sessions.tend()
    assert sessions.peers_of(1) == [2]


def test_a_kill_tells_the_peer_at_once_and_a_power_loss_later(monkeypatch: pytest.MonkeyPatch) -> None:
    dark = Stage(monkeypatch)
    dark.quorum.hosts[1].power_loss()
    assert dark.told == set()
    dark.run(LATE_NOTICE_S[1])
    assert 2 in dark.told
    killed = Stage(monkeypatch)
    killed.quorum.hosts[1].kill()
    assert 2 in killed.told
    assert killed.quorum.sessions.peers_of(2) == []


@pytest.mark.parametrize(
    ("odds", "counter", "heard"),
    [
        (replace(SOUND, drop=1.0), counters.DROPPED, []),
        (replace(SOUND, duplicate=1.0), counters.DUPLICATED, ["a", "a"]),
    ],
    ids=["dropped", "doubled"],
)
def test_single_messages_meet_what_tcp_spares_them(
    odds: MessageOdds, counter: str, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, odds)
    stage.say("a")
    stage.run()
    assert stage.messages == heard
    assert stage.quorum.verdicts.coverage[counter] == 1


def test_messages_overtake_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, replace(SOUND, overtake=1.0))
    texts = [str(number) for number in range(20)]
    stage.say(*texts)
    stage.run()
    assert stage.messages != texts
    assert sorted(stage.messages) == sorted(texts)
    assert stage.quorum.verdicts.coverage[counters.OVERTAKEN] > 0


def test_a_message_of_an_older_session_may_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, replace(SOUND, late=1.0))
    stage.say("late")
    stage.network.reset(A, B)
    stage.run()
    assert stage.messages == ["late"]
    assert stage.quorum.verdicts.coverage[counters.STALE] == 1
